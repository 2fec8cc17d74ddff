"""Which ops may be members, and the reasons of those that may not."""

from __future__ import annotations

import pytest

from costmodel.devices import device
from fusionstitch.patterns.fusible import fusible, fusible_ops, gemm_flops
from hlo.graph import Op, Shape
from tests.graphs import Builder

H200 = device("h200")


def _large_dot(b: Builder) -> Op:
    return b.dot(b.parameter((512, 512)), b.parameter((512, 512)))


def _custom_reduce(b: Builder) -> Op:
    x = b.parameter((8, 8))
    return b.op("reduce", (8,), x, b.constant(0.0), dimensions=(1,), reducer=None)


def _awaiting(b: Builder) -> Op:
    x = b.exp(b.parameter((8,)))
    return b.op("tanh", (8,), x, control=(1,))


def _add_to_rows(b: Builder) -> Op:
    return b.add_to_rows(b.parameter((9, 4)), b.parameter((5,), "s32"), b.parameter((5, 4)))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_add_to_rows, "Several of its updates may meet in one element."),
        (lambda b: b.sort(b.parameter((8,))), "XLA keeps sort for itself."),
        (lambda b: b.exp(b.parameter((8,), "c64")), "Kernels have no such element type."),
        (lambda b: b.exp(b.parameter((0, 8))), "An operand or the result has no elements."),
        (_large_dot, "A library kernel does a GEMM of this size better."),
        (_custom_reduce, "Its reducer is not one of the known monoids."),
        (_awaiting, "It has control dependences."),
    ],
)
def test_reasons(make: object, reason: str) -> None:
    verdict = fusible(make(Builder()), H200)  # type: ignore[operator]
    assert not verdict
    assert verdict.reason == reason


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f64", "s8", "u32", "s64", "pred"])
def test_element_types(dtype: str) -> None:
    b = Builder()
    x = b.parameter((8,), dtype)
    assert fusible(b.binary("maximum", x, x), H200)


def test_what_picks_and_puts_single_elements_may_be_a_member() -> None:
    b = Builder()
    x, i, u = b.parameter((9, 4)), b.parameter((9,), "s32"), b.parameter((9,))
    start, row = b.parameter((), "s32"), b.parameter((1, 4))
    zero = b.constant(0, "s32")
    assert fusible(b.rows(x, i), H200)
    assert fusible(b.put_in_rows(x, i, u), H200)
    assert fusible(b.op("dynamic-slice", (1, 4), x, start, zero, sizes=(1, 4)), H200)
    assert fusible(b.op("dynamic-update-slice", (9, 4), x, row, start, zero), H200)


def test_a_batched_gemm_is_judged_by_one_batch_entry() -> None:
    b = Builder()
    dot = b.dot(b.parameter((4096, 94, 8)), b.parameter((4096, 8, 94)), batch=1)
    assert gemm_flops(dot) == 2 * 94 * 94 * 8
    assert fusible(dot, H200)
    assert gemm_flops(dot) * 4096 > H200.large_gemm_flops


def test_structure_and_free_ops_are_neither_members_nor_refused() -> None:
    b = Builder()
    x = b.parameter((8,))
    one = b.splat(1.0, (8,))
    found = fusible_ops(b.graph(b.add(x, b.exp(one)), x), H200)
    assert found.bits.bit_count() == 1
    assert found.refused == ()


def test_an_op_that_others_wait_for_is_refused() -> None:
    b = Builder()
    x = b.parameter((8,))
    first = b.exp(x)
    second = b.op("tanh", Shape("f32", (8,)), x, control=(first.origin or 0,))
    found = fusible_ops(b.graph(first, second), H200)
    assert found.bits == 0
    assert [verdict.reason for _, verdict in found.refused] == [
        "Other ops have a control dependence on it.",
        "It has control dependences.",
    ]
