"""How kernels go through their rows, as the cost model hears of it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from fusionstitch.codegen.generate import CodegenOptions, inspect
from fusionstitch.codegen.schedule.tuning import Tuning
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.facts import KernelFacts, Walk
from tests.codegen.regions import whole, whole_of
from tests.graphs import Builder, layernorm_backward

H200 = device("h200")
ROWS = jax.ShapeDtypeStruct((8192, 4096), jnp.float32)


def facts(fun, *args, **tuning: object) -> KernelFacts:
    found = inspect(whole_of(fun, *args), H200, CodegenOptions(tuning=Tuning(**tuning)))  # type: ignore[arg-type]
    assert isinstance(found, KernelFacts)
    return found


def softmax(**tuning: object) -> Walk:
    [[walk]] = facts(jax.nn.softmax, ROWS, **tuning).walks
    return walk


def test_a_row_in_registers_is_read_once() -> None:
    assert softmax() == Walk(tiles=8192, turns=1, rounds=1, joins=2, warps=8)


def test_a_row_that_registers_do_not_hold_is_read_by_every_sweep() -> None:
    walk = softmax(block=64)
    assert (walk.again, walk.rows_bytes) == (2 * 8192 * 4096 * 4, 4096 * 4)
    assert walk.rounds == 3 * 4  # 16 vectors a thread, four under way, three sweeps
    assert softmax(row_registers=0).again == walk.again


def test_a_short_team_leaves_the_rest_of_a_block_idle() -> None:
    walk = softmax(team=4)
    assert walk.busy == 4 / 256
    assert walk.warps == 1
    assert softmax(tile=64.0, team=4).busy == 1.0


def test_rows_of_a_tile_are_turns() -> None:
    assert softmax(tile=4.0).turns == 4
    assert softmax(tile=4.0).tiles == 2048


@pytest.mark.parametrize(("team", "registers"), [(1024, 24), (256, 36), (128, 52)])
def test_registers_follow_the_elements_of_a_row(team: int, registers: int) -> None:
    one_row = {"block": team, "team": team, "tile": min(1.0, 256 / team)}
    assert facts(jax.nn.softmax, ROWS, **one_row).registers == registers


def test_a_block_that_is_larger_than_a_row_wants_takes_several_rows() -> None:
    [[alone]] = facts(jax.nn.softmax, ROWS).walks
    [[several]] = facts(jax.nn.softmax, ROWS, block=1024).walks
    assert (alone.warps, alone.turns) == (several.warps, several.turns) == (8, 1)
    assert alone.tiles == 4 * several.tiles


def test_sums_carried_down_the_rows_may_spill() -> None:
    b = Builder()
    x, scale, g = b.parameter((16384, 1024)), b.parameter((1024,)), b.parameter((16384, 1024))
    region = whole(b.graph(*layernorm_backward(b, x, scale, g)))

    def spilled(tuning: Tuning) -> int:
        found = inspect(region, H200, CodegenOptions(tuning=tuning))
        assert isinstance(found, KernelFacts)
        return sum(walk.spilled for phase in found.walks for walk in phase)

    assert spilled(Tuning()) == 0
    assert spilled(Tuning(team=16)) > 16384 * 1024


def test_loops_of_one_block_follow_each_other() -> None:
    one, other = (jax.ShapeDtypeStruct(dims, jnp.float32) for dims in ((30, 20), (50, 40)))
    [walks] = facts(lambda x, y: x.sum(1).max() + y.sum(), one, other).walks
    assert [walk.follows for walk in walks] == [False, True, True]
    [apart] = facts(lambda x, y: (x.sum(1), y.sum(1)), one, other).walks
    assert [walk.follows for walk in apart] == [False, False]


def test_elementwise_kernels_wait_for_nobody() -> None:
    [[walk]] = facts(jnp.exp, ROWS).walks
    assert walk.rounds == walk.joins == 0
    assert walk.again == walk.spilled == 0
