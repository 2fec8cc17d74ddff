"""What a thread does with memory while its blocks meet: loads that are on their way by then, and
stores that the barrier does not wait for.

What each iteration reads at a place of its own behind a barrier, such as the inputs of a step, is
loaded where the iteration begins. What it stores for nobody in the loop waits in registers until
the barrier at its end was met, whose release would wait for the memory.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fusionstitch.codegen.ir.expressions import Integer
from fusionstitch.codegen.ir.statements import Array, Barrier, For, If, Statement, Store
from fusionstitch.codegen.ir.walk import names
from fusionstitch.codegen.whiles.held import (
    Walk,
    all_loaded,
    around,
    buffer_of,
    chosen_sites,
)

#: Elements that a thread has in registers for that, which others may need meanwhile.
MOST_AHEAD = 16


def load_ahead(
    loop: For,
    kinds: Mapping[str, str],
    threads: tuple[int, int],
    named: Callable[[str], str],
) -> tuple[list[Statement], For]:
    """What comes before a loop, and the loop, whose iterations begin with the loads of buffers that
    stand behind barriers, at places that only the number of the iteration changes."""
    walk = Walk(loop, kinds, threads, named, loop.variable)
    walk.once()
    before = all_loaded(walk, MOST_AHEAD, "ahead", "on its way while threads meet")
    if not before:
        return [], loop
    body = walk.once().body
    return walk.asked(before), replace(loop, body=(*before, *body))


def store_behind(
    loop: For,
    kinds: Mapping[str, str],
    threads: tuple[int, int],
    named: Callable[[str], str],
) -> tuple[list[Statement], For]:
    """What comes before a loop, and the loop, whose iterations store single elements of buffers
    behind their last barrier, where nothing else in it names these."""
    end = max((n + 1 for n, one in enumerate(loop.body) if isinstance(one, Barrier)), default=0)
    times = Counter(name for one in loop.body for name in names(one))
    alone = {name: kind for name, kind in kinds.items() if times[name] == 1}
    until = replace(loop, body=loop.body[:end])
    walk = Walk(until, alone, threads, named, loop.variable, stores=True)
    walk.once()
    arrays: list[Statement] = []
    stores: list[Statement] = []
    for site in chosen_sites(walk.sites, MOST_AHEAD):
        buffer = buffer_of(site.load)
        site.name = named(f"{buffer}_behind")
        arrays.append(Array(site.kind, site.name, site.elements if site.elements > 1 else None))
        stores += around(site, Store(buffer, Integer(site.at), site.element))
    if not stores:
        return [], loop
    body = (*arrays, *walk.once().body, *_joined(stores), *loop.body[end:])
    return walk.asked(stores), replace(loop, body=body)


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
