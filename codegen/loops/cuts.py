"""Cuts: outputs that are a slice of a value, stored by the loop that computes the value.

A separate loop for the slice would have to read the value from memory. All of the value would pass
through shared memory, or through scratch after a grid barrier, for the sake of a part. Instead the
loop that computes the value stores the elements that lie in the slice, at their indices there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from fusionstitch.codegen.index_maps.index import Index, delinearize, linearize
from fusionstitch.codegen.index_maps.maps import Guard, Indices, within
from fusionstitch.codegen.text.types import c_type
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.semantics import Kind, kind_of, spec_of

#: Most outputs that are cut from one value: each of its elements is checked against every one of
#: them.
MOST_CUTS = 4
#: The share of a value from which on all of it is computed for the sake of a slice.
MOST_OF_IT = 0.75


@dataclass(frozen=True)
class Cut:
    """An output, and the ops that lead to it from the value it is part of, each reading the one
    before; but for those at the end that leave every element where it is. Between floats that are
    computed with as one type there may be one conversion: the store makes it."""

    output: Op
    ops: tuple[Op, ...]

    def address(self, index: Indices, value: Op) -> tuple[Index, tuple[Guard, ...]]:
        """The address in the output of element `index` of the `value`, if the guards hold; else it
        is none of the output's."""
        guards: list[Guard] = []
        for op in self.ops:
            index, needed = _GOES[op.opcode](op, index)
            guards += [guard for guard in needed if not guard.always]
        return linearize(index, self.ops[-1].dims), tuple(guards)


def find_cuts(
    graph: Graph, stored: Container[int], swept: Callable[[Op], bool]
) -> dict[int, tuple[Cut, ...]]:
    """The outputs to store so, by the id of the value that they are part of.

    That value is one of those `stored`, which are computed once. Or it is computed from one of no
    fewer elements, and either all of it is computed anyway (another output, or `swept` by another
    loop), or it takes a few instructions, or the slice is most of it. Any other slice gets a small
    loop that computes its own elements alone, and so do the parts of a value that is cut into many.
    """
    found: dict[int, tuple[Cut, ...]] = {}
    outputs = dict.fromkeys(graph.root.operands)
    for output in outputs:
        cut = _cut(output)
        if cut is None:
            continue
        value = cut.ops[0].operands[0]
        whole, cheap = _stands_on(value, stored)
        most = output.shape.size >= MOST_OF_IT * value.shape.size
        if value.id in stored or (whole and (cheap or most or value in outputs or swept(value))):
            found[value.id] = (*found.get(value.id, ()), cut)
    return {value: cuts for value, cuts in found.items() if len(cuts) <= MOST_CUTS}


def _cut(output: Op) -> Cut | None:
    """`output` as part of the last value before it that is not just moved or stored otherwise."""
    ops: list[Op] = []
    op = output
    while op.opcode in _GOES:
        if op.opcode == "convert" and (op.dtype != output.dtype or not _is_stored_float(op)):
            break
        ops.append(op)
        op = op.operands[0]
    if not any(o.opcode == "slice" for o in ops):
        return None
    moved = itertools.dropwhile(lambda o: o.opcode in ("reshape", "convert"), ops)
    return Cut(output, tuple(reversed(list(moved))))


def _is_stored_float(convert: Op) -> bool:
    """Whether a conversion only decides how a float is stored."""
    types = convert.operands[0].dtype, convert.dtype
    return all(c_type(dtype).compute == "float" for dtype in types)


def _stands_on(value: Op, stored: Container[int]) -> tuple[bool, bool]:
    """Whether `value` is computed, element by element, from a stored one of no fewer elements; and
    whether that takes nothing but a few instructions."""
    whole, cheap = False, True
    todo, seen = [value], {value}
    while todo:
        op = todo.pop()
        if op.id in stored:
            whole |= op.shape.size >= value.shape.size
        elif kind_of(op.opcode) is Kind.ELEMENTWISE or op.opcode in ("reshape", "transpose"):
            cheap &= not spec_of(op.opcode).special
            todo += [o for o in op.operands if o not in seen]
            seen.update(op.operands)
        else:  # a few values, or elements that each take a load
            cheap &= op.opcode in ("broadcast", "iota", "constant") or op.shape.rank == 0
    return whole, cheap


def _sliced(op: Op, index: Indices) -> tuple[Indices, list[Guard]]:
    moved: list[Index] = []
    guards: list[Guard] = []
    for i, n, start, stride in zip(
        index, op.dims, op.attrs["start"], op.attrs["stride"], strict=True
    ):
        if n == 1 or stride == 1:
            guards.append(within(i, start, start + n))
        else:
            guards.append(Guard(i - start, 0, (n - 1) * stride + 1, stride))
        moved.append((i - start) // stride if n > 1 else Index())
    return tuple(moved), guards


def _regrouped(op: Op, index: Indices) -> tuple[Indices, list[Guard]]:
    return delinearize(linearize(index, op.operands[0].dims), op.dims), []


def _transposed(op: Op, index: Indices) -> tuple[Indices, list[Guard]]:
    return tuple(index[d] for d in op.attrs["dimensions"]), []


def _left(op: Op, index: Indices) -> tuple[Indices, list[Guard]]:
    return index, []


#: Where an element of an operand goes: the inverse of the tables in codegen/index_maps/maps.py.
_GOES: Mapping[str, Callable[[Op, Indices], tuple[Indices, list[Guard]]]] = {
    "slice": _sliced,
    "reshape": _regrouped,
    "transpose": _transposed,
    "convert": _left,
}
