"""What a change of the code generator does to how long kernels take: two trees, one run.

    python benchmarks/revisions.py write FOLDER [JOBS]      in each tree, on its PYTHONPATH: cubins
    python benchmarks/revisions.py measure OLD NEW FILE [SKIPPED...]        on a GPU: times
    python benchmarks/revisions.py times FOLDER FILE        on a GPU: those of one tree

The kernels are those of the replay's regions (`tests/replay`). Where the text is the same there is
nothing to measure. Launches are captured into a CUDA graph, as XLA does with them.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import math
import statistics
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

#: Launches in a graph, replays of each side in a round, rounds.
LAUNCHES, REPLAYS, ROUNDS = 10, 2, 9
#: Kernels that take longer have fewer launches: microseconds of a graph.
LONGEST = 20_000.0


def generated() -> Iterator[tuple[str, Any]]:
    """The kernels that this tree generates, by name."""
    from fusionstitch.codegen.generate import generate
    from fusionstitch.costmodel.devices import device
    from fusionstitch.hlo.errors import CodegenError
    from tests.replay.replay import stored

    target = device("h200")
    for name, graph in stored():
        with contextlib.suppress(CodegenError):
            yield name, generate(graph, target)


def write(kernels: Iterable[tuple[str, Any]], folder: Path, jobs: int = 1) -> None:
    """Writes the cubin and the launch of each kernel."""
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(jobs) as pool:
        for one in [pool.submit(written, folder, name, kernel) for name, kernel in kernels]:
            one.result()


def written(folder: Path, name: str, kernel: Any, arch: str = "sm_90") -> None:
    """Writes the cubin and the launch of a kernel."""
    from fusionstitch.codegen.text.source import uncommented
    from fusionstitch.hlo.literals import NUMPY_DTYPES
    from fusionstitch.runtime import nvrtc

    text = "\n".join(filter(str.strip, uncommented(kernel.source).splitlines()))
    launch = {
        "text": hashlib.sha256(text.encode()).hexdigest(),
        "entry": kernel.name,
        "grid": kernel.grid,
        "block": kernel.block,
        "shared": kernel.shared_bytes,
        "cooperative": kernel.cooperative,
        "inputs": [(s.size, np.dtype(NUMPY_DTYPES[s.dtype]).name) for s in kernel.inputs],
        "results": [max(s.bytes, 1) for s in (*kernel.outputs, *kernel.scratch)],
    }
    (folder / f"{name}.json").write_text(json.dumps(launch))
    (folder / f"{name}.cubin").write_bytes(nvrtc.compile(kernel.source, arch).image)


def measure(old: Path, new: Path, skipped: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The times of the kernels that differ, in microseconds: medians over rounds."""
    found: dict[str, Any] = {}
    alike = 0
    for path in sorted(old.glob("*.json")):
        if path.stem in skipped or not (new / path.name).exists():
            found[path.stem] = None
            continue
        sides = [json.loads((folder / path.name).read_text()) for folder in (old, new)]
        launches = [{k: v for k, v in side.items() if k != "entry"} for side in sides]
        if launches[0] == launches[1]:
            alike += 1
            continue
        print(path.stem, flush=True, file=sys.stderr)  # the last one is that of an error
        both = zip((old, new), sides, strict=True)
        ways = [_captured(folder, path.stem, side) for folder, side in both]
        times: list[list[float]] = [[], []]
        for number in range(ROUNDS):
            for side in (0, 1) if number % 2 else (1, 0):
                times[side].append(ways[side]())
        found[path.stem] = [statistics.median(each) for each in times]
    ratios = [times[0] / times[1] for times in found.values() if times]
    return {
        **_where(),
        "alike": alike,
        "differ": len(ratios),
        "old_over_new": math.exp(statistics.fmean(map(math.log, ratios))) if ratios else 1.0,
        "kernels": found,
    }


