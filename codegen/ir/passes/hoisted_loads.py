"""Loads that are the same in all iterations move before the loop, into registers.

A load is hoisted if its address and the conditions around it are the same in all iterations.

    for (turn ...)                                   float w_held[4];
      for (column = lane; column < 16; column += 4)  FS_UNROLL for (n = 0; n < 4; ++n)
        sum += w[column] * ...;                        w_held[n] = w[n * 4 + lane];
                                                     for (turn ...)
                                                       FS_UNROLL for (n = 0; n < 4; ++n)
                                                         sum += w_held[n] * ...;
"""

from __future__ import annotations

from collections.abc import Callable

from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.names import Names
from fusionstitch.codegen.ir.passes.iterations import Loop, Types, with_loops
from fusionstitch.codegen.ir.passes.site_walk import Walk
from fusionstitch.codegen.ir.statements import Statement


def hold_loads(kernel: Lowered, names: Names) -> Lowered:
    """The kernel whose iterations read from registers, as far as threads have them, what each of
    them would load again."""
    assert kernel.iterations is not None
    registers, threads = kernel.iterations.registers, (kernel.block, kernel.grid)
    return with_loops(kernel, lambda loop, types: hold(loop, types, registers, threads, names.new))


def hold(
    loop: Loop,
    types: Types,
    registers: int,
    threads: tuple[int, int],
    named: Callable[[str], str],
) -> tuple[list[Statement], Loop]:
    """What comes before a loop of iterations, and the loop.

    `types` are those of elements, by buffer; `registers` as many as a thread has for what it holds;
    `threads` those of a block, and the blocks of the grid. `named` makes a name of its own.
    """
    walk = Walk(loop, types, threads, named)
    walk.once()
    walk.name_sites(registers, "held")
    before = walk.loads("what a thread reads of it in every iteration")
    if not before:
        return [], loop
    return [*walk.numbers_in(before), *before], walk.once()
