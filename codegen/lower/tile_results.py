"""Results of dots along the columns of a tile, a few per row, and what is computed from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fusionstitch.codegen.ir.expressions import all_of, element
from fusionstitch.codegen.loops.nests import Role
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.strategies import Sums
from fusionstitch.codegen.lower.tile_rows import TileRows


@dataclass(frozen=True)
class Results:
    """What the dots along the columns summed up: an array of each."""

    rows: TileRows
    sums: Sums
    found: dict[Stage, str] = field(default_factory=dict)

    def finish(self, dot: Stage, partial: str) -> None:
        """Joins the lanes' sums so that each lane ends with its share of a row's results."""
        self.sums.finish(dot, partial)
        self.found[dot] = partial
        if self.rows.is_stored(dot):
            self._compute([dot])

    def values(self, level: int) -> None:
        """What a level computes from the results, where these are."""
        nest, leaves_of = self.rows.nest, self.rows.free_leaves
        waiting = [s for s in nest.at(level) if nest.role[s] is Role.RESULT]
        while waiting:
            leaves = leaves_of(waiting[0])
            self._compute([s for s in waiting if leaves_of(s) == leaves])
            waiting = [s for s in waiting if leaves_of(s) != leaves]

    def _compute(self, stages: Sequence[Stage]) -> None:
        """One element of `stages` for each result that a lane holds: values first, then stores."""
        rows = self.rows
        leaves = rows.free_leaves(stages[0])
        dots = [dot for dot in self.found if rows.free_leaves(dot) == leaves]
        own = rows.guarded(all_of([rows.live, rows.row_live]))
        each = self.sums.each(dots[0], rows.axes.size(leaves))
        with rows.rows(), own, each as (at, result):
            rows.digits.bind(leaves, result)
            memo = rows.writer.block.memo
            for dot in dots:
                total = rows.values.finished(dot.op, element(self.found[dot], at))
                memo[dot.op.id, rows.digits.index(dot)] = total
            for stage, value in [(stage, rows.access.value_of(stage)) for stage in stages]:
                rows.access.store(stage, value, [])
