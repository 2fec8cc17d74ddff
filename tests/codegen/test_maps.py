"""The index map of every op against its NumPy reference, element by element."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionstitch.codegen.index_maps.index import Index, constant, render, variable
from fusionstitch.codegen.index_maps.maps import Guard, Indices, is_branching, reads
from fusionstitch.codegen.loops.stages import body_reads
from fusionstitch.codegen.rewrite.extents import inner_extents
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.evaluate import evaluate_op
from fusionstitch.hlo.graph import Op
from tests.codegen.test_index import CInt
from tests.graphs import Builder


def at(index: Index, point: dict[str, CInt]) -> int:
    return int(eval(render(index), dict(point)))


def holds(guard: Guard, point: dict[str, CInt]) -> bool:
    value = at(guard.index, point)
    return guard.lower <= value < guard.upper and value % guard.stride == 0


def fetch(op: Op, values: list[np.ndarray], index: Indices, point: dict[str, CInt]) -> Any:
    """The element of `op` that the map picks from the operands."""
    alternatives = reads(op, index)
    assert is_branching(op) or len(alternatives) == 1
    for read in alternatives:
        if all(holds(guard, point) for guard in read.guards):
            position = tuple(at(i, point) for i in read.index)
            dims = values[read.operand].shape
            assert all(0 <= p < n for p, n in zip(position, dims, strict=True)), (position, dims)
            return values[read.operand][position]
    raise AssertionError("no alternative holds")


def check(op: Op) -> None:
    """Every element of an op whose operands hold distinct numbers."""
    values = []
    for n, operand in enumerate(op.operands):
        numbers = np.arange(operand.shape.size, dtype=np.int32) + 10_000 * n
        values.append(numbers.reshape(operand.dims))
    wanted = evaluate_op(op, values)
    index = tuple(variable(f"d{d}", extent) for d, extent in enumerate(op.dims))
    for position in itertools.product(*map(range, op.dims)):
        point = {f"d{d}": CInt(p) for d, p in enumerate(position)}
        assert fetch(op, values, index, point) == wanted[position], (op, position)


dims_of = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


@given(dims_of, st.integers(1, 4), st.integers(0, 3))
def test_broadcast(dims: tuple[int, ...], extent: int, position: int) -> None:
    b = Builder()
    position = min(position, len(dims))
    retained = [d for d in range(len(dims) + 1) if d != position]
    check(
        b.broadcast(
            b.parameter(dims, "s32"), (*dims[:position], extent, *dims[position:]), retained
        )
    )


@given(st.permutations(range(3)), st.permutations([2, 3, 4]))
def test_transpose(order: list[int], dims: list[int]) -> None:
    b = Builder()
    check(b.transpose(b.parameter(dims, "s32"), order))


@given(st.permutations([1, 2, 2, 3, 4]), st.permutations([1, 2, 2, 3, 4]), st.data())
def test_reshape(one: list[int], other: list[int], data: st.DataObject) -> None:
    b = Builder()
    cuts = [data.draw(st.integers(1, 4)) for _ in range(2)]
    before = (math.prod(one[: cuts[0]]), *one[cuts[0] :])
    after = (*other[: cuts[1]], math.prod(other[cuts[1] :]))
    check(b.reshape(b.parameter(before, "s32"), after))


@given(st.lists(st.tuples(*(st.integers(0, 3) for _ in range(4))), min_size=1, max_size=3))
def test_slice(spec: list[tuple[int, ...]]) -> None:
    b = Builder()
    start = tuple(s for s, _, _, _ in spec)
    limit = tuple(s + n + 1 for s, n, _, _ in spec)
    stride = tuple(k + 1 for _, _, k, _ in spec)
    dims = tuple(m + more for m, (_, _, _, more) in zip(limit, spec, strict=True))
    result = [-(-(b_ - a) // k) for a, b_, k in zip(start, limit, stride, strict=True)]
    x = b.parameter(dims, "s32")
    check(b.op("slice", result, x, start=start, limit=limit, stride=stride))


@given(dims_of, st.sets(st.integers(0, 2)))
def test_reverse(dims: tuple[int, ...], flipped: set[int]) -> None:
    b = Builder()
    dimensions = tuple(sorted(d for d in flipped if d < len(dims)))
    check(b.op("reverse", dims, b.parameter(dims, "s32"), dimensions=dimensions))


edges = st.lists(
    st.tuples(st.integers(1, 4), st.integers(-2, 3), st.integers(-2, 3), st.integers(0, 2)),
    min_size=1,
    max_size=3,
)


def padded(b: Builder, spec: list[tuple[int, int, int, int]]) -> Op | None:
    """A pad with (extent, low, high, interior) per dim, or None if nothing would be left."""
    dims = [n + low + high + (n - 1) * inside for n, low, high, inside in spec]
    if min(dims) < 1:
        return None
    extents, low, high, interior = zip(*spec, strict=True)
    x, value = b.parameter(extents, "s32"), b.parameter((), "s32")
    return b.op("pad", dims, x, value, low=low, high=high, interior=interior)


@given(edges)
def test_pad(spec: list[tuple[int, int, int, int]]) -> None:
    op = padded(Builder(), spec)
    if op is not None:
        check(op)


@given(dims_of, st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 2))
def test_concatenate(dims: tuple[int, ...], parts: list[int], axis: int) -> None:
    b = Builder()
    axis = min(axis, len(dims) - 1)
    shapes = [(*dims[:axis], part, *dims[axis + 1 :]) for part in parts]
    check(b.concatenate([b.parameter(s, "s32") for s in shapes], axis))


@given(edges, st.data())
def test_pad_at_a_part_of_its_result(spec: list[tuple[int, ...]], data: st.DataObject) -> None:
    """A reader that sees only some elements leaves out guards, and reads what it must."""
    op = padded(Builder(), spec)
    if op is None:
        return
    values = [np.arange(o.shape.size, dtype=np.int32).reshape(o.dims) for o in op.operands]
    values[1] = np.array(-1, np.int32)
    wanted = evaluate_op(op, values)
    starts = [data.draw(st.integers(0, n - 1)) for n in op.dims]
    extents = [data.draw(st.integers(1, n - s)) for n, s in zip(op.dims, starts, strict=True)]
    index = tuple(
        variable(f"d{d}", n) + s for d, (n, s) in enumerate(zip(extents, starts, strict=True))
    )
    for position in itertools.product(*map(range, extents)):
        point = {f"d{d}": CInt(p) for d, p in enumerate(position)}
        there = tuple(p + s for p, s in zip(position, starts, strict=True))
        assert fetch(op, values, index, point) == wanted[there]


def test_a_pad_that_shows_none_of_its_operand_is_its_value() -> None:
    b = Builder()
    x, value = b.parameter((1,)), b.parameter(())
    op = b.op("pad", (1,), x, value, low=(1,), high=(-1,), interior=(0,))
    assert [(r.operand, r.index, r.guards) for r in reads(op, (constant(0),))] == [(1, (), ())]


def test_pieces_of_a_concatenation_that_are_not_reached_are_not_read() -> None:
    b = Builder()
    op = b.concatenate([b.parameter((n,)) for n in (4, 6, 5)])
    inside = reads(op, (variable("i", 6) + 4,))
    assert [(r.operand, render(r.index[0]), r.guards) for r in inside] == [(1, "i", ())]
    last_two = reads(op, (variable("i", 9) + 6,))
    assert [r.operand for r in last_two] == [1, 2]
    assert last_two[-1].guards == ()


def test_elementwise_ops_read_at_their_own_index_and_scalars_at_none() -> None:
    b = Builder()
    low, x = b.parameter(()), b.parameter((3, 4))
    op = b.op("clamp", (3, 4), low, x, low)
    here = (variable("i", 3), variable("j", 4))
    assert [r.index for r in reads(op, here)] == [(), here, ()]


def test_sources_read_nothing() -> None:
    b = Builder()
    assert reads(b.op("iota", (3,), dtype="s32", dimension=0), (variable("i", 3),)) == []
    assert reads(b.constant([1.0, 2.0]), (variable("i", 2),)) == []


def test_an_op_without_a_map_is_refused() -> None:
    b = Builder()
    with pytest.raises(CodegenError, match="collective-permute cannot be computed inside a kernel"):
        reads(b.kept(b.parameter((3,))), (variable("i", 3),))


# ---- reductions and dots: what one step of the loop reads ----------------------------------------


@given(st.permutations([2, 3, 4]), st.sets(st.integers(0, 2), min_size=1))
def test_reduce(dims: list[int], reduced: set[int]) -> None:
    b = Builder()
    op = b.reduce(b.parameter(dims, "s32"), tuple(sorted(reduced)))
    x = np.arange(24, dtype=np.int32).reshape(dims)
    _check_sums(op, [x], evaluate_op(op, [x, np.int32(0)]))


@given(st.data())
def test_dot(data: st.DataObject) -> None:
    """Batch and contracted dims anywhere on both sides."""
    extents = {"a": 2, "b": 3, "m": 2, "n": 3, "k": 4, "l": 2}
    batch = data.draw(st.sampled_from(["", "a", "ab", "ba"]))
    contract = data.draw(st.sampled_from(["k", "kl", "lk"]))
    lhs = "".join(
        data.draw(st.permutations(batch + contract + data.draw(st.sampled_from(["", "m"]))))
    )
    rhs = "".join(
        data.draw(st.permutations(batch + contract + data.draw(st.sampled_from(["", "n"]))))
    )
    free = [c for c in lhs + rhs if c in "mn"]
    b = Builder()
    op = b.op(
        "dot",
        [extents[c] for c in (*batch, *free)],
        b.parameter([extents[c] for c in lhs], "s32"),
        b.parameter([extents[c] for c in rhs], "s32"),
        lhs_batch=tuple(map(lhs.index, batch)),
        rhs_batch=tuple(map(rhs.index, batch)),
        lhs_contract=tuple(map(lhs.index, contract)),
        rhs_contract=tuple(map(rhs.index, contract)),
    )
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 9, o.dims, np.int32) for o in op.operands)
    wanted = np.einsum(f"{lhs},{rhs}->{batch}{''.join(free)}", x, y)
    _check_sums(op, [x, y], wanted)


def _check_sums(op: Op, values: list[np.ndarray], wanted: np.ndarray) -> None:
    dims = tuple(variable(f"d{d}", extent) for d, extent in enumerate(op.dims))
    inner = tuple(variable(f"k{d}", extent) for d, extent in enumerate(inner_extents(op)))
    found = body_reads(op, dims, inner)
    assert len(found) == len(values)
    for position in itertools.product(*map(range, op.dims)):
        total = 0
        for step in itertools.product(*map(range, inner_extents(op))):
            point = {f"d{d}": CInt(p) for d, p in enumerate(position)}
            point |= {f"k{d}": CInt(p) for d, p in enumerate(step)}
            total += math.prod(
                int(value[tuple(at(i, point) for i in index)])
                for value, (_, index) in zip(values, found, strict=True)
            )
        assert total == wanted[position], (op, position)
