"""Vectors lie at multiples of their size."""

from __future__ import annotations

from fusionstitch.codegen.ir.expressions import Expr, Integer, LoadVector
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.statements import Array, Statement, StoreVector
from fusionstitch.codegen.ir.types import VectorOf
from fusionstitch.codegen.ir.verifier.fault import Fault
from fusionstitch.codegen.ir.walk import every


def check(kernel: Lowered) -> None:
    """Raises Fault for a vector whose address is no multiple of its width."""
    for body in (kernel.body, *(function.body for function in kernel.functions)):
        widths: dict[str, int] = {}
        at: Statement | None = None
        for one in every(body):
            at = one if isinstance(one, Statement) else at
            if isinstance(one, Array) and (width := width_of(one)):
                widths[one.name] = width
            elif isinstance(one, StoreVector):
                _aligned(one.address, widths[one.values], at)
            elif isinstance(one, LoadVector):
                _aligned(one.at, one.width, at)


def width_of(array: Array) -> int | None:
    """The elements of an array that is a vector."""
    found = array.type
    return found.width if isinstance(found, VectorOf) and not found.loaded else None


def _aligned(address: Expr, width: int, at: Statement | None) -> None:
    if not isinstance(address, Integer):
        return  # constants of it have names: the groups of the function were looked at
    index = address.index
    if index.const % width or any(coefficient % width for _, coefficient in index.terms):
        raise Fault(f"a vector of {width} elements is not aligned", at)
