"""One workload compiled by XLA and by fusionstitch: python -m benchmarks.worker TARGET FOLDER.

It compiles, checks results and compile times with warm caches, waits, then measures.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

from benchmarks.readings import TUNED
from benchmarks.row import Row, work_on
from benchmarks.workloads import Workload

PROFILED_CALLS = 4
#: Compile options that let XLA record more of a program into CUDA graphs: graphs of any length,
#: and where a program has control flow, that too. Programs that take long to compile are hundreds
#: of kernels, which are in graphs by default: they are not compiled once more.
GRAPHS: dict[str, dict[str, Any]] = {"short graphs": {"xla_gpu_graph_min_graph_size": 1}}
CONTROL_GRAPHS: dict[str, dict[str, Any]] = {
    "control flow": {
        "xla_gpu_graph_min_graph_size": 1,
        "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,"
        "DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE",
    }
}


def work(workload: Workload, row: Row, options: argparse.Namespace) -> None:
    row.step("import")
    import jax

    import fusionstitch as fs
    from benchmarks import dram, modelled
    from benchmarks.checking import check, wanted_by
    from benchmarks.measuring import Contestant, summary, wall_times
    from benchmarks.profiling import classified, profile
    from fusionstitch import accuracy
    from fusionstitch.commands.targets import load

    row.step("arguments")
    fun, args = load(workload.path)
    jax.block_until_ready(args)
    jax.jit(lambda x: x + 1)(1)  # what a process compiles first pays for XLA's own start

    row.step("compile xla")
    lowered = jax.jit(fun, **workload.jit_keywords).lower(*args)
    start = time.perf_counter()
    xla = lowered.compile()
    compile_s = {"xla": time.perf_counter() - start}

    row.step("compile fusionstitch")
    ours_lowered = fs.jit(fun, **workload.jit_keywords).lower(*args)
    start = time.perf_counter()
    ours = ours_lowered.compile()
    compile_s["fusionstitch"] = time.perf_counter() - start
    row.put(compile_s=_rounded(compile_s), stitched=modelled.stitched(ours))

    warm = None
    if "warm" not in options.without:
        command = [sys.executable, "-m", "benchmarks.warm", workload.target]
        warm = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    row.step("run")
    sides = {
        name: Contestant(run, args, workload)
        for name, run in (("xla", xla), ("fusionstitch", ours))
    }
    results = {
        name: [accuracy.host(leaf) for leaf in jax.tree.leaves(side.call())]
        for name, side in sides.items()
    }
    plain: Any = jax.jit(fun, keep_unused=True).lower(*args).compiler_ir("hlo")
    module = plain.as_serialized_hlo_module_proto()

    def checked() -> None:
        row.step("check")
        ours, xla = results["fusionstitch"], results["xla"]
        row.put(check=check(ours, xla, *wanted_by(fun, args, module, xla)))
        results.clear()

    row.put(**modelled.counts(module, ours.stitched))
    inputs = [leaf.nbytes for leaf in jax.tree.leaves(args)]
    outputs = [value.nbytes for value in results["xla"]]
    row.put(floor_bytes=workload.floor_bytes(inputs, outputs))
    if not workload.long:
        checked()

    flags: dict[str, dict[str, Any]] = {}
    left_out = "graphs" in options.without or workload.long
    if not left_out and jax.default_backend() == "gpu":
        row.step("compile xla with graphs")
        flags = {**GRAPHS, **(CONTROL_GRAPHS if _has_control_flow(xla) else {})}
        for name, choice in flags.items():
            run = lowered.compile(compiler_options=choice)
            sides[f"xla, {name}"] = Contestant(run, args, workload)
    row.put(xla_flags=flags)

    if warm is not None:
        row.step("warm caches")
        printed = warm.communicate()[0].decode(errors="replace")
        found = printed.strip().splitlines()[-1:] if warm.returncode == 0 else []
        row.put(warm_s=json.loads(found[0]) if found else None)
        if not found:
            row.put(warm_failure=printed[-500:])

    row.wait()
    if options.tune:
        row.step("tune")
        tuned = _tuned(fun, args, workload, options.tune, row)
        sides[TUNED] = Contestant(tuned, args, workload)
    row.step("time")
    times = wall_times(sides, options.rounds)
    row.put(wall_us={name: summary(values) for name, values in times.items()})

    profiles: dict[str, Any] = {}
    kinds = {kernel["name"]: kernel["kind"] for kernel in row.data["stitched"]["kernels"]}
    for name in [name for name in ("xla", "fusionstitch", TUNED) if name in sides]:
        row.step(f"profile {name}")
        found_activity = profile(sides[name].calls, PROFILED_CALLS)
        profiles[name] = found_activity and classified(found_activity, kinds)
        row.put(profile=profiles)
    if options.ncu:
        row.step("ncu")
        row.put(dram_bytes={name: dram.measured(workload, name) for name in dram.SIDES})
    if workload.long:  # its float64 run takes as long to compile: times must not wait for it
        checked()


def _tuned(fun: Any, args: Any, workload: Workload, seconds: float, row: Row) -> Any:
    """The program compiled once more after its kernels were tuned; what tuning found is put into
    the row."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    import fusionstitch as fs

    # what comes out of XLA's cache does not say how it was planned
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    report = fs.tune(fun, *args, budget=seconds)
    points = [point for result in report.results for point in result.points]
    row.put(
        tuning={
            "seconds": round(report.seconds, 1),
            "complete": report.complete,
            "patterns": len(report.results),
            "schedules": len(points),
            "points": [[round(us, 3) for us in point] for point in points],
            "rank_correlation": report.rank_correlation,
        }
    )
    return fs.jit(fun, **workload.jit_keywords).lower(*args).compile()


def _has_control_flow(compiled: Any) -> bool:
    text = compiled.as_text()
    return " while(" in text or " conditional(" in text


def _rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in seconds.items()}


if __name__ == "__main__":
    work_on(work)
