"""Programs compiled ahead of time: their first call holds the trial."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.trial import outcome
from fusionstitch.trial.outcome import Outcome
from fusionstitch.trial.ratios import Ratio
from fusionstitch.trial.sides import Times
from tests.trial.conftest import Stage, options

X = jnp.asarray(np.random.default_rng(0).standard_normal((8, 12), np.float32))


def mixed(x: jax.Array) -> jax.Array:
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)


@pytest.mark.parametrize(("us", "kind"), [(5.0, "c0"), (20.0, "xla")])
def test_compiling_runs_nothing_and_the_first_call_decides(
    stage: Stage, us: float, kind: str
) -> None:
    stage.us = {"xla": 10.0, "c0": us}
    jitted = fs.jit(mixed, options=options())
    compiled = jitted.lower(X).compile()
    assert not stage.timed
    assert compiled.in_tree == jax.jit(mixed).lower(X).compile().in_tree
    for _ in range(3):
        assert (compiled(X) == jax.jit(mixed)(X)).all()
    assert stage.timed["c0"] > 0
    [found] = outcome._known.values()
    assert found.serves == kind
    timed = stage.timed.copy()
    again = jitted.lower(X).compile()  # as is known now
    assert (again(X) == compiled(X)).all()
    jitted(X)
    assert stage.timed == timed


def test_outcomes_are_read_as_they_were_written() -> None:
    ratio = Ratio(2.0, 1.9, 2.1)
    times = Times(5.0, 10.0, 50.0, 60.0, ratio, ratio, 10)
    for one in (times, dataclasses.replace(times, span=None, span_us=None, xla_span_us=None)):
        found = Outcome("c1", "The stitched program is faster.", (times, one), "abc", 10.5)
        assert Outcome.from_json(found.to_json()) == found


@pytest.mark.parametrize("data", [b"", b"{}", b'{"serves": "me"}', b"[1]", b"\xff"])
def test_damaged_outcomes_are_none(stage: Stage, data: bytes) -> None:
    from fusionstitch.compiler import builders

    builders.store().put("trial-damaged", data)
    assert outcome.known("damaged") is None
