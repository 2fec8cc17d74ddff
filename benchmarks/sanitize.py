"""Generated kernels under compute-sanitizer, without JAX in the process that is watched.

    python -m benchmarks.sanitize prepare FOLDER [JOBS [KIND...]]    with NVRTC: cubins and inputs
    compute-sanitizer --tool racecheck python benchmarks/sanitize.py launch FOLDER      on a GPU

The kernels are the cases of the tests, every template and composition at small sizes, and those of
programs that nobody wrote: grown ones, on random inputs. Loops come in every form.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

#: How many kernels of grown programs there are.
GROWN = 100


def cases() -> Iterator[tuple[str, Any, list[np.ndarray]]]:
    """Name, kernel and inputs of each kernel case of the tests."""
    from tests.codegen.cases import CASES

    for name, program in CASES.items():
        case = program.case()
        yield name, case.kernel(), [np.asarray(x) for x in case.args]


def grown() -> Iterator[tuple[str, Any, list[np.ndarray]]]:
    """Name, kernel and random inputs of the first kernels of grown programs."""
    import jax

    from fusionstitch.compiler import core
    from fusionstitch.costmodel.devices import device
    from fusionstitch.hlo.literals import NUMPY_DTYPES
    from fusionstitch.options import Options
    from tests.strangers.programs import grow

    found = 0
    for seed in itertools.count():
        program = grow(seed)
        lowered = jax.jit(program.__call__).lower(*program.arguments()).compiler_ir("hlo")
        module = lowered.as_serialized_hlo_module_proto()
        options = Options(scorer="paper", fallback="error")
        for kernel in core.stitch(module, options, device("h200"), None).kernels:
            if found == GROWN:
                return
            found += 1
            random = np.random.default_rng(seed)
            inputs = []
            for shape in kernel.inputs:
                data = random.integers(-4, 5, shape.dims)
                inputs.append(np.asarray(data).astype(NUMPY_DTYPES[shape.dtype]))
            yield f"grown_{seed}_{found}", kernel, inputs


def loops() -> Iterator[tuple[str, Any, list[np.ndarray]]]:
    """Name, kernel and inputs of whole loops in every form."""
    import jax

    from fusionstitch.codegen.generate import generate
    from fusionstitch.codegen.settings import CodegenOptions
    from fusionstitch.costmodel.devices import device
    from fusionstitch.hlo.errors import CodegenError
    from tests.codegen.regions import whole_of
    from tests.codegen.test_phased_loops import DEALT, PROGRAMS
    from tests.codegen.test_whole_loops import PROGRAMS as ROWS

    rows = {name: (fun, (np.asarray(x),)) for name, (fun, x, _) in ROWS.items()}
    table = {
        "rows": rows,
        "dealt": DEALT,
        "cluster": {**PROGRAMS, **DEALT},
        "block": PROGRAMS,
        "grid": PROGRAMS,
    }
    for form, programs in table.items():
        for name, (fun, args) in programs.items():
            region = whole_of(fun, *args, name=f"k_{form}_{name.replace(' ', '_')}")
            options = CodegenOptions(template=f"loop {form}")
            with contextlib.suppress(CodegenError):  # a few have no rows
                kernel = generate(region, device("h200"), options)
                yield kernel.name, kernel, [np.asarray(x) for x in jax.tree.leaves(args)]


#: Kinds of kernels by name.
KINDS = {"cases": cases, "grown": grown, "loops": loops}


def prepare(
    folder: Path, jobs: int = 1, kinds: Sequence[str] = tuple(KINDS), arch: str = "sm_90"
) -> None:
    """Writes one cubin, its inputs and its launch for each kernel."""
    from fusionstitch.runtime import nvrtc

    def compiled(name: str, kernel: Any) -> None:
        (folder / f"{name}.cubin").write_bytes(nvrtc.compile(kernel.source, arch).image)

    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(jobs) as pool:
        building = []
        for name, kernel, inputs in itertools.chain(*(KINDS[kind]() for kind in kinds)):
            building.append(pool.submit(compiled, name, kernel))
            stored = {
                str(i): np.frombuffer(np.asarray(x).tobytes(), np.uint8)
                for i, x in enumerate(inputs)
            }
            np.savez(folder / f"{name}.npz", **stored)
            launch = {
                "entry": kernel.name,
                "grid": kernel.grid,
                "block": kernel.block,
                "shared": kernel.shared_bytes,
                "cooperative": kernel.cooperative,
                "results": [max(s.bytes, 1) for s in (*kernel.outputs, *kernel.scratch)],
            }
            (folder / f"{name}.json").write_text(json.dumps(launch))
        for one in building:
            one.result()


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
    match sys.argv[1:]:
        case ["prepare", folder]:
            prepare(Path(folder))
        case ["prepare", folder, jobs]:
            prepare(Path(folder), int(jobs))
        case ["prepare", folder, jobs, *kinds]:
            prepare(Path(folder), int(jobs), kinds)
        case ["launch", folder]:
            launch(Path(folder))
        case _:
            sys.exit(__doc__)
