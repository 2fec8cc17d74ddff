"""What explain and the report say of XLA's times, and where these are from."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import pytest

from fusionstitch.compiler import core
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.xla_truth import XlaTruth, truth_of
from fusionstitch.options import Options
from fusionstitch.reports import answered, units
from fusionstitch.reports.answers import Answers
from fusionstitch.reports.explain import explain
from fusionstitch.reports.questions import Question
from fusionstitch.reports.seen import dearest, told_of
from tests.kept import kept_sort

H200 = device("h200")


def _program(x: jax.Array) -> tuple[jax.Array, ...]:
    return jax.nn.softmax(jnp.tanh(x)), kept_sort(x), jnp.sin(x[:4]) * 2


@pytest.fixture(scope="module")
def both() -> tuple[Stitched, Stitched]:
    """A program as modelled, and with what its executable was measured to take."""
    lowered = jax.jit(_program).lower(jnp.ones((512, 512)))
    proto = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    truth = truth_of(lowered.compile().as_text() or "", 400.0, H200)
    options = Options(scorer="model")
    return (
        core.stitch(proto, options, H200, None),
        core.stitch(proto, options, H200, None, truth=truth),
    )


def test_what_is_modelled_is_not_said_to_be_more(both: tuple[Stitched, Stitched]) -> None:
    text = explain(both[0])
    assert "scaled" not in text
    assert "measured" not in text


def test_explain_says_what_was_measured_and_what_follows(both: tuple[Stitched, Stitched]) -> None:
    text = explain(both[1])
    truth = both[1].truth
    assert truth is not None
    assert "XLA alone was measured to take 400.0 us in" in text
    shown = re.findall(r"^  (\S+) \((\w+)\): ([\d.]+) us scaled, [\d.]+ us modelled$", text, re.M)
    times = {one.name: (str(one.emitter), one.runs * one.us) for one in truth.kernels}
    assert shown
    assert [float(us) for _, _, us in shown] == sorted(
        (float(us) for *_, us in shown), reverse=True
    )
    for name, emitter, us in shown:
        assert times[name] == (emitter, pytest.approx(float(us), abs=0.01))
    assert re.search(r"modelled [\d.]+ us under XLA \(scaled\)", text)
    assert re.search(r"us of XLA \(scaled\); found by", text)


def test_plans_and_data_say_it_too(both: tuple[Stitched, Stitched]) -> None:
    for found, source in zip(both, ("modelled", "scaled"), strict=True):
        [plan] = found.plans
        assert plan.xla_source == source
        assert {one.xla_source for one in plan.chosen} == {source}
        data = answered.to_dict(found, Question())
        assert {one["xla_source"] for one in data["kernels"]} == {source}
        kernels = [answer.xla for answer in Answers(found) if answer.xla is not None]
        assert all(one.source == source for one in kernels)


def test_the_timeline_is_scaled(both: tuple[Stitched, Stitched]) -> None:
    plain, scaled = (
        sum(unit.us or 0.0 for unit in units.under_xla(found.plans[-1].program, found))
        for found in both
    )
    assert scaled == pytest.approx(both[1].plans[-1].xla_us)
    assert scaled > 1.5 * plain


def test_a_span_without_kernels_says_nothing() -> None:
    assert [*told_of(XlaTruth(3.0)), *dearest(None), *told_of(None)] == []
