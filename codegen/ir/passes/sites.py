"""Loads and stores of a loop's iterations that registers may stand for.

A site is an access whose address and conditions are made of what is known before the loop: the
thread, and inner loops whose numbers of iterations are known. Those are written out, so that each
element has a register of its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fusionstitch.codegen.index_maps.index import Index, variable
from fusionstitch.codegen.ir.expressions import (
    Element,
    Expr,
    Integer,
    Load,
    LoadVector,
    Name,
    all_of,
    number,
)
from fusionstitch.codegen.ir.statements import ALL, Array, Assign, For, If, Let, Note, Statement
from fusionstitch.codegen.ir.types import INT, Type
from fusionstitch.codegen.ir.walk import names
from fusionstitch.codegen.text.source import comment

#: Elements that one load gives over all iterations of the loops around it, at most: they are
#: written out in the code, too.
MOST_ELEMENTS = 128
#: Copies of a statement, over all loops around it that are written out.
MOST_COPIES = 1024


@dataclass(frozen=True, eq=False)
class Unrolled:
    """A loop inside, written out in `count` iterations of a counter; threads may take `fewer`."""

    loop: For
    counter: str
    count: int
    fewer: bool

    @property
    def iteration(self) -> Index:
        """The number of an iteration."""
        return variable(self.counter, self.count)


@dataclass(eq=False)
class Site:
    """A load that may be held: where it reads, under which conditions, in which loops, and those
    of them along which its elements differ. `name` is the array that holds them."""

    load: Load | LoadVector
    type: Type
    at: Index
    conditions: tuple[Expr, ...]
    loops: tuple[Unrolled, ...]
    #: integers that the address and the conditions are made of
    bounds: tuple[Let, ...]
    name: str = ""

    @functools.cached_property
    def along(self) -> list[Unrolled]:
        used = {v.name for v in self.at.variables}
        for bound in reversed(self.bounds):
            if bound.name in used:
                used |= set(names(bound.value))
        return [unrolled for unrolled in self.loops if unrolled.counter in used]

    @property
    def elements(self) -> int:
        return math.prod(unrolled.count for unrolled in self.along)

    @property
    def words(self) -> int:
        """Registers of a thread."""
        return self.elements * max(1, self.type.bytes // 4)

    @property
    def saved(self) -> float:
        """Loads of an iteration that each register saves."""
        return math.prod(unrolled.count for unrolled in self.loops) / self.words

    @property
    def element(self) -> Name | Element:
        """What is read instead."""
        if self.elements == 1:
            return Name(self.name)
        index = Index()
        for unrolled in self.along:
            index = index * unrolled.count + unrolled.iteration
        return Element(Name(self.name), Integer(index))


def chosen_sites(sites: Sequence[Site | None], registers: int) -> list[Site]:
    """The sites that fit, those that save most loads first."""
    chosen: list[Site] = []
    for site in sorted(filter(None, sites), key=lambda site: (-site.saved, site.words)):
        few = site.elements <= MOST_ELEMENTS and _copies([*chosen, site]) <= MOST_COPIES
        if site.words <= registers and few:
            registers -= site.words
            chosen.append(site)
    return [site for site in sites if site in chosen and site is not None]


def _copies(sites: Sequence[Site]) -> int:
    """How often the code has what reads one of the sites, where all of them are held."""
    written = {unrolled for site in sites for unrolled in site.along}
    return max(
        math.prod(unrolled.count for unrolled in site.loops if unrolled in written)
        for site in sites
    )


def loaded(site: Site, why: str) -> list[Statement]:
    """A comment, an array, and the loads that fill it."""
    about = comment(f"{buffer_of(site.load)}: {why}")
    size = site.elements if site.elements > 1 else None
    body = Assign(site.element, replace(site.load, at=Integer(site.at)))
    return [Note(about), Array(site.type, site.name, size), *around(site, body)]


def around(site: Site, body: Statement) -> list[Statement]:
    """What is done for each element of a site, where its conditions hold."""
    if (condition := all_of(site.conditions)) is not None:
        body = If(condition, body=(body,))
    used = {name for condition in site.conditions for name in names(condition)}
    used |= {name for bound in site.bounds for name in names(bound.value)}
    around = [t for t in site.loops if t in site.along or t.counter in used]
    lines = [*site.bounds, body]
    for unrolled in reversed(around):
        lines = [counted(unrolled, tuple(lines))]
    return lines


def counted(unrolled: Unrolled, body: tuple[Statement, ...]) -> For:
    """The loop, written out."""
    return For(INT, unrolled.counter, number(0), number(unrolled.count), unroll=ALL, body=body)


def unknown(before: Sequence[Statement], lines: Iterable[Statement]) -> list[Statement]:
    """Lines without the integers that are known from what stands before."""
    return [one for one in lines if not isinstance(one, Let) or one not in before]


def buffer_of(load: Load | LoadVector) -> str:
    """The name of what is read, '' where that is computed."""
    return load.buffer.name if isinstance(load.buffer, Name) else ""
