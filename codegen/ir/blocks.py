"""What each block does, step by step: at which counters it arrives, for which it waits, and what it
reads and writes in between of memory that other blocks use.

Blocks are followed one by one through all that decides about that. What differs among the threads
of a block is a range, and so are the variables of loops in which blocks do not synchronise.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fusionstitch.codegen.ir.elements import Elements, between
from fusionstitch.codegen.ir.expressions import (
    BLOCK,
    THREAD,
    Expr,
    Infix,
    Integer,
    Name,
)
from fusionstitch.codegen.ir.program import Accessed, Program
from fusionstitch.codegen.ir.reach import Sync
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import (
    Arrive,
    Barrier,
    Body,
    For,
    If,
    Invoke,
    Leave,
    Let,
    Skip,
    Statement,
    Swap,
    Wait,
    While,
)
from fusionstitch.codegen.ir.types import PointerTo
from fusionstitch.codegen.ir.values import holds, value
from fusionstitch.codegen.ir.walk import in_order, names

#: Where a statement is: of each frame around it the side, and its number there from 1 on.
Position = tuple[int, ...]
#: The counter of barriers of the grid: each block arrives at an element of its own of it.
BARRIERS = ""
#: Arrivals and waits that are followed at most, of all blocks once for each block: some seconds.
MOST_STEPS = 1 << 23


class Unknown(Exception):
    """What blocks do at a statement depends on more than the kernel says."""

    def __init__(self, what: str, at: Statement):
        super().__init__(what)
        self.at = at


@dataclass(frozen=True)
class Touched:
    """A read or a write of elements of a buffer (None: of any), after so many syncs of the block,
    at so many of which it arrives. `zeroes`: what is written is zero."""

    buffer: str
    elements: Elements | None
    writes: bool
    zeroes: bool
    syncs: int
    arrivals: int
    at: Statement = field(compare=False)


@dataclass(frozen=True)
class Steps:
    """The syncs of a block, and what it reads and writes."""

    syncs: tuple[Sync, ...]
    touched: tuple[Touched, ...]


def steps_of(program: Program, block: int) -> Steps:
    """What a block does. Raises Unknown where that is not known."""
    walk = Walk(program, block)
    walk.body(program.kernel.body)
    return Steps(tuple(walk.syncs), tuple(dict.fromkeys(walk.touched)))


class _Ended(Exception):
    """The iteration, or the loop (`leaves`), ends here."""

    def __init__(self, leaves: bool):
        super().__init__()
        self.leaves = leaves


class Walk:
    """What one block does, statement by statement."""

    def __init__(self, program: Program, block: int):
        self.program = program
        self.most = MOST_STEPS // program.kernel.grid**2
        self.syncs: list[Sync] = []
        self.touched: list[Touched] = []
        self.arrivals = self.barriers = 0
        self.position: Position = ()
        own = between(0, program.kernel.block - 1)
        self.known: dict[str, Elements | None] = {THREAD.name: own, BLOCK.name: Elements(block)}
        #: the memory that names stand for here: those of buffers, parameters and pointers
        self.buffers_of: dict[str, tuple[str, ...]] = {n: (b,) for n, b in program.same.items()}
        #: those of them that stand for the beginning of it
        self.whole = set(self.buffers_of)
        #: variables that are others by another name
        self.alias: dict[str, str] = {}
        #: whether the innermost loop is one in which blocks synchronise
        self.inside = False
        #: whether what is around in that loop may not hold
        self.unsure = False

    def body(self, body: Body, side: int = 0) -> None:
        """A frame's statements, or those of a side of it."""
        outer, number = self.position, 0
        for number, one in enumerate(in_order(body), start=1):
            self.position = (*outer, side, number)
            if id(one) in self.program.syncing:
                self.until()
            self.statement(one)
        self.position = (*outer, side, number + 1)
        self.until()
        self.position = outer

    def until(self) -> None:
        """Called before a statement at which, or inside of which, blocks synchronise, and at the
        end of a frame."""

    def statement(self, one: Statement) -> None:
        if isinstance(one, For):
            self.counted(one)
        elif isinstance(one, While):
            if id(one) in self.program.syncing:
                raise Unknown("blocks synchronise in a loop that the data ends", one)
            self.alone(one.body)
        elif isinstance(one, If):
            self.branches(one)
        elif isinstance(one, Invoke):
            self.invoke(one)
        else:
            self.simple(one)

    def simple(self, one: Statement) -> None:
        for access in self.program.accesses(one):
            self.touch(access, one)
        if isinstance(one, Let):
            self.define(one)
        elif isinstance(one, Arrive):
            self.sync(one, None)
        elif isinstance(one, Wait):
            self.sync(one, self.number(one.value, one))
        elif isinstance(one, Barrier) and one.scope is Scope.GRID:
            counter = BARRIERS, self.barriers
            self.barriers += 1
            self.arrivals += 1
            self.syncs += [Sync(counter, n, one) for n in (None, self.program.kernel.grid)]
        elif isinstance(one, Swap):
            left, right = self.buffers_of.get(one.left, ()), self.buffers_of.get(one.right, ())
            self.buffers_of |= {one.left: right, one.right: left}
        elif isinstance(one, (Skip, Leave)):
            self.ends(one)

    def define(self, one: Let) -> None:
        if isinstance(one.type, PointerTo):
            self.buffers_of[one.name] = tuple(
                dict.fromkeys(p for name in names(one.value) for p in self.buffers_of.get(name, ()))
            )
        changes = one.changes or one.name in self.program.changing
        self.alias.pop(one.name, None)
        if not changes and (other := _variable(one.value)):
            self.alias[one.name] = self.alias.get(other, other)
        self.known[one.name] = None if changes else value(one.value, self.known)

    def sync(self, one: Arrive | Wait, until: int | None) -> None:
        buffers = self.buffers_of.get(one.counter, ())
        if len(buffers) != 1:
            raise Unknown(f"{one.counter} may be one of several buffers", one)
        counter = buffers[0], self.number(one.index, one)
        if len(self.syncs) >= self.most:
            raise Unknown("blocks arrive and wait too often to be followed", one)
        self.syncs.append(Sync(counter, until, one))
        self.arrivals += until is None

    def number(self, expr: Expr, at: Statement) -> int:
        found = value(expr, self.known)
        if found is None or found.alone is None:
            raise Unknown("for which counter, and which value, is not known", at)
        return found.alone

    def touch(self, access: Accessed, at: Statement) -> None:
        for buffer in self.buffers_of.get(access.buffer, ()):
            known = access.at is not None and access.buffer in self.whole
            elements = value(access.at, self.known) if access.at and known else None
            if elements is not None and access.width > 1:
                elements += between(0, access.width - 1)
            written = access.value and value(access.value, self.known)
            zeroes = isinstance(written, Elements) and written.alone == 0
            when = len(self.syncs), self.arrivals
            self.touched.append(Touched(buffer, elements, access.writes, zeroes, *when, at))

    # ---- control flow ----------------------------------------------------------------------------

    def ends(self, one: Skip | Leave) -> None:
        """The iteration, or the loop, ends for the block: only that of one in which blocks
        synchronise matters, others are ranges of what may happen."""
        found = holds(one.condition, self.known) if self.inside else False
        if found is None or (found and self.unsure):
            raise Unknown("whether blocks synchronise is not known", one)
        if found:
            raise _Ended(leaves=isinstance(one, Leave))

    def branches(self, one: If) -> None:
        if one.given:
            self.statement(one.given)
        unsure = False
        sides = [(one.condition, one.body), *((o.condition, o.body) for o in one.others)]
        for side, (condition, body) in enumerate(sides):
            for access in self.program.reads([condition] if condition else []):
                self.touch(access, one)
            found = holds(condition, self.known) if condition else True
            if found is False:
                continue
            unsure = unsure or found is None
            if unsure and id(one) in self.program.syncing:
                raise Unknown("whether blocks synchronise is not known", one)
            self.where(condition, body, side, unsure)
            if found:
                return

    def where(self, condition: Expr | None, body: Body, side: int, unsure: bool) -> None:
        """A side for those for whom a condition holds; `unsure`: which may be none."""
        before, outer = self.known, self.unsure
        self.known, self.unsure = dict(before), outer or unsure
        if isinstance(condition, Infix) and condition.operator == "<":
            left, right = condition.operands
            limit, name = value(right, self.known), _variable(left)
            name = self.alias.get(name, name)
            own = self.known.get(name)
            if own is not None and limit is not None and limit.alone is not None:
                same = (n for n, other in self.alias.items() if other == name)
                self.known |= dict.fromkeys((name, *same), own.below(limit.alone))
        try:
            self.body(body, side)
        finally:
            self.known, self.unsure = before, outer

    def counted(self, one: For) -> None:
        for access in self.program.reads([one.start, one.stop]):
            self.touch(access, one)
        start, stop = value(one.start, self.known), value(one.stop, self.known)
        if id(one) in self.program.syncing:
            if start is None or stop is None or start.alone is None or stop.alone is None:
                raise Unknown("how often blocks synchronise is not known", one)
            self.iterations(one, start.alone, stop.alone)
            return
        if start is None or stop is None:
            self.known[one.variable] = None
        elif one.down:
            self.known[one.variable] = between(stop.first, start.last)
        elif start.first >= stop.last:
            return
        else:
            self.known[one.variable] = _counted(start, stop.last, one.step)
        self.alone(one.body)

    def alone(self, body: Body) -> None:
        """The body of a loop in which blocks do not synchronise."""
        outer, self.inside = self.inside, False
        self.body(body)
        self.inside = outer

    def iterations(self, one: For, start: int, stop: int) -> None:
        outer, self.inside = self.inside, True
        position = self.position
        for number in range(start, stop - 1, -1) if one.down else range(start, stop, one.step):
            self.known[one.variable], self.position = Elements(number), position
            try:
                self.body(one.body)
            except _Ended as ended:
                if ended.leaves:
                    break
        self.inside = outer

    def invoke(self, one: Invoke) -> None:
        function = self.program.functions[one.function]
        known, buffers_of, whole = self.known, self.buffers_of, self.whole
        self.known = {THREAD.name: known[THREAD.name], BLOCK.name: known[BLOCK.name]}
        self.buffers_of, self.whole = dict(buffers_of), set(whole)
        for (_, name), argument in zip(function.parameters, one.arguments, strict=True):
            self.known[name] = value(argument, known)
            self.buffers_of[name] = tuple(p for n in names(argument) for p in buffers_of.get(n, ()))
            if isinstance(argument, Name) and argument.name in whole:
                self.whole.add(name)
        self.body(function.body)
        self.known, self.buffers_of, self.whole = known, buffers_of, whole


def _variable(expr: Expr) -> str:
    """The variable that an expression is, '' if it is none."""
    if isinstance(expr, Integer) and not expr.index.const and len(expr.index.terms) == 1:
        [(term, factor)] = expr.index.terms
        return term.key if factor == 1 else ""
    return expr.name if isinstance(expr, Name) else ""


def _counted(start: Elements, stop: int, step: int) -> Elements:
    """What a loop's variable may be that goes from a start on."""
    if start.alone is not None or start.steps == ((1, step),):
        return _up_to(start.first, stop, 1 if start.steps else step)
    return start + _up_to(0, stop - start.first, step)


def _up_to(first: int, stop: int, step: int) -> Elements:
    return between(0, (stop - 1 - first) // step) * step + Elements(first)
