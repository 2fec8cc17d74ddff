"""How many kernels are drafted to plan a program: a count that compile time follows."""

from __future__ import annotations

from typing import Any

import jax
import pytest

from benchmarks.corpus.table import find
from fusionstitch.compiler import core
from fusionstitch.compiler.planning import GraphPlanner
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.hlo.graph import Op
from fusionstitch.options import Options
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.planner import Planner
from fusionstitch.plan.search import HARDLY_MORE
from tests.graphs import Builder, layernorm_backward
from tests.plan.costs import kernel_of

#: Of programs of the corpus, what drafting took when this was written, and some more. The second
#: has two plans, one of them of the graph with copies: it took twice as many where each asked.
MOST = {
    "novelty_bonus": 34,
    "clipped_gaussian_policy": 36,
    "relative_attention": 48,
    "two_convolutions_gradient": 25,
}


@pytest.mark.parametrize("name", MOST)
def test_programs_are_planned_by_few_drafts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drafted: list[str] = []
    draft = GraphPlanner._draft

    def counted(self: GraphPlanner, pattern: Pattern, settings: Any) -> Any:
        drafted.append(pattern.key)
        return draft(self, pattern, settings)

    monkeypatch.setattr(GraphPlanner, "_draft", counted)
    [template] = find([name])
    program = template.program(1)
    lowered = jax.jit(program.fun, keep_unused=True).lower(*program.args())
    module = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    core.stitch(module, Options(scorer="model"), device("h200"), None)
    assert 0 < len(drafted) <= MOST[name]


@pytest.mark.parametrize(("rows", "looked_at"), [(256, False), (1 << 18, True)])
def test_what_would_win_less_than_a_hundredth_is_not_looked_at(rows: int, looked_at: bool) -> None:
    """Beside the gradient of a layer norm of many rows, one of few, or of as many."""
    b = Builder()
    results: list[Op] = []
    for n in (1 << 18, rows):
        given = b.parameter((n, 1024)), b.parameter((1024,)), b.parameter((n, 1024))
        results += layernorm_backward(b, *given)
    asked: list[int] = []

    def inspect(pattern: Pattern) -> KernelFacts:
        asked.append(max(op.dims[0] for op in pattern.ops if op.dims))
        return kernel_of(pattern)

    graph = b.graph(*results)
    options = Options(scorer="model", packing=False)
    found = Planner(graph, device("h200"), options, inspect).plan()
    assert (rows in asked) == looked_at
    assert (HARDLY_MORE in {one.reason for one in found.rejected}) != looked_at
    paper = Planner(graph, device("h200"), options.replace(scorer="paper"), kernel_of).plan()
    assert len(paper.chosen) == 2