def times(folder: Path) -> dict[str, Any]:
    """The times of the kernels of a folder, in microseconds: medians over rounds."""
    found: dict[str, float] = {}
    for path in sorted(folder.glob("*.json")):
        print(path.stem, end=" ", flush=True, file=sys.stderr)  # the last is that of an error
        run = _captured(folder, path.stem, json.loads(path.read_text()))
        found[path.stem] = statistics.median(run() for _ in range(ROUNDS))
        print(round(found[path.stem], 3), flush=True, file=sys.stderr)
    return {**_where(), "kernels": found}


def _where() -> dict[str, Any]:
    """What times were taken by and of what."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return {
        "command": " ".join(["python", *sys.argv]),
        "date": datetime.date.today().isoformat(),
        "device": properties["name"].decode(),
        "driver": cupy.cuda.runtime.driverGetVersion(),
        "cupy": cupy.__version__,
    }


def _captured(folder: Path, name: str, about: dict[str, Any]) -> Any:
    """What replays a graph of launches of a kernel and gives the microseconds of one."""
    import cupy

    module = cupy.cuda.function.Module()
    module.load((folder / f"{name}.cubin").read_bytes())
    function = module.get_function(about["entry"])
    if about["shared"] > 48 * 1024:
        dynamic_shared = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        cupy.cuda.driver.funcSetAttribute(function.ptr, dynamic_shared, about["shared"])
    random = np.random.default_rng(0)
    buffers = [cupy.asarray(_values(random, size, kind)) for size, kind in about["inputs"]]
    buffers += [cupy.zeros(size, cupy.uint8) for size in about["results"]]
    pointers = tuple(np.uint64(buffer.data.ptr) for buffer in buffers)
    options = {"enable_cooperative_groups": True} if about["cooperative"] else {}
    stream = cupy.cuda.Stream(non_blocking=True)
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    shape = (about["grid"],), (about["block"],)

    def launch() -> None:
        function(*shape, pointers, shared_mem=about["shared"], **options)

    with stream:
        launch()
        begin.record(stream)
        launch()
        end.record(stream)
        end.synchronize()
        once = cupy.cuda.get_elapsed_time(begin, end) * 1e3
        count = max(1, min(LAUNCHES, int(LONGEST / max(once, 1e-3))))
        stream.begin_capture()
        for _ in range(count):
            launch()
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()

    def timed() -> float:
        held = module, buffers  # as long as the graph may run
        begin.record(stream)
        for _ in range(REPLAYS):
            graph.launch(stream)
        end.record(stream)
        end.synchronize()
        assert held
        return float(cupy.cuda.get_elapsed_time(begin, end)) * 1e3 / (count * REPLAYS)

    return timed


def _values(random: np.random.Generator, size: int, kind: str) -> np.ndarray:
    """Normal numbers, or small integers, as bytes."""
    dtype = np.dtype(kind) if kind != "bfloat16" else None
    if dtype is None or dtype.kind not in "iub":
        values = random.standard_normal(size, np.float32)
        if dtype is None:  # the upper half of each
            return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        return values.astype(dtype).view(np.uint8)
    return random.integers(0, 2, size).astype(dtype).view(np.uint8)


def main() -> None:
    match sys.argv[1:]:
        case ["write", folder]:
            write(generated(), Path(folder))
        case ["write", folder, jobs]:
            write(generated(), Path(folder), int(jobs))
        case ["measure", old, new, file, *skipped]:
            found = measure(Path(old), Path(new), frozenset(skipped))
            Path(file).write_text(json.dumps(found) + "\n")
            slower = {n: t for n, t in found["kernels"].items() if t and t[1] > 1.03 * t[0]}
            for name, (before, now) in sorted(slower.items(), key=lambda x: x[1][0] / x[1][1]):
                print(f"{name}: {before:.2f} -> {now:.2f} us")
            print({k: v for k, v in found.items() if k != "kernels"}, f"{len(slower)} slower by 3%")
        case ["times", folder, file]:
            Path(file).write_text(json.dumps(times(Path(folder))) + "\n")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
