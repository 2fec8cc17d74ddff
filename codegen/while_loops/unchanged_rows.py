"""Whether rows for which a mask does not hold keep their part of a carried value.

select(mask, new, old)                                old
n + convert(mask)                                     n
old, at place i: select(mask, new, old[i])            old: what it has there is written back
a loop in the loop, each iteration of which keeps     what that began with
"""

from __future__ import annotations

from fusionstitch.codegen.index_maps.index import Index, variable
from fusionstitch.codegen.index_maps.maps import Indices, is_branching, position, reads
from fusionstitch.codegen.while_loops.flat import Carried, Flat, conjuncts
from fusionstitch.hlo.graph import INTEGERS, Op
from fusionstitch.hlo.rewrite import splat
from fusionstitch.hlo.semantics import Kind, kind_of

#: Ops that are followed back for one carried value, and masks of masks that are looked into.
MOST_STEPS, DEEPEST = 256, 16


def preserves(flat: Flat, carried: Carried, own: Op) -> bool:
    """Whether a row for which `own` does not hold keeps its part of a carried value."""
    after, inside = flat.root(carried.next), flat.parameter(carried.inside)
    if inside in (parts := conjuncts(own)) and holds_only_with(after, inside):
        others = [one for one in parts if one is not inside]  # where it holds, one of them does not
        return all(preserves(flat, carried, one) for one in others)
    without = _Without(own)
    if without.is_known(inside, True) and without.is_known(after, True):
        return True
    return _adds_nothing(after, inside, own) or _Preserved(flat, without, inside).by(after)


def holds_only_with(op: Op, mask: Op) -> bool:
    """Whether `op` holds only for elements for which the mask does."""
    return _Without(mask).is_known(op, False)


class _Without:
    """What predicates are for elements for which a mask does not hold."""

    def __init__(self, mask: Op):
        self.mask = mask
        #: one of these does not hold there
        self.parts = list(map(_Without, conjuncts(mask))) if mask.opcode == "and" else []
        self.known: dict[tuple[Op, bool], bool] = {}

    def is_known(self, op: Op, value: bool, depth: int = DEEPEST) -> bool:
        """Whether `op` is known to be `value` there."""
        if (op, value) not in self.known:
            self.known[op, value] = self._is_known(op, value, depth)
        return self.known[op, value]

    def _is_known(self, op: Op, value: bool, depth: int) -> bool:
        constant, mask = splat(op), self.mask
        if constant is not None:
            return bool(constant) is value
        if op is mask:
            return not value
        if value and mask.opcode == "not" and op is mask.operands[0]:
            return True
        if not depth:
            return False
        if op.opcode == "not":
            return self.is_known(op.operands[0], not value, depth - 1)
        if value and self.parts:
            return all(part.is_known(op, True, depth) for part in self.parts)
        if not value and op.opcode == "and" and {*conjuncts(mask)} <= {*conjuncts(op)}:
            return True
        alike = [o for o in op.operands if o.shape == mask.shape]
        known = (self.is_known(o, value, depth - 1) for o in alike)
        if op.opcode == ("or" if value else "and"):
            return any(known)
        if op.opcode == ("and" if value else "or"):
            return all(known)
        if op.opcode != "select" or len(alike) != 3:
            return False
        which, yes, no = alike
        may = [
            o for o, when in ((yes, False), (no, True)) if not self.is_known(which, when, depth - 1)
        ]
        return all(self.is_known(o, value, depth - 1) for o in may)


def _adds_nothing(after: Op, inside: Op, own: Op) -> bool:
    if after.opcode != "add" or inside not in after.operands or after.dtype not in INTEGERS:
        return False
    added = after.operands[1] if after.operands[0] is inside else after.operands[0]
    return added.opcode == "convert" and holds_only_with(_of_rows(added.operands[0], own), own)


def _of_rows(which: Op, own: Op) -> Op:
    """What a mask says of whole rows, if it is spread over their elements."""
    if which.opcode == "broadcast" and which.attrs["dimensions"] == tuple(range(own.shape.rank)):
        return which.operands[0]
    return which


class _Preserved:
    """Follows elements of what an iteration makes back to those that it was given as `inside`, for
    rows for which the mask of `without` does not hold."""

    def __init__(self, flat: Flat, without: _Without, inside: Op):
        self.flat, self.without, self.inside = flat, without, inside
        self.own = without.mask
        self.element = tuple(variable(f"d{d}", n) for d, n in enumerate(inside.dims))
        self.steps = MOST_STEPS

    def by(self, after: Op) -> bool:
        return after.dims == self.inside.dims and self.is_preserved(after, self.element, {})

    def is_preserved(self, op: Op, index: Indices, same: dict[int, Index]) -> bool:
        """Whether element `index` of `op` is what the row has at the same index. `same` has, by
        dim, indices decided by the data that are known to be equal to the row's own."""
        self.steps -= 1
        if self.steps < 0:
            return False
        if op is self.inside:
            pairs = enumerate(zip(index, self.element, strict=True))
            return all(at == own or same.get(d) == at for d, (at, own) in pairs)
        if op.opcode == "parameter":
            return index == self.element and self.is_preserved_by_loop(op)
        if op.opcode == "select":
            return self.is_preserved_by_both(op, index, same)
        if kind_of(op.opcode) is not Kind.MOVEMENT or is_branching(op):
            return False
        [read] = reads(op, index)
        return self.is_preserved(op.operands[read.operand], read.index, same)

    def is_preserved_by_both(self, op: Op, index: Indices, same: dict[int, Index]) -> bool:
        which, yes, no = op.operands
        rows = self.own.shape.rank
        if index[:rows] == self.element[:rows]:
            of_rows = _of_rows(which, self.own)
            for value, branch in ((False, no), (True, yes)):
                if self.without.is_known(of_rows, value):
                    return self.is_preserved(branch, index, same)
        if which.opcode == "not":
            which, yes, no = which.operands[0], no, yes
        if not self.is_preserved(no, index, same):
            return False
        return self.is_preserved(yes, index, {**same, **self.equal(which, index)})

    def equal(self, which: Op, index: Indices) -> dict[int, Index]:
        """The dims whose index equals an integer of the data where a comparison holds, with that
        index."""
        if which.opcode != "compare" or which.attrs["direction"] != "EQ":
            return {}
        count, other = which.operands
        if count.opcode != "iota":
            count, other = other, count
        if count.opcode != "iota" or other.dtype not in INTEGERS:
            return {}
        at = index[count.attrs["dimension"]]
        return {
            d: position(other, index, n)
            for d, (own, n) in enumerate(zip(self.element, self.inside.dims, strict=True))
            if at == own
        }

    def is_preserved_by_loop(self, after: Op) -> bool:
        """Whether an inner loop returns what the row has: it started from that, and each iteration
        preserves it."""
        for loop in self.flat.every:
            for c in loop.carried:
                if self.flat.parameter(c.after) is after:
                    begun = self.is_preserved(self.flat.root(c.first), self.element, {})
                    return begun and preserves(self.flat, c, self.own)
        return False
