"""What iterations read again and again is loaded into registers before the loop.

A load is held if its address and the conditions around it are the same in all iterations.

    for (turn ...)                                   float w_held[4];
      for (column = lane; column < 16; column += 4)  FS_UNROLL for (n = 0; n < 4; ++n)
        sum += w[column] * ...;                        w_held[n] = w[n * 4 + lane];
                                                     for (turn ...)
                                                       FS_UNROLL for (n = 0; n < 4; ++n)
                                                         sum += w_held[n] * ...;
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fusionstitch.codegen.ir.statements import For, Statement, While
from fusionstitch.codegen.ir.types import Raw, Record, Scalar
from fusionstitch.codegen.while_loops.site_walk import Walk


def hold(
    loop: For | While,
    types: Mapping[str, Scalar | Record | Raw],
    room: int,
    threads: tuple[int, int],
    named: Callable[[str], str],
) -> tuple[list[Statement], For | While]:
    """What comes before a loop of iterations, and the loop.

    `types` are those of elements, by buffer; `room` the registers that a thread has for what it
    holds; `threads` those of a block, and the blocks of the grid. `named` makes a name of its own.
    """
    walk = Walk(loop, types, threads, named)
    walk.once()
    walk.name_sites(room, "held")
    before = walk.loads("what a thread reads of it in every iteration")
    if not before:
        return [], loop
    return [*walk.asked(before), *before], walk.once()
