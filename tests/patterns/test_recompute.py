"""Chains of dots with copies of what lies between them: families, plans over copies, results."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.codegen.dots import chains as streams
from fusionstitch.compiler import builders
from fusionstitch.compiler.planning import GraphPlanner
from fusionstitch.costmodel import devices
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.graph import Graph, ids
from fusionstitch.options import Options
from fusionstitch.patterns.candidates import Candidates
from fusionstitch.patterns.recompute import recomputed
from fusionstitch.plan import planner, scores
from tests.codegen.regions import lowered

H200 = device("h200")
Array = jax.Array


def attention(w: dict[str, Array], x: Array) -> Array:
    """Causal attention between two products of weights."""
    batch, length, width = x.shape
    heads = max(2, width // 64)
    packed = (x @ w["in"]).reshape(batch, length, 3, heads, width // heads)
    q, k, v = (packed[:, :, i] for i in range(3))
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.25
    s = jnp.where(jnp.tril(jnp.ones((length, length), bool)), s.astype(jnp.float32), -1e30)
    p = jax.nn.softmax(s).astype(x.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", p, v).reshape(batch, length, width) @ w["out"]


def loss(w: dict[str, Array], x: Array) -> Array:
    return (attention(w, x).astype(jnp.float32) ** 2).mean()


def graph(fun: Any, batch: int = 24, length: int = 1024, width: int = 256) -> Graph:
    weights = {
        "in": jax.ShapeDtypeStruct((width, 3 * width), jnp.bfloat16),
        "out": jax.ShapeDtypeStruct((width, width), jnp.bfloat16),
    }
    return lowered(fun, weights, jax.ShapeDtypeStruct((batch, length, width), jnp.bfloat16))


def opcodes(graph: Graph, bits: int) -> list[str]:
    return [graph.ops[i].opcode for i in ids(bits) if graph.ops[i].opcode in ("dot", "reduce")]


def test_a_gradient_has_three_families_and_a_forward_run_one() -> None:
    assert recomputed(graph(attention), H200) is None
    given = graph(jax.grad(loss, (0, 1)))
    found = recomputed(given, H200)
    assert found is not None
    forward, keys, queries = (opcodes(found.graph, bits) for bits in found.families)
    assert forward == ["dot", "reduce", "reduce", "dot"]  # scores, maximum, sum, weighted values
    assert sorted(keys) == ["dot"] * 4  # scores and their gradient, of keys and of values
    assert sorted(queries) == ["dot"] * 3 + ["reduce"]
    first, second, third = found.families
    assert not first & second
    assert not first & third
    assert not second & third


def test_copies_stand_for_no_instruction_and_originals_are_all_there() -> None:
    given = graph(jax.grad(loss, (0, 1)))
    found = recomputed(given, H200)
    assert found is not None
    origins = [op.origin for op in found.graph if op.origin is not None]
    assert sorted(origins) == sorted(op.origin for op in given if op.origin is not None)
    copies = len(found.graph) - len(given)
    made = sum(op.origin is None for op in given)
    assert copies == sum(op.origin is None for op in found.graph) - made > 0


@pytest.mark.parametrize("fun", [attention, jax.grad(loss, (0, 1))], ids=["forward", "gradient"])
def test_every_family_is_a_kernel_where_rows_are_many(fun: Any) -> None:
    """And the products of weights stay with XLA."""
    plan = GraphPlanner(graph(fun), H200, Options()).plan
    dots = [opcodes(plan.graph, c.pattern.bits).count("dot") for c in plan.chosen]
    assert sorted(n for n in dots if n) == ([2] if fun is attention else [2, 3, 4])
    assert (plan.given is not None) == (fun is not attention)
    assert plan.modelled_us < plan.xla_us


@pytest.mark.parametrize("length", [160, 200])
def test_kernels_over_copies_give_the_gradient(
    host_compiler: str, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    """Only families are candidates here, and cost nothing, so that a small program is cut alike."""
    monkeypatch.setattr(streams, "MANY_ROWS", 0.01)
    monkeypatch.setattr(streams, "MOST_DEPTH", 16)  # of heads, not of products of weights
    monkeypatch.setattr(planner, "candidates", lambda *_: Candidates((), ()))
    monkeypatch.setattr(scores, "cost_us", lambda *_: 0.0)
    profile = devices.exact(dataclasses.replace(H200, cooperative_limit=4, large_tensor_bytes=1))
    monkeypatch.setattr(builders, "profile", lambda _: profile)
    draw, width = np.random.default_rng(0), 32
    weights = {"in": draw.standard_normal((width, 3 * width)) * width**-0.5}
    weights |= {"out": draw.standard_normal((width, width)) * width**-0.5}
    weights = {name: w.astype(np.float32) for name, w in weights.items()}
    x = draw.standard_normal((1, length, width)).astype(np.float32)
    options = fs.Options(backend="emulate", fallback="error", packing=False)
    compiled = fs.jit(jax.grad(loss, (0, 1)), options=options).lower(weights, x).compile()
    assert [plan.given is not None for plan in compiled.plan] == [True]
    assert all("fs_mma_across" in kernel.source for kernel in compiled.kernels)
    assert len(compiled.kernels) == 3
    wanted = jax.tree.leaves(jax.jit(jax.grad(loss, (0, 1)))(weights, x))
    for got, right in zip(jax.tree.leaves(compiled(weights, x)), wanted, strict=True):
        assert np.linalg.norm(got - right) <= 2e-6 * np.linalg.norm(right)


def test_products_that_no_kernel_has_are_no_reason_to_fail() -> None:
    def fun(x: Array) -> Array:
        return jnp.sin((x @ x.T).real)

    assert recomputed(lowered(fun, jax.ShapeDtypeStruct((4, 5), jnp.complex64)), H200) is None
