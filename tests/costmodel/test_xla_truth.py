"""XLA's final kernels, and their times scaled to what the program takes."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.fit_xla import kept_of, kernels_of
from fusionstitch.costmodel import xla_truth
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.graph_work import GraphWork
from fusionstitch.costmodel.work import dot_flops
from fusionstitch.costmodel.xla_final import Emitter, FinalKernel, FinalOp
from fusionstitch.costmodel.xla_fusions import XlaPlan, xla_fusions
from fusionstitch.costmodel.xla_kernels import kernel_time_us
from fusionstitch.costmodel.xla_saved import saved_by_fusing_again, saved_us
from fusionstitch.costmodel.xla_scale import Names, overhead_share, scale_of, scaled_plan
from fusionstitch.costmodel.xla_truth import XlaTruth, kernels_us, scaled, truth_of
from fusionstitch.hlo.free import free_bits
from fusionstitch.hlo.graph import Graph
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.hlo.launches import backend_configs, opened
from fusionstitch.hlo.text import text_to_proto
from fusionstitch.patterns.fusible import fusible_ops
from tests.costmodel.final_modules import GPU, as_seen
from tests.kept import kept_sort

H200 = device("h200")
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def _program(x: jax.Array, w: jax.Array) -> tuple[jax.Array, ...]:
    def step(c: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        return jnp.tanh(c @ w), c.sum()

    c, sums = jax.lax.scan(step, x, None, length=7)
    y = jax.nn.softmax(c, -1)
    return jnp.concatenate([jnp.sin(y) * 2, y.T]), sums, kept_sort(x), y.at[:3].add(1.0), y.sum(0)


@pytest.fixture(scope="module")
def lowered() -> tuple[str, Graph]:
    """The compiled text of a program, and the graph that it was lowered to."""
    x = jnp.ones((64, 64))
    program = jax.jit(_program).lower(x, x)
    proto = program.compiler_ir("hlo").as_serialized_hlo_module_proto()
    return program.compile().as_text() or "", from_proto(inline_calls(proto)).entry


def _plan(graph: Graph) -> XlaPlan:
    return xla_fusions(GraphWork(graph, free_bits(graph), H200), fusible_ops(graph, H200).bits)


def test_what_a_gpu_launches_is_listed_in_its_order() -> None:
    truth = truth_of(GPU, 500.0, H200)
    found = [(one.name, one.emitter, one.runs) for one in truth.kernels]
    assert found == [
        ("copy-start.1", Emitter.COPY, 1),
        ("while.1", Emitter.WHILE, 10),
        ("triton_softmax.2", Emitter.TRITON, 10),
        ("cublas-gemm.1.0", Emitter.PRODUCT, 1),
        ("input_reduce_fusion.1", Emitter.REDUCTION, 1),
    ]
    assert sum(one.runs * one.us for one in truth.kernels) == pytest.approx(500.0)
    assert {one.source for one in truth.kernels} == {"scaled"}
    gemm, reduction = truth.kernels[3:]
    assert gemm.bytes == 4 * (2304 * 768 * 2 + 768 * 768)  # the workspace of the library is none
    assert [op.name for op in reduction.ops if op.written] == ["reduce_sum.5"]


def test_a_product_of_a_library_is_a_dot() -> None:
    module = from_proto(text_to_proto(GPU, compiled=True))
    graph = opened(module.entry, backend_configs(module.proto)).graph
    [dot] = [op for op in graph if op.opcode == "dot"]
    assert (dot.dims, dot_flops(dot)) == ((2304, 768), 2 * 2304 * 768 * 768)


def test_a_kernel_is_modelled_as_its_ops_are() -> None:
    """By the same rules as where the model guesses what is fused."""
    module = from_proto(text_to_proto(GPU, compiled=True))
    found = opened(module.entry, backend_configs(module.proto))
    works = GraphWork(found.graph, free_bits(found.graph), H200, guessed=False)
    last = found.launches[-1]
    assert truth_of(GPU, 1.0, H200).kernels[-1].modelled_us == kernel_time_us(
        works, last.bits, last.written
    )


def test_a_module_that_cannot_be_read_leaves_the_span(caplog: pytest.LogCaptureFixture) -> None:
    assert truth_of("no module", 70.0, H200) == XlaTruth(70.0)
    assert "was not read" in caplog.text


def test_all_of_a_real_module_is_listed(lowered: tuple[str, Graph]) -> None:
    truth = truth_of(lowered[0], 300.0, H200)
    assert {op.opcode for one in truth.kernels for op in one.ops} >= {"sort", "dot", "tanh"}
    assert {one.runs for one in truth.kernels} == {1, 7}
    assert sum(one.runs * one.us for one in truth.kernels) == pytest.approx(300.0)


def _kernel(modelled: float, floor: float, runs: int = 1) -> FinalKernel:
    return FinalKernel(f"{modelled}", Emitter.LOOP, (), "main", runs, 0, floor, modelled, modelled)


@pytest.mark.parametrize(
    ("span", "times"),
    [
        (10.0, [1.0, 8.0, 1.0]),  # as modelled
        (101.0, [1.0, 99.0, 1.0]),  # slow where there is work
        (4.0, [1.0, 2.0, 1.0]),
        (1.5, [0.5, 0.5, 0.5]),  # less than their floors: these are shortened alike
    ],
)
def test_times_add_up_and_none_is_below_its_floor(span: float, times: list[float]) -> None:
    kernels = [_kernel(1.0, 1.0), _kernel(8.0, 1.0), _kernel(1.0, 1.0)]
    found = scaled(kernels, span)
    np.testing.assert_allclose([one.us for one in found], times)


def test_launches_alone_share_what_was_measured() -> None:
    assert [one.us for one in scaled([_kernel(1.0, 1.0), _kernel(1.0, 2.0)], 9.0)] == [3.0, 6.0]


def test_the_factor_of_an_emitter_decides_who_takes_how_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(xla_truth, "factors", lambda: {"scatter": 3.0})
    slow = replace(_kernel(5.0, 1.0), emitter=Emitter.SCATTER)
    assert [one.us for one in scaled([_kernel(5.0, 1.0), slow], 34.0)] == [9.0, 25.0]


def test_the_factors_are_those_of_committed_measurements() -> None:
    file = resources.files("fusionstitch.costmodel") / "emitters.json"
    retained = json.loads(file.read_text("utf-8"))
    contents = []
    for source in retained["from"]:
        measured = json.loads((RESULTS / source["file"]).read_text())
        assert source["environment"] == measured["environment"]
        contents.append(measured)
    assert retained["factors"] == kept_of(kernels_of(contents)) == dict(xla_truth.factors())
    assert retained["factors"].keys() <= set(Emitter)


def test_events_take_their_part_of_a_span() -> None:
    """Small programs above all: of 5 us, 2.6 are of kernels."""
    assert kernels_us(5.0, H200) == pytest.approx(5.0 - H200.event_us)
    assert kernels_us(2.5, H200) == H200.launch_us
    assert kernels_us(0.5, H200) == 0.5


def test_what_repeats_counts_as_often() -> None:
    once, often = scaled([_kernel(1.0, 0.5), _kernel(1.0, 0.5, runs=9)], 100.0)
    assert (once.us, often.us) == (10.0, 10.0)


def test_what_was_measured_stays_and_the_others_share_the_rest() -> None:
    truth = XlaTruth(100.0, scaled([_kernel(1.0, 0.1), _kernel(4.0, 0.1)], 100.0))
    again = truth.measured({"4.0": 30.0})
    assert [(one.us, one.source) for one in again.kernels] == [(70.0, "scaled"), (30.0, "measured")]


def test_the_ops_of_a_compiled_program_are_known_again(lowered: tuple[str, Graph]) -> None:
    """XLA:CPU numbers and fuses them otherwise; still the plan takes what was measured of it."""
    text, graph = lowered
    truth = truth_of(text, 1000.0, H200)
    names = Names(graph)
    for opcode in ("sine", "concatenate", "sort", "exponential"):
        [op] = [op for op in graph if op.opcode == opcode]
        finals = [k for k in truth.kernels if opcode in {one.opcode for one in k.ops}]
        assert finals
        assert all(names.bits(k.ops) >> op.id & 1 for k in finals)
    inside = [k for k in truth.kernels if k.runs == 7 and k.emitter is Emitter.PRODUCT]
    assert [names.bits(k.ops) for k in inside] == [0]  # it is the body's, not the entry's
    plan = _plan(graph)
    found = scaled_plan(plan, truth)
    ours = sum(
        one.us
        for one in truth.kernels
        if one.runs == 1 and not {op.opcode for op in one.ops} & {"sort", "while"}
    )
    assert found.us == pytest.approx(ours)


def test_a_truth_that_is_the_model_changes_nothing(lowered: tuple[str, Graph]) -> None:
    plan = _plan(lowered[1])
    before = [kernel.us for kernel in plan.kernels]
    saved = [saved_us(plan, kernel.bits) for kernel in plan.kernels]
    found = scaled_plan(plan, as_seen(plan, [1.0] * len(before)))
    np.testing.assert_allclose([kernel.us for kernel in found.kernels], before, rtol=1e-12)
    again = [saved_us(found, kernel.bits) for kernel in found.kernels]
    np.testing.assert_allclose(again, saved, rtol=1e-12)


def test_each_kernel_gets_the_factor_of_its_ops(lowered: tuple[str, Graph]) -> None:
    plan = _plan(lowered[1])
    factors = [float(n + 1) for n in range(len(plan.kernels))]
    found = scaled_plan(plan, as_seen(plan, factors))
    pairs = zip(found.kernels, plan.kernels, strict=True)
    np.testing.assert_allclose([new.us / old.us for new, old in pairs], factors)
    # and what is left of kernels, or of all of them fused anew, is scaled, too
    again = xla_fusions(found.works, found.bits)
    np.testing.assert_allclose([k.us for k in again.kernels], [k.us for k in found.kernels])


def test_names_with_numbers_appended_and_other_programs(lowered: tuple[str, Graph]) -> None:
    plan = _plan(lowered[1])
    truth = as_seen(plan, [3.0] * len(plan.kernels))

    def renamed(op: FinalOp) -> FinalOp:
        scope = op.op_name.replace("jit(_program)", "jit(marked)")
        return replace(op, name=f"{op.name}.12.clone", op_name=scope)

    kernels = tuple(replace(k, ops=tuple(map(renamed, k.ops))) for k in truth.kernels)
    scale = scale_of(plan, XlaTruth(truth.span_us, kernels))
    assert scale is not None
    np.testing.assert_allclose(
        [scale.of(kernel.bits) for kernel in plan.kernels], [3.0] * len(plan.kernels)
    )


def test_what_is_not_known_again_is_spread_over_all(lowered: tuple[str, Graph]) -> None:
    plan = _plan(lowered[1])
    truth = as_seen(plan, [1.0] * len(plan.kernels))
    alien = replace(truth.kernels[0], ops=(FinalOp("copy.99", "copy", "", (3,), True),), us=plan.us)
    scale = scale_of(plan, XlaTruth(2 * plan.us, (*truth.kernels, alien)))
    assert scale is not None
    np.testing.assert_allclose([scale.of(k.bits) for k in plan.kernels], 2.0)


def test_what_the_host_adds_to_a_loop_is_scaled(lowered: tuple[str, Graph]) -> None:
    [loop] = [op for op in lowered[1] if op.opcode == "while"]
    truth = truth_of(lowered[0], 1000.0, H200)
    assert overhead_share(loop, None) == 1.0
    assert overhead_share(loop, truth) > 1000.0 / truth.modelled_us


def test_copies_around_a_librarys_kernel_count_by_their_time() -> None:
    """XLA changes layouts for a library: most kernels are such copies, most time is the library's.
    What it saves if the op leaves is scaled, too."""
    dims = (8, 64, 64, 3), (3, 3, 3, 16)
    lowered = jax.jit(_convolved).lower(*(jax.ShapeDtypeStruct(one, jnp.float32) for one in dims))
    proto = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    graph = from_proto(inline_calls(proto)).entry
    plan = _plan(graph)
    [kernel] = plan.kernels
    [library] = as_seen(plan, [1.0]).kernels
    changed = (("to", 15.0), ("from", 5.0))
    finals = (
        replace(library, us=80.0),
        *(replace(library, name=name, ops=(), us=us) for name, us in changed),
    )
    found = scaled_plan(plan, XlaTruth(100.0, finals))
    assert found.us == pytest.approx(100.0)
    us, kernels = saved_by_fusing_again(found, kernel.bits, 0, 100)
    assert (us, kernels) == (pytest.approx(100.0), 1)


def _convolved(x: jax.Array, w: jax.Array) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)
