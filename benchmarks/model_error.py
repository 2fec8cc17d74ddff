"""How far off the model's gains are: what plans win by it, and what they win when measured.

python -m benchmarks.model_error --measure [PROGRAM...] --json FILE [--total S]
python -m benchmarks.model_error FILE... [--write]

The first compiles the examples and the programs of `benchmarks/everyday` on a GPU and measures
every pattern that the model chooses beside XLA's kernels for the same ops, as `scorer="measured"`
does. The second needs no GPU: it prints, by class of pattern, by what share of XLA's modelled time
the modelled gains were too high; --write puts that into the table that `scorer="guarded"` reads.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import results_file
from benchmarks.environment import describe
from benchmarks.workloads import Workload, find
from fusionstitch.commands.targets import load

#: Of the errors of a class, the part that is to be within the table's;
SHARE = 0.95
#: and how sure that is to be of what is proven.
CONFIDENCE = 0.95
TABLE = Path(__file__).parents[1] / "costmodel" / "model_errors.json"


#: The function, its arguments and the keywords of its jit.
Program = tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]


def programs(names: Sequence[str]) -> dict[str, Callable[[], Program]]:
    """Those that `names` name, all for none: everyday programs as everyday/NAME."""
    from benchmarks.everyday import table

    def example(workload: Workload) -> Program:
        return (*load(workload.path), workload.jit_keywords)

    def everyday(one: table.Program) -> Program:
        return one.fun, one.args, {}

    known = {w.target: partial(example, w) for w in find(()) if not w.long}
    for name, one in table.programs().items():
        known[f"everyday/{name}"] = partial(everyday, one)
    if missing := [n for n in names if not any(target.startswith(n) for target in known)]:
        raise SystemExit(f"No program is called {missing[0]}. There are: {', '.join(known)}.")
    return {
        target: make
        for target, make in known.items()
        if not names or any(target.startswith(name) for name in names)
    }


def measure(program: Program) -> list[dict[str, Any]]:
    """One row per group of patterns that the model's plan of a program has."""
    import jax

    from fusionstitch.compiler import builders, core
    from fusionstitch.compiler.workpiece import Workpiece
    from fusionstitch.guard.groups import grouped
    from fusionstitch.guard.live import Live, _compare_on
    from fusionstitch.options import Options
    from fusionstitch.plan.findings import Evidence
    from fusionstitch.plan.scores import is_loop
    from fusionstitch.runtime import xla_pass
    from fusionstitch.runtime.cache import Database

    options = Options(scorer="model", fallback="error")
    device = builders.profile(options)
    rows: list[dict[str, Any]] = []

    def judge(work: Workpiece, planners: Any) -> Evidence:
        with tempfile.TemporaryDirectory() as folder:
            live = Live(work, options, device, _compare_on(device), Database(Path(folder)))
            groups = {
                group.key: group
                for planner in planners
                for group in grouped(planner.plan, planner.planner.xla)
                if not any(is_loop(one.pattern) for one in group.chosen)  # nor does the guard
            }
            found = live.measure(list(groups.values()))
        rows.extend(row_of(groups[key], one) for key, one in found.items())
        return Evidence()

    def inside(module: bytes, token: str) -> None:
        builder = builders.cuda(device, options)
        core.stitch(module, options, device, builder, aliasing=True, judge=judge)

    if not (found := xla_pass.register(inside)):
        raise SystemExit(found.reason)
    fun, args, keywords = program

    def marked(*args: Any) -> Any:
        return fun(*args)

    marked.__name__ = marked.__qualname__ = xla_pass.mark("measured", "0")
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype), args)
    jax.jit(marked, **keywords).lower(*shapes).compile()
    return rows


