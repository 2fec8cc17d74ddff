"""One loop under XLA and fusionstitch: python -m benchmarks.loops.worker NAME FOLDER.

It compiles and checks, waits for its turn, then measures: see `benchmarks.row`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.loops.table import Loop, find
from benchmarks.row import Row

#: Calls in flight per wall time, fewer of long programs: as many as fit into the seconds.
IN_FLIGHT, SECONDS = 20, 0.5
#: The parts of stitching that are neither compilers' nor measurements.
PLANNED = ("import", "simplify", "plan", "codegen", "export")


class Side:
    """One compiled program; donated arguments are handed on as fresh copies."""

    def __init__(self, loop: Loop, jit: Any, sizes: Mapping[str, int]):
        import jax

        self.fun, self.args = loop.program(sizes)
        self.args = jax.device_put(self.args)
        self.donated = loop.donated
        self.lowered = jit(self.fun, keep_unused=True, **loop.jit_keywords).lower(*self.args)
        begun = time.perf_counter()
        self.run = self.lowered.compile()
        self.compile_s = round(time.perf_counter() - begun, 3)

    def fresh(self) -> tuple[Any, ...]:
        import jax

        given = jax.tree.map(lambda leaf: leaf.copy(), self.args[: self.donated])
        return (*given, *self.args[self.donated :])

    def result(self, args: tuple[Any, ...] | None = None) -> list[Any]:
        import jax

        from fusionstitch import accuracy

        found = self.run(*(args or self.fresh()))
        return [accuracy.host(leaf) for leaf in jax.tree.leaves(found)]

    def wall_us(self, calls: int) -> float:
        """Microseconds of a call, so many in flight."""
        import jax

        given = jax.block_until_ready([self.fresh() for _ in range(calls)])
        begun = time.perf_counter()
        for args in given:
            result = self.run(*args)
        jax.block_until_ready(result)
        return (time.perf_counter() - begun) / calls * 1e6

    def calls(self, count: int) -> None:
        import jax

        for _ in range(count):
            result = self.run(*self.fresh())
        jax.block_until_ready(result)

    def module(self) -> bytes:
        """As XLA gets it: lowered, with every argument a parameter, or as it was stitched."""
        import jax

        if found := getattr(self.run, "stitched", None):
            return bytes(found.module)
        lowered: Any = jax.jit(self.fun, keep_unused=True).lower(*self.args)
        return bytes(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())


def stitched_loops(compiled: Any) -> list[dict[str, Any]]:
    """The patterns that hold a whole `while`: their numbers of ops, and the loops among them."""
    found = getattr(compiled, "stitched", None)
    patterns = [one.chosen.pattern for one in found.stitches] if found else []
    counted = [
        {"ops": len(pattern.ops), "loops": sum(op.opcode == "while" for op in pattern.ops)}
        for pattern in patterns
    ]
    return [one for one in counted if one["loops"]]


def planned_s(compiled: Any) -> float | None:
    """Seconds of planning and generating code, without compilers and measurements."""
    found = getattr(compiled, "stitched", None)
    return round(sum(found.timings.get(name, 0.0) for name in PLANNED), 3) if found else None


def reasons(compiled: Any) -> list[str]:
    """Why whole loops stay XLA's."""
    found = getattr(compiled, "stitched", None)
    return [r.reason[:300] for r in found.rejected if r.rule == "loop"] if found else []


def work(loop: Loop, row: Row, rounds: int) -> None:
    row.step("import")
    import jax

    import fusionstitch as fs
    from benchmarks.loops.checking import check, moved
    from benchmarks.loops.spans import spans_us
    from benchmarks.profiling import profile
    from fusionstitch.errors import FusionStitchError

    jax.jit(lambda x: x + 1)(1)
    row.step("compile xla")
    xla = Side(loop, jax.jit, loop.xla)
    row.step("compile fusionstitch")
    sides = {"xla": xla, "fusionstitch": Side(loop, fs.jit, {})}
    ours = sides["fusionstitch"]
    same = Side(loop, fs.jit, loop.xla) if loop.xla else ours
    sizes = {"xla": loop.xla, "fusionstitch": {}}
    row.put(
        compile_s={name: side.compile_s for name, side in sides.items()},
        planned_s=planned_s(ours.run),
        patterns=len(ours.run.stitched.stitches) if ours.run.stitched else 0,
        loops=stitched_loops(ours.run),
        left=reasons(ours.run),
        fallbacks=[f.reason[:200] for f in ours.run.stitched.fallbacks]
        if ours.run.stitched
        else [],
    )
    row.step("check")
    spread = xla.result(jax.device_put(jax.tree.map(moved, loop.program(loop.xla)[1])))
    row.put(check=check(same.result(), xla.result(), spread))

    if loop.xla and not stitched_loops(ours.run):  # it would take as long as XLA's
        sides["fusionstitch"], sizes["fusionstitch"] = same, loop.xla
    factor = {name: loop.scale if own == loop.xla else 1.0 for name, own in sizes.items()}
    row.put(scaled=factor)

    row.wait()
    row.step("wall")
    once = {name: side.wall_us(1) for name, side in sides.items()}
    calls = {n: max(1, min(IN_FLIGHT, int(SECONDS * 1e6 / us))) for n, us in once.items()}
    times: dict[str, list[float]] = {name: [] for name in sides}
    begun = time.perf_counter()
    while len(times["xla"]) < rounds and time.perf_counter() - begun < 20 * SECONDS:
        for name in list(sides)[:: 1 if len(times["xla"]) % 2 else -1]:
            times[name].append(sides[name].wall_us(calls[name]))
    row.put(wall_us={n: factor[n] * statistics.median(us) for n, us in times.items()})
    spans: dict[str, Any] = {}
    for name, side in sides.items():
        row.step(f"span {name}")
        leaves = jax.tree.leaves(loop.program(sizes[name])[1])
        try:
            spans[name] = factor[name] * statistics.median(spans_us(side.module(), leaves))
        except (FusionStitchError, jax.errors.JaxRuntimeError, ValueError) as error:
            row.put(**{f"no_span_{name}": str(error)[:300]})
        row.put(span_us=spans)
    kernels: dict[str, Any] = {}
    for name, side in sides.items():
        row.step(f"profile {name}")
        found = profile(side.calls, 1)
        kernels[name] = found and {key: found[key] for key in ("kernels", "copies", "gpu_us")}
        row.put(activity=kernels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeats", type=int, default=9)
    asked = parser.parse_args()
    [loop] = find([asked.name])
    row = Row(asked.name, asked.folder)
    row.put(form=loop.form, kind=loop.kind, scale=loop.scale)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work(loop, row, asked.repeats)
    row.step("done")
    sys.stdout.flush()
    os._exit(0)  # what is measured is written


if __name__ == "__main__":
    main()
