"""Where the time of whole programs in one kernel goes: each phase, as modelled and as measured.

python -m benchmarks.phases build FOLDER TARGET...     anywhere with NVRTC
python benchmarks/phases.py measure FOLDER             on a GPU with CuPy

TARGET is a target of the examples or a file with an HLO module. The kernels of its plan that have
grid barriers get a clock at each: `own` is the time of the slowest block from one barrier to the
next, `whole` what the first block waits in all, the barrier included.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BARRIER = "fs_grid_barrier();"
#: Launches of which the last is reported: the clock has risen, and the caches are warm, by then.
LAUNCHES = 20

_MARK = """
__device__ __forceinline__ void fs_mark(long long* times, int number) {
  __syncthreads();
  if (threadIdx.x == 0) times[static_cast<long long>(number) * gridDim.x + blockIdx.x] = clock64();
}
"""


def instrumented(source: str, entry: str) -> tuple[str, int]:
    """The source of a kernel that writes clocks before and after its barriers, as its last
    parameter, and how many of them."""
    head, body = source.split(f"{entry}(\n", 1)
    parameters, body = body.split(") {\n", 1)
    numbers = iter(range(1, 1 << 20))
    marked = re.sub(
        re.escape(BARRIER),
        lambda _: (
            f"fs_mark(fs_times, {next(numbers)}); {BARRIER} fs_mark(fs_times, {next(numbers)});"
        ),
        body,
    )
    last = next(numbers)
    end = marked.rindex("}")
    marked = f"{marked[:end]}  fs_mark(fs_times, {last});\n{marked[end:]}"
    shared = "  FS_DYNAMIC_SHARED(shared_memory);\n"
    start = "  fs_mark(fs_times, 0);\n"
    marked = marked.replace(shared, shared + start, 1) if shared in marked else start + marked
    head = head.replace('extern "C"', f'{_MARK}\nextern "C"', 1)
    return f"{head}{entry}(\n{parameters},\n    long long* fs_times) {{\n{marked}", last + 1


def build(folder: Path, targets: Sequence[str], scorer: str = "model") -> None:
    """Cubins, launches and the model's times of the kernels with barriers of all targets."""
    from benchmarks.workloads import module_of
    from fusionstitch.compiler import builders, core
    from fusionstitch.costmodel.kernel_time import missed_again, phases_us
    from fusionstitch.options import Options
    from fusionstitch.runtime import nvrtc

    folder.mkdir(parents=True, exist_ok=True)
    options = Options(device="h200", scorer=scorer)
    profile = builders.profile(options)
    for target in targets:
        for one in core.stitch(module_of(target), options, profile, None).stitches:
            kernel = one.kernel
            if BARRIER not in kernel.source:
                continue
            source, marks = instrumented(kernel.source, kernel.name)
            cost = one.chosen.facts.cost
            name = f"{Path(target.partition(':')[0]).stem}-{kernel.name}"
            (folder / f"{name}.cubin").write_bytes(nvrtc.compile(source, "sm_90").image)
            launch = {
                "entry": kernel.name,
                "grid": kernel.grid,
                "block": kernel.block,
                "shared": kernel.shared_bytes,
                "inputs": [(s.dtype, s.bytes) for s in kernel.inputs],
                "results": [s.bytes for s in (*kernel.outputs, *kernel.scratch)],
                "marks": marks,
                "modelled_us": list(phases_us(cost, profile, missed_again(cost, profile))),
                "phases": [_title(text) for text in kernel.source.split(BARRIER)],
            }
            (folder / f"{name}.json").write_text(json.dumps(launch, indent=1))


def _title(text: str) -> str:
    """The comments of a phase's groups."""
    lines = (line.strip() for line in text.splitlines() if not line.startswith("//"))
    return "; ".join(line[3:] for line in lines if line.startswith("// "))[:160]


def read(path: Path) -> dict[str, Any]:
    """What `build` wrote about a kernel."""
    launch: dict[str, Any] = json.loads(path.read_text())
    return launch


def measure(folder: Path) -> None:
    """Launches every kernel of the folder and prints its phases, in microseconds."""
    import cupy
    import numpy as np

    for path in sorted(folder.glob("*.json")):
        launch = read(path)
        module = cupy.cuda.function.Module()
        module.load(path.with_suffix(".cubin").read_bytes())
        function = module.get_function(launch["entry"])
        if launch["shared"] > 48 << 10:
            cupy.cuda.driver.funcSetAttribute(function.ptr, 8, launch["shared"])
        made = [_input(cupy, *one) for one in launch["inputs"]]
        made += [cupy.zeros(max(1, size), cupy.uint8) for size in launch["results"]]
        grid = launch["grid"]
        marks = cupy.zeros((launch["marks"], grid), cupy.int64)
        pointers = tuple(np.uint64(a.data.ptr) for a in (*made, marks))
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        for _ in range(LAUNCHES):
            start.record()
            function(
                (grid,),
                (launch["block"],),
                pointers,
                shared_mem=launch["shared"],
                enable_cooperative_groups=True,
            )
            end.record()
        end.synchronize()
        clocks = marks.get()
        total = cupy.cuda.get_elapsed_time(start, end) * 1e3
        own, whole = times(clocks, int(clocks[-1, 0] - clocks[0, 0]) / total)
        print(f"## {path.stem}: {total:.1f} us, {len(own)} phases, grid {grid}")
        rows = zip(launch["modelled_us"], own, whole, launch["phases"], strict=True)
        for number, (modelled, slowest, waited, title) in enumerate(rows):
            print(
                f"{number:4d} modelled {modelled:7.2f} own {slowest:7.2f} "
                f"whole {waited:7.2f}  {title}"
            )


def times(clocks: Any, rate: float) -> tuple[list[float], list[float]]:
    """(own, whole) microseconds of each phase; `clocks` are cycles by mark and block, `rate` cycles
    per microsecond."""
    own = (clocks[1::2] - clocks[0::2]).max(axis=1) / rate
    ends = [*clocks[2::2, 0], clocks[-1, 0]]
    return own.tolist(), [
        float(end - start) / rate for start, end in zip(clocks[0::2, 0], ends, strict=True)
    ]


def _input(cupy: Any, dtype: str, size: int) -> Any:
    """Small random floats; zeros of every other type, so that indices are in range."""
    if dtype == "f32":
        return cupy.random.default_rng(0).random(max(1, size // 4), cupy.float32) - 0.5
    return cupy.zeros(max(1, size), cupy.uint8)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.phases", description=__doc__)
    parser.add_argument("command", choices=("build", "measure"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--scorer", choices=("model", "paper"), default="model")
    asked = parser.parse_args(arguments)
    if asked.command == "build":
        build(asked.folder, asked.targets, asked.scorer)
    else:
        measure(asked.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
