"""Hypothesis strategy that grows typed graphs op by op; shapes are valid by construction.

Floats are drawn so that comparing with a float64 run is fair: inputs are small multiples of 1/4,
exact arithmetic stays exact, and what may be off by a rounding (`Value.exact` is false) is never
compared, rounded to an integer, or fed to a function that magnifies its error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fusionstitch.hlo.graph import Graph, Op, Shape
from fusionstitch.hlo.verify import verify
from tests.fuzz.growing_elementwise import Elementwise
from tests.fuzz.growing_movement import Movement
from tests.fuzz.growing_places import Places
from tests.fuzz.growing_reductions import Reductions
from tests.fuzz.growing_rows import Rows
from tests.fuzz.values import (
    SIZES,
    Grown,
)
from tests.graphs import Builder


class Growth(Elementwise, Movement, Places, Rows, Reductions):
    """Grows a graph by steps of all kinds."""

    STEPS = (
        *("unary", "binary", "binary", "reduce", "reduce", "dot", "broadcast", "transpose"),
        *("reshape", "slice", "pad", "concatenate", "reverse", "compare", "select", "clamp"),
        *("convert", "source", "parameter", "normalize", "normalize", "twins"),
        *("gather", "gather", "picked_rows", "slice_at", "update_at", "scatter", "collide"),
        *("window", "running", "place", "logaddexp", "moments", "regroup"),
    )

    def grow(self) -> Grown:
        self.most = self.pick((SIZES[0], SIZES[1], SIZES[0], SIZES[2], SIZES[1], SIZES[3]))
        seed = self.number(0, 3)
        for _ in range(self.number(1, 3)):
            self.parameter()
        for _ in range(self.number(2, 14)):
            getattr(self, self.pick(self.STEPS))()
        read = {o for op in self.b.ops for o in op.operands}
        sinks = [v.op for v in self.values if v.op not in read]
        others = [v.op for v in self.values if v.op in read]
        roots = [op for op in sinks if op.opcode != "parameter"]
        if others and self.flag():
            roots.append(self.pick(others))
        roots = [op for op in roots if op.opcode != "parameter"]
        if not roots:
            roots = [
                self.b.unary("not" if v.dtype == "pred" else "negate", v.op)
                for v in self.values[:1]
            ]
        graph = pruned(self.b, roots)
        verify(graph)
        return Grown(graph, seed)


def pruned(b: Builder, roots: Sequence[Op]) -> Graph:
    """The graph of what `roots` need, its parameters numbered anew."""
    needed: set[Op] = set(roots)
    for op in reversed(b.ops):
        if op in needed:
            needed.update(op.operands)
    ops = [op for op in b.ops if op in needed]
    for index, op in enumerate(p for p in ops if p.opcode == "parameter"):
        op.attrs = {"index": index}
    shape = Shape("tuple", elements=tuple(r.shape for r in roots))
    root = Op("tuple", shape, tuple(roots), name="outputs")
    return Graph("fuzz", [*ops, root], root)


@st.composite
def graphs(draw: st.DrawFn) -> Grown:
    """Grown graphs."""

    def pick(items: Sequence[Any]) -> Any:
        return items[draw(st.integers(0, len(items) - 1))]

    return Growth(pick).grow()


def from_seed(seed: int) -> Grown:
    """The graph of a seed, without Hypothesis: for long runs."""
    rng = np.random.default_rng(seed)
    return Growth(lambda items: items[int(rng.integers(len(items)))]).grow()
