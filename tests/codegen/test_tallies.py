"""What is counted of a kernel is what the emulator sees it do."""

from __future__ import annotations

import pytest

from fusionstitch.codegen.count.tallies import count
from fusionstitch.codegen.count.tally import Accesses, Tally
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.costmodel.devices import device
from tests.codegen.cases import CASES
from tests.codegen.regions import Built, Case, build
from tests.shares import asked

NAMES = list(CASES)
#: Where data decides which lanes have the same element.
BINS = {name for name in NAMES if name.startswith("bins_")}
#: Where data decides what is left out: the count is an upper bound.
UPPER = {
    *BINS,
    *("streamed_causal_f32", "streamed_causal_bf16", "streamed_causal_f16", "streamed_window"),
    *("gather_of_a_padded_array", "update_at", "pieces_put_somewhere"),
    *("placed_in_sums_8", "placed_in_sums_32", "placed_in_sums_of_rows"),
    *("reshaped_and_placed", "squeezed_and_placed", "grouped_queries"),
}
#: Where a condition has too many combinations of block, thread and iteration to evaluate all of
#: them, or the data is taken not to decide otherwise.
SAMPLED = {
    *("streamed_causal_f32", "streamed_causal_bf16", "streamed_causal_f16", "streamed_window"),
    *("teams_with_rows_of_their_own", "teams_of_a_clipped_step"),
    *("pieces_of_a_stack", "split_columns", "grouped_queries"),
    *("bins_of_halves", "bins_of_vectors", "sorted_in_parts"),
    *("convolution_dilated_first", "convolution_upsampled", "convolution_groups_last"),
    *("convolution_a_row", "convolution_a_column", "convolution_a_signal", "convolution_a_volume"),
    *(f"convolution_by_kernel_{n}" for n in (0, 1, 2, 3, 5, 6, 9)),
}
#: How far those may be off.
NEAR = 0.02
#: The host compiler reports no store of a byte that a function returned.
UNSEEN = {"eight_bits_stored": ("output", 1)}
#: Clamped indices are counted as if none was: at the edges of so small an array more is read.
CLAMPED = {"gradient_relative"}
SCOPES = {Scope.TEAM: "team", Scope.BLOCK: "block", Scope.CLUSTER: "cluster", Scope.GRID: "grid"}


@pytest.fixture(scope="module")
def cases(request: pytest.FixtureRequest) -> dict[str, Case]:
    return {name: CASES[name].case() for name in asked(request, NAMES)}


@pytest.fixture(scope="module")
def counted(cases: dict[str, Case], host_compiler: str) -> Built:
    return build(cases.values(), counted=True)


@pytest.fixture(scope="module")
def tallies(counted: Built, cases: dict[str, Case]) -> dict[str, Tally]:
    return {name: count(counted.lowered[case], device("h200")) for name, case in cases.items()}


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_does_what_was_counted(
    counted: Built, cases: dict[str, Case], tallies: dict[str, Tally], name: str
) -> None:
    """Accesses of each memory by their width, barriers of each scope, shuffles."""
    tally, ran = tallies[name], counted.counters(cases[name])
    seen = {**ran.reads, **{("stored", *key): n for key, n in ran.writes.items()}, **ran.meetings}
    printed = {
        **accesses(tally.loads),
        **{("stored", *k): n for k, n in accesses(tally.stores).items()},
    }
    printed |= {SCOPES[scope]: n for scope, n in tally.barriers.items() if n}
    printed["shuffle"] = tally.shuffles
    if any(phase.instructions.tensor_flops for phase in tally.phases):
        seen["shuffle"] = tally.shuffles  # emulated tensor cores shuffle, too
    if name in UNSEEN:
        del printed["stored", *UNSEEN[name]]
    for key in printed.keys() | seen.keys():
        one, other = printed.get(key, 0), seen.get(key, 0)
        if name in BINS:
            assert other <= one * (1 + NEAR), key
        elif name in SAMPLED:
            assert other == pytest.approx(one, rel=NEAR), key
        elif name in UPPER:
            assert other <= one, key
        elif name in CLAMPED:
            assert other >= one, key
        else:
            assert other == one, key


def accesses(found: Accesses) -> dict[object, int]:
    """How many there are by the emulator: it does not count tables as memory."""
    return {
        (index.value, width): one.accesses
        for (index, width), one in found.items()
        if one.accesses and index is not Memory.CONSTANT
    }


def test_few_kernels_are_not_counted_exactly(tallies: dict[str, Tally]) -> None:
    assert {name for name, tally in tallies.items() if tally.upper} == UPPER & tallies.keys()
    assert {name for name, tally in tallies.items() if tally.sampled} == SAMPLED & tallies.keys()


def test_shared_bytes_are_those_of_the_launch(counted: Built, cases: dict, tallies: dict) -> None:
    for name, case in cases.items():
        assert tallies[name].shared == counted.kernels[case].shared_bytes
