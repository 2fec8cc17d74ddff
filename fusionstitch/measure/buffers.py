"""Arguments for measurements: several sets used in rotation, so that L2 is as warm as in a
program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.graph import Shape
from fusionstitch.hlo.literals import NUMPY_DTYPES

#: After other sets of this many L2 sizes, nothing of a set is left in L2.
L2_SIZES = 2
#: The most sets. Values so small that this many of them fit in L2 also stay there between the
#: kernels of a program.
MOST_SETS = 16
#: Values repeated to fill an array; not a power of two, so that rows differ.
_PERIOD = 65_521


def sets_for(size: int, device: Device) -> int:
    """How many sets of `size` bytes to rotate."""
    return max(1, min(MOST_SETS, -(-L2_SIZES * device.l2_bytes // max(1, size)) + 1))


@dataclass(frozen=True)
class Operand:
    """An input; its integers are from 0 up to, but not including, `below`."""

    shape: Shape
    below: int = 2


def inputs(operands: Sequence[Operand], device: Any) -> list[Any]:
    """Arrays on a JAX device: floats from 0.1 to 1, integers as the operands say.

    So logarithms and quotients are ordinary numbers. Equal operands are copies of the first.
    """
    import jax

    draw = np.random.default_rng(0)
    first: dict[Operand, Any] = {}
    made = []
    for operand in operands:
        if operand in first:
            made.append(jax.device_put(first[operand], device, may_alias=False))
            continue
        dtype = np.dtype(NUMPY_DTYPES[operand.shape.dtype])
        if dtype.kind in "biu":
            most = 1 if dtype.kind == "b" else int(np.iinfo(dtype).max)
            values = draw.integers(0, min(operand.below, most + 1), _PERIOD).astype(dtype)
        else:
            values = draw.uniform(0.1, 1.0, _PERIOD).astype(dtype)
        first[operand] = jax.device_put(np.resize(values, operand.shape.dims), device)
        made.append(first[operand])
    return made


def results(shapes: Sequence[Shape], device: Any) -> list[Any]:
    """Memory for results of `shapes` on a JAX device."""
    import jax

    sizes = [max(1, shape.bytes) for shape in shapes]
    return [jax.device_put(np.zeros(size, np.uint8), device) for size in sizes]


def copied(arrays: Sequence[Any]) -> list[Any]:
    """The same arrays in other memory of the same device."""
    import jax

    return [jax.numpy.copy(array) for array in arrays]


def pointers(arrays: Sequence[Any]) -> list[int]:
    """Device addresses of the arrays, once they are ready."""
    return [array.block_until_ready().unsafe_buffer_pointer() for array in arrays]
