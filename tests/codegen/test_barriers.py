"""Barriers between the teams of a block: numbers of their own, and meetings of the whole block."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusionstitch.codegen.generate import CodegenOptions, plan_kernel
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.memory.teams import check_teams
from fusionstitch.codegen.schedule.schedule import GroupPlan, Teams
from fusionstitch.codegen.schedule.tuning import Tuning
from fusionstitch.hlo.errors import CodegenError
from tests.codegen.cases import CASES
from tests.codegen.regions import H200, Case, build, lowered, whole, whole_of
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
        expected = values.reshape(-1, team).sum(1).repeat(team) * float(team) ** 2
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("threads", [32 * 3, 64, 1024 - 32])
def test_a_block_has_barriers_for_so_many_teams_only(threads: int) -> None:
    rows = [np.zeros(dims, np.float32) for dims in ((3, 16384), (9, 700))]
    plan = plan_kernel(whole_of(shares, *rows), H200).plan
    check_teams(plan)
    other = (tuple(_in_teams(g, threads, plan.block) for g in phase) for phase in plan.phases)
    with pytest.raises(CodegenError, match=f"{threads} of 1024 threads cannot share a row"):
        check_teams(replace(plan, phases=tuple(other)))


def _in_teams(group: GroupPlan, threads: int, block: int) -> GroupPlan:
    """A group whose teams of several warps have so many threads."""
    teams = Teams(threads)
    nests = (replace(n, teams=teams) if n.joins_in_teams(block) else n for n in group.nests)
    return replace(group, nests=tuple(nests))


# ---- grown kernels -------------------------------------------------------------------------------

#: Kernels that share a translation unit.
BATCH = 8
#: Few blocks, on a device of few multiprocessors or many.
DEVICES = [
    replace(H200, sm_count=sms, cooperative_limit=blocks)
    for sms, blocks in ((132, 2), (4, 2), (1, 1), (16, 3))
]
#: Most elements of one array.
MOST = 24_000
ROWS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "sum": lambda x: jnp.exp(x).sum(1),
    "max": lambda x: x.max(1),
    "place": lambda x: jnp.argmax(x, 1),
    "variance": lambda x: x.var(1),
    "softmax": lambda x: jax.nn.softmax(x),
    "columns": lambda x: jnp.exp(x).sum(0),
}
DTYPES = (np.float32, np.float32, np.int32, ml_dtypes.bfloat16, np.float16)


@st.composite
def packed(draw: st.DrawFn) -> Case:
    """Independent reductions of arrays with one row, some, or many, long and short, in one kernel;
    some wait for a sum of another array, after a grid barrier."""
    kinds, arrays = [], [np.linspace(-1, 1, 3000, dtype=np.float32)]
    for seed in range(draw(st.integers(2, 5))):
        length = draw(
            st.sampled_from((1, 30, 512, 600, 1000, 1024, 2048, 2050, 4096, 8192, 20_000))
        )
        rows = draw(st.sampled_from([n for n in (1, 2, 5, 9, 33, 70) if n * length <= MOST]))
        dtype = draw(st.sampled_from(DTYPES))
        values = np.random.default_rng(seed).standard_normal((rows, length))
        arrays.append((values * 20).astype(dtype) if dtype == np.int32 else values.astype(dtype))
        kinds.append((draw(st.sampled_from(sorted(ROWS))), draw(st.booleans())))

    def fun(first: jax.Array, *rest: jax.Array) -> tuple[jax.Array, ...]:
        total = (first * first).sum()
        found = []
        for (kind, waits), x in zip(kinds, rest, strict=True):
            value = ROWS[kind](x.astype(np.float32) / 4 if kind != "max" else x)
            found.append(jnp.where(total > 0, value, 1) if waits else value)
        return *found, total

    block = draw(st.sampled_from((None, 256, 512, 1024)))
    options = CodegenOptions(tuning=Tuning(block=block))
    graph = lowered(fun, *arrays)
    return Case(whole(graph, "packed"), arrays, draw(st.sampled_from(DEVICES)), options)


@settings(max_examples=-(-settings().max_examples // 25))
@given(st.lists(packed(), min_size=BATCH, max_size=BATCH))
def test_teams_of_all_sizes_share_a_kernel(host_compiler: str, cases: list[Case]) -> None:
    built = build(cases)
    for number, (case, kernel) in enumerate(built.kernels.items()):
        assert_apart(kernel)
        order, seed = ("random", number) if number % 3 else ("reversed", 0)
        built.check(case, order, seed)


def assert_apart(kernel: Kernel) -> None:
    """No two teams of a kernel meet at one named barrier, and all have one."""
    joined = re.findall(r"fs_reduce_team<(\d+),", kernel.source)
    sizes = {32 * int(warps) for warps in joined}
    sizes |= set(map(int, re.findall(r"fs_team_barrier<(\d+)>", kernel.source)))
    taken: dict[int, tuple[int, int]] = {}
    for size in sizes:
        assert kernel.block % size == 0
        for team in range(kernel.block // size):
            number = (kernel.block + team * size) // size
            assert 1 < number < 16
            assert taken.setdefault(number, (size, team)) == (size, team)


def test_cases_have_teams_of_several_sizes_in_one_phase() -> None:
    cases = [program.case() for name, program in CASES.items() if name.startswith("teams_")]
    mixed = 0
    for case in cases:
        assert_apart(case.kernel())
        plan = plan_kernel(case.graph, case.device, case.options).plan
        nests = [[nest for group in phase for nest in group.nests] for phase in plan.phases]
        sizes = [{n.teams.threads for n in phase if n.teams.joins_warps} for phase in nests]
        mixed += any(len(found) > 1 for found in sizes)
    assert len(cases) == mixed == 12


@pytest.mark.parametrize(
    ("name", "of_blocks", "of_teams"),
    [
        ("teams_of_4_and_8", 2, 2),  # all join one f32 at a time; one passes values on
        ("teams_of_records", 3, 0),
    ],
)
def test_teams_meet_where_warps_keep_their_places_and_the_block_where_these_change(
    name: str, of_blocks: int, of_teams: int
) -> None:
    source = CASES[name].case().kernel().source
    assert source.count("__syncthreads();") == of_blocks
    assert source.count("fs_team_barrier<") == of_teams
