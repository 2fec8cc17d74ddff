"""Generated kernels under compute-sanitizer, without JAX in the process that is watched.

    python -m benchmarks.sanitize prepare FOLDER       anywhere with NVRTC: cubins and inputs
    compute-sanitizer --tool racecheck python benchmarks/sanitize.py launch FOLDER      on a GPU

The kernels are the cases of the tests: every template and composition at small sizes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np


def prepare(folder: Path, arch: str = "sm_90") -> None:
    """Writes one cubin, its inputs and its launch for each kernel case."""
    from fusionstitch.runtime import nvrtc
    from tests.codegen.cases import CASES

    folder.mkdir(parents=True, exist_ok=True)
    for name, program in CASES.items():
        case = program.case()
        kernel = case.kernel()
        (folder / f"{name}.cubin").write_bytes(nvrtc.compile(kernel.source, arch).image)
        inputs = {
            str(i): np.frombuffer(np.asarray(x).tobytes(), np.uint8)
            for i, x in enumerate(case.args)
        }
        np.savez(folder / f"{name}.npz", **inputs)
        launch = {
            "entry": kernel.name,
            "grid": kernel.grid,
            "block": kernel.block,
            "shared": kernel.shared_bytes,
            "cooperative": kernel.cooperative,
            "results": [max(s.bytes, 1) for s in (*kernel.outputs, *kernel.scratch)],
        }
        (folder / f"{name}.json").write_text(json.dumps(launch))


def launch(folder: Path) -> None:
    """Launches every kernel of `folder` once through CuPy."""
    import cupy

    names = sorted(path.stem for path in folder.glob("*.json"))
    for name in names:
        about = json.loads((folder / f"{name}.json").read_text())
        module = cupy.cuda.function.Module()
        module.load((folder / f"{name}.cubin").read_bytes())
        function = module.get_function(about["entry"])
        if about["shared"] > 48 * 1024:
            dynamic_shared = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            cupy.cuda.driver.funcSetAttribute(function.ptr, dynamic_shared, about["shared"])
        stored = np.load(folder / f"{name}.npz")
        read = [cupy.asarray(stored[str(i)]) for i in range(len(stored.files))]
        written = [cupy.zeros(size, cupy.uint8) for size in about["results"]]
        pointers = tuple(np.uint64(buffer.data.ptr) for buffer in (*read, *written))
        options = {"enable_cooperative_groups": True} if about["cooperative"] else {}
        shape = (about["grid"],), (about["block"],)
        function(*shape, pointers, shared_mem=about["shared"], **options)
        cupy.cuda.Device().synchronize()
    print(f"{len(names)} kernels launched")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("prepare", "launch"):
        sys.exit(__doc__)
    {"prepare": prepare, "launch": launch}[sys.argv[1]](Path(sys.argv[2]))
