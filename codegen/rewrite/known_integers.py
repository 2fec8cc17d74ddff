"""Arrays of integers that need no data: positions, constants, and what is computed of these.

JAX computes indices so: `hop * arange(n)[:, None] + arange(w)`, with a select that counts negative
ones from the end. Their values are evaluated, whatever ops they are written with.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

from fusionstitch.codegen.rewrite.known_floats import (
    FOLLOWED,
    OPCODES,
    Bounds,
    as_bounds,
    as_integers,
    bounds_of,
)
from fusionstitch.hlo.evaluate import evaluate_op
from fusionstitch.hlo.free import FREE_KINDS
from fusionstitch.hlo.graph import INTEGERS, Op, topological
from fusionstitch.hlo.literals import content
from fusionstitch.hlo.semantics import Kind, kind_of

#: Elements of the largest array that is evaluated, and ops that are: at most about as long as one
#: kernel takes to generate.
MOST_ELEMENTS, MOST_OPS = 1 << 22, 64


def steps_to(op: Op) -> tuple[Op, ...] | None:
    """The ops that compute `op` of positions and constants alone, in order; None where data or too
    many elements take part."""
    return known_steps(op, _follows, MOST_OPS)


def known_steps(op: Op, follows: Callable[[Op], bool], most: int) -> tuple[Op, ...] | None:
    """The ops that compute `op`, in order, if all `follow` from their operands; None for others,
    and for more than `most`."""
    seen, stack = {op}, [op]
    while stack:
        one = stack.pop()
        if not follows(one) or len(seen) > most:
            return None
        stack += [o for o in one.operands if o not in seen]
        seen.update(one.operands)
    return tuple(topological(op, ()))


def _follows(op: Op) -> bool:
    """Whether the value of an op follows from its operands, and is small enough."""
    if op.shape.size > MOST_ELEMENTS or op.called or op.dtype not in INTEGERS | FOLLOWED | {"pred"}:
        return False
    kind = kind_of(op.opcode)
    if any(one.dtype in FOLLOWED for one in (op, *op.operands)):
        return kind is Kind.MOVEMENT or op.opcode in OPCODES
    return op.opcode in ("iota", "constant") or (bool(op.operands) and kind in FREE_KINDS)


def value_of(steps: tuple[Op, ...]) -> np.ndarray | None:
    """The elements of the last of these ops, which are integers; None if floats decide."""
    values: dict[Op, np.ndarray | Bounds] = {}
    last_reader = {operand: op for op in steps for operand in op.operands}
    for op in steps:
        value = _value(op, [values[o] for o in op.operands])
        if value is None:
            return None
        values[op] = value
        for operand in set(op.operands):
            if last_reader[operand] is op:
                del values[operand]
    found = values[steps[-1]]
    return found if isinstance(found, np.ndarray) else None


def _value(op: Op, operands: list[np.ndarray | Bounds]) -> np.ndarray | Bounds | None:
    if not any(one.dtype in FOLLOWED for one in (op, *op.operands)):
        return np.asarray(evaluate_op(op, [x for x in operands if isinstance(x, np.ndarray)]))
    found = bounds_of(op, [x if isinstance(x, tuple) else as_bounds(x) for x in operands])
    if found is None or op.dtype in FOLLOWED:
        return found
    return as_integers(found, op.dtype)


def key_of(steps: tuple[Op, ...]) -> Hashable:
    """What distinguishes the value of such ops from that of others."""
    number = {op: i for i, op in enumerate(steps)}
    return tuple(
        (op.opcode, op.shape, attrs_key(op), tuple(number[o] for o in op.operands)) for op in steps
    )


def attrs_key(op: Op) -> Hashable:
    """The attributes of an op as a value that can be hashed."""
    return tuple(
        (name, content(value) if isinstance(value, np.ndarray) else value)
        for name, value in sorted(op.attrs.items())
    )
