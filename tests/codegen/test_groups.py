"""Groups: which stages share blocks, and in which phases groups run."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from fusionstitch.codegen.dots.groups import tile_dots
from fusionstitch.codegen.loops.caching import cache_values
from fusionstitch.codegen.loops.groups import (
    COALESCED,
    SECTOR,
    Figures,
    Group,
    _known_figures,
    shared_bytes,
)
from fusionstitch.codegen.loops.merging import form_groups
from fusionstitch.codegen.loops.nests import Role, form_nests
from fusionstitch.codegen.loops.once import materialized
from fusionstitch.codegen.loops.phases import phases
from fusionstitch.codegen.loops.stages import find_stages, form_of
from fusionstitch.codegen.schedule.split import find_splits, split_reductions
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.graph import Op
from tests.codegen.regions import whole, whole_of
from tests.graphs import Builder, layernorm, layernorm_backward, softmax

H200 = device("h200")
ONE = replace(H200, sm_count=1)


def groups_of(b: Builder, *roots: Op, on=H200, merge: bool = True) -> list[Group]:
    return form_groups(find_stages(whole(b.graph(*roots))), on, merge)


def phase_sizes(groups: list[Group]) -> list[int]:
    return [len(p) for p in phases(groups, {s: g for g in groups for s in g.stages}, {})]


def opcodes(group: Group) -> list[str]:
    return [stage.op.opcode for stage in group.stages]


def test_a_softmax_is_one_group_of_its_rows() -> None:
    b = Builder()
    [group] = groups_of(b, softmax(b, b.parameter((1000, 64))))
    assert opcodes(group) == ["reduce", "reduce", "divide"]
    assert group.tiles == 1000
    assert [group.block_size(s) for s in group.stages] == [1, 1, 64]
    assert [group.inner_size(s) for s in group.stages] == [64, 64, 1]
    assert not group.is_flat


def test_a_layer_norm_is_one_group() -> None:
    b = Builder()
    x, scale, bias = b.parameter((1000, 64)), b.parameter((64,)), b.parameter((64,))
    [group] = groups_of(b, layernorm(b, x, scale, bias))
    assert group.tiles == 1000


def test_without_merging_every_stage_is_a_group_of_its_own_phase() -> None:
    b = Builder()
    groups = groups_of(b, softmax(b, b.parameter((1000, 64))), merge=False)
    assert [opcodes(g) for g in groups] == [["reduce"], ["reduce"], ["divide"]]
    assert phase_sizes(groups) == [1, 1, 1]


def test_column_sums_of_a_backward_pass_are_apart_from_its_rows() -> None:
    b = Builder()
    x, scale, g = b.parameter((4096, 256)), b.parameter((256,)), b.parameter((4096, 256))
    groups = groups_of(b, *layernorm_backward(b, x, scale, g))
    rows = {group.tiles for group in groups}
    assert rows == {4096, 256}
    by_rows = [group for group in groups if group.tiles == 4096]
    assert len(by_rows) == 1


def test_independent_work_packs_into_one_phase() -> None:
    b = Builder()
    roots = [b.exp(b.parameter((n,))) for n in (10, 1000, 64)]
    groups = groups_of(b, *roots)
    assert [group.tiles for group in groups] == [10, 1000, 64]
    assert all(group.is_flat for group in groups)
    assert phase_sizes(groups) == [3]


def test_siblings_that_read_one_input_alike_share_a_loop() -> None:
    b = Builder()
    x = b.parameter((1000, 512))
    groups = groups_of(b, b.reduce(x, (1,)), b.reduce(x, (1,), "maximum"))
    assert [opcodes(g) for g in groups] == [["reduce", "reduce"]]


def test_siblings_that_compute_a_special_function_alike_share_a_loop() -> None:
    """A gate of a recurrent cell and its derivative: of what they read, a part."""
    b = Builder()
    gates = b.parameter((1024, 256))
    gate = b.tanh(b.slice(gates, (0, 64), (1024, 128)))
    other = b.tanh(b.slice(gates, (0, 128), (1024, 192)))
    left = b.mul(gate, other)
    right = b.sub(b.mul(gate, gate), gate)
    assert len(groups_of(b, left, right)) == 1


def test_siblings_with_other_loops_stay_apart() -> None:
    b = Builder()
    x = b.parameter((1000, 512))
    groups = groups_of(b, b.reduce(x, (1,)), b.reduce(x, (0,)))
    assert len(groups) == 2
    assert phase_sizes(groups) == [2]


def test_a_merge_must_not_starve_the_device() -> None:
    """A whole-array sum read by all elements: two phases on a big device."""
    b = Builder()
    x = b.parameter((4096, 512))
    total = b.reduce(x, (0, 1))
    groups = groups_of(b, b.div(x, b.broadcast(total, x.dims)))
    assert [group.tiles for group in groups] == [1, 4096 * 512]
    assert phase_sizes(groups) == [1, 1]


def test_a_merge_must_fit_shared_memory() -> None:
    b = Builder()
    s = b.dot(b.parameter((64, 90, 4)), b.parameter((64, 4, 90)), batch=1)
    out = b.dot(softmax(b, s), b.parameter((64, 90, 4)), batch=1)
    together = groups_of(b, out, on=ONE)
    assert len(together) == 1
    assert shared_bytes(together[0]) >= 90 * 90 * 4
    tight = replace(ONE, shared_per_block=16 << 10)
    for group in form_groups(find_stages(whole(b.graph(out))), tight):
        assert shared_bytes(group) <= 16 << 10


def test_a_merge_must_leave_no_cycle() -> None:
    """a feeds b and c, b feeds c through another shape: c cannot join a around b."""
    b = Builder()
    x = b.parameter((256, 256))
    rows = b.reduce(x, (1,))
    total = b.reduce(b.exp(rows), (0,))
    out = b.mul(b.like(rows, x, (1,)), b.broadcast(total, x.dims))
    groups = groups_of(b, out)
    order = {s: n for n, g in enumerate(groups) for s in g.stages}
    for group in groups:
        for stage in group.stages:
            assert all(order[p] <= order[stage] for p, _ in stage.reads)


def test_phases_are_numbered_by_the_longest_path() -> None:
    b = Builder()
    x = b.parameter((4096, 512))
    one = b.reduce(x, (0, 1))
    centred = b.sub(x, b.broadcast(one, x.dims))
    two = b.reduce(b.mul(centred, centred), (0, 1))
    out = b.mul(centred, b.broadcast(two, x.dims))
    graph = whole(b.graph(out, b.exp(b.parameter((9,)))))
    graph = split_reductions(graph, find_splits(graph, H200))
    groups = form_groups(find_stages(graph), H200)
    # parts, sum, parts, sum, and the outputs
    assert phase_sizes(groups) == [1, 1, 1, 1, 2]


def test_column_reductions_take_neighbouring_columns_together() -> None:
    b = Builder()
    [group] = groups_of(b, b.reduce(b.parameter((100_000, 96)), (0,)))
    assert group.least_points == COALESCED
    b = Builder()  # near memory, and too few lines for all SMs
    [group] = groups_of(b, b.reduce(b.parameter((1000, 96)), (0,)))
    assert group.least_points == SECTOR
    b = Builder()
    [rows] = groups_of(b, b.reduce(b.parameter((96, 1000)), (1,)))
    assert rows.least_points == 1


def test_batches_that_fill_the_device_keep_their_dots_whole() -> None:
    b = Builder()
    x = b.parameter((5000, 16, 8))
    [group] = groups_of(b, b.exp(b.dot(x, b.parameter((5000, 8, 16)), batch=1)))
    assert group.tiles == 5000
    few = Builder()
    x = few.parameter((5, 16, 8))
    [group] = groups_of(few, few.exp(few.dot(x, few.parameter((5, 8, 16)), batch=1)))
    assert group.tiles == 5 * 16 * 16


# ---- caching and nests ---------------------------------------------------------------------------


def test_an_expensive_value_that_two_loops_need_is_cached() -> None:
    b = Builder()
    x = b.parameter((64, 40, 30))
    e = b.exp(x)
    share = b.div(e, b.like(b.reduce(e, (1,)), x, (1,)))
    graph = whole(b.graph(b.reduce(share, (2,))))
    groups = cache_values(form_groups(find_stages(graph), ONE), graph, ONE)
    stages = [stage for group in groups for stage in group.stages]
    assert "exponential" in [s.op.opcode for s in stages]


def test_a_row_walked_twice_is_one_nest_of_two_levels() -> None:
    b = Builder()
    [group] = groups_of(b, softmax(b, b.parameter((1000, 64))))
    [nest] = form_nests(group)
    assert nest.levels == 3
    assert [nest.role[s] for s in group.stages] == [Role.REDUCE, Role.REDUCE, Role.SWEEP]
    assert [nest.level[s] for s in group.stages] == [0, 1, 2]


def test_a_value_per_row_is_computed_once_per_row() -> None:
    b = Builder()
    x = b.parameter((1000, 64))
    [group] = groups_of(b, b.unary("log", b.reduce(x, (1,))), on=ONE)
    [nest] = form_nests(group)
    assert [nest.role[s] for s in nest.stages] == [Role.REDUCE, Role.ROW]


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1)])
def test_another_order_inside_the_block_is_another_nest(order: tuple[int, ...]) -> None:
    b = Builder()
    s = b.dot(b.parameter((500, 12, 8)), b.parameter((500, 8, 12)), batch=1)
    [group] = groups_of(b, b.add(b.exp(s), b.transpose(s, order)), on=ONE)
    assert len(form_nests(group)) == (1 if order == (0, 1, 2) else 2)


# ---- what is remembered --------------------------------------------------------------------------


def test_groups_of_one_form_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Group] = []
    measure = Group._measured

    def counted(group: Group) -> Figures:
        measured.append(group)
        return measure(group)

    monkeypatch.setattr(Group, "_measured", counted)
    _known_figures.cache_clear()
    b = Builder()
    [one] = groups_of(b, softmax(b, b.parameter((1000, 64))))
    first = len(measured)
    assert first > 0
    b = Builder()  # other ops around it, other numbers
    _, two = groups_of(b, b.exp(b.parameter((3,))), softmax(b, b.parameter((1000, 64))))
    assert len(measured) == first
    assert one.figures == two.figures == measure(two)


def test_steps_that_read_other_slices_have_one_form() -> None:
    """Those of an unrolled loop differ in nothing else."""
    b = Builder()
    x = b.parameter((4000, 64))
    steps = [softmax(b, b.slice(x, (at, 0), (at + 1000, 64))) for at in (1000, 2000, 3000)]
    groups = groups_of(b, *steps, merge=False)
    forms = {form_of(group.stages) for group in groups}
    assert len(groups) == 3 * len(forms)
    for group in groups:
        assert group.figures == group._measured()


@pytest.mark.parametrize("dims", [(1000, 64), (1000, 65)])
def test_other_extents_are_another_form(dims: tuple[int, int]) -> None:
    b = Builder()
    [group] = groups_of(b, softmax(b, b.parameter(dims)))
    assert group.figures.sizes[-1] == (dims[1], 1)


def test_a_group_that_grows_has_the_axes_of_one_made_at_once() -> None:
    b = Builder()
    x, scale, g = b.parameter((4096, 256)), b.parameter((256,)), b.parameter((4096, 256))
    stages = find_stages(whole(b.graph(*layernorm_backward(b, x, scale, g))))
    grown = Group.of(stages[:1], H200)
    for stage in stages[1:]:
        assert grown.axes.grid() is grown.axes.grid()
        grown = Group.merged(grown, Group.of([stage], H200))
    at_once = Group.of(stages, H200)
    assert grown.stages == at_once.stages
    assert grown.tiles == at_once.tiles
    for stage in stages:
        for one, other in (
            (grown.in_block(stage), at_once.in_block(stage)),
            (grown.axes.inner_leaves(stage), at_once.axes.inner_leaves(stage)),
        ):
            assert [*map(grown.axes.extent, one)] == [*map(at_once.axes.extent, other)]


def test_what_is_decided_of_axes_makes_another_group() -> None:
    b = Builder()
    [group] = groups_of(b, b.dot(b.parameter((512, 256)), b.parameter((256, 512))))
    before = group.grid, group.dot_axes, [*map(group.axes.extent, group.grid)]
    [tiled] = tile_dots([group], H200)
    assert tiled.dot_axes is not None
    assert tiled.stages == group.stages
    assert tiled.tiles < group.tiles
    assert (group.grid, group.dot_axes, [*map(group.axes.extent, group.grid)]) == before
    [nest] = form_nests(tiled)
    for frozen in (group, tiled, nest):
        with pytest.raises(FrozenInstanceError):
            frozen.stages = ()  # type: ignore[misc]


def norms(count: int, dims: tuple[int, ...] = (40,)) -> list[Group]:
    """The groups of a norm over so many arrays, of their sums and of what reads them."""
    b = Builder()
    total = b.constant(0.0)
    for _ in range(count):
        x = b.parameter(dims)
        total = b.add(total, b.reduce(b.mul(x, x), tuple(range(len(dims)))))
    return groups_of(b, b.unary("sqrt", total))


def test_a_few_sums_come_one_after_the_other_in_a_block() -> None:
    assert phase_sizes(norms(2)) == phase_sizes(norms(4)) == [1]


def test_many_sums_that_one_value_reads_have_blocks_of_their_own() -> None:
    """A grid barrier takes less time than they would, one after the other."""
    groups = norms(30)
    assert phase_sizes(groups) == [30, 1]
    assert [len(group.stages) for group in groups] == [1] * 31


def test_many_sums_of_rows_that_fill_the_device_share_its_blocks() -> None:
    b = Builder()
    total = b.parameter((1000,))
    for _ in range(8):
        total = b.add(total, b.reduce(b.exp(b.parameter((1000, 40))), (1,)))
    assert phase_sizes(groups_of(b, total)) == [1]


# ---- sums over pairs -----------------------------------------------------------------------------


def distances(b: Builder, n: int, m: int) -> Op:
    x, y = (b.broadcast(b.parameter((k,)), (n, m), (d,)) for d, k in enumerate((n, m)))
    return b.sub(x, y)


def test_sums_over_the_same_pairs_are_one_group() -> None:
    b = Builder()
    d = distances(b, 600, 700)
    [group] = groups_of(b, b.reduce(b.mul(d, d), (1,)), b.reduce(b.exp(d), (1,), "maximum"))
    assert opcodes(group) == ["reduce", "reduce"]
    assert group.tiles == 600


def test_sums_both_ways_are_two_groups_of_whole_rows() -> None:
    b = Builder()
    d = b.exp(distances(b, 600, 700))
    groups = groups_of(b, b.reduce(d, (1,)), b.reduce(d, (0,)))
    assert sorted((g.tiles, g.least_points) for g in groups) == [(600, 1), (700, 1)]


def test_what_is_computed_of_sums_does_not_part_them() -> None:
    b = Builder()
    d = distances(b, 600, 700)
    sums = [b.reduce(op, (1,)) for op in (b.exp(d), b.tanh(d), b.mul(d, d))]
    [group] = groups_of(b, *(b.exp(total) for total in sums))
    assert opcodes(group).count("reduce") == 3


def test_a_group_waits_for_no_sum_of_which_a_reader_of_its_rows_could_have_been_part() -> None:
    """Losses by weights, and gradients by the sum of all weights: both read the rows' exponentials.
    Before: weights and losses, then the sum, then the exponentials again."""

    def losses(x: Any, weight: Any) -> Any:
        weights = jnp.exp(weight) * jnp.tanh(weight)
        large = jnp.exp(x) * jnp.tanh(x)
        sums = large.sum(1)
        gradient = large / sums[:, None] * (weights / weights.sum())[:, None]
        return weights, jnp.log(sums) * weights, gradient.sum(1), gradient

    shapes = [jax.ShapeDtypeStruct(dims, jnp.float32) for dims in ((1 << 18, 512), (1 << 18,))]
    graph = whole_of(losses, *shapes)
    first: dict[int, int] = {}  # the weights, and the exponentials
    for op in graph:
        if op.opcode == "multiply":
            first.setdefault(op.shape.rank, op.id)
    stages = find_stages(graph, stored=materialized(graph) | set(first.values()))
    weights, total, rows = form_groups(stages, H200)
    assert opcodes(weights) == ["multiply"]
    assert opcodes(total) == ["reduce"]
    assert len(rows.stages) == len(stages) - 2
