"""Whether rows keep what they have of a carried value where a mask does not hold for them.

select(mask, new, old)                                old
n + convert(mask)                                     n
old, at place i: select(mask, new, old[i])            old: what it has there is written back
a loop in the loop, each iteration of which keeps     what that began with
"""

from __future__ import annotations

from fusionstitch.codegen.places.index import Index, variable
from fusionstitch.codegen.places.maps import Indices, is_branching, position, reads
from fusionstitch.codegen.whiles.flat import Carried, Flat, conjuncts
from fusionstitch.hlo.graph import INTEGERS, Op
from fusionstitch.hlo.rewrite import splat
from fusionstitch.hlo.semantics import Kind, kind_of

#: Ops that are followed back for one carried value, and masks of masks that are looked into.
MOST_STEPS, DEEPEST = 256, 16


def keeps(flat: Flat, carried: Carried, own: Op) -> bool:
    """Whether a row for which `own` does not hold keeps what it has of a carried value."""
    after, inside = flat.root(carried.next), flat.parameter(carried.inside)
    if inside in (asked := conjuncts(own)) and holds_only_with(after, inside):
        others = [one for one in asked if one is not inside]  # where it holds, one of them does not
        return all(keeps(flat, carried, one) for one in others)
    return _adds_nothing(after, inside, own) or _Kept(flat, own, inside).by(after)


def holds_only_with(op: Op, mask: Op, depth: int = DEEPEST) -> bool:
    """Whether `op` holds only for elements for which the mask does."""
    value = splat(op)
    if op is mask or (value is not None and not value):
        return True
    if not depth or op.opcode not in ("and", "or", "select"):
        return False
    found = [holds_only_with(o, mask, depth - 1) for o in op.operands if o.shape == mask.shape]
    if op.opcode == "and":
        return any(found)
    if op.opcode == "or":
        return all(found)
    return len(found) == 3 and (found[0] or found[1]) and found[2]


def _adds_nothing(after: Op, inside: Op, own: Op) -> bool:
    if after.opcode != "add" or inside not in after.operands or after.dtype not in INTEGERS:
        return False
    added = after.operands[1] if after.operands[0] is inside else after.operands[0]
    return added.opcode == "convert" and _asks(added.operands[0], own)


def _asks(which: Op, own: Op) -> bool:
    """Whether `which` holds for elements of a row only if `own` does."""
    if which.opcode == "broadcast" and which.attrs["dimensions"] == tuple(range(own.shape.rank)):
        which = which.operands[0]
    if which is own:
        return True
    if which.opcode != "and":
        return False
    return set(conjuncts(own)) <= set(conjuncts(which)) or any(
        _asks(operand, own) for operand in which.operands
    )


class _Kept:
    """Follows elements of what an iteration makes back to those that it was given as `inside`, for
    rows for which `own` does not hold."""

    def __init__(self, flat: Flat, own: Op, inside: Op):
        self.flat, self.own, self.inside = flat, own, inside
        self.place = tuple(variable(f"d{d}", n) for d, n in enumerate(inside.dims))
        self.steps = MOST_STEPS

    def by(self, after: Op) -> bool:
        return after.dims == self.inside.dims and self.is_kept(after, self.place, {})

    def is_kept(self, op: Op, index: Indices, same: dict[int, Index]) -> bool:
        """Whether element `index` of `op` is what the row has at its place. `same` says of which
        dims the place is known to be one that the data decides."""
        self.steps -= 1
        if self.steps < 0:
            return False
        if op is self.inside:
            pairs = enumerate(zip(index, self.place, strict=True))
            return all(at == own or same.get(d) == at for d, (at, own) in pairs)
        if op.opcode == "parameter":
            return index == self.place and self.is_kept_by_a_loop(op)
        if op.opcode == "select":
            return self.is_kept_by_both(op, index, same)
        if kind_of(op.opcode) is not Kind.MOVEMENT or is_branching(op):
            return False
        [read] = reads(op, index)
        return self.is_kept(op.operands[read.operand], read.index, same)

    def is_kept_by_both(self, op: Op, index: Indices, same: dict[int, Index]) -> bool:
        which, yes, no = op.operands
        if which.opcode == "not":
            which, yes, no = which.operands[0], no, yes
        if not self.is_kept(no, index, same):
            return False
        rows = self.own.shape.rank
        if index[:rows] == self.place[:rows] and _asks(which, self.own):
            return True
        return self.is_kept(yes, index, {**same, **self.equal(which, index)})

    def equal(self, which: Op, index: Indices) -> dict[int, Index]:
        """Where a comparison holds, the dim of the place that is what an integer says."""
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
            for d, (own, n) in enumerate(zip(self.place, self.inside.dims, strict=True))
            if at == own
        }

    def is_kept_by_a_loop(self, after: Op) -> bool:
        """Whether what a loop in the loop gives is what the row has: it began with that, and each
        iteration keeps it."""
        for loop in self.flat.every:
            for c in loop.carried:
                if self.flat.parameter(c.after) is after:
                    begun = self.is_kept(self.flat.root(c.first), self.place, {})
                    return begun and keeps(self.flat, c, self.own)
        return False
