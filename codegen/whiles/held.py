"""What iterations read again and again is loaded into registers before the loop.

A load is held if its address and the conditions around it are the same in all iterations: they
depend on the thread, and on inner loops whose numbers of turns are known. Those are written out, so
that each element has a register of its own.

    for (turn ...)                                   float w_held[4];
      for (column = lane; column < 16; column += 4)  FS_UNROLL for (n = 0; n < 4; ++n)
        sum += w[column] * ...;                        w_held[n] = w[n * 4 + lane];
                                                     for (turn ...)
                                                       FS_UNROLL for (n = 0; n < 4; ++n)
                                                         sum += w_held[n] * ...;
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from fusionstitch.codegen.count.kinds import bytes_of
from fusionstitch.codegen.ir.expressions import (
    BLOCK,
    THREAD,
    Apply,
    Choice,
    Element,
    Expr,
    Infix,
    Integer,
    Load,
    LoadVector,
    Name,
    Number,
    all_of,
    apply,
    infix,
    number,
)
from fusionstitch.codegen.ir.statements import (
    ALL,
    Array,
    Assign,
    Barrier,
    Branch,
    Call,
    Fill,
    For,
    Group,
    If,
    Let,
    Note,
    Shared,
    Skip,
    Statement,
    Store,
    Table,
    While,
)
from fusionstitch.codegen.ir.walk import NODES, every, names
from fusionstitch.codegen.places.index import Index, constant, substituted, variable
from fusionstitch.codegen.text.source import comment

#: Elements that one load gives over all turns of the loops around it, at most: they are written
#: out in the code, too.
MOST_ELEMENTS = 128
#: Copies of a statement, over all loops around it that are written out.
MOST_COPIES = 1024
#: No integer of a kernel's addresses is as large, as far as nothing else is known.
_ANY = 1 << 62

Loop = For | While


@dataclass(frozen=True, eq=False)
class Turns:
    """A loop inside, written out in `count` turns of a counter; threads may take `fewer`."""

    loop: For
    counter: str
    count: int
    fewer: bool

    @property
    def place(self) -> Index:
        """The number of a turn."""
        return variable(self.counter, self.count)


@dataclass(eq=False)
class Site:
    """A load that may be held: where it reads, under which conditions, in which loops, and those
    of them along which its elements differ. `name` is the array that holds them."""

    load: Load | LoadVector
    kind: str
    at: Index
    conditions: tuple[Expr, ...]
    loops: tuple[Turns, ...]
    #: integers that the address and the conditions are made of
    bounds: tuple[Let, ...]
    name: str = ""

    @functools.cached_property
    def along(self) -> list[Turns]:
        used = {v.name for v in self.at.variables}
        for bound in reversed(self.bounds):
            if bound.name in used:
                used |= set(names(bound.value))
        return [turns for turns in self.loops if turns.counter in used]

    @property
    def elements(self) -> int:
        return math.prod(turns.count for turns in self.along)

    @property
    def words(self) -> int:
        """Registers of a thread."""
        return self.elements * max(1, bytes_of(self.kind) // 4)

    @property
    def saved(self) -> float:
        """Loads of an iteration that each register saves."""
        return math.prod(turns.count for turns in self.loops) / self.words

    @property
    def element(self) -> Name | Element:
        """What is read instead."""
        if self.elements == 1:
            return Name(self.name)
        place = Index()
        for turns in self.along:
            place = place * turns.count + turns.place
        return Element(Name(self.name), Integer(place))


def hold(
    loop: Loop,
    kinds: Mapping[str, str],
    room: int,
    threads: tuple[int, int],
    named: Callable[[str], str],
) -> tuple[list[Statement], Loop]:
    """What comes before a loop of iterations, and the loop.

    `kinds` are C types of elements, by buffer; `room` the registers that a thread has for what it
    holds; `threads` those of a block, and the blocks of the grid. `named` makes a name of its own.
    """
    walk = Walk(loop, kinds, threads, named)
    walk.once()
    before = all_loaded(walk, room, "held", "what a thread reads of it in every iteration")
    if not before:
        return [], loop
    return [*walk.asked(before), *before], walk.once()


def all_loaded(walk: Walk, room: int, word: str, why: str) -> list[Statement]:
    """The loads of the sites that fit, which get their names by a word."""
    before: list[Statement] = []
    for site in chosen_sites(walk.sites, room):
        site.name = walk.named(f"{buffer_of(site.load)}_{word}")
        before += unknown(before, loaded(site, why))
    return before


def unknown(before: Sequence[Statement], lines: Iterable[Statement]) -> list[Statement]:
    """Lines without the integers that are known from what stands before."""
    return [one for one in lines if not isinstance(one, Let) or one not in before]


def chosen_sites(sites: Sequence[Site | None], room: int) -> list[Site]:
    """The sites that fit, those that save most loads first."""
    chosen: list[Site] = []
    for site in sorted(filter(None, sites), key=lambda site: (-site.saved, site.words)):
        few = site.elements <= MOST_ELEMENTS and _copies([*chosen, site]) <= MOST_COPIES
        if site.words <= room and few:
            room -= site.words
            chosen.append(site)
    return [site for site in sites if site in chosen and site is not None]


def _copies(sites: Sequence[Site]) -> int:
    """How often the code has what reads one of the sites, where all of them are held."""
    written = {turns for site in sites for turns in site.along}
    return max(math.prod(turns.count for turns in site.loops if turns in written) for site in sites)


def loaded(site: Site, why: str) -> list[Statement]:
    """An array, and the loads that fill it."""
    about = comment(f"{buffer_of(site.load)}: {why}")
    size = site.elements if site.elements > 1 else None
    body = Assign(site.element, replace(site.load, at=Integer(site.at)))
    return [Note(about), Array(site.kind, site.name, size), *around(site, body)]


def around(site: Site, body: Statement) -> list[Statement]:
    """What is done for each element of a site, where its conditions hold."""
    if (condition := all_of(site.conditions)) is not None:
        body = If(condition, body=(body,))
    asked = {name for condition in site.conditions for name in names(condition)}
    asked |= {name for bound in site.bounds for name in names(bound.value)}
    around = [t for t in site.loops if t in site.along or t.counter in asked]
    lines = [*site.bounds, body]
    for turns in reversed(around):
        lines = [_counted(turns, tuple(lines))]
    return lines


def _counted(turns: Turns, body: tuple[Statement, ...]) -> For:
    return For("int", turns.counter, number(0), number(turns.count), unroll=ALL, body=body)


@dataclass
class _Frame:
    """What is known at a statement: integers by name (None: they change from iteration to
    iteration), the conditions and the loops around it. In an `unsure` one nothing is held."""

    known: dict[str, Index | None]
    conditions: tuple[Expr, ...] = ()
    loops: tuple[Turns, ...] = ()
    bounds: tuple[Let, ...] = ()
    unsure: bool = False

    def inner(self, condition: Expr | None = None, **changes: Any) -> _Frame:
        """A frame inside of this one, where a condition holds."""
        frame = replace(self, known=dict(self.known), **changes)
        frame.where(condition)
        return frame

    def where(self, condition: Expr | None) -> None:
        """From here on a condition holds."""
        if condition is None:
            return
        found = self.resolved(condition)
        if found is None:
            self.unsure = True
        else:
            self.conditions += (found,)

    def resolved(self, expr: Expr) -> Expr | None:
        """A condition, asked before the loop; None for one that iterations change."""
        if isinstance(expr, (Infix, Apply)):
            inner = expr.operands if isinstance(expr, Infix) else expr.arguments
            found = [self.resolved(operand) for operand in inner]
            known = tuple(operand for operand in found if operand is not None)
            if len(known) < len(inner) or (isinstance(expr, Apply) and expr.function != "!"):
                return None
            return Infix(expr.operator, known) if isinstance(expr, Infix) else apply("!", *known)
        index = self.index(expr)
        return None if index is None else Integer(index)

    def index(self, expr: Expr) -> Index | None:
        """An integer, by what is known before the loop."""
        if isinstance(expr, Number):
            return constant(int(expr.text)) if expr.text.isdigit() else None
        if isinstance(expr, Name):
            return self.known.get(expr.name, variable(expr.name, _ANY))
        if isinstance(expr, Integer):
            return self._substituted(expr.index)
        if isinstance(expr, Infix) and len(expr.operands) == 2:
            left, right = map(self.index, expr.operands)
            return _combined(expr.operator, left, right)
        return None

    def _substituted(self, index: Index) -> Index | None:
        if index.fetched:
            return None
        values: dict[Any, Index] = {}
        for v in index.variables:
            if v.name not in self.known:
                continue
            found = self.known[v.name]
            if found is None:
                return None
            values[v] = found
        return substituted(index, values)


def _combined(operator: str, left: Index | None, right: Index | None) -> Index | None:
    if left is None or right is None:
        return None
    if operator in ("+", "-"):
        return left + right if operator == "+" else left - right
    if operator == "*" and not (left.terms and right.terms):
        return left * right.const if left.terms else right * left.const
    if operator in ("/", "%") and left.lo >= 0 and not right.terms and right.const > 0:
        return left // right.const if operator == "/" else left % right.const
    return None


class Walk:
    """Goes through a loop's statements: at first to find the sites, in their order, then once more
    to read what some of them hold. Where the number of an iteration is called `turn`, sites are
    those that it changes and that stand behind its first barrier, or (`early`) before it; else
    those that nothing changes. They are loads, or `stores`. All stand `behind` a barrier where
    barriers are placed later."""

    def __init__(
        self,
        loop: Loop,
        kinds: Mapping[str, str],
        threads: tuple[int, int],
        named: Callable[[str], str],
        turn: str = "",
        *,
        early: bool = False,
        stores: bool = False,
        behind: bool = False,
    ):
        self.loop, self.kinds, self.named, self.turn = loop, kinds, named, turn
        self.early, self.stores, self.behind, self.met = early, stores, behind, behind
        nodes = list(every(loop.body))
        #: the numbers of the thread and its block as integers that may become negative: those of
        #: the hardware have no sign
        self.places = [
            Let("int", named(name), hardware)
            for name, hardware in (("thread", THREAD), ("block", BLOCK))
        ]
        self.start: dict[str, Index | None] = dict.fromkeys(_changing(loop, nodes) - {turn})
        for own, hardware, extent in zip(self.places, (THREAD, BLOCK), threads, strict=True):
            self.start[hardware.name] = variable(own.name, extent)
        self.read_only = _read_only(loop)
        self.sites: list[Site | None] = []
        self.turns: dict[int, Turns] = {}
        self.bounds: dict[int, Let] = {}
        self.number = 0

    def asked(self, by: Sequence[Statement]) -> list[Statement]:
        """The numbers of the thread and its block that statements name."""
        named = {name for one in by for name in names(one)}
        return [place for place in self.places if place.name in named]

    def once(self) -> Loop:
        """The loop, whose iterations read what is held by now."""
        self.number, self.met = 0, self.behind
        return replace(self.loop, body=self.body(self.loop.body, _Frame(dict(self.start))))

    def body(self, body: Iterable[Statement], frame: _Frame) -> tuple[Statement, ...]:
        return tuple(self.statement(one, frame) for one in body)

    def statement(self, one: Statement, frame: _Frame) -> Statement:
        if isinstance(one, Group):
            return replace(one, body=self.body(one.body, frame))
        if isinstance(one, Barrier):
            self.met = True
        if isinstance(one, While):
            return replace(one, body=self.body(one.body, frame.inner(unsure=True)))
        if isinstance(one, For):
            return self._for(one, frame)
        if isinstance(one, If):
            return self._if(one, frame)
        new: Statement = self.value(one, frame, not isinstance(one, Call))
        if self.stores and isinstance(new, Store):
            place = Load(Name(new.buffer), new.address)
            if (site := self._site(place, frame, not frame.unsure)) and site.name:
                return Assign(site.element, new.value)
        if isinstance(one, Let):
            frame.known[one.name] = None if one.changes else self._integer(one, frame)
        elif isinstance(one, Skip):
            frame.where(apply("!", one.condition))
        return new

    def _integer(self, one: Let, frame: _Frame) -> Index | None:
        """What a variable is, by what is known before the loop: where that is the lesser of two
        integers, it gets a name there."""
        value = one.value
        if not (isinstance(value, Apply) and value.function.startswith("fs_min")):
            return frame.index(value)
        found = [frame.index(argument) for argument in value.arguments]
        known = [index for index in found if index is not None]
        if len(known) < len(found) or min(index.lo for index in known) < 0:
            return None
        if id(one) not in self.bounds:
            least = Apply(value.function, tuple(map(Integer, known)))
            self.bounds[id(one)] = Let(one.kind, self.named(one.name), least)
        bound = self.bounds[id(one)]
        frame.bounds += (bound,)
        return variable(bound.name, min(index.hi for index in known) + 1)

    def _if(self, one: If, frame: _Frame) -> If:
        inner = frame.inner()
        given = self.statement(one.given, inner) if one.given else None
        condition = self.value(one.condition, inner, False)
        body = self.body(one.body, inner.inner(one.condition))
        others = []
        before: Expr = one.condition
        for other in one.others:
            inner.where(apply("!", before))
            own = self.body(other.body, inner.inner(other.condition))
            before = other.condition or before
            others.append(Branch(self.value(other.condition, inner, False), own))
        assert given is None or isinstance(given, Let)
        return replace(one, given=given, condition=condition, body=body, others=tuple(others))

    def _for(self, one: For, frame: _Frame) -> For:
        start, stop = self.value(one.start, frame, False), self.value(one.stop, frame, False)
        turns = self._turns(one, frame)
        if turns is None:
            inner = frame.inner(unsure=True)
            inner.known[one.variable] = None
            return replace(one, start=start, stop=stop, body=self.body(one.body, inner))
        first = frame.index(one.start)
        assert first is not None
        step = -1 if one.down else one.step
        inner = frame.inner(loops=(*frame.loops, turns))
        inner.known[one.variable] = first + turns.place * step
        bound = infix(">=" if one.down else "<", Name(one.variable), one.stop)
        inner.where(bound if turns.fewer else None)
        body = self.body(one.body, inner)
        if not any(site and site.name and turns in site.along for site in self.sites):
            return replace(one, start=start, stop=stop, body=body)
        own: list[Statement] = []
        if turns.counter != one.variable:
            place = infix("+", one.start, Integer(turns.place * step))
            own.append(Let(one.kind, one.variable, place))
        if turns.fewer:
            own.append(Skip(apply("!", bound)))
        return _counted(turns, (*own, *body))

    def _turns(self, one: For, frame: _Frame) -> Turns | None:
        """How often a loop turns, if that is the same in all iterations."""
        start, stop = frame.index(one.start), frame.index(one.stop)
        if start is None or stop is None:
            return None
        if one.down:
            most, least = start.hi - stop.lo + 1, start.lo - stop.hi + 1
        else:
            most, least = (
                -(-(end - begin) // one.step)
                for end, begin in ((stop.hi, start.lo), (stop.lo, start.hi))
            )
        if not 0 < most < _ANY // 2:
            return None
        if id(one) not in self.turns:
            plain = start == Index() and one.step == 1 and not one.down
            counter = one.variable if plain else self.named(f"{one.variable}_turn")
            self.turns[id(one)] = Turns(one, counter, most, least < most)
        return self.turns[id(one)]

    def value(self, value: Any, frame: _Frame, sure: bool) -> Any:
        """A node that reads what is held. What runs conditionally is not `sure`."""
        if type(value) is tuple:
            return tuple(self.value(one, frame, sure) for one in value)
        if type(value) not in NODES:
            return value
        if isinstance(value, Choice) or (isinstance(value, Infix) and value.operator == "&&"):
            sure = False
        if isinstance(value, (Load, LoadVector)) and not self.stores:
            site = self._site(value, frame, sure and not frame.unsure)
            if site and site.name:
                return site.element
        inner = {f.name: self.value(getattr(value, f.name), frame, sure) for f in fields(value)}
        return type(value)(**inner)

    def _site(self, load: Load | LoadVector, frame: _Frame, sure: bool) -> Site | None:
        """The site of a load, if it may be held."""
        if self.number == len(self.sites):
            at, buffer = frame.index(load.at), buffer_of(load)
            kind = self.kinds.get(buffer) if sure else None
            if not self.stores and buffer not in self.read_only:
                kind = None
            if at is None or kind is None or not self._wanted(at):
                self.sites.append(None)
            else:
                if isinstance(load, LoadVector):
                    kind = f"fs_loaded<{load.kind}, {load.width}>"
                bounds = _asked(frame.bounds, [Integer(at), *frame.conditions])
                self.sites.append(Site(load, kind, at, frame.conditions, frame.loops, bounds))
        self.number += 1
        return self.sites[self.number - 1]

    def _wanted(self, at: Index) -> bool:
        """Whether an access there is one of those that are looked for."""
        if self.stores or not self.turn:
            return True
        return self.met is not self.early and any(v.name == self.turn for v in at.variables)


def _asked(bounds: Sequence[Let], by: Iterable[Expr]) -> tuple[Let, ...]:
    """The bounds that expressions, and further bounds, are made of."""
    asked = {name for expr in by for name in names(expr)}
    found: list[Let] = []
    for bound in reversed(bounds):
        if bound.name in asked:
            found.insert(0, bound)
            asked |= set(names(bound.value))
    return tuple(found)


def _changing(loop: Loop, nodes: Sequence[Any]) -> set[str]:
    """What an iteration defines, or changes."""
    found = {loop.variable} if isinstance(loop, For) else set()
    for one in nodes:
        if isinstance(one, (Let, Array, Shared, Table)):
            found.add(one.name)
        elif isinstance(one, For):
            found.add(one.variable)
        elif isinstance(one, Fill):
            found |= {"i", one.array}
        elif isinstance(one, Assign) and isinstance(one.target, Name):
            found.add(one.target.name)
        elif isinstance(one, Call):
            found |= set(names(one))
    return found


def _read_only(loop: Loop) -> set[str]:
    """The buffers that iterations name only to load from them."""
    loads = (one for one in every(loop.body) if isinstance(one, (Load, LoadVector)))
    loaded = Counter(map(buffer_of, loads))
    named = Counter(name for one in loop.body for name in names(one))
    return {name for name, times in loaded.items() if times == named[name]}


def buffer_of(load: Load | LoadVector) -> str:
    """The name of what is read, '' where that is computed."""
    return load.buffer.name if isinstance(load.buffer, Name) else ""
