"""Edges: each value comes to a nest by one of them, and every edge is some value's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fusionstitch.codegen.generate import CodegenOptions, generate
from fusionstitch.codegen.lower import access
from fusionstitch.codegen.lower.edges import EDGES, edge_of
from fusionstitch.codegen.lower.edges.edge import Edge, Here
from fusionstitch.costmodel.facts import SCOPES
from fusionstitch.hlo.graph import Op
from tests.codegen.cases import CASES
from tests.codegen.regions import H200, Case, build, whole_of


def products(a: jax.Array, b: jax.Array) -> jax.Array:
    """The right side is computed once, into scratch, for the blocks of another phase."""
    return jnp.tanh(a) @ jnp.tanh(b)


def counted(x: jax.Array) -> Any:
    """An iteration that reads its number."""

    def step(now: Any) -> Any:
        return now[0] + 1, now[1][::-1] * now[0]

    return lax.while_loop(lambda now: now[0] < 9, step, (jnp.int32(0), x))[1]


def squares() -> Case:
    draw = np.random.default_rng(0)
    args = [draw.standard_normal((64, 64), np.float32) for _ in range(2)]
    return Case(whole_of(products, *args), args)


def test_names_tell_edges_apart() -> None:
    assert len({one.name for one in EDGES}) == len(EDGES)
    assert {one.scope for one in EDGES} <= {*SCOPES, "launch"}


def test_a_value_comes_by_one_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[Edge] = set()

    def noted(here: Here, op: Op) -> Edge | None:
        carrying = [one for one in EDGES if one.carries(here, op)]
        assert len(carrying) <= 1
        assert edge_of(here, op) is (carrying[0] if carrying else None)
        seen.update(carrying)
        return edge_of(here, op)

    monkeypatch.setattr(access, "edge_of", noted)
    options = CodegenOptions(compared=False)
    for region in (whole_of(counted, np.ones(64, np.float32)), squares().graph):
        generate(region, H200, options)
    for name in ("all_four_compositions", "tiled_sum"):
        generate(CASES[name].case().graph, H200, options)
    assert seen == set(EDGES)


def test_scratch_is_read_after_a_barrier_of_the_grid(host_compiler: str) -> None:
    case = squares()
    source = case.kernel().source
    stored, _, read = source.partition("fs_grid_barrier();")
    assert stored.count("_scratch[") == read.count("_scratch[") == 1
    build([case]).check(case, "random", 7)
