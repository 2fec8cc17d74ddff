"""Layers as candidates: products of the same rows with all that is computed of these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fusionstitch as fs
from fusionstitch.codegen.generate import draft
from fusionstitch.codegen.rewrite.region import region
from fusionstitch.compiler.core import stitch
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.graph import Graph, ids
from fusionstitch.options import Options
from fusionstitch.patterns.convex import is_convex
from fusionstitch.patterns.fusible import fusible_ops
from fusionstitch.patterns.layers import RULE, layers
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.plan import Plan
from tests.codegen.layer_cases import f32, of, perceptron
from tests.codegen.regions import lowered
from tests.nearness import assert_near

H200 = device("h200")
Array = Any
ROWS = 1 << 17


def _loss(p: Any, x: Array, y: Array) -> Array:
    return ((perceptron(x, p) - y) ** 2).mean()


def _args(rows: int = ROWS, width: int = 64) -> tuple[Any, Any, Any]:
    return of((9, width, width, 5)), f32(rows, 9), f32(rows, 5)


def _found(graph: Graph) -> list[int]:
    return [offer.bits for offer in layers(graph, fusible_ops(graph, H200).bits, H200)]


def _region(graph: Graph, bits: int) -> Graph:
    pattern = Pattern(graph, bits, "test")
    return region("part", pattern.ops, pattern.inputs, pattern.outputs)


def _dots(graph: Graph, bits: int) -> int:
    return sum(graph.ops[i].opcode == "dot" for i in ids(bits))


def _plan(fun: Callable[..., Any], *args: Any) -> Plan:
    made: Any = jax.jit(fun).lower(*args).compiler_ir("hlo")
    [plan] = stitch(made.as_serialized_hlo_module_proto(), Options(), H200, None).plans
    return plan


def test_a_gradient_is_offered_whole_without_sums_and_forward() -> None:
    graph = lowered(jax.value_and_grad(_loss), *_args())
    found = _found(graph)
    assert all(is_convex(graph, bits) for bits in found)
    dots = [_dots(graph, bits) for bits in found]
    assert max(dots) == 3 + 2 + 3  # forward, backward, and of each matrix
    assert 3 + 2 in dots
    assert 3 in dots


def test_what_waits_for_a_sum_over_all_rows_is_in_another() -> None:
    def fun(p: Any, x: Array, y: Array) -> Array:
        h = perceptron(x, p)
        return jnp.tanh((h - h.mean(0)) @ jnp.ones((5, 64)) + y[:, :1])

    graph = lowered(fun, *_args())
    means = [op.id for op in graph if op.opcode == "reduce"]
    [subtraction] = [op.id for op in graph if op.opcode == "subtract"]
    for bits in _found(graph):
        assert not (any(bits >> i & 1 for i in means) and bits >> subtraction & 1)


def test_few_rows_long_rows_and_small_products_are_left_to_others() -> None:
    gradient = jax.value_and_grad(_loss)
    assert _found(lowered(gradient, *_args()))
    assert not _found(lowered(gradient, *_args(rows=4096)))
    assert not _found(lowered(gradient, *_args(width=1024)))
    assert not _found(lowered(gradient, *_args(rows=8448, width=8)))


def test_a_part_may_begin_with_sums_of_products_of_what_another_part_made() -> None:
    graph = lowered(jax.value_and_grad(_loss), *_args())
    drafts = [draft(_region(graph, bits), H200) for bits in _found(graph)]
    assert all(one.template.startswith("layers ") for one in drafts)


def test_products_of_highest_precision_are_left_to_xla() -> None:
    def fun(x: Array, w: Array, v: Array) -> Array:
        h = jnp.tanh(jnp.matmul(x, w, precision="highest"))
        return jnp.matmul(h, v, precision="highest")

    assert not _found(lowered(fun, f32(ROWS, 64), f32(64, 64), f32(64, 64)))


def test_a_gradient_is_planned_as_one_kernel_that_wins() -> None:
    plan = _plan(jax.value_and_grad(_loss), *_args())
    [chosen] = [c for c in plan.chosen if c.pattern.rule == RULE]
    assert sum(op.opcode == "dot" for op in chosen.pattern.ops) == 8
    assert chosen.modelled_us < 0.7 * chosen.xla_us


def test_a_program_in_layers_runs_as_jax_does() -> None:
    rng = np.random.default_rng(0)
    p, x, y = jax.tree.map(
        lambda s: (rng.standard_normal(s.shape) / 4).astype(s.dtype), _args(rows=8500)
    )
    gradient = jax.value_and_grad(_loss)
    stitched = fs.jit(gradient, options=fs.Options(backend="emulate", device="h200"))
    compiled = stitched.lower(p, x, y).compile()
    assert any(kernel.template.startswith("layers ") for kernel in compiled.kernels)
    ours, theirs = jax.tree.leaves(stitched(p, x, y)), jax.tree.leaves(jax.jit(gradient)(p, x, y))
    for one, other in zip(ours, theirs, strict=True):
        assert_near(one, other, 2e-5, 2e-5)
