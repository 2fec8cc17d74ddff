"""Sums of like terms: which are joined, and that they give what they gave."""

from __future__ import annotations

import dataclasses
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.compiler import builders, core
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import Graph
from fusionstitch.hlo.importer import from_message, from_proto
from fusionstitch.hlo.joining import join
from fusionstitch.hlo.text import text_to_proto
from fusionstitch.hlo.verify import verify_module
from fusionstitch.options import Options
from fusionstitch.patterns.like_terms import joined_sums

#: A device on which every GEMM is large.
DEVICE = dataclasses.replace(device("h200"), large_gemm_flops=1)
ADDER = "adder {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] add(a, b)\n}"
STEPS = 5
CONTRACT = "lhs_contracting_dims={0}, rhs_contracting_dims={0}"


def dots(precision: str = "highest", k: int = 2) -> str:
    """dW and db of a layer that every step uses, as an unrolled loop's gradient has them."""
    algorithm = f"operand_precision={{{precision},{precision}}}"
    lines = []
    for t in range(STEPS):
        lines += [
            f"x{t} = f32[{k},6] parameter({2 * t})",
            f"d{t} = f32[{k},8] parameter({2 * t + 1})",
            f"w{t} = f32[6,8] dot(x{t}, d{t}), {CONTRACT}, {algorithm}",
            f"b{t} = f32[8] reduce(d{t}, zero), dimensions={{0}}, to_apply=adder",
        ]
    return "\n".join([*lines, *total("w", "f32[6,8]"), *total("b", "f32[8]")])


def total(name: str, shape: str) -> list[str]:
    """The sum of name0, name1, ..., the last first, as a chain of adds that ends in name_sum."""
    before, lines = f"{name}{STEPS - 1}", []
    for t in reversed(range(STEPS - 1)):
        result = f"{name}_sum" if t == 0 else f"{name}_{t}"
        lines.append(f"{result} = {shape} add({before}, {name}{t})")
        before = result
    return lines


def pads(places: list[tuple[int, int]], length: int = 10) -> str:
    """The sum of pieces of so many rows, each put at a place of its own."""
    lines = []
    for t, (first, rows) in enumerate(places):
        after = length - first - rows
        lines += [
            f"x{t} = f32[{rows},3] parameter({t})",
            f"p{t} = f32[{length},3] pad(x{t}, zero), padding={first}_{after}x0_0",
        ]
    before = "p0"
    for t in range(1, len(places)):
        lines.append(f"s{t} = f32[{length},3] add({before}, p{t})")
        before = f"s{t}"
    return "\n".join([*lines, f"ROOT r = f32[{length},3] negate({before})"])


def module(body: str) -> bytes:
    return text_to_proto(
        f"HloModule m\n{ADDER}\nENTRY main {{\n  zero = f32[] constant(0)\n{body}\n}}\n"
    )


