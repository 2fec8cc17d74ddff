"""Calls hand to functions what their records say (`ir/intrinsics.py`), and those through which
threads exchange values have the shared memory that they take.
"""

from __future__ import annotations

from collections.abc import Iterable

from fusionstitch.codegen.ir.expressions import Apply, Element, Expr, Name
from fusionstitch.codegen.ir.intrinsic import Called, Value
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.statements import Array, Call, Let, Shared, Statement
from fusionstitch.codegen.ir.types import Record, Scalar
from fusionstitch.codegen.ir.verifier.fault import Fault
from fusionstitch.codegen.ir.walk import every


def check(kernel: Lowered) -> None:
    """Raises Fault for template arguments that a function does not take, and for less scratch than
    it takes."""
    for body in (kernel.body, *(function.body for function in kernel.functions)):
        _check(body, kernel.block)


def _check(body: Iterable[Statement], block: int) -> None:
    shared: dict[str, int] = {}
    values: dict[str, Value] = {}
    at: Statement | None = None
    for one in every(body):
        if isinstance(one, Shared):
            shared[one.name] = one.bytes
        elif isinstance(one, (Let, Array)) and isinstance(one.type, (Scalar, Record)):
            size = one.size if isinstance(one, Array) and one.size else 1
            values[one.name] = Value(one.type, size)
        if isinstance(one, (Call, Let)):
            at = one
        if isinstance(one, (Call, Apply)):
            if not one.intrinsic.fits(one.template):
                raise Fault(f"{one.intrinsic.name} has no such template arguments", at)
            _enough(one, shared, values, block, at)


def _enough(
    call: Call | Apply,
    shared: dict[str, int],
    values: dict[str, Value],
    block: int,
    at: Statement | None,
) -> None:
    intrinsic = call.intrinsic
    if intrinsic.scratch is None or intrinsic.through is None:
        return
    scratch = call.arguments[intrinsic.through]
    given = [values.get(_name(one)) for one in intrinsic.exchanged.of(call.arguments)]
    known = [one for one in given if one is not None]
    if not isinstance(scratch, Name) or scratch.name not in shared or len(known) < len(given):
        return
    needed = intrinsic.scratch(Called(intrinsic, call.template, known, block))
    if needed > shared[scratch.name]:
        raise Fault(
            f"{scratch.name} has {shared[scratch.name]} bytes, and {needed} are exchanged there", at
        )


def _name(value: Expr) -> str:
    """The variable or array that is exchanged, '' for what is computed."""
    array = value.array if isinstance(value, Element) else value
    return array.name if isinstance(array, Name) else ""
