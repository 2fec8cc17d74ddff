"""Barriers: where an access needs one, of those who share the memory.

Those of the grid come first, for what blocks write to global memory and others read: they stand for
all that others would be for. A barrier is placed as late as all that it is for still come: right
before the statement with the access, or, where conditions on threads surround that, before what
they are conditions of. What one iteration of a loop leaves to the next is waited for right after
it instead, because the next one may take another way. Where blocks go through loops together,
lowering itself adds barriers of the grid (`while_loops/lower_phased.py`), over which it moves loads
and stores.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import takewhile

from fusionstitch.codegen.ir.accesses import Access, covers
from fusionstitch.codegen.ir.hazards import Before, Hazards, Missing, Spot, global_areas, may_meet
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.printer import text
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import (
    Array,
    Barrier,
    Blank,
    Body,
    Let,
    Note,
    Shared,
    Statement,
    Table,
)
from fusionstitch.codegen.ir.uniformity import Alike, needed
from fusionstitch.codegen.ir.walk import with_bodies
from fusionstitch.hlo.errors import PassError

#: Barriers that are tried to be taken away again: for each the whole kernel is gone through.
MOST_DOUBTFUL = 16
#: What a barrier moves back over: it changes no memory.
_BESIDE = (Note, Blank)
_DECLARATIONS = (*_BESIDE, Let, Array, Shared, Table)


def place_barriers(kernel: Lowered) -> Lowered:
    """The kernel with the barriers that its accesses to memory of several threads need: of the grid
    only where all blocks run at once.

    Raises PassError for an access that no barrier can come before: a defect of ours.
    """
    areas = global_areas(kernel)
    if not may_meet(kernel, areas):
        return kernel
    placer = _Placer(kernel.cluster)
    hazards = Hazards(kernel, areas, placer)
    try:
        if kernel.cooperative:
            placer.of_grid = True
            hazards.walk()
            placer.of_grid = False
            hazards.begin_again()
        hazards.walk()
        placer.leave_out(hazards)
    except Missing as missing:
        raise PassError(
            f"Defect in fusionstitch: in {kernel.name} no barrier can stand before "
            f"`{text([missing.at]).partition(chr(10))[0]}`, which needs one of "
            f"{missing.barrier.scope.value}. Please report it with this text:\n"
            f"{text(kernel.body)[:2000]}"
        ) from missing
    if not any(placer.added.values()):
        return kernel
    functions = tuple(replace(f, body=placer.body(f.body)) for f in kernel.functions)
    return replace(kernel, functions=functions, body=placer.body(kernel.body))


@dataclass(eq=False)
class _Placer:
    """Barriers by frame, and by the number of the statement there that each comes before."""

    cluster: int
    #: whether those of the grid are added, or the others
    of_grid: bool = False
    added: dict[int, dict[int, Barrier]] = field(default_factory=dict)
    #: where barriers stand that others may do for
    doubtful: list[tuple[int, int]] = field(default_factory=list)
    #: whether no barrier is added any more
    closed: bool = False

    def leave_out(self, hazards: Hazards) -> None:
        """Takes away what barriers that were added later do as well: those of the block for some of
        teams, and those further on in a loop."""
        doubtful = dict.fromkeys(self.doubtful)
        if sum(map(len, self.added.values())) < 2 or len(doubtful) > MOST_DOUBTFUL:
            return
        self.closed = True
        for frame, number in doubtful:
            own = self.added[frame]
            barrier = own.pop(number)
            hazards.changed(frame)
            try:
                hazards.walk()
            except Missing:
                own[number] = barrier
                hazards.changed(frame)

    def added_to(self, body: Body) -> dict[int, Barrier]:
        return self.added.setdefault(id(body), {})

    def before(self, body: Body, befores: list[Before], missing: Missing) -> int | None:
        number = len(befores) - 1
        while not self._fits(missing.barrier, befores[number].here):
            if number == 0:
                return None
            number -= 1
        over = _DECLARATIONS if self.of_grid else _BESIDE
        while number and isinstance(body[number - 1], over):
            number -= 1
        if self.of_grid and number == 0:  # it stands outside of what it comes first in
            return None
        return number if self._add(body, number, missing) else None

    def after(self, way: tuple[Spot, ...], missing: Missing) -> bool:
        if self.closed:
            return False
        inside = list(takewhile(lambda spot: self._fits(missing.barrier, spot.here), way))
        if not inside or not self._add(inside[-1].body, inside[-1].number + 1, missing):
            return False
        self.doubtful.append((id(inside[-1].body), inside[-1].number + 1))
        return True

    def _fits(self, barrier: Barrier, here: Alike) -> bool:
        """Whether all come to a barrier under conditions that are alike for `here`."""
        ours = (barrier.scope is Scope.GRID) == self.of_grid
        return ours and here.holds(needed(barrier, self.cluster))

    def _add(self, body: Body, number: int, missing: Missing) -> bool:
        """Adds a barrier before a statement, or at the end of a frame; False if there is one that
        does the same: what is to be waited for then comes after it."""
        needed, known = missing.barrier, self.added_to(body).get(number)
        if self.closed:
            return False
        if known is not None:
            if covers(known, needed):
                return False
            needed = needed if covers(needed, known) else Barrier(Scope.BLOCK)
        elif needed.scope is Scope.TEAM:
            self.doubtful.append((id(body), number))
        why = "" if self.of_grid else _why(missing.access, missing.before)
        barrier = replace(needed, why=why)
        self.added_to(body)[number] = barrier
        return True

    def body(self, body: Body) -> Body:
        """A frame with its barriers in place."""
        own = self.added.get(id(body), {})
        found: list[Statement] = []
        for number, one in enumerate(body):
            if number in own:
                found.append(own[number])
            found.append(with_bodies(one, self.body))
        if len(body) in own:
            found.append(own[len(body)])
        return tuple(found)


def _why(access: Access, before: Access) -> str:
    if before.writes and not access.writes:
        return f"{access.name} is read"
    return f"{before.name} was read" if not before.writes else f"{before.name} was written"
