"""How often XLA's threads evaluate the ops of a kernel."""

from __future__ import annotations

import pytest

from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.evaluations import Evaluations, unrolled
from fusionstitch.costmodel.graph_work import GraphWork
from fusionstitch.costmodel.xla_kernels import kernel_time_us
from fusionstitch.hlo.graph import Graph, Op
from tests.graphs import Builder

H200 = device("h200")
N = 1 << 20


def _kernel(b: Builder, root: Op) -> tuple[Graph, int]:
    graph = b.graph(root)
    return graph, sum(1 << op.id for op in graph if op.opcode not in ("parameter", "constant"))


def _neighbours(b: Builder, times: int) -> Op:
    """exp(x) at `times` indices, added."""
    x = b.exp(b.parameter((N + times,)))
    total = b.slice(x, (0,), (N,))
    for k in range(1, times):
        total = b.add(total, b.slice(x, (k,), (N + k,)))
    return total


@pytest.mark.parametrize("times", [1, 3, 5])
def test_a_value_is_computed_again_at_each_index(times: int) -> None:
    b = Builder()
    graph, bits = _kernel(b, _neighbours(b, times))
    found = Evaluations(graph, 0, H200, guessed=False).of(bits, 1 << graph.root.id)
    assert found.loads == times * N


def test_elementwise_ops_share_an_evaluation() -> None:
    b = Builder()
    x = b.exp(b.parameter((N,)))
    graph, bits = _kernel(b, b.add(b.mul(x, x), b.tanh(x)))
    found = Evaluations(graph, 0, H200, guessed=False).of(bits, 1 << graph.root.id)
    assert found.loads == N


def test_what_is_guessed_to_fuse_is_computed_once() -> None:
    """XLA would have written what is dear to compute again."""
    b = Builder()
    graph, bits = _kernel(b, _neighbours(b, 5))
    found = Evaluations(graph, 0, H200).of(bits, 1 << graph.root.id)
    assert found.loads == pytest.approx(N, rel=1e-4)


def test_a_branch_is_taken_by_its_own_elements() -> None:
    b = Builder()
    parts = [b.exp(b.parameter((rows, 4096))) for rows in (100, 300)]
    graph, bits = _kernel(b, b.concatenate(parts))
    found = Evaluations(graph, 0, H200, guessed=False).of(bits, 1 << graph.root.id)
    assert found.loads == pytest.approx(400 * 4096, rel=1e-3)
    assert found.branches == 400 * 4096


@pytest.mark.parametrize(("size", "each"), [(1 << 22, 4), ((1 << 22) + 2, 2), ((1 << 22) + 1, 1)])
def test_threads_take_as_many_neighbours_as_divide(size: int, each: int) -> None:
    assert unrolled(size, H200) == each
    assert unrolled(size % 1024 + 8, H200) == 1  # there are threads enough


def test_odd_sizes_take_longer() -> None:
    """A convert of [1539, 13829] took 102 us on an H200, of which its bytes take 31."""

    def us(rows: int, columns: int) -> float:
        b = Builder()
        graph, bits = _kernel(
            b, b.op("convert", (rows, columns), b.parameter((rows, columns)), dtype="bf16")
        )
        return kernel_time_us(GraphWork(graph, 0, H200), bits, 1 << graph.root.id)

    assert us(1539, 13829) == pytest.approx(102, rel=0.25)
    assert us(1536, 13832) < 50