def row_of(group: Any, found: Any) -> dict[str, Any]:
    from fusionstitch.plan.scores import kind_of_pattern

    kinds = {kind_of_pattern(one.pattern.ops) for one in group.chosen}
    return {
        "kinds": sorted(kinds),
        "patterns": len(group.chosen),
        "ops": len(group.near.ops),
        "gain_us": sum(one.score_us for one in group.chosen),
        "modelled_us": sum(one.modelled_us for one in group.chosen),
        "xla_us": sum(one.xla_us for one in group.chosen),
        "near_us": group.xla_us,
        "measured_us": found.ours_us,
        "measured_xla_us": found.xla_us,
    }


def errors_of(rows: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """By class, the shares by which modelled gains were too high; of groups of one class."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if len(row["kinds"]) == 1:
            won = row["measured_xla_us"] - row["measured_us"]
            found.setdefault(row["kinds"][0], []).append((row["gain_us"] - won) / row["xla_us"])
    return found


def _measure_all(asked: argparse.Namespace) -> None:
    end, results = time.monotonic() + asked.total, []
    for target, make in programs(asked.names).items():
        if time.monotonic() > end:
            break
        start = time.monotonic()
        rows = measure(make())
        for row in rows:
            row["target"] = target
            print(_line(row), flush=True)
        print(f"{target}: {time.monotonic() - start:.1f} s", flush=True)
        results += rows
        content = {
            "command": f"python -m benchmarks.model_error {' '.join(sys.argv[1:])}",
            "environment": describe(asked.commit),
            "rows": results,
        }
        results_file.write(asked.json, content)


def _line(row: dict[str, Any]) -> str:
    return (
        f"  {'+'.join(row['kinds']):20} {row['patterns']:3} patterns  modelled "
        f"{row['modelled_us']:8.2f} of {row['xla_us']:8.2f} (near {row['near_us']:8.2f})  measured "
        f"{row['measured_us']:8.2f} of {row['measured_xla_us']:8.2f}"
    )


def shares_of(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """The table: `usual` and `proven` of each class, see `ModelError`."""
    found = {}
    for kind, shares in sorted(errors_of(rows).items()):
        usual = max(0.0, float(np.quantile(shares, SHARE)))
        proven = proven_of(shares)
        found[kind] = {
            "usual": round(usual, 2),
            "proven": None if proven is None else round(max(0.0, proven), 2),
        }
    return found


def proven_of(shares: Sequence[float]) -> float | None:
    """The least of `shares` that, with the confidence wanted, the wanted part of all that there
    might be is below, whatever their distribution (Wilks 1941); None for too few of them."""
    below, count = 0.0, len(shares)
    for rank, share in enumerate(sorted(shares)):
        # the chance that at most `rank` of them are below that quantile
        below += math.comb(count, rank) * SHARE**rank * (1 - SHARE) ** (count - rank)
        if below >= CONFIDENCE:
            return share
    return None


def _fit(files: Sequence[Path], write: bool) -> None:
    contents = [json.loads(file.read_text()) for file in files]
    rows = [row for content in contents for row in content["rows"]]
    shares = shares_of(rows)
    for kind, found in sorted(errors_of(rows).items()):
        spread = ", ".join(f"{np.quantile(found, q):.2f}" for q in (0.05, 0.5, 0.95))
        proven = shares[kind]["proven"]
        print(
            f"{kind:10} {len(found):4} groups, errors at 5%, 50%, 95%: {spread}; proven: {proven}"
        )
    if write:
        source = [
            {"file": file.name, "environment": content["environment"]}
            for file, content in zip(files, contents, strict=True)
        ]
        TABLE.write_text(json.dumps({"shares": shares, "from": source}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.model_error", description=__doc__)
    parser.add_argument("names", nargs="*", help="programs, or how they begin, or files of rows")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--total", type=float, default=1e9, help="begin nothing after S seconds")
    parser.add_argument("--commit", help="the commit, where git is not at hand")
    parser.add_argument("--write", action="store_true", help="replace the table")
    asked = parser.parse_args()
    if asked.measure:
        _measure_all(asked)
    else:
        _fit([Path(name) for name in asked.names], asked.write)


if __name__ == "__main__":
    main()
