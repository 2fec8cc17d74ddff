"""Functions through which threads exchange values have the shared memory that they take."""

from __future__ import annotations

from collections.abc import Iterable

from fusionstitch.codegen.ir.exchanges import exchange_of, room
from fusionstitch.codegen.ir.expressions import Apply, Element, Name
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.statements import Array, Call, Let, Shared, Statement
from fusionstitch.codegen.ir.verifier.fault import Fault
from fusionstitch.codegen.ir.walk import every
from fusionstitch.codegen.text.types import C_TYPES, compute_bytes

#: Bytes of what is computed with. Records are of two values at least: theirs are not looked into.
_BYTES = {kind.compute: compute_bytes(dtype) for dtype, kind in C_TYPES.items()}


def check(kernel: Lowered) -> None:
    """Raises Fault for a function with less scratch than it takes."""
    for body in (kernel.body, *(function.body for function in kernel.functions)):
        _check(body, kernel.block)


def _check(body: Iterable[Statement], block: int) -> None:
    shared: dict[str, int] = {}
    values: dict[str, list[int]] = {}
    at: Statement | None = None
    for one in every(body):
        if isinstance(one, Shared):
            shared[one.name] = one.size * one.item
        elif isinstance(one, (Let, Array)) and one.kind in _BYTES:
            count = one.size if isinstance(one, Array) and one.size else 1
            values[one.name] = [_BYTES[one.kind]] * count
        if isinstance(one, (Call, Let)):
            at = one
        if isinstance(one, (Call, Apply)):
            _enough(one, shared, values, block, at)


def _enough(
    call: Call | Apply,
    shared: dict[str, int],
    values: dict[str, list[int]],
    block: int,
    at: Statement | None,
) -> None:
    exchange = exchange_of(call.function)
    if exchange is None or exchange.meets is None:
        return
    scratch = call.arguments[exchange.scratch]
    given = [a for number, a in enumerate(call.arguments) if number != exchange.scratch]
    if exchange.scratch:  # what is exchanged comes first
        given = given[:1]
    names = [a.array if isinstance(a, Element) else a for a in given]
    sizes = [values.get(a.name, []) if isinstance(a, Name) else [] for a in names]
    if not isinstance(scratch, Name) or scratch.name not in shared or not all(sizes):
        return
    wanted = room(call.function, [size for each in sizes for size in each], block)
    if wanted > shared[scratch.name]:
        raise Fault(
            f"{scratch.name} has {shared[scratch.name]} bytes, and {wanted} are exchanged there", at
        )
