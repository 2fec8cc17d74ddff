"""What is measured together: chosen patterns, and XLA's kernels around them.

Where XLA's kernels begin and end is an estimate. So those before and after the ones that patterns
touch are measured, too: XLA decides anew what it fuses, with what it has in the program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fusionstitch.costmodel.xla_fusions import Hero, XlaPlan
from fusionstitch.hlo.graph import ids, inside
from fusionstitch.hlo.semantics import Kind, kind_of
from fusionstitch.hlo.trips import counted
from fusionstitch.patterns.contract import union
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.plan import Chosen, Plan

#: Ops of a group at most. In a longer chain of patterns that share kernels with the next one, each
#: is compared alone, the others taken for stitched.
MOST_OPS = 400
#: What XLA fuses neighbours into: the kernels that it writes itself.
FUSING = frozenset({Hero.LOOP, Hero.REDUCTION, Hero.NORMALISATION})


@dataclass(frozen=True, eq=False)
class Group:
    """`chosen` patterns of one graph, and `near`: their ops, those of all kernels that XLA would
    have for any of them, and of the kernels next to these. `xla_us` is what these kernels are
    modelled to take. The inputs of `near` numbered in `cold` are out of L2 when they are read."""

    near: Pattern
    chosen: tuple[Chosen, ...]
    xla_us: float
    cold: frozenset[int]

    @property
    def key(self) -> str:
        """A hash of the structure and of `cold`: equal keys, equal times."""
        place = {op.id: number for number, op in enumerate(self.near.ops)}
        members = [
            sorted(place[i] for i in ids(one.pattern.bits) if i in place) for one in self.chosen
        ]
        text = f"{self.near.key} {sorted(members)} {sorted(self.cold)}"
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def bits(self) -> frozenset[int]:
        """The patterns."""
        return frozenset(one.pattern.bits for one in self.chosen)


def is_ended_by_data(pattern: Pattern) -> bool:
    """Whether a loop among the ops of a pattern is not known to end by a count: on data drawn at
    random it would end at once, or never."""
    loops = [op for one in pattern.ops for op in (one, *inside(one)) if op.opcode == "while"]
    return not all(map(counted, loops))


def grouped(plan: Plan, xla: XlaPlan) -> list[Group]:
    """The chosen patterns of a plan; those that share a kernel of XLA's are in one group."""
    touched = [_touched(xla, one.pattern.bits) for one in plan.chosen]
    everything = union([one.pattern.bits for one in plan.chosen])
    groups = []
    for members in _connected(touched):
        kernels = set().union(*(touched[n] for n in members))
        own = union([plan.chosen[n].pattern.bits for n in members])
        near = own | union([xla.kernels[k].bits for k in kernels])
        if near.bit_count() <= MOST_OPS or len(members) == 1:
            groups.append(_group(plan, xla, members, near, kernels, everything & ~own))
            continue
        for n in members:
            own = plan.chosen[n].pattern.bits
            near = own | union([xla.kernels[k].bits for k in touched[n]])
            groups.append(_group(plan, xla, [n], near, touched[n], everything & ~own))
    return groups


def beside(plan: Plan, larger: Chosen, xla: XlaPlan) -> Group:
    """The group of a pattern that would take the place of chosen ones."""
    others = [one for one in plan.chosen if not one.pattern.bits & larger.pattern.bits]
    found = grouped(replace(plan, chosen=(larger, *others)), xla)
    return next(group for group in found if larger in group.chosen)


def _group(
    plan: Plan, xla: XlaPlan, members: Sequence[int], near: int, kernels: set[int], others: int
) -> Group:
    """The group of some patterns, which touch `kernels` and are `near` with these; `others` are
    stitched whatever becomes of them."""
    next_to = _next_to(xla, near)
    wide = (near | union([xla.kernels[k].bits for k in next_to])) & ~others
    if wide.bit_count() <= MOST_OPS:
        near, kernels = wide, kernels | next_to
    pattern = Pattern(plan.graph, near & ~others, "compared")
    return Group(
        near=pattern,
        chosen=tuple(plan.chosen[n] for n in members),
        xla_us=sum(xla.kernels[k].us for k in sorted(kernels)),
        cold=_cold(pattern, xla.works.device.l2_bytes),
    )


def _next_to(xla: XlaPlan, near: int) -> set[int]:
    """The kernels that XLA writes itself, of those that write what ops of `near` read, or read what
    they write."""
    ops, users = xla.graph.ops, xla.graph.users
    before = {o.id for i in ids(near) for o in ops[i].operands if not near >> o.id & 1}
    behind = {u.id for i in ids(near) for u in users[i] if not near >> u.id & 1}
    found = {k for i in before for k in xla.writers.get(i, ())}
    found |= {k for i in behind for k in xla.homes.get(i, ())}
    return {k for k in found if xla.kernels[k].hero in FUSING}


def _cold(near: Pattern, l2_bytes: int) -> frozenset[int]:
    """The inputs that L2 cannot have kept: what is given to the graph, if that is too much for it.
    What the graph computes in front of them is still there, as far as it fits."""
    given = [op for op in near.graph if kind_of(op.opcode) is Kind.STRUCTURE]
    if sum(op.shape.bytes for op in given if not op.shape.is_tuple) <= l2_bytes:
        return frozenset()
    return frozenset(n for n, op in enumerate(near.inputs) if op in given)


def _touched(xla: XlaPlan, bits: int) -> set[int]:
    """XLA's kernels that would change without `bits`: an op that several of them compute is cheap,
    and each goes on computing it."""
    homes = [xla.homes.get(i, ()) for i in ids(bits)]
    return {numbers[0] for numbers in homes if len(numbers) == 1}


def _connected(touched: Sequence[set[int]]) -> list[list[int]]:
    """The patterns by the kernels they share, in order."""
    found: list[tuple[list[int], set[int]]] = []
    for number, kernels in enumerate(touched):
        joined = [one for one in found if one[1] & kernels]
        members = sorted([number, *(n for one in joined for n in one[0])])
        found = [one for one in found if one not in joined]
        found.append((members, kernels.union(*(one[1] for one in joined))))
    return [members for members, _ in sorted(found, key=lambda one: one[0])]
