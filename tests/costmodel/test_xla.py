"""The model of XLA's own kernels, and what it saves without a pattern."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.graph_work import GraphWork
from fusionstitch.costmodel.xla_fusions import Hero, XlaPlan, xla_fusions
from fusionstitch.costmodel.xla_saved import (
    covers_kernel,
    saved_by_kernel,
    saved_together,
    saved_us,
)
from fusionstitch.hlo.free import free_bits
from fusionstitch.hlo.graph import Graph, Op, ids
from fusionstitch.patterns.fusible import fusible_ops
from tests.graphs import (
    Builder,
    adam,
    layernorm,
    layernorm_backward,
    random_graphs,
    softmax,
)

H200 = device("h200")


def _xla(graph: Graph) -> XlaPlan:
    return xla_fusions(GraphWork(graph, free_bits(graph), H200), fusible_ops(graph, H200).bits)


def _chain(b: Builder) -> Sequence[Op]:
    x = b.parameter((256, 256))
    return [b.transpose(b.add(b.exp(x), b.tanh(x)), (1, 0))]


def _softmax(b: Builder) -> Sequence[Op]:
    return [softmax(b, b.parameter((256, 256)))]


def _long_softmax(b: Builder) -> Sequence[Op]:
    return [softmax(b, b.parameter((256, 16_384)))]


def _layernorm(b: Builder) -> Sequence[Op]:
    x, s = b.parameter((256, 256)), b.parameter((256,))
    return [layernorm(b, x, s, s)]


def _column(b: Builder) -> Sequence[Op]:
    x = b.parameter((256, 256))
    return [b.add(x, b.like(b.reduce(x, (0,)), x, (0,)))]


def _siblings(b: Builder) -> Sequence[Op]:
    x = b.parameter((256, 256))
    return [b.reduce(x, (0,)), b.reduce(b.mul(x, x), (0,))]


def _two_directions(b: Builder) -> Sequence[Op]:
    x = b.parameter((256, 256))
    return [b.reduce(x, (0,)), b.reduce(x, (1,))]


def _mlp(b: Builder) -> Sequence[Op]:
    x, w, bias = b.parameter((64, 64)), b.parameter((64, 64)), b.parameter((64,))
    hidden = b.binary("maximum", b.add(b.dot(x, w), b.like(bias, x, (0,))), b.splat(0, (64, 64)))
    return [b.dot(hidden, b.transpose(w, (1, 0)))]


def _independent(b: Builder) -> Sequence[Op]:
    return [b.exp(b.parameter((64,))) for _ in range(5)]


def _adam(b: Builder) -> Sequence[Op]:
    return [op for _ in range(7) for op in adam(b, *[b.parameter((64, 64)) for _ in range(4)])]


def _multi_output(b: Builder) -> Sequence[Op]:
    x = b.exp(b.parameter((256, 256)))
    return [x, b.tanh(x)]


@pytest.mark.parametrize(
    ("make", "heroes"),
    [
        (_chain, ["loop"]),
        (_softmax, ["normalisation"]),
        (_long_softmax, ["loop", "reduction", "reduction"]),
        (_layernorm, ["normalisation"]),
        (_column, ["loop", "reduction"]),
        (_siblings, ["reduction"]),
        (_two_directions, ["reduction", "reduction"]),
        (_mlp, ["gemm", "gemm"]),
        (_independent, ["loop"] * 5),
        (_adam, ["loop"] * 7),
        (_multi_output, ["loop"]),
    ],
)
def test_kernels(make: Callable[[Builder], Sequence[Op]], heroes: list[str]) -> None:
    b = Builder()
    found = _xla(b.graph(*make(b)))
    assert sorted(kernel.hero.value for kernel in found.kernels) == heroes


def test_layernorm_backward_takes_several_kernels() -> None:
    b = Builder()
    x, g = b.parameter((256, 512)), b.parameter((256, 512))
    found = _xla(b.graph(*layernorm_backward(b, x, b.parameter((512,)), g)))
    heroes = [kernel.hero for kernel in found.kernels]
    assert len(heroes) > 2
    assert Hero.REDUCTION in heroes


def test_expensive_values_with_many_readers_are_written_once() -> None:
    b = Builder()
    x = b.parameter((256, 256))
    costly = x
    for _ in range(4):
        costly = b.tanh(costly)
    found = _xla(b.graph(b.reduce(costly, (0,)), b.reduce(costly, (1,))))
    assert sum(kernel.bits >> costly.id & 1 for kernel in found.kernels) == 1
    b = Builder()
    cheap = b.exp(b.parameter((256, 256)))
    found = _xla(b.graph(b.reduce(cheap, (0,)), b.reduce(cheap, (1,))))
    assert sum(kernel.bits >> cheap.id & 1 for kernel in found.kernels) == 2


def test_small_values_with_many_readers_are_computed_again() -> None:
    b = Builder()
    costly = b.parameter((32,))
    for _ in range(4):
        costly = b.tanh(costly)
    x, y = b.parameter((32,)), b.parameter((16, 32))
    scaled = b.mul(y, b.like(costly, y, (1,)))
    found = _xla(b.graph(b.kept(b.mul(x, costly)), b.reduce(scaled, (0,))))
    assert sum(kernel.bits >> costly.id & 1 for kernel in found.kernels) == 2


def test_a_gemm_writes_its_result_alone() -> None:
    b = Builder()
    x, y = b.parameter((512, 512)), b.parameter((512, 512))
    mask = b.exp(b.exp(x))
    product = b.dot(x, y)
    graph = b.graph(b.mul(product, mask), b.kept(mask))
    works = GraphWork(graph, free_bits(graph), H200)
    kernels = xla_fusions(works, fusible_ops(graph, H200).bits | 1 << product.id).kernels
    [gemm] = [kernel for kernel in kernels if kernel.hero is Hero.GEMM]
    assert not gemm.bits >> mask.id & 1
    assert [kernel.hero for kernel in kernels] == [Hero.LOOP, Hero.GEMM]


def test_long_column_reductions_take_a_second_pass() -> None:
    def us(rows: int) -> float:
        b = Builder()
        return _xla(b.graph(b.reduce(b.parameter((rows, 8192)), (0,)))).us

    assert us(4097) > us(4096) + H200.launch_us


def test_a_normalisation_reads_what_takes_much_arithmetic_to_compute() -> None:
    def heroes(rounds: int) -> list[Hero]:
        b = Builder()
        x, scale = b.parameter((256, 4096)), b.parameter((4096,))
        bits = words = b.parameter((256, 4096), "u32")
        for _ in range(rounds):
            bits = b.binary("xor", b.add(bits, words), words)
        retained = b.mul(x, b.op("convert", (256, 4096), bits, dtype="f32"))
        return [k.hero for k in _xla(b.graph(layernorm(b, retained, scale, scale))).kernels]

    assert heroes(4) == [Hero.NORMALISATION]
    assert heroes(200) == [Hero.LOOP, Hero.NORMALISATION]


def test_a_normalisation_of_several_inputs_stays_below_the_bandwidth() -> None:
    def us(inputs: int) -> float:
        b = Builder()
        total, scale = b.parameter((8192, 4096)), b.parameter((4096,))
        for _ in range(inputs - 1):
            total = b.add(total, b.parameter((8192, 4096)))
        [kernel] = _xla(b.graph(layernorm(b, total, scale, scale))).kernels
        return kernel.us

    tensor = 8192 * 4096 * 4 / H200.dram_bytes_per_s * 1e6
    assert us(1) == pytest.approx(2 * tensor, rel=0.1)
    assert us(2) == pytest.approx(3 * tensor / 0.65, rel=0.1)


@given(random_graphs())
def test_every_op_is_computed_and_every_result_written_once(graph: Graph) -> None:
    found = _xla(graph)
    computed = written = 0
    for kernel in found.kernels:
        assert not kernel.written & ~kernel.bits
        assert not kernel.written & written
        assert kernel.us > 0
        computed |= kernel.bits
        written |= kernel.written
    assert computed == found.bits
    outside = [op for op in graph if op.opcode in ("collective-permute", "tuple")]
    for i in ids(found.bits):
        if any(graph.ops[i] in op.operands for op in outside) or graph.ops[i] is graph.root:
            assert written >> i & 1


@given(random_graphs())
def test_kernels_read_only_what_is_written(graph: Graph) -> None:
    found = _xla(graph)
    written = 0
    for kernel in found.kernels:
        written |= kernel.written
    for kernel in found.kernels:
        for i in ids(kernel.bits):
            for operand in graph.ops[i].operands:
                if found.bits >> operand.id & 1 and not kernel.bits >> operand.id & 1:
                    assert written >> operand.id & 1


@given(random_graphs())
def test_without_all_its_ops_xla_saves_everything(graph: Graph) -> None:
    found = _xla(graph)
    assert saved_us(found, found.bits) == pytest.approx(found.us)
    assert saved_us(found, 0) == 0.0


def test_a_part_of_a_kernel_saves_little() -> None:
    b = Builder()
    x = b.parameter((1024, 1024))
    first = b.exp(x)
    last = b.tanh(first)
    found = _xla(b.graph(last))
    [kernel] = found.kernels
    assert saved_us(found, 1 << first.id | 1 << last.id) == kernel.us
    # XLA still launches a kernel for the rest, which reads as much
    assert not covers_kernel(found, 1 << first.id)
    assert saved_us(found, 1 << first.id) < kernel.us - H200.launch_us
    # taking the reader forces XLA to write what it kept on chip
    assert saved_us(found, 1 << last.id) < kernel.us - H200.launch_us


def test_a_hole_in_a_kernel_makes_it_two() -> None:
    b = Builder()
    x = b.parameter((1024, 1024))
    first = b.exp(x)
    middle = b.tanh(first)
    last = b.exp(middle)
    found = _xla(b.graph(last))
    assert saved_us(found, 1 << middle.id) < 0


def test_what_is_left_of_a_kernel_may_run_behind_all_of_a_pattern() -> None:
    """`early` is computed again by the kernel of `late`, which only therefore starts early."""
    b = Builder()
    x = b.parameter((1024, 1024))
    early = b.exp(x)
    state = b.kept(b.tanh(early))
    middle = b.exp(state)
    late = b.add(b.kept(middle), early)
    graph = b.graph(b.add(late, b.unary("negate", middle)))
    found = _xla(graph)
    [kernel] = [k for k in found.kernels if k.bits >> early.id & 1 and k.bits >> late.id & 1]
    assert not kernel.written >> early.id & 1
    left = saved_by_kernel(found, 1 << middle.id)
    assert all(us > -H200.launch_us for us in left.values())


@given(random_graphs(), st.data())
def test_no_kernel_is_saved_twice(graph: Graph, data: st.DataObject) -> None:
    """However the ops are dealt out, all of them together save all there is, and some no more."""
    found = _xla(graph)
    sets = [0, 0, 0]
    for i in ids(found.bits):
        sets[data.draw(st.integers(0, 2))] |= 1 << i
    assert sum(saved_together(found, sets)) == pytest.approx(found.us)
    assert sum(saved_together(found, sets[:2])) <= found.us + 1e-9
    assert saved_together(found, sets[:1]) == pytest.approx([saved_us(found, sets[0])])


def test_what_two_patterns_spare_the_same_kernel_is_shared() -> None:
    """Either value alone spares the kernel most of what it reads; both spare it little more."""
    b = Builder()
    dims = (1024, 1024)
    x = b.binary("maximum", b.parameter(dims), b.splat(0.0, dims))
    first = b.add(b.add(x, b.parameter(dims)), b.parameter(dims))
    second = b.add(b.add(first, b.parameter(dims)), b.parameter(dims))
    found = _xla(b.graph(b.exp(second)))
    sets = [1 << first.id | 1 << first.operands[0].id, 1 << second.id]
    alone = [saved_us(found, bits) for bits in sets]
    together = saved_together(found, sets)
    assert sum(together) == pytest.approx(saved_us(found, sets[0] | sets[1]))
    assert together != pytest.approx(alone)


# ---- gathers and scatters ------------------------------------------------------------------------


def test_a_scatter_is_a_kernel_that_takes_its_updates_in_and_nothing_behind_it() -> None:
    b = Builder()
    i, u = b.parameter((512,), "s32"), b.parameter((512,))
    updates = b.exp(u)
    put = b.put_in_rows(b.splat(0.0, (512, 512)), i, updates)
    graph = b.graph(b.tanh(put))
    first, second = _xla(graph).kernels
    assert first.bits >> updates.id & 1
    assert first.bits >> put.id & 1
    assert first.written == 1 << put.id
    assert second.bits == 1 << graph.root.id
    assert first.us > 2 * H200.launch_us, "it writes over an array that has to be filled before"


def test_a_gather_fuses_with_what_it_picks_from() -> None:
    b = Builder()
    x, i = b.parameter((4096, 4096)), b.parameter((8,), "s32")
    graph = b.graph(b.tanh(b.rows(b.exp(x), i)))
    [kernel] = _xla(graph).kernels
    assert kernel.us < 3, "8 of 4096 rows are read"
