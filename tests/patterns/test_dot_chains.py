"""Chains of dots as candidates, with more and more of what they read and of what reads them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fusionstitch.compiler.core import stitch
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.graph import Graph, ids
from fusionstitch.options import Options
from fusionstitch.patterns.convex import is_convex
from fusionstitch.patterns.dot_chains import dot_chains
from fusionstitch.patterns.fusible import fusible_ops
from tests.codegen.regions import lowered

H200 = device("h200")
Array = Any


def biased(q: Array, k: Array, v: Array, table: Array, kinds: Array, count: Array) -> Array:
    """Attention over some of the keys with a bias of each kind of pair, added up from a table."""
    inside = (jnp.arange(k.shape[1]) < count[:, None])[:, None, None]
    bias = table[kinds].sum(3).transpose(0, 3, 1, 2)
    s = jnp.einsum("bihd,bjhd->bhij", q, k) * 0.2 + bias
    p = jax.nn.softmax(jnp.where(inside, s, -1e30))
    return jnp.tanh(jnp.einsum("bhij,bjhd->bihd", p, v))


def _args(batch: int, length: int) -> list[jax.ShapeDtypeStruct]:
    heads = jax.ShapeDtypeStruct((batch, length, 8, 32), "float32")
    table = jax.ShapeDtypeStruct((11, 8), "float32")
    kinds = jax.ShapeDtypeStruct((batch, length, length, 3), "int32")
    return [heads, heads, heads, table, kinds, jax.ShapeDtypeStruct((batch,), "int32")]


def _found(graph: Graph) -> list[set[str]]:
    """The opcodes of the ops of each candidate."""
    fusible = fusible_ops(graph, H200).bits
    found = []
    for bits, _, stays in dot_chains(graph, fusible, H200):
        assert not bits & ~fusible
        assert stays
        found.append({graph.ops[i].opcode for i in ids(bits)})
    return found


def test_a_chain_is_offered_with_its_table_and_without() -> None:
    found = _found(lowered(biased, *_args(512, 33)))
    assert all({"dot", "exponential", "divide", "tanh"} <= opcodes for opcodes in found)
    # the sum of what the table has is a kernel of its own
    assert not any("gather" in opcodes for opcodes in found)
    # the mask is made there or stored
    assert {"compare" in opcodes for opcodes in found} == {True, False}


def test_a_chain_is_convex_whatever_it_reads() -> None:
    graph = lowered(biased, *_args(512, 33))
    fusible = fusible_ops(graph, H200).bits
    assert all(is_convex(graph, bits) for bits, *_ in dot_chains(graph, fusible, H200))


def test_no_chain_without_two_dots() -> None:
    one = lambda q, k: jax.nn.softmax(q @ k.T)  # noqa: E731
    shape = jax.ShapeDtypeStruct((4096, 64), "float32")
    assert not _found(lowered(one, shape, shape))


def test_the_plan_has_a_chain_that_reads_a_stored_bias() -> None:
    made: Any = jax.jit(biased).lower(*_args(2064, 33)).compiler_ir("hlo")
    [plan] = stitch(made.as_serialized_hlo_module_proto(), Options(), H200, None).plans
    [chosen] = [c for c in plan.chosen if any(op.opcode == "dot" for op in c.pattern.ops)]
    opcodes = [op.opcode for op in chosen.pattern.ops]
    assert opcodes.count("dot") == 2
    assert "gather" not in opcodes
    assert chosen.modelled_us < 0.9 * chosen.xla_us
