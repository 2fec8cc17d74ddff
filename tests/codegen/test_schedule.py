"""Tiles and teams: what the threads of a block have to do."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from fusionstitch.codegen.generate import generate, plan_kernel
from fusionstitch.codegen.schedule.schedule import KernelPlan
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.graph import Graph
from tests.codegen.regions import whole_of

H200 = device("h200")


def rows(*shapes: tuple[int, int]) -> Graph:
    """Sums of rows that have nothing to do with each other."""
    args = [jax.ShapeDtypeStruct(dims, np.float32) for dims in shapes]
    return whole_of(lambda *xs: tuple(jnp.exp(x).sum(1) for x in xs), *args)


def mapping(plan: KernelPlan) -> list[tuple[int, int, int]]:
    """Tiles, rows of a tile and threads to a row of each loop."""
    return [(g.tiles, n.rows, n.teams.threads) for g in plan.groups for n in g.nests]


def test_rows_of_one_phase_fill_the_device_together() -> None:
    """The tiles of each are larger, the more tiles come from elsewhere."""
    few = plan_kernel(rows((7, 8192), (31, 512)), H200).plan
    assert mapping(few) == [(7, 1, 512), (31, 1, 128)]
    packed = plan_kernel(rows((7, 8192), *[(31, 512)] * 20), H200).plan
    assert mapping(packed) == [(7, 1, 512), *[(16, 2, 128)] * 20]


def test_fewer_rows_than_teams_have_larger_teams() -> None:
    """As large as each thread still has a vector to load."""
    plan = plan_kernel(rows((7, 8192), (1, 512), (1, 1024), (1, 4096), (3, 520)), H200).plan
    assert mapping(plan)[1:] == [(1, 1, 128), (1, 1, 256), (1, 1, 512), (3, 1, 128)]


def test_a_row_of_a_short_team_is_computed_once() -> None:
    """The block's other teams have nothing to do with it."""
    source = generate(rows((7, 8192), (1, 512)), H200).source
    assert "if (threadIdx.x < 128) {" in source
