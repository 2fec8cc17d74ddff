"""Which ops may be members, and the reasons for rejecting others."""

from __future__ import annotations

import pytest

from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.graph import Graph, Op, Shape
from fusionstitch.patterns.candidates import close
from fusionstitch.patterns.fusible import fusible, fusible_ops, gemm_flops
from tests.graphs import Builder

H200 = device("h200")


def _large_dot(b: Builder) -> Op:
    return b.dot(b.parameter((512, 512)), b.parameter((512, 512)))


def _reduce(b: Builder, body: Graph, init: Op) -> Op:
    x = b.parameter((8, 8))
    return b.op("reduce", (8,), x, init, called=(body,), dimensions=(1,), reducer=None)


def _hypot(inner: Builder) -> Graph:
    x, y = inner.parameter(), inner.parameter()
    return inner.graph(inner.unary("sqrt", inner.add(inner.mul(x, x), inner.mul(y, y))))


def _permuting_reduce(b: Builder) -> Op:
    inner = Builder()
    x, y = inner.parameter(), inner.parameter()
    return _reduce(b, inner.graph(inner.add(inner.kept(x), y)), b.constant(0.0))


def _window(b: Builder, size: int) -> Op:
    ones = dict.fromkeys(("stride", "base_dilation", "window_dilation"), (1,))
    attrs = {"size": (size,), "low": (size - 1,), "high": (0,), "reducer": "add", **ones}
    return b.op("reduce-window", (4000,), b.parameter((4000,)), b.constant(0.0), **attrs)


def _awaiting(b: Builder) -> Op:
    x = b.exp(b.parameter((8,)))
    return b.op("tanh", (8,), x, control=(1,))


def _add_to_rows(b: Builder) -> Op:
    indices, update = b.parameter((100,), "s32"), b.parameter((100, 40))
    return b.add_to_rows(b.parameter((9000, 40)), indices, update)


def _add_many_to_rows(b: Builder) -> Op:
    indices, update = b.parameter((500,), "s32"), b.parameter((500, 40))
    return b.add_to_rows(b.parameter((9000, 40)), indices, update)


def _replace_rows(b: Builder) -> Op:
    op = b.add_to_rows(b.parameter((9, 4)), b.parameter((5,), "s32"), b.parameter((5, 4)))
    op.attrs = {**op.attrs, "reducer": "replace"}
    return op


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_add_to_rows, "Its updates are too many to be compared with every element."),
        (
            _add_many_to_rows,
            "The result is too large for each warp to have a copy in shared memory.",
        ),
        (
            _replace_rows,
            "Several updates may write the same element, and it has no reduction to combine them.",
        ),
        (lambda b: b.kept(b.parameter((8,))), "XLA keeps collective-permute for itself."),
        (lambda b: b.exp(b.parameter((8,), "c128")), "Kernels have no such element type."),
        (lambda b: b.exp(b.parameter((8,), "c64")), "Kernels have no expression for it."),
        (lambda b: b.exp(b.parameter((0, 8))), "An operand or the result has no elements."),
        (_large_dot, "A library kernel does a GEMM of this size better."),
        (
            lambda b: b.concatenate([b.parameter((8,)) for _ in range(33)]),
            "XLA joins so many arrays faster.",
        ),
        (_permuting_reduce, "Its reducer computes more than elementwise ops."),
        (
            lambda b: _reduce(b, _hypot(Builder()), b.parameter()),
            "What its reduction starts from is computed.",
        ),
        (
            lambda b: _window(b, 1000),
            "Its windows are too large to be walked for every element.",
        ),
        (_awaiting, "It has control dependences."),
    ],
)
def test_reasons(make: object, reason: str) -> None:
    verdict = fusible(make(Builder()), H200)  # type: ignore[operator]
    assert not verdict
    assert verdict.reason == reason


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f8e5m2", "f64", "s8", "u32", "s64", "pred"])
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


def test_reductions_by_bodies_of_their_own_and_over_windows_may_be_members() -> None:
    b = Builder()
    assert fusible(_reduce(b, _hypot(Builder()), b.constant(0.0)), H200)
    assert fusible(_window(b, 64), H200)
    assert fusible(_window(b, 4000), H200)  # a running sum takes two walks of a block


def test_parts_of_what_is_reduced_together_are_members_with_it() -> None:
    b = Builder()
    x = b.parameter((8, 8))
    inner = Builder()
    xs = [inner.parameter() for _ in range(4)]
    body = inner.graph(inner.add(xs[0], xs[2]), inner.add(xs[1], xs[3]))
    shape, zero = Shape("f32", (8,)), b.constant(0.0)
    attrs = {"called": (body,), "dimensions": (1,), "reducer": None}
    both = b.op("reduce", Shape("tuple", (), (shape, shape)), x, x, zero, zero, **attrs)
    parts = [b.op("get-tuple-element", shape, both, index=i) for i in range(2)]
    graph = b.graph(*parts)
    found = fusible_ops(graph, H200)
    assert found.bits == sum(1 << op.id for op in (both, *parts))
    assert close(graph, 1 << both.id, found.bits) == found.bits
    assert close(graph, 1 << parts[0].id, found.bits) == found.bits


def test_a_batched_gemm_is_judged_by_one_batch_entry() -> None:
    b = Builder()
    dot = b.dot(b.parameter((4096, 94, 8)), b.parameter((4096, 8, 94)), batch=1)
    assert gemm_flops(dot) == 2 * 94 * 94 * 8
    assert fusible(dot, H200)
    assert gemm_flops(dot) * 4096 > H200.large_gemm_flops


def test_exact_products_of_few_rows_may_be_members_however_large() -> None:
    def product(rows: int, depth: int, columns: int, precision: str) -> Op:
        b = Builder()
        x, w = b.parameter((rows, depth)), b.parameter((depth, columns))
        return b.dot(x, w, precision=precision)

    few = product(32, 1024, 2048, "highest")
    assert gemm_flops(few) > H200.large_gemm_flops
    assert fusible(few, H200)
    assert fusible(product(2048, 1024, 32, "highest"), H200)
    for dot in (
        product(32, 1024, 2048, "default"),  # a library has tensor cores for it
        product(64, 1024, 2048, "highest"),
        product(32, 1 << 16, 64, "highest"),  # and splits long sums
    ):
        assert not fusible(dot, H200)


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
