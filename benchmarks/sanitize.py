"""Generated kernels under compute-sanitizer, without JAX in the process that is watched.

    python -m benchmarks.sanitize prepare FOLDER [JOBS [KIND...]]    with NVRTC: cubins and inputs
    compute-sanitizer --tool racecheck python benchmarks/sanitize.py launch FOLDER      on a GPU
    python benchmarks/sanitize.py launch FOLDER RUNS                 each so often

The kernels are the cases of the tests, every template and composition at small sizes, and those of
programs that nobody wrote: grown ones, on random inputs. Loops come in every form. Of those whose
blocks wait for each other by counters the results are compared with NumPy's, bit by bit. Prepared
with FUSIONSTITCH_DELAYS=1, threads wait at random around barriers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

#: How many kernels of grown programs there are, and how many whose blocks wait for each other.
GROWN = COUNTERS = 100
#: What all bytes are of memory that nothing was written to: of floats it is no number.
UNWRITTEN = 0xFF


@dataclass(frozen=True)
class Case:
    """A kernel, its inputs, and its outputs where they are known."""

    name: str
    kernel: Any
    inputs: Sequence[np.ndarray]
    wanted: Sequence[np.ndarray] = ()


def cases() -> Iterator[Case]:
    """Each kernel case of the tests."""
    from tests.codegen.cases import CASES

    for name, program in CASES.items():
        case = program.case()
        yield Case(name, case.kernel(), [np.asarray(x) for x in case.args])


def layers() -> Iterator[Case]:
    """Chains of products of the same rows, in blocks of two sizes."""
    from tests.codegen.layer_cases import CASES
    from tests.codegen.test_layers import LARGE, SMALL, case_of

    for name in CASES:
        case = case_of(name)
        for options in (SMALL, LARGE):
            kernel = dataclasses.replace(case, options=options).kernel()
            yield Case(f"{name}, {kernel.block} threads", kernel, case.args)


def grown() -> Iterator[Case]:
    """The first kernels of grown programs, on random inputs."""
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
            yield Case(f"grown_{seed}_{found}", kernel, inputs)


def loops() -> Iterator[Case]:
    """Whole loops in every form."""
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
                yield Case(kernel.name, kernel, [np.asarray(x) for x in jax.tree.leaves(args)])


def counters() -> Iterator[Case]:
    """Grown kernels whose blocks wait for each other, by counters and at barriers of the grid."""
    from tests.codegen.grown_counters import examples, lowered, wanted
    from tests.codegen.synchronised import ELEMENTS, printed

    x = np.arange(ELEMENTS, dtype=np.float32) % 32
    for number, one in enumerate(examples(COUNTERS)):
        yield Case(f"counters_{number}", printed(lowered(one)), [x], [wanted(one, x)])


#: Kinds of kernels by name.
KINDS = {
    "cases": cases,
    "layers": layers,
    "grown": grown,
    "loops": loops,
    "counters": counters,
}


def prepare(
    folder: Path, jobs: int = 1, kinds: Sequence[str] = tuple(KINDS), arch: str = "sm_90"
) -> None:
    """Writes one cubin, its inputs and outputs, and its launch for each kernel."""
    from fusionstitch.runtime import delays, nvrtc

    def compiled(name: str, kernel: Any) -> None:
        image = nvrtc.compile(kernel.source, arch, delays.flags()).image
        (folder / f"{name}.cubin").write_bytes(image)

    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(jobs) as pool:
        building = []
        for case in itertools.chain(*(KINDS[kind]() for kind in kinds)):
            kernel = case.kernel
            building.append(pool.submit(compiled, case.name, kernel))
            stored = {
                f"{what}{i}": np.frombuffer(np.asarray(x).tobytes(), np.uint8)
                for what, each in (("input", case.inputs), ("wanted", case.wanted))
                for i, x in enumerate(each)
            }
            np.savez(folder / f"{case.name}.npz", **stored)
            launch = {
                "entry": kernel.name,
                "grid": kernel.grid,
                "block": kernel.block,
                "shared": kernel.shared_bytes,
                "cooperative": kernel.cooperative,
                "inputs": len(case.inputs),
                "outputs": [max(s.bytes, 1) for s in kernel.outputs],
                "scratch": [max(s.bytes, 1) for s in kernel.scratch],
            }
            (folder / f"{case.name}.json").write_text(json.dumps(launch))
        for one in building:
            one.result()


def launch(folder: Path, runs: int = 1) -> int:
    """Launches every kernel of `folder` so often through CuPy. Prints in how many runs each that
    has known outputs made others, and gives how many such kernels there are."""
    names = sorted(path.stem for path in folder.glob("*.json"))
    compared = failed = 0
    for name in names:
        stored = dict(np.load(folder / f"{name}.npz"))
        wanted = [stored[key] for key in stored if key.startswith("wanted")]
        made = launched(folder / name, stored, runs)
        compared += bool(wanted)
        if wrong := wrong_runs(made, wanted):
            failed += 1
            print(f"{name}: wrong in {wrong} of {runs} runs")
    print(f"{len(names)} kernels launched, {compared} compared, {failed} wrong; {runs} runs each")
    return failed


def launched(path: Path, stored: Mapping[str, np.ndarray], runs: int) -> list[np.ndarray]:
    """The outputs of a kernel as bytes, of each run a row, by CuPy."""
    import cupy

    about = json.loads(path.with_suffix(".json").read_text())
    module = cupy.cuda.function.Module()
    module.load(path.with_suffix(".cubin").read_bytes())
    function = module.get_function(about["entry"])
    if about["shared"] > 48 * 1024:
        dynamic_shared = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        cupy.cuda.driver.funcSetAttribute(function.ptr, dynamic_shared, about["shared"])
    read = [cupy.asarray(stored[f"input{i}"]) for i in range(about["inputs"])]
    # rows begin at multiples of 256 bytes, as buffers do
    outputs = [cupy.empty((runs, -(-size // 256) * 256), np.uint8) for size in about["outputs"]]
    scratch = [cupy.empty(size, np.uint8) for size in about["scratch"]]
    options = {"enable_cooperative_groups": True} if about["cooperative"] else {}
    shape = (about["grid"],), (about["block"],)
    for buffer in outputs:
        buffer.data.memset_async(UNWRITTEN, buffer.nbytes)
    for run in range(runs):
        for buffer in scratch:  # or it held what the run before has written
            buffer.data.memset_async(UNWRITTEN, buffer.nbytes)
        addresses = [buffer.data.ptr for buffer in read]
        addresses += [buffer.data.ptr + run * buffer.shape[1] for buffer in outputs]
        addresses += [buffer.data.ptr for buffer in scratch]
        pointers = tuple(np.uint64(address) for address in addresses)
        function(*shape, pointers, shared_mem=about["shared"], **options)
    cupy.cuda.Device().synchronize()
    return [
        cupy.asnumpy(buffer)[:, :size]
        for buffer, size in zip(outputs, about["outputs"], strict=True)
    ]


def wrong_runs(made: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> int:
    """In how many runs an output that is known was another one."""
    wrong = [(runs != right).any(axis=1) for runs, right in zip(made, wanted, strict=False)]
    return int(np.any(wrong, axis=0).sum()) if wrong else 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["prepare", folder]:
            prepare(Path(folder))
        case ["prepare", folder, jobs]:
            prepare(Path(folder), int(jobs))
        case ["prepare", folder, jobs, *kinds]:
            prepare(Path(folder), int(jobs), kinds)
        case ["launch", folder]:
            sys.exit(bool(launch(Path(folder))))
        case ["launch", folder, runs]:
            sys.exit(bool(launch(Path(folder), int(runs))))
        case _:
            sys.exit(__doc__)
