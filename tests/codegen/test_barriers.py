"""Barriers between the teams of a block: numbers of their own, and meetings of the whole block."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.barriers import check_teams, joins_in_teams
from codegen.generate import plan_kernel
from codegen.schedule import Teams
from hlo.errors import CodegenError
from tests.codegen.regions import H200, whole_of
from tests.codegen.small_kernels import Launch, on_emulator
from tests.codegen.team_cases import shares

#: Warps of a block come to sums over teams of different sizes at different times: those of the
#: first half go through a loop of their own before each.
MIXED = """
  FS_DYNAMIC_SHARED(shared_memory);
  float two = a[threadIdx.x], four = two, eight = two;
  for (int round = 0; round < 3; ++round) {
    if (threadIdx.x < 256) fs_reduce_team<2, FsAdd>(shared_memory, two);
    fs_team_barrier<64>();
    fs_reduce_team<4, FsAdd>(shared_memory + 256, four);
    if (threadIdx.x >= 256) fs_reduce_team<2, FsAdd>(shared_memory, two);
    fs_team_barrier<128>();
    fs_reduce_team<8, FsAdd>(shared_memory + 512, eight);
    fs_team_barrier<256>();
  }
  out[threadIdx.x] = two;
  out[512 + threadIdx.x] = four;
  out[1024 + threadIdx.x] = eight;
"""


@pytest.mark.parametrize(("order", "seed"), [("forward", 0), ("reversed", 0), ("random", 5)])
def test_teams_of_every_size_meet_by_themselves(host_compiler: str, order: str, seed: int) -> None:
    values = np.arange(512, dtype=np.float32) % 7
    launch = Launch.of("mixed_teams", MIXED, [values], "f32", 3 * 512, block=512, shared=768)
    [out] = on_emulator([launch], order, seed)
    for found, team in zip(out.reshape(3, 512), (64, 128, 256), strict=True):
        wanted = values.reshape(-1, team).sum(1).repeat(team) * float(team) ** 2
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("threads", [32 * 3, 64, 1024 - 32])
def test_a_block_has_barriers_for_so_many_teams_only(threads: int) -> None:
    rows = [np.zeros(dims, np.float32) for dims in ((3, 16384), (9, 700))]
    plan = plan_kernel(whole_of(shares, *rows), H200).plan
    check_teams(plan)
    nest = next(n for g in plan.groups for n in g.nests if joins_in_teams(n, plan.block))
    nest.teams = Teams(threads)
    with pytest.raises(CodegenError, match=f"{threads} of 1024 threads cannot share a row"):
        check_teams(plan)
