"""What is stitched of the table of cases, and the page that says so."""

from __future__ import annotations

import pytest

from fusionstitch.codegen.rewrite import bins
from fusionstitch.hlo.semantics import SEMANTICS, Kind
from tests.coverage import limits, running
from tests.coverage.running import Outcome
from tests.coverage.table import cases


def test_the_table_is_large_enough() -> None:
    assert len(cases()) >= 1400
    shapes = {getattr(leaf, "shape", ()) for c in cases().values() for leaf in c.args}
    assert {len(dims) for dims in shapes} >= set(range(9))
    assert any(0 in dims for dims in shapes)


@pytest.mark.slow
def test_nearly_all_elementwise_movement_and_reduction_cases_are_stitched() -> None:
    assert limits.share(limits.statuses()) >= 0.95


def test_every_op_that_kernels_know_is_in_a_case() -> None:
    seen = {opcode for status in limits.statuses() for opcode in status.opcodes}
    known = {op for op, spec in SEMANTICS.items() if spec.kind is not Kind.STRUCTURE}
    # XLA alone makes some, on a GPU, and some releases of JAX no scan; sources are in no pattern
    others = {"constant", "iota", "copy", "logistic", "bitcast", "scan", "radix-sort"}
    assert known - seen <= limits.INTERNAL | others


def test_what_is_left_to_xla_has_a_reason() -> None:
    left = [s for s in limits.statuses() if s.outcome is Outcome.LEFT]
    assert left
    assert all(s.reason.endswith(".") for s in left)


def test_what_is_said_of_scatters_holds_at_real_sizes() -> None:
    """The default scorer decides: few segments are stitched, many are not, and the page says so."""
    found = {s.case.name: s for s in running.large_statuses()}
    assert found["segment_sum: 65,536 updates, 64 segments"].outcome is Outcome.STITCHED
    refused = found["scatter add: 8,192 rows of 512 into 32,000"]
    assert refused.outcome is Outcome.LEFT
    of_bins = "The result is too large for each warp to have a copy in shared memory."
    assert refused.reason == of_bins
    fits, over = (
        found[f"segment_sum: 1,000,000 updates, {n} segments"] for n in ("4,096", "100,000")
    )
    assert 4 * 4096 <= bins.MOST_BYTES < 4 * 100_000
    assert fits.outcome is Outcome.STITCHED
    assert over.reason == of_bins
    rows = limits.PAGE.read_text().splitlines()
    [row] = [row for row in rows if row.startswith("| segment_sum | +")]
    assert row.endswith("| +/XLA |")
    assert all(any(name.partition(": ")[2] in row for row in rows) for name in found)


def test_the_page_of_limits_is_what_the_table_gives() -> None:
    command = "python -m tests.coverage.limits"
    text = limits.PAGE.read_text()
    if f"JAX {limits.JAX_VERSION}." not in text:
        pytest.skip("the page was written with another release of JAX")
    assert text == limits.page(), f"run {command} and read what changed"
