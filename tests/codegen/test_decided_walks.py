"""What is decided of a nest's walk before anything is lowered: vectors, registers, unrolling."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from fusionstitch.codegen.dots.tile import Kind
from fusionstitch.codegen.generate import CodegenOptions, plan_kernel
from fusionstitch.codegen.ir import statements
from fusionstitch.codegen.schedule import walk
from fusionstitch.codegen.schedule.schedule import NestPlan, Teams
from fusionstitch.codegen.schedule.tuning import Tuning
from fusionstitch.codegen.schedule.walk import Run
from fusionstitch.codegen.schedule.walking import row_stride
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.graph import Graph
from tests.codegen.kernel_cases import gated
from tests.codegen.regions import whole, whole_of
from tests.graphs import Builder, layernorm_backward

H200 = device("h200")
ROWS = jax.ShapeDtypeStruct((8192, 4096), jnp.float32)


def nests(region: Graph, **tuning: object) -> list[NestPlan]:
    options = CodegenOptions(tuning=Tuning(**tuning))  # type: ignore[arg-type]
    return [n for g in plan_kernel(region, H200, options).plan.groups for n in g.nests]


def nest_of(fun, *args, **tuning: object) -> NestPlan:
    [nest] = nests(whole_of(fun, *args), **tuning)
    return nest


def test_a_thread_reads_as_many_elements_as_fit_an_access() -> None:
    assert nest_of(jax.nn.softmax, ROWS).walk.width == 4
    assert nest_of(jax.nn.softmax, ROWS, vector_bytes=8).walk.width == 2
    half = jax.ShapeDtypeStruct(ROWS.shape, jnp.bfloat16)
    assert nest_of(jax.nn.softmax, half).walk.width == 8


@pytest.mark.parametrize("columns", [4095, 4097])
def test_rows_that_are_no_whole_vectors_are_read_one_by_one(columns: int) -> None:
    odd = jax.ShapeDtypeStruct((8192, columns), jnp.float32)
    assert nest_of(jax.nn.softmax, odd).walk.width == 1


def test_vectors_need_stores_that_lie_together() -> None:
    assert nest_of(jnp.exp, ROWS).walk.width == 4
    assert nest_of(lambda x: jnp.exp(x).T, ROWS).walk.width == 1


def test_few_elements_are_spread_over_more_threads() -> None:
    few = jax.ShapeDtypeStruct((8, 128), jnp.float32)
    assert nest_of(jnp.exp, few).walk.width == 1


def image_of(*dims: int) -> NestPlan:
    """The loop over an image whose channels two dots gate."""
    shapes = dims, (dims[0], dims[-1]), (dims[-1], 5)
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return nests(whole_of(gated, *args))[-1]


def test_elements_of_a_block_are_read_in_vectors_or_many_before_one_is_stored() -> None:
    assert image_of(512, 324, 8).walk.width == 4
    # no vector divides an image: a thread loads elements that are far apart
    assert image_of(512, 330, 7).walk.run == Run(length=5, apart=462)
    # rather than vectors of two
    assert image_of(512, 1651, 10).walk.run == Run(length=5, apart=3302)
    assert image_of(512, 331, 7).walk == walk.ONE_BY_ONE  # 331 is prime, and so is 7


@pytest.mark.parametrize(
    ("columns", "steps"),
    [
        (32 * 4, 0),  # the compiler may choose
        (32 * 12, 12),  # all at once
        (32 * 32, 16),
        (32 * 31, 15),  # and one that is left over
        (32 * 38 + 1, 12),  # nor do many of 38 steps stay over
    ],
)
def test_steps_that_are_unrolled_together_leave_few_over(columns: int, steps: int) -> None:
    pairs = jax.ShapeDtypeStruct((8192, columns, 3), jnp.float32)
    nest = nest_of(lambda x: x[:, :, 1].sum(1), pairs, team=32)
    assert (nest.teams.threads, nest.walk.width) == (32, 1)
    assert nest.walk.loads == steps


def test_a_thread_alone_leaves_its_steps_to_the_compiler() -> None:
    few = jax.ShapeDtypeStruct((100_000, 30, 3), jnp.float32)
    nest = nest_of(lambda x: x[:, :, 1].sum(1), few, team=1)
    assert (nest.teams.threads, nest.walk.loads) == (1, 0)


def test_a_row_is_kept_from_sweep_to_sweep_where_there_is_room() -> None:
    retained = nest_of(jax.nn.softmax, ROWS).walk
    assert [(one.op.opcode, one.level) for one in retained.live] == [
        ("parameter", 0),
        ("exponential", 1),
    ]
    assert retained.unrolled
    none = nest_of(jax.nn.softmax, ROWS, row_registers=0).walk
    assert none.live == ()
    assert not nest_of(jax.nn.softmax, ROWS, block=64).walk.unrolled


def test_rows_that_a_block_walks_are_loaded_ahead() -> None:
    b = Builder()
    x, scale, g = b.parameter((16384, 1024)), b.parameter((1024,)), b.parameter((16384, 1024))
    first, *_ = nests(whole(b.graph(*layernorm_backward(b, x, scale, g))))
    held = {one.op.id: (one.steady, one.ahead) for one in first.walk.row_inputs}
    assert held == {0: (False, True), 2: (False, True), 1: (True, False)}
    assert first.walk.announced


def test_a_loop_that_only_sums_has_several_rows_under_way() -> None:
    first = nests(whole_of(lambda x: x.sum(0), jax.ShapeDtypeStruct((65536, 256), jnp.float32)))[0]
    assert first.walk.rows == 8
    assert first.walk.vectors == 1


def test_the_element_that_the_data_picks_is_read_before_the_sweeps() -> None:
    def loss(x: jax.Array, label: jax.Array) -> jax.Array:
        rows = jnp.arange(len(label))
        return jax.nn.log_softmax(x)[rows, label]

    labels = jax.ShapeDtypeStruct((8192,), jnp.int32)
    picked = [p for n in nests(whole_of(loss, ROWS, labels)) for p in n.walk.picked]
    assert [op.dims for op, _ in picked] == [(8192, 4096)]


@pytest.mark.parametrize(
    ("teams", "rows", "ragged", "stride"),
    [
        (Teams(256), 1, False, 0),  # the only row
        (Teams(256), 7, False, 1),  # the block walks them all
        (Teams(64), 4, False, 0),  # a row for each team
        (Teams(64), 6, False, 4),  # whole warps are done when their rows are
        (Teams(8), 64, False, 32),
        (Teams(8), 65, False, 0),  # lanes stay together: some repeat a row
        (Teams(8), 64, True, 0),
        (Teams(32, columns=8), 64, False, 8),
    ],
)
def test_stride_of_rows(teams: Teams, rows: int, ragged: bool, stride: int) -> None:
    assert row_stride(teams, rows, 256, ragged) == stride


def dot(rows: int, depth: int, columns: int, **types: object) -> NestPlan:
    a, b = (jax.ShapeDtypeStruct(s, jnp.float32) for s in ((rows, depth), (depth, columns)))
    [nest] = nests(whole_of(lambda x, y: jnp.exp(x @ y), a, b))
    return nest


def test_rounds_of_a_long_dot_are_not_all_written_out() -> None:
    short, long = dot(512, 64, 512), dot(512, 4096, 512)
    assert long.tile is not None
    assert long.tile.kind is Kind.TENSOR
    assert list(short.walk.depth.values()) == [walk.ALL]
    assert list(long.walk.depth.values()) == [4]


def test_all_iterations_are_what_loops_of_the_ir_call_so() -> None:
    assert walk.ALL == statements.ALL
