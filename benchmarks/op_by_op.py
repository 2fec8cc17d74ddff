"""One workload op by op, every primitive an executable of its own: python -m benchmarks.op_by_op
TARGET FOLDER. What it profiles are kernels and their GPU time; wall time would be Python's."""

from __future__ import annotations

import argparse

from benchmarks.row import Row, work_on
from benchmarks.workloads import Workload

#: Programs of more kernels than this, by the model, are not run: tracing them takes too long.
MAX_KERNELS = 24_000


def work(workload: Workload, row: Row, options: argparse.Namespace) -> None:
    row.step("import")
    import jax

    from benchmarks.measuring import Contestant
    from benchmarks.profiling import classified, profile
    from fusionstitch.commands.targets import load
    from fusionstitch.reports import counting

    row.step("arguments")
    fun, args = load(workload.path)
    lowered = jax.jit(fun, keep_unused=True).lower(*args).compiler_ir("hlo")
    module = lowered.as_serialized_hlo_module_proto()
    if counting.unfused(counting.entry(module)).kernels > MAX_KERNELS:
        row.wait()
        return
    program = Contestant(fun, args, workload)
    with jax.disable_jit():
        row.step("run")
        program.calls(1)
        row.wait()
        row.step("profile")
        found = profile(program.calls, 1)
    row.put(profile={"unfused": found and classified(found, {})})


if __name__ == "__main__":
    work_on(work)