def joined(data: bytes) -> Graph:
    """The entry with its sums joined, which gives what it gave."""
    given = from_proto(data)
    edited = from_proto(data)
    join(edited, edited.entry, joined_sums(edited.entry, DEVICE))
    verify_module(edited.proto.SerializeToString())
    result = from_message(edited.proto).entry
    rng = np.random.default_rng(0)
    args = [rng.normal(size=p.dims).astype(np.float32) for p in given.entry.parameters]
    for got, want in zip(evaluate(result, args), evaluate(given.entry, args), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    return result


def opcodes(graph: Graph) -> Counter[str]:
    return Counter(op.opcode for op in graph if op.opcode != "parameter")


ROOTS = "\nROOT r = (f32[6,8], f32[8]) tuple(w_sum, b_sum)"


def test_gradients_of_weights_and_biases_are_one_op_each() -> None:
    graph = joined(module(dots() + ROOTS))
    assert opcodes(graph) == Counter(concatenate=2, dot=1, reduce=1, tuple=1, constant=1)
    dot = next(op for op in graph if op.opcode == "dot")
    assert [o.dims for o in dot.operands] == [(10, 6), (10, 8)]
    assert dot.attrs["precision"] == "highest"
    assert dot.operands[1] is next(op for op in graph if op.opcode == "reduce").operands[0]


def test_a_bias_alone_stays_as_it_is() -> None:
    data = module(dots() + "\nROOT r = f32[8] negate(b_sum)")
    assert opcodes(joined(data))["reduce"] == STEPS


def test_terms_with_other_readers_stay() -> None:
    more = "\nROOT r = (f32[6,8], f32[6,8]) tuple(w_sum, w3)"
    graph = joined(module(dots() + more))
    assert opcodes(graph) == Counter(concatenate=2, dot=2, add=1, tuple=1)


def test_dots_whose_operands_are_larger_than_their_result_stay() -> None:
    assert opcodes(joined(module(dots(k=4) + ROOTS)))["dot"] == STEPS


def test_dots_that_are_small_together_stay() -> None:
    graph = from_proto(module(dots() + ROOTS)).entry
    assert joined_sums(graph, device("h200")) == []


def test_adjacent_pads_are_one_concatenate() -> None:
    graph = joined(module(pads([(7, 3), (5, 2), (1, 4), (0, 1)])))
    assert opcodes(graph) == Counter(concatenate=1, negate=1)


def test_pads_that_leave_the_ends_free_keep_one_pad() -> None:
    graph = joined(module(pads([(1, 1), (2, 2), (4, 1), (5, 2)])))
    assert opcodes(graph) == Counter(concatenate=1, pad=1, negate=1, constant=1)


def test_two_rows_of_pads_are_added() -> None:
    places = [(0, 2), (2, 3), (5, 4), (9, 1)]
    graph = joined(module(pads([*places, *reversed(places)])))
    assert opcodes(graph) == Counter(concatenate=2, add=1, negate=1)


@pytest.mark.parametrize("places", [[(0, 2), (3, 2), (6, 2), (8, 2)], [(0, 5), (5, 5)]])
def test_pads_with_gaps_and_few_pads_stay(places: list[tuple[int, int]]) -> None:
    data = module(pads(places))
    assert joined_sums(from_proto(data).entry, DEVICE) == []


def test_pads_by_something_else_than_zero_stay() -> None:
    text = pads([(0, 2), (2, 3), (5, 4), (9, 1)]).replace("pad(x0, zero)", "pad(x0, one)")
    data = module("one = f32[] constant(1)\n" + text)
    assert joined_sums(from_proto(data).entry, DEVICE) == []


def test_terms_that_something_waits_for_stay() -> None:
    waits = "\nROOT r = f32[6,8] negate(w_sum), control-predecessors={w0, w1}"
    graph = joined(module(dots() + waits))
    assert opcodes(graph)["dot"] == STEPS, "three free terms are too few"


def test_the_core_joins_but_not_under_strict_numerics() -> None:
    options = Options(device="h200", numerics="strict")
    data = module(pads([(0, 2), (2, 3), (5, 4), (9, 1)]))
    strict = core.stitch(data, options, builders.profile(options), None)
    joined = core.stitch(data, options.replace(numerics="default"), DEVICE, None)
    assert [opcodes(s.plans[0].graph)["concatenate"] for s in (strict, joined)] == [0, 1]
    assert opcodes(strict.plans[0].graph)["pad"] == 4


def test_the_gradient_of_steps_taken_from_an_array_runs(host_compiler: str) -> None:
    def loss(x: jax.Array) -> jax.Array:
        return sum(((t + 1.0) * jnp.sin(x[t]).sum() for t in range(STEPS)), start=jnp.float32(0))

    x = np.random.default_rng(0).normal(size=(STEPS, 4, 8)).astype(np.float32)
    options = fs.Options(backend="emulate", fallback="error")
    compiled = fs.jit(jax.grad(loss), options=options).lower(x).compile()
    [plan] = compiled.plan
    assert (opcodes(plan.graph)["pad"], opcodes(plan.graph)["concatenate"]) == (0, 1)
    np.testing.assert_allclose(compiled(x), jax.jit(jax.grad(loss))(x), rtol=1e-6)
