"""Where the iterations of a loop load or store what registers may stand for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from fusionstitch.codegen.index_maps.index import Index, variable
from fusionstitch.codegen.ir.expressions import (
    BLOCK,
    THREAD,
    Apply,
    Choice,
    Expr,
    Infix,
    Integer,
    Load,
    LoadVector,
    Name,
    Not,
    infix,
)
from fusionstitch.codegen.ir.intrinsics import MINIMUM
from fusionstitch.codegen.ir.passes.frame import ANY, Frame
from fusionstitch.codegen.ir.passes.sites import (
    Site,
    Unrolled,
    buffer_of,
    chosen_sites,
    counted,
    loaded,
    unknown,
)
from fusionstitch.codegen.ir.statements import (
    Assign,
    Barrier,
    Branch,
    Call,
    Fill,
    For,
    Group,
    If,
    Invoke,
    Leave,
    Let,
    Skip,
    Statement,
    Store,
    While,
)
from fusionstitch.codegen.ir.types import INT, LONG, Raw, Record, Scalar, Type, VectorOf
from fusionstitch.codegen.ir.walk import NODES, declared, every, names

#: The integers that index large arrays.


class Walk:
    """Goes through a loop's statements: at first to find the sites, in their order, then once more
    to read what some of them hold. Where there is a name for the number of an `iteration`, sites
    are those that it changes and that stand after its first barrier, or (`early`) before it; else
    those that nothing changes. They are loads, or `stores`. All stand `after_barrier` where
    barriers are placed later."""

    def __init__(
        self,
        loop: For | While,
        types: Mapping[str, Scalar | Record | Raw],
        threads: tuple[int, int],
        named: Callable[[str], str],
        iteration: str = "",
        *,
        early: bool = False,
        stores: bool = False,
        after_barrier: bool = False,
    ):
        self.loop, self.types, self.named, self.iteration = loop, types, named, iteration
        self.early, self.stores, self.after_barrier, self.met = (
            early,
            stores,
            after_barrier,
            after_barrier,
        )
        nodes = list(every(loop.body))
        #: the numbers of the thread and its block as integers that may become negative (those of
        #: the hardware have no sign), as wide as others in the loop
        wide = any(isinstance(one, (For, Let)) and one.type == LONG for one in (loop, *nodes))
        self.numbers = [
            Let(LONG if wide else INT, named(name), hardware)
            for name, hardware in (("thread", THREAD), ("block", BLOCK))
        ]
        self.start: dict[str, Index | None] = dict.fromkeys(_changing(loop, nodes) - {iteration})
        for own, hardware, extent in zip(self.numbers, (THREAD, BLOCK), threads, strict=True):
            self.start[hardware.name] = variable(own.name, extent)
        self.read_only = _read_only(loop)
        self.sites: list[Site | None] = []
        self.unrolled: dict[int, Unrolled] = {}
        self.bounds: dict[int, Let] = {}
        self.number = 0

    def numbers_in(self, by: Sequence[Statement]) -> list[Statement]:
        """The numbers of the thread and its block that statements name."""
        named = {name for one in by for name in names(one)}
        return [one for one in self.numbers if one.name in named]

    def name_sites(self, registers: int, word: str) -> None:
        """Gives those sites that fit their names, by a word."""
        for site in chosen_sites(self.sites, registers):
            site.name = self.named(f"{buffer_of(site.load)}_{word}")

    def loads(self, why: str) -> list[Statement]:
        """The loads of the sites that have names."""
        before: list[Statement] = []
        for site in filter(None, self.sites):
            before += unknown(before, loaded(site, why)) if site.name else []
        return before

    def once(self) -> For | While:
        """The loop, whose iterations read what is held by now."""
        self.number, self.met = 0, self.after_barrier
        return replace(self.loop, body=self.body(self.loop.body, Frame(dict(self.start))))

    def body(self, body: Iterable[Statement], frame: Frame) -> tuple[Statement, ...]:
        return tuple(self.statement(one, frame) for one in body)

    def statement(self, one: Statement, frame: Frame) -> Statement:
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
        new: Statement = self.value(one, frame, not isinstance(one, (Call, Invoke)))
        if self.stores and isinstance(new, Store):
            load = Load(Name(new.buffer), new.address)
            if (site := self._site(load, frame, not frame.unsure)) and site.name:
                return Assign(site.element, new.value)
        if isinstance(one, Let):
            frame.known[one.name] = None if one.changes else self._integer(one, frame)
        elif isinstance(one, Skip):
            frame.where(Not(one.condition))
        elif isinstance(one, Leave):  # what an iteration before decided counts as well
            frame.unsure = True
        return new

    def _integer(self, one: Let, frame: Frame) -> Index | None:
        """What a variable is, by what is known before the loop: where that is the lesser of two
        integers, it gets a name there."""
        value = one.value
        if not (isinstance(value, Apply) and value.intrinsic is MINIMUM):
            return frame.index(value)
        found = [frame.index(argument) for argument in value.arguments]
        known = [index for index in found if index is not None]
        if len(known) < len(found) or min(index.lo for index in known) < 0:
            return None
        if id(one) not in self.bounds:
            least = replace(value, arguments=tuple(map(Integer, known)))
            self.bounds[id(one)] = Let(one.type, self.named(one.name), least)
        bound = self.bounds[id(one)]
        frame.bounds += (bound,)
        return variable(bound.name, min(index.hi for index in known) + 1)

    def _if(self, one: If, frame: Frame) -> If:
        inner = frame.inner()
        given = self.statement(one.given, inner) if one.given else None
        condition = self.value(one.condition, inner, False)
        body = self.body(one.body, inner.inner(one.condition))
        others = []
        before: Expr = one.condition
        for other in one.others:
            inner.where(Not(before))
            own = self.body(other.body, inner.inner(other.condition))
            before = other.condition or before
            others.append(Branch(self.value(other.condition, inner, False), own))
        assert given is None or isinstance(given, Let)
        return replace(one, given=given, condition=condition, body=body, others=tuple(others))

    def _for(self, one: For, frame: Frame) -> For:
        start, stop = self.value(one.start, frame, False), self.value(one.stop, frame, False)
        unrolled = self._unrolled(one, frame)
        if unrolled is None:
            inner = frame.inner(unsure=True)
            inner.known[one.variable] = None
            return replace(one, start=start, stop=stop, body=self.body(one.body, inner))
        first = frame.index(one.start)
        assert first is not None
        step = -1 if one.down else one.step
        inner = frame.inner(loops=(*frame.loops, unrolled))
        inner.known[one.variable] = first + unrolled.iteration * step
        bound = infix(">=" if one.down else "<", Name(one.variable), one.stop)
        inner.where(bound if unrolled.fewer else None)
        body = self.body(one.body, inner)
        if not any(site and site.name and unrolled in site.along for site in self.sites):
            return replace(one, start=start, stop=stop, body=body)
        own: list[Statement] = []
        if unrolled.counter != one.variable:
            value = infix("+", one.start, Integer(unrolled.iteration * step))
            own.append(Let(one.type, one.variable, value))
        if unrolled.fewer:
            own.append(Skip(Not(bound)))
        return counted(unrolled, (*own, *body))

    def _unrolled(self, one: For, frame: Frame) -> Unrolled | None:
        """An inner loop, if it is as long in all iterations."""
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
        if not 0 < most < ANY // 2:
            return None
        if id(one) not in self.unrolled:
            plain = start == Index() and one.step == 1 and not one.down
            counter = one.variable if plain else self.named(f"{one.variable}_turn")
            self.unrolled[id(one)] = Unrolled(one, counter, most, least < most)
        return self.unrolled[id(one)]

    def value(self, value: Any, frame: Frame, sure: bool) -> Any:
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

    def _site(self, load: Load | LoadVector, frame: Frame, sure: bool) -> Site | None:
        """The site of a load, if it may be held."""
        if self.number == len(self.sites):
            at, buffer = frame.index(load.at), buffer_of(load)
            kind: Type | None = self.types.get(buffer) if sure else None
            if not self.stores and buffer not in self.read_only:
                kind = None
            if at is None or kind is None or not self._is_candidate(at):
                self.sites.append(None)
            else:
                if isinstance(load, LoadVector):
                    kind = VectorOf(load.type, load.width, loaded=True)
                bounds = _bounds_of(frame.bounds, [Integer(at), *frame.conditions])
                self.sites.append(Site(load, kind, at, frame.conditions, frame.loops, bounds))
        self.number += 1
        return self.sites[self.number - 1]

    def _is_candidate(self, at: Index) -> bool:
        """Whether an access there is one of those that are looked for."""
        if self.stores or not self.iteration:
            return True
        return self.met is not self.early and any(v.name == self.iteration for v in at.variables)


def _bounds_of(bounds: Sequence[Let], by: Iterable[Expr]) -> tuple[Let, ...]:
    """The bounds that expressions, and further bounds, are made of."""
    used = {name for expr in by for name in names(expr)}
    found: list[Let] = []
    for bound in reversed(bounds):
        if bound.name in used:
            found.insert(0, bound)
            used |= set(names(bound.value))
    return tuple(found)


def _changing(loop: For | While, nodes: Sequence[Any]) -> set[str]:
    """What an iteration defines, or changes."""
    found = {loop.variable} if isinstance(loop, For) else set()
    for one in nodes:
        found |= set(declared(one))
        if isinstance(one, Fill):
            found |= {"i", one.array}
        elif isinstance(one, Assign) and isinstance(one.target, Name):
            found.add(one.target.name)
        elif isinstance(one, (Call, Invoke)):
            found |= set(names(one))
    return found


def _read_only(loop: For | While) -> set[str]:
    """The buffers that iterations name only to load from them."""
    loads = (one for one in every(loop.body) if isinstance(one, (Load, LoadVector)))
    loaded = Counter(map(buffer_of, loads))
    named = Counter(name for one in loop.body for name in names(one))
    return {name for name, times in loaded.items() if times == named[name]}
