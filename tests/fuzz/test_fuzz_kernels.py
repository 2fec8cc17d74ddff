"""Grown graphs as kernels on the emulator: against a float64 run, and different plans of one graph.

FUSIONSTITCH_FUZZ=N tries about N graphs in each test; without it the Hypothesis profile decides.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusionstitch.codegen.generate import CodegenOptions
from fusionstitch.hlo.evaluate import evaluate
from tests.codegen.scopes import undeclared
from tests.fuzz.growth import from_seed, graphs
from tests.fuzz.values import Grown
from tests.fuzz.ways import BIG, DEVICES, check, cut, whole

#: Graphs of one Hypothesis example: they share a translation unit.
BATCH = 12
GRAPHS = int(os.environ.get("FUSIONSTITCH_FUZZ") or 8 * settings().max_examples)
RUNS = settings(max_examples=-(-GRAPHS // BATCH))

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("host_compiler")]
batches = st.lists(graphs(), min_size=BATCH, max_size=BATCH)


@RUNS
@given(batches)
def test_a_graph_as_one_kernel_is_near_its_float64_run(batch: list[Grown]) -> None:
    options = CodegenOptions()
    check([whole(grown, "one kernel", BIG, options) for grown in batch])


@st.composite
def two_ways(draw: st.DrawFn) -> list:
    """A grown graph cut somewhere, and on another device with or without sharing."""
    grown = draw(graphs())
    cuts = draw(st.lists(st.integers(0, 60), min_size=1, max_size=3))
    name = draw(st.sampled_from(sorted(DEVICES)))
    other = draw(st.sampled_from(sorted(DEVICES)))
    numerics = draw(st.sampled_from(["default", "strict"]))
    options = CodegenOptions(numerics, sharing=draw(st.booleans()))
    return [
        whole(grown, f"{name}, {options}", DEVICES[name], options),
        cut(grown, f"{other}, cut at {cuts}", DEVICES[other], CodegenOptions(), cuts),
    ]


@RUNS
@given(st.lists(two_ways(), min_size=BATCH, max_size=BATCH))
def test_different_plans_of_a_graph_agree(batch: list[list]) -> None:
    check([way for ways in batch for way in ways])


def test_kernels_declare_every_name_they_read() -> None:
    for seed in range(50 * BATCH):
        for piece in whole(from_seed(seed), "one kernel", BIG, CodegenOptions()).pieces:
            assert undeclared(piece.kernel.source) == [], f"from_seed({seed})"


# ---- the growth itself ---------------------------------------------------------------------------


@given(graphs())
def test_grown_graphs_have_finite_values(grown: Grown) -> None:
    assert len(grown.graph.root.operands) >= 1
    for value in evaluate(grown.graph, grown.args, float64=True):
        assert value.dtype.kind != "f" or abs(value[value == value]).max(initial=0) <= 1e6


def test_growth_reaches_every_kind_of_op() -> None:
    opcodes = {op.opcode for seed in range(300) for op in from_seed(seed).graph}
    assert opcodes >= {
        *("add", "select", "compare", "convert", "clamp", "tanh", "divide", "iota", "constant"),
        *("broadcast", "transpose", "reshape", "slice", "pad", "concatenate", "reverse"),
        *("reduce", "dot", "gather", "dynamic-slice", "dynamic-update-slice", "scatter"),
        *("reduce-window", "get-tuple-element", "bitcast-convert"),
    }
