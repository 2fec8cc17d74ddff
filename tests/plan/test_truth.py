"""How a plan uses the measured time of the program under XLA."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter

import jax
import jax.numpy as jnp
import pytest

from fusionstitch.compiler import core
from fusionstitch.compiler.planning import GraphPlanner
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.xla_truth import XlaTruth, to_plain, truth_of
from fusionstitch.execution import recall
from fusionstitch.hlo.graph import Graph
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.hlo.simplify import simplify
from fusionstitch.options import Options
from fusionstitch.plan.plan import Plan
from fusionstitch.plan.scores import is_loop
from tests.costmodel.final_modules import as_seen

H200 = device("h200")
MODEL = Options(scorer="model", fallback="error")
HOPELESS = "Even the best kernel would win nothing."


def _pairs(x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
    """Distances of pairs, normalised, and formulas around them."""
    near = jnp.exp(-jnp.sum((x[:, None] - y[None]) ** 2, -1))
    shares = near / near.sum(-1, keepdims=True)
    return shares, jnp.concatenate([jnp.sin(shares) * 2, shares.T]), jax.nn.softmax(x @ y.T)


def _framed(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.pad(jnp.tanh(x @ y.T), 1)[1:, 2:]


def _steps(x: jax.Array, y: jax.Array) -> jax.Array:
    def step(c: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        c = jnp.tanh(c + row)
        return c, c.sum()

    return jax.lax.scan(step, x[0], y)[1]


def _lowered(program: object) -> tuple[bytes, str]:
    x = jnp.ones((512, 3))
    found = jax.jit(program).lower(x, x)  # type: ignore[call-overload]
    proto = found.compiler_ir("hlo").as_serialized_hlo_module_proto()
    return proto, found.compile().as_text()


def _graph(proto: bytes) -> Graph:
    return simplify(from_proto(inline_calls(proto)).entry)


def _same(one: Plan, other: Plan) -> bool:
    chosen = [[c.pattern.bits for c in plan.chosen] for plan in (one, other)]
    refused = [[(r.bits, r.reason) for r in plan.rejected] for plan in (one, other)]
    return chosen[0] == chosen[1] and refused[0] == refused[1]


def _refused(plan: Plan) -> set[int]:
    return {one.bits for one in plan.rejected if one.reason == HOPELESS}


def test_what_was_measured_need_not_win_by_what_models_are_off() -> None:
    """A kernel that takes the place of one of XLA's."""
    graph = _graph(_lowered(_framed)[0])
    before = GraphPlanner(graph, H200, Options())
    truth = as_seen(before.planner.xla, [1.0] * len(before.planner.xla.kernels))
    after = GraphPlanner(graph, H200, Options(), truth=truth)
    assert len(after.plan.chosen) > len(before.plan.chosen)
    assert after.plan.modelled_us < before.plan.modelled_us


@pytest.mark.parametrize("options", [MODEL, Options(scorer="paper")])
def test_a_plan_stays_where_the_model_was_right(options: Options) -> None:
    graph = _graph(_lowered(_pairs)[0])
    before = GraphPlanner(graph, H200, options)
    xla = before.planner.xla
    truth = as_seen(xla, [1.0] * len(xla.kernels))
    after = GraphPlanner(graph, H200, options, truth=truth)
    assert before.plan.chosen
    assert _same(before.plan, after.plan)
    assert after.plan.xla_us == pytest.approx(before.plan.xla_us)


def test_what_was_hopeless_is_looked_at_where_xla_takes_longer() -> None:
    graph = _graph(_lowered(_pairs)[0])
    before = GraphPlanner(graph, H200, MODEL)
    xla = before.planner.xla
    slow = as_seen(xla, [8.0] * len(xla.kernels))
    after = GraphPlanner(graph, H200, MODEL, truth=slow)
    assert _refused(after.plan) < _refused(before.plan)
    assert after.plan.stats.inspected > 0
    assert after.plan.xla_us == pytest.approx(8 * before.plan.xla_us)
    won = [sum(one.wins_us for one in plan.chosen) for plan in (before.plan, after.plan)]
    assert won[1] > won[0]


def test_a_kernel_that_is_slow_alone_is_what_gets_stitched() -> None:
    graph = _graph(_lowered(_pairs)[0])
    xla = GraphPlanner(graph, H200, MODEL).planner.xla
    for number, kernel in enumerate(xla.kernels):
        factors = [0.01 if n != number else 100.0 for n in range(len(xla.kernels))]
        plan = GraphPlanner(graph, H200, MODEL, truth=as_seen(xla, factors)).plan
        assert all(one.pattern.bits & kernel.bits for one in plan.chosen)


def _times(found: Stitched) -> float:
    return sum(plan.xla_us for plan in found.plans)


def test_a_program_is_scaled_to_what_its_executable_took() -> None:
    proto, text = _lowered(_pairs)
    plain = core.stitch(proto, MODEL, H200, None)
    assert plain.truth is None
    truth = truth_of(text, 500.0, H200)
    found = core.stitch(proto, MODEL, H200, None, truth=truth)
    assert found.truth is truth
    assert _times(found) == pytest.approx(500.0)
    hopeless = [Counter(one.reason for one in each.rejected)[HOPELESS] for each in (plain, found)]
    assert hopeless[1] < hopeless[0]


def test_a_loop_is_scaled_to_what_its_iterations_took() -> None:
    proto, text = _lowered(_steps)
    for span in (3_000.0, 30_000.0):
        truth = truth_of(text, span, H200)
        found = core.stitch(proto, MODEL, H200, None, truth=truth)
        [loop] = [one for one in found.plans[-1].chosen if is_loop(one.pattern)]
        assert loop.xla_us == pytest.approx(span, rel=0.05)


def test_a_stored_program_is_planned_again_by_what_was_measured() -> None:
    proto, text = _lowered(_pairs)
    truth = truth_of(text, 500.0, H200)
    found = core.stitch(proto, MODEL, H200, None, truth=truth)
    facts = {
        "options": dataclasses.asdict(MODEL),
        "profile": dataclasses.asdict(H200),
        "evidence": {},
        "tried": False,
        "put_off": False,
        "left_out": [],
        "truth": to_plain(truth),
    }
    again = recall._planned(json.loads(json.dumps(facts)), proto)
    assert again.truth == truth
    assert all(_same(*pair) for pair in zip(again.plans, found.plans, strict=True))
    del facts["truth"]
    assert recall._planned(json.loads(json.dumps(facts)), proto).truth is None


def test_a_span_alone_changes_nothing() -> None:
    proto, _ = _lowered(_pairs)
    plain, found = (
        core.stitch(proto, MODEL, H200, None, truth=truth) for truth in (None, XlaTruth(500.0))
    )
    pairs = zip(plain.plans, found.plans, strict=True)
    assert all(_same(*pair) for pair in pairs)
    assert _times(plain) == _times(found)
