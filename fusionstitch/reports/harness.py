"""A kernel alone, as a folder: a `main` that runs it on random inputs, checks and times it.

What is right is computed here, by NumPy in float64, and lies beside it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

from fusionstitch.accuracy import relative_error
from fusionstitch.arguments import random_value
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.rewrite.region import region
from fusionstitch.compiler.stitched import Stitch
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import FLOATS, FLOATS8, Shape
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.runtime import files

logger = logging.getLogger(__name__)

#: Bytes of inputs and outputs up to which they are written; of larger kernels only the time is
#: told.
MOST_BYTES = 64 << 20
#: Relative L2 errors that floats may have anyway, by type: as the project promises.
FLOORS = {"f64": 1e-14, "f32": 1e-6, "f16": 5e-4, "bf16": 4e-3}
_FLOOR8 = 0.1
#: Beyond that, so many times what NumPy's own sums in the program's types are off by.
_TIMES = 4.0
#: Where emitted folders have the emulator's headers.
EMULATOR = "emulator"
_ELEMENTS = {"f16": "kF16", "bf16": "kBf16", "f32": "kF32", "f64": "kF64"}


@dataclass(frozen=True, eq=False)
class Sample:
    """Inputs of a kernel, what its outputs should be, and by how much floats may be off."""

    inputs: tuple[np.ndarray, ...]
    outputs: tuple[np.ndarray, ...]
    bounds: tuple[float, ...]


def sample(one: Stitch) -> Sample | None:
    """Random inputs with what comes of them; None for a kernel that is too large, or has an op that
    NumPy has no reference for."""
    kernel, pattern = one.kernel, one.chosen.pattern
    if sum(shape.bytes for shape in (*kernel.inputs, *kernel.outputs)) > MOST_BYTES:
        return None
    draw = np.random.default_rng(0)
    inputs = tuple(
        np.asarray(random_value(draw, shape.dims, NUMPY_DTYPES[shape.dtype])).astype(
            NUMPY_DTYPES[shape.dtype]
        )
        for shape in kernel.inputs
    )
    part = region(kernel.name, pattern.ops, pattern.inputs, pattern.outputs)
    try:
        narrow, wide = evaluate(part, inputs), evaluate(part, inputs, float64=True)
    except Exception as error:  # no reference, no memory, no such type: the kernel still runs
        logger.info("%s has no reference: %s", kernel.name, error)
        return None
    found = [
        (right.astype(np.float64), max(_floor(shape), _TIMES * relative_error(own, right)))
        if shape.dtype in FLOATS | FLOATS8
        else (own, 0.0)
        for shape, own, right in zip(kernel.outputs, narrow, wide, strict=True)
    ]
    return Sample(inputs, tuple(a for a, _ in found), tuple(b for _, b in found))


def _floor(shape: Shape) -> float:
    return FLOORS.get(shape.dtype, _FLOOR8)


def write(one: Stitch, device: Device, folder: Path) -> Path:
    """Makes the folder of a kernel beside its text. Raises OSError."""
    kernel, found = one.kernel, sample(one)
    own = folder / kernel.name
    files.folder(own)
    names = _names(kernel)
    for path in own.glob("*.bin"):  # of an earlier time, of other shapes
        path.unlink()
    if found is not None:
        for name, array in zip(names, (*found.inputs, *found.outputs), strict=False):
            files.replace_bytes(own / f"{name}.bin", np.ascontiguousarray(array).tobytes())
    bounds = found.bounds if found is not None else (0.0,) * len(kernel.outputs)
    files.replace(own / "main.cu", "\n".join(_main(kernel, device, names, bounds)))
    return own


def write_headers(folder: Path) -> None:
    """What the `main`s include: the harness, and the emulator for the host. Raises OSError."""
    runtime = resources.files("fusionstitch.runtime")
    files.replace(folder / "harness.h", (runtime / "harness.h").read_text("utf-8"))
    files.folder(folder / EMULATOR)
    for entry in sorted(runtime.iterdir(), key=lambda entry: entry.name):
        if entry.name.startswith(("emulator", "fibers")) and entry.name.endswith(".h"):
            files.replace(folder / EMULATOR / entry.name, entry.read_text("utf-8"))


def _names(kernel: Kernel) -> list[str]:
    return [
        f"{use}{number}"
        for use, shapes in (
            ("in", kernel.inputs),
            ("out", kernel.outputs),
            ("scratch", kernel.scratch),
        )
        for number in range(len(shapes))
    ]


def _main(
    kernel: Kernel, device: Device, names: Sequence[str], bounds: Sequence[float]
) -> Iterator[str]:
    yield f"// Runs {kernel.name} on the inputs in this folder, checks what it gives and times it."
    yield "//"
    yield f"//   nvcc -std=c++17 -O3 -arch={device.sm_arch} -I.. main.cu -o main && ./main"
    yield "//"
    yield "// On the CPU, without any time that means something:"
    yield "//"
    yield (
        f"//   g++ -std=c++17 -O1 -fno-strict-aliasing -DFUSIONSTITCH_EMULATE -I.. -I../{EMULATOR} "
        "-x c++ main.cu -o main && ./main"
    )
    # first the headers of the system: the emulator's words for CUDA's would change them
    yield '#include "harness.h"'
    yield "#ifdef FUSIONSTITCH_EMULATE"
    yield "#define clock fs_emulated_clock"
    yield "#endif"
    yield f'#include "../{kernel.name}.cu"'
    yield ""
    shapes = (*kernel.inputs, *kernel.outputs, *kernel.scratch)
    tables = sorted({shape.dtype for shape in kernel.outputs} & FLOATS8)
    for dtype in tables:
        values = np.arange(256, dtype=np.uint8).view(NUMPY_DTYPES[dtype]).astype(np.float64)
        yield f"static const double table_{dtype}[] = {{{', '.join(map(_number, values))}}};"
    uses = ["kInput"] * len(kernel.inputs) + ["kOutput"] * len(kernel.outputs)
    uses += ["kScratch"] * len(kernel.scratch)
    allowed = [0.0] * len(kernel.inputs) + [*bounds] + [0.0] * len(kernel.scratch)
    yield "static const FsBuffer buffers[] = {"
    for name, use, shape, bound in zip(names, uses, shapes, allowed, strict=True):
        element, table = _ELEMENTS.get(shape.dtype, "kInteger"), "nullptr"
        if use == "kOutput" and shape.dtype in FLOATS8:
            element, table = "kTable", f"table_{shape.dtype}"
        item = NUMPY_DTYPES[shape.dtype].itemsize
        yield (
            f'    {{"{name}", FsUse::{use}, FsElement::{element}, {shape.bytes}, {item}, '
            f"{bound!r}, {table}}},  // {shape}"
        )
    yield "};"
    yield (
        f'static const FsLaunch launch = {{"{kernel.name}", {kernel.grid}, {kernel.block}, '
        f"{kernel.cluster}, {kernel.shared_bytes}, {str(kernel.cooperative).lower()}}};"
    )
    yield ""
    arguments = ", ".join(f"FsEmulatedPointer{{p[{n}]}}" for n in range(len(shapes)))
    roles = ", ".join(
        f"{{{shape.bytes}, FsRole::{use}}}" for shape, use in zip(shapes, uses, strict=True)
    )
    yield "#ifdef FUSIONSTITCH_EMULATE"
    yield f"static const FsEmulatedParameter parameters[] = {{{roles}}};"
    yield f"static void call(void* const* p) {{ {kernel.name}({arguments}); }}"
    yield (
        f'static const FsEmulatedKernel kernels[] = {{{{"{kernel.name}", {len(shapes)}, '
        f"parameters, {kernel.cluster}, call}}}};"
    )
    yield "FS_EMULATED_IMAGE(kernels)"
    yield "static const FsEmulatedImage& kernel = fs_emulated_image;"
    yield "#else"
    yield f"static const void* const kernel = (const void*){kernel.name};"
    yield "#endif"
    yield ""
    yield "// The folder with the files of inputs and outputs may be named."
    yield "int main(int count, char** words) {"
    yield "  const size_t number = sizeof(buffers) / sizeof(buffers[0]);"
    yield '  return fs_harness::check(launch, kernel, buffers, number, count > 1 ? words[1] : ".");'
    yield "}"
    yield ""


def _number(value: float) -> str:
    if np.isnan(value):
        return "NAN"
    return repr(float(value)) if np.isfinite(value) else ("-INFINITY" if value < 0 else "INFINITY")
