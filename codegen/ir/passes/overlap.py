"""Overlaps memory accesses with barriers: loads that are under way by then, and stores that a
cluster barrier does not wait for.

Each iteration may read at an index of its own, such as the inputs of a step. Such a load moves to
the begin of the iteration if it stands after a barrier, else into the iteration before. In blocks
that work alone, where barriers are placed later, all loads of one element per thread move into the
iteration before. A store that nothing in the loop reads waits in registers until after the barrier
at the end: the release of that barrier would wait for the memory.

    for (turn ...)                                   for (turn ...)
      ...                                              x_ahead = x[turn * 128 + lane];
      fs_cluster_barrier();                            ...
      y = f(x[turn * 128 + lane]);                     fs_cluster_barrier();
      out[turn * 128 + lane] = y;                      out_behind = f(x_ahead);
      fs_cluster_barrier();                            fs_cluster_barrier();
                                                       out[turn * 128 + lane] = out_behind;
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fusionstitch.codegen.index_maps.index import Index, Var, substituted, variable
from fusionstitch.codegen.ir.expressions import Integer, Name, infix, least
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.names import Names
from fusionstitch.codegen.ir.passes.iterations import Loop, Types, with_loops
from fusionstitch.codegen.ir.passes.site_walk import Walk
from fusionstitch.codegen.ir.passes.sites import (
    Site,
    around,
    buffer_of,
    chosen_sites,
    loaded,
    unknown,
)
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import (
    Array,
    Barrier,
    Blank,
    For,
    Group,
    If,
    Let,
    Note,
    Statement,
    Store,
)
from fusionstitch.codegen.ir.walk import every, mapped, names

#: Elements that a thread has in registers for that, which others may need at the same time.
MOST_AHEAD = 16


def load_early(kernel: Lowered, names: Names) -> Lowered:
    """The kernel whose counted iterations have the loads of inputs on their way while threads wait
    for each other."""
    assert kernel.iterations is not None
    alone = kernel.iterations.scope is Scope.BLOCK
    inputs = {one.name for one in kernel.buffers if one.memory is Memory.INPUT}

    def new(loop: Loop, types: Types) -> tuple[list[Statement], Loop]:
        if not isinstance(loop, For):
            return [], loop
        constant = {name: kind for name, kind in types.items() if name in inputs}
        return load_ahead(
            loop, constant, (kernel.block, kernel.grid), names.new, after_barrier=alone
        )

    return with_loops(kernel, new)


def store_late(kernel: Lowered, names: Names) -> Lowered:
    """The kernel whose counted iterations store outputs after their last barrier."""
    outputs = {one.name: one.type for one in kernel.buffers if one.memory is Memory.OUTPUT}

    def new(loop: Loop, types: Types) -> tuple[list[Statement], Loop]:
        if not isinstance(loop, For):
            return [], loop
        return stored_late(loop, outputs, (kernel.block, kernel.grid), names.new)

    return with_loops(kernel, new)


def load_ahead(
    loop: For,
    types: Types,
    threads: tuple[int, int],
    named: Callable[[str], str],
    after_barrier: bool = False,
) -> tuple[list[Statement], For]:
    """The statements before a loop, and the loop with loads moved ahead: those at indices that only
    the iteration number changes. What an iteration reads after a barrier is loaded at its begin.
    What the next one reads before its first barrier is loaded after the first barrier of this one.
    Where barriers are placed later, all reads count as `after_barrier`: the iteration before loads
    those of which a thread has one element, and each iteration its others."""
    walk = Walk(loop, types, threads, named, loop.variable, after_barrier=after_barrier)
    walk.once()
    walk.name_sites(MOST_AHEAD, "ahead")
    if after_barrier:
        first, ahead = _loaded_before(walk, loop)
    else:
        first, ahead = [], walk.loads("on its way while threads meet")
    before, made = walk.numbers_in([*first, *ahead]), walk.once() if ahead else loop
    assert isinstance(made, For)
    loads, made = _load_next(made, types, threads, named)
    made = replace(made, body=(*ahead, *made.body)) if ahead else made
    return [*before, *first, *loads], made


def _loaded_before(walk: Walk, loop: For) -> tuple[list[Statement], list[Statement]]:
    """What comes before a loop, and where its iterations begin, so that these load the named sites
    for the next one: those of which a thread has one element. The others they load for
    themselves."""
    first, own, later = list[Statement](), list[Statement](), list[Statement]()
    iteration, next_iteration = loop.variable, walk.named(f"{loop.variable}_next")
    for site in (site for site in walk.sites if site is not None and site.name):
        if site.elements > 1 or not _in_any_iteration(site, iteration):
            own += unknown(own, loaded(site, "on its way while threads meet"))
            continue
        following = replace(site, name=walk.named(f"{site.name}_next"))
        note, array, *loads = loaded(following, "on its way since the step before")
        loads = unknown(first, loads)
        first += [note, array, *(_in_iteration(one, iteration, _first) for one in loads)]
        later += [
            _in_iteration(one, iteration, lambda v: variable(next_iteration, v.extent))
            for one in loads
        ]
        own.append(Let(site.type, site.name, Name(following.name)))
    if later:  # the last one loads its own again: a branch here would keep loads from what follows
        last = least(loop.type, infix("+", Name(iteration), 1), infix("-", loop.stop, 1))
        own += [Let(loop.type, next_iteration, last), *later]
    return first, own


def _load_next(
    loop: For,
    types: Types,
    threads: tuple[int, int],
    named: Callable[[str], str],
) -> tuple[list[Statement], For]:
    """What comes before a loop, and the loop, whose iterations load what the next one reads before
    its first barrier after their own first one."""
    walk = Walk(loop, types, threads, named, loop.variable, early=True)
    walk.once()
    walk.sites = [s if s and _in_any_iteration(s, loop.variable) else None for s in walk.sites]
    if _after_barrier(loop.body, Blank()) is None:
        return [], loop
    walk.name_sites(MOST_AHEAD, "next")
    found = walk.loads("on its way since the step before")
    arrays = [one for one in found if isinstance(one, (Note, Array))]
    loads = [one for one in found if not isinstance(one, (Note, Array))]
    if not loads:
        return [], loop
    first = [_in_iteration(one, loop.variable, _first) for one in loads]
    more = infix("<", infix("+", Name(loop.variable), 1), loop.stop)
    later = If(more, body=tuple(_in_iteration(one, loop.variable, _later) for one in loads))
    body = _after_barrier(walk.once().body, later)
    assert body is not None
    return [*walk.numbers_in(found), *arrays, *first], replace(loop, body=body)


def _in_any_iteration(site: Site, iteration: str) -> bool:
    """Whether all iterations reach a load, or none: if the first one does not, its index there may
    be out of bounds."""
    guarding = (*site.conditions, *(bound.value for bound in site.bounds))
    return all(iteration not in names(one) for one in guarding)


def _first(iteration: Var) -> Index:
    return Index()


def _later(iteration: Var) -> Index:
    return variable(iteration.name, iteration.extent) + 1


def _in_iteration(statement: Statement, iteration: str, other: Callable[[Var], Index]) -> Statement:
    """A statement in another iteration."""

    def one(part: Any) -> Any:
        if not isinstance(part, Integer):
            return part
        own = [v for v in part.index.variables if v.name == iteration]
        return Integer(substituted(part.index, {v: other(v) for v in own}))

    return mapped(statement, one)


def _after_barrier(body: Sequence[Statement], new: Statement) -> tuple[Statement, ...] | None:
    """Statements with a new one after the first barrier, unless that is in a loop or a branch."""
    for number, one in enumerate(body):
        if isinstance(one, Barrier):
            return (*body[: number + 1], new, *body[number + 1 :])
        if isinstance(one, Group) and any(isinstance(inner, Barrier) for inner in every(one.body)):
            inside = _after_barrier(one.body, new)
            group = None if inside is None else replace(one, body=inside)
            return None if group is None else (*body[:number], group, *body[number + 1 :])
        if any(isinstance(inner, Barrier) for inner in every([one])):
            return None
    return None


def stored_late(
    loop: For,
    types: Types,
    threads: tuple[int, int],
    named: Callable[[str], str],
) -> tuple[list[Statement], For]:
    """What comes before a loop, and the loop, whose iterations store single elements of buffers
    after their last barrier, where nothing else in it names these."""
    end = max((n + 1 for n, one in enumerate(loop.body) if isinstance(one, Barrier)), default=0)
    times = Counter(name for one in loop.body for name in names(one))
    alone = {name: kind for name, kind in types.items() if times[name] == 1}
    until = replace(loop, body=loop.body[:end])
    walk = Walk(until, alone, threads, named, loop.variable, stores=True)
    walk.once()
    arrays: list[Statement] = []
    stores: list[Statement] = []
    for site in chosen_sites(walk.sites, MOST_AHEAD):
        buffer = buffer_of(site.load)
        site.name = named(f"{buffer}_behind")
        arrays.append(Array(site.type, site.name, site.elements if site.elements > 1 else None))
        stores += unknown(stores, around(site, Store(buffer, Integer(site.at), site.element)))
    if not stores:
        return [], loop
    body = (*arrays, *walk.once().body, *_joined(stores), *loop.body[end:])
    return walk.numbers_in(stores), replace(loop, body=body)


def _joined(statements: Sequence[Statement]) -> list[Statement]:
    """Statements, those under one condition together."""
    found: list[Statement] = []
    for one in statements:
        last = found[-1] if found else None
        if isinstance(one, If) and isinstance(last, If) and one.condition == last.condition:
            found[-1] = replace(last, body=(*last.body, *one.body))
        else:
            found.append(one)
    return found
