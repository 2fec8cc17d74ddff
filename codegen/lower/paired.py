"""Sums over pairs for several rows at once: a team reads the other side of the pairs once for all
of them.

    for each column j:
      y = y[j]
      sum_0 += f(x[i_0], y), sum_1 += f(x[i_1], y), ...

Each load is a slot of the load pipe, of which a multiprocessor has a quarter as many as for
multiply-adds, so it had better serve several of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fusionstitch.codegen.index_maps.index import Index
from fusionstitch.codegen.ir.expressions import Expr, Name
from fusionstitch.codegen.loops.nests import Role
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.sweeps import Sweeps

#: A row, and the names of its sums by stage.
Sums = tuple[Index, dict[Stage, str]]


def sum_pairs(sweeps: Sweeps, row: Index) -> None:
    """The rows of run `row`, level by level; all sums of a level in one sweep."""
    nest, run = sweeps.nest, sweeps.walk.run
    rows = [run.row_of(row, number) for number in range(run.length)]
    sweeps.name_unit()
    for level in range(nest.levels):
        stages = nest.at(level)
        summed = [stage for stage in stages if nest.role[stage] is Role.REDUCE]
        sums: list[Sums] = []
        for one in rows:
            _bind(sweeps, one)
            sweeps.row_values(stages)
            sums.append((one, {stage: sweeps.started(stage) for stage in summed}))
        if summed:
            sweeps.run(partial(_add, sweeps, sums))
        for one, names in sums:
            _bind(sweeps, one)
            for stage, name in names.items():
                sweeps.finish(stage, name)


def _add(sweeps: Sweeps, sums: Sequence[Sums], _step: Expr | None) -> None:
    """One vector of a sweep, for each row."""
    with sweeps.access.elements.vector_loop(sweeps.element):
        for one, names in sums:
            _bind(sweeps, one)
            sweeps.digits.bind_column(sweeps.unit * sweeps.width + sweeps.element)
            sweeps.step([*names], {stage: Name(name) for stage, name in names.items()})


def _bind(sweeps: Sweeps, row: Index) -> None:
    sweeps.access.bind_rows(row, sweeps.access.position(row, 1))
