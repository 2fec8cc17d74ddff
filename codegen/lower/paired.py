"""Sums over pairs for several rows at once: a team reads the other side of the pairs once for all
of them.

    for each column j:
      y = y[j]
      sum_0 += f(x[i_0], y), sum_1 += f(x[i_1], y), ...

Each load is a slot of the load pipe, of which a multiprocessor has a quarter as many as for
multiply-adds, so it had better serve several of them.
"""

from __future__ import annotations

from fusionstitch.codegen.index_maps.index import Index
from fusionstitch.codegen.ir.expressions import Expr, Name, apply
from fusionstitch.codegen.ir.intrinsics import JOIN
from fusionstitch.codegen.ir.statements import Assign, Let
from fusionstitch.codegen.loops.nests import Role
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.sums import functor_of, start_of
from fusionstitch.codegen.lower.sweeps import Sweeps


def sum_pairs(sweeps: Sweeps, row: Index) -> None:
    """The rows of run `row`, level by level; all sums of a level in one sweep."""
    access, nest, run = sweeps.access, sweeps.nest, sweeps.walk.run
    rows = [run.row_of(row, number) for number in range(run.length)]
    sweeps.name_unit()

    def bind(one: Index) -> None:
        access.bind_rows(one, access.position(one, 1))

    for level in range(nest.levels):
        stages = nest.at(level)
        sums = [stage for stage in stages if nest.role[stage] is Role.REDUCE]
        totals: list[dict[Stage, str]] = []
        for one in rows:
            bind(one)
            sweeps.row_values(stages)
            totals.append({stage: _started(sweeps, stage) for stage in sums})
        if not sums:
            continue

        def add(
            _step: Expr | None, sums: list[Stage] = sums, totals: list[dict[Stage, str]] = totals
        ) -> None:
            with access.vector_loop(sweeps.element):
                for one, names in zip(rows, totals, strict=True):
                    bind(one)
                    sweeps.digits.bind_column(sweeps.unit * sweeps.width + sweeps.element)
                    for stage in sums:
                        term = sweeps.values.accumulated(stage.op, *sweeps.digits.indices(stage))
                        total = Name(names[stage])
                        joined = apply(JOIN, total, term, template=(functor_of(stage),))
                        sweeps.writer.add(Assign(total, joined))

        sweeps.run(add)
        for one, names in zip(rows, totals, strict=True):
            bind(one)
            for stage in sums:
                sweeps.finish(stage, names[stage])


def _started(sweeps: Sweeps, stage: Stage) -> str:
    """The variable of a new sum."""
    name = sweeps.writer.name(f"{sweeps.label(stage.op)}_partial")
    sweeps.writer.add(Let(sweeps.compute(stage), name, start_of(stage), changes=True))
    return name
