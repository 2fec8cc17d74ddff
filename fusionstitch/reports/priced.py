"""The neighbours of the schedules of a program's kernels, priced by the model, as files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fusionstitch.codegen.generate import draft, neighbours
from fusionstitch.codegen.rewrite.region import region
from fusionstitch.codegen.settings import CodegenOptions
from fusionstitch.compiler.stitched import Stitch, Stitched
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.kernel_time import cost_us
from fusionstitch.hlo.errors import FusionStitchError
from fusionstitch.options import Options
from fusionstitch.reports.emitted import TEMPLATE
from fusionstitch.runtime import files


def priced(one: Stitch, options: Options, device: Device) -> tuple[float, list[tuple[float, str]]]:
    """The modelled microseconds of a kernel, and those of the neighbours of its schedule with their
    templates, the fastest first."""
    pattern = one.chosen.pattern
    part = region(one.kernel.name, pattern.ops, pattern.inputs, pattern.outputs)
    own = draft(
        part, device, CodegenOptions(options.numerics, options.sharing, one.kernel.template)
    )
    found = ((cost_us(other.cost, device), other.template) for other in neighbours(own))
    return cost_us(own.cost, device), sorted(found)


def write_variants(stitched: Stitched, options: Options, folder: Path, most: int) -> Iterator[str]:
    """Writes the fastest `most` neighbours of each kernel's template beside it, and says of each
    what the model expects."""
    first = {one.kernel.name: one for one in reversed(stitched.stitches)}
    for kernel in stitched.kernels:
        base, found = priced(first[kernel.name], options, stitched.device)
        for number, (us, text) in enumerate(found[:most], 1):
            path = folder / f"{kernel.name}.{number}{TEMPLATE}"
            try:
                files.replace(path, f"{text}\n")
            except OSError as error:
                raise FusionStitchError(f"{path} cannot be written: {error}.") from None
            yield f"{path}: {us:.2f} us by the model, {base:.2f} as it is"
