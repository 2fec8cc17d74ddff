"""The parts of measuring that need no GPU."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.compiler import builders
from fusionstitch.costmodel.devices import device, load
from fusionstitch.errors import MeasureError, OptionError
from fusionstitch.hlo.graph import Shape
from fusionstitch.measure import buffers, calibrate, gemms, gpu, probes, reductions, xla_programs
from fusionstitch.measure.meter import timing_key
from fusionstitch.runtime import nvrtc as nvrtc_module
from fusionstitch.runtime.artifact import Artifact

H200 = device("h200")


def test_large_arguments_are_few_and_small_ones_many() -> None:
    assert buffers.sets_for(1 << 30, H200) == 2
    assert buffers.sets_for(H200.l2_bytes, H200) == 3
    assert buffers.sets_for(1024, H200) == buffers.sets_for(0, H200) == buffers.MOST_SETS


def test_arguments_are_ordinary_numbers() -> None:
    shapes = [Shape("f32", (300, 500)), Shape("bf16", (4,)), Shape("s32", (7,)), Shape("pred", ())]
    made = buffers.inputs([buffers.Operand(shape) for shape in shapes], jax.devices()[0])
    assert [(str(x.dtype), x.shape) for x in made] == [
        ("float32", (300, 500)),
        ("bfloat16", (4,)),
        ("int32", (7,)),
        ("bool", ()),
    ]
    values = np.asarray(made[0])
    assert values.min() >= 0.1
    assert values.max() <= 1.0
    again = buffers.copied(made)
    assert all(np.array_equal(a, b) for a, b in zip(made, again, strict=True))
    assert len({*buffers.pointers(made), *buffers.pointers(again)}) == 8


def test_a_time_belongs_to_the_content_and_the_launch() -> None:
    plain = Artifact("k", b"", "entry", 1, 256, 0, False)
    others = [
        Artifact("k2", b"", "entry", 1, 256, 0, False),
        Artifact("k", b"", "entry", 2, 256, 0, False),
        Artifact("k", b"", "entry", 1, 128, 0, False),
        Artifact("k", b"", "entry", 1, 256, 64, False),
    ]
    assert len({timing_key(one) for one in (plain, *others)}) == 5


def test_without_a_gpu_measuring_says_what_to_do() -> None:
    for call in (lambda: fs.tune(jax.nn.softmax, jax.numpy.ones(3)), calibrate.calibrate):
        with pytest.raises(MeasureError, match=r"needs an NVIDIA GPU.*--export FILE"):
            call()


def test_every_probe_compiles(nvrtc) -> None:
    kernels = [probes.empty(1), probes.barriers(132, 10)]
    kernels += [probes.copy(132), probes.sparse_copy(16)]
    kernels += [
        probes.chains(name, rate.kind, rate.start, rate.step, 132, 64)
        for name, rate in calibrate.RATES.items()
    ]
    for kernel in kernels:
        [(name, used)] = nvrtc_module.compile(kernel.source, "sm_90").resources
        assert name == kernel.name
        assert not used.spills


def test_a_profile_s_file_is_a_profile(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(calibrate.to_json(H200))
    assert load(path) == device(str(path)) == H200
    assert fs.Options(device=str(path)).device == str(path)


def test_the_grid_of_gemms_tells_shapes_types_and_layouts_apart() -> None:
    grid = list(gemms.grid())
    assert len(grid) == len(set(grid))
    assert {gemm.dtype for gemm in grid[:8]} == set(gemms.DTYPES)
    assert {gemm.layout for gemm in grid} == set(gemms.LAYOUTS)
    skewed = {*gemms.MANY, *gemms.LONG}
    usual = [g for g in grid if (g.batch, g.m, g.n, g.k) not in skewed]
    assert all(gemm.m <= gemm.n for gemm in usual)
    assert len(grid) - len(usual) == 2 * len(gemms.MANY) + 3 * len(gemms.LONG)
    # what a short budget leaves spans every extent of the grid
    assert {gemm.k for gemm in grid[:40]} == set(gemms.EXTENTS)


@pytest.mark.parametrize("layout", gemms.LAYOUTS)
@pytest.mark.parametrize("batch", [1, 3])
def test_a_gemm_is_a_product_in_its_layout(layout: str, batch: int) -> None:
    gemm = gemms.Gemm("f32", 5, 7, 4, batch, layout)
    lhs, rhs = (
        np.asarray(x)
        for x in buffers.inputs([buffers.Operand(s) for s in gemm.operands], jax.devices()[0])
    )
    got = xla_programs._compiled(gemm)(lhs, rhs)
    left = lhs.swapaxes(-1, -2) if layout == "tn" else lhs
    right = rhs.swapaxes(-1, -2) if layout == "nt" else rhs
    np.testing.assert_allclose(got, left @ right, rtol=1e-6)
    assert got.shape[-2:] == (5, 7)


def test_the_grid_of_reductions_tells_shapes_types_and_reads_apart() -> None:
    grid = list(reductions.grid())
    assert len(grid) == len(set(grid))
    assert {r.dtype for r in grid[:4]} == set(reductions.DTYPES)
    assert {(r.rows, r.columns) for r in grid} == set(reductions.EXTENTS)
    assert {(r.reads, r.written) for r in grid} == set(reductions.READS)


@pytest.mark.parametrize(("axis", "reads", "written"), [(0, 1, False), (1, 3, True), (0, 2, False)])
def test_a_reduction_is_the_sum_of_a_product(axis: int, reads: int, written: bool) -> None:
    reduction = reductions.Reduction("f32", 5, 7, axis, reads, written)
    operands = [
        np.asarray(x)
        for x in buffers.inputs([buffers.Operand(s) for s in reduction.operands], jax.devices()[0])
    ]
    got = xla_programs._compiled(reduction)(*operands)
    product = np.prod(operands, axis=0)
    total = got[0] if written else got
    np.testing.assert_allclose(total, product.sum(axis), rtol=1e-6)
    if written:
        np.testing.assert_allclose(got[1], product, rtol=1e-6)


class _Recorded(gpu.GpuMeter):
    """A meter whose profiler saw what the test says."""

    gap_us = 0.5

    def __init__(self) -> None:
        super().__init__(jax.devices()[0], H200)


def test_what_the_profiler_saw_is_attributed(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [gemms.Gemm("f32", 4, 4, 4), gemms.Gemm("f32", 4, 8, 4), gemms.Gemm("f32", 8, 8, 4)]
    mark = [(probes.empty(1).name, 0.1)]
    one = [("dot", 2.0), ("join", 1.0)] * (xla_programs.RUNS - 1) + [("dot", 50.0), ("join", 1.0)]
    odd = [("dot", 2.0)] * (xla_programs.RUNS + 1)
    seen = [*one, *mark, *odd, *mark, *[("other", 4.0)] * xla_programs.RUNS, *mark]
    monkeypatch.setattr(xla_programs, "_marked", lambda meter, name, calls: seen)
    found = xla_programs.measure(_Recorded(), cases, 60)
    # the slow run is an outlier, and kernels that no whole number of runs explains are left out
    assert [(t.program, t.us, t.kernel_us, t.kernels) for t in found] == [
        (cases[0], 4.0, 3.0, ("dot", "join")),
        (cases[2], 4.5, 4.0, ("other",)),
    ]
    data = json.loads(xla_programs.to_json(_Recorded(), "gemms", found))
    assert data["gemms"][0] == {
        "dtype": "f32", "m": 4, "n": 4, "k": 4, "batch": 1, "layout": "nn",
        "us": 4.0, "kernel_us": 3.0, "kernels": ["dot", "join"], "each_us": [2.0, 1.0],
    }  # fmt: skip
    with pytest.raises(MeasureError, match="3 of 2 programs"):
        xla_programs.measure(_Recorded(), cases[:2], 60)


@pytest.mark.parametrize(
    ("text", "message"), [("", "holds no device"), ('{"a": 1}', "a is no field of Device")]
)
def test_what_is_no_profile(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.json"
    path.write_text(text)
    with pytest.raises(OptionError, match=message):
        load(path)
    with pytest.raises(OptionError, match="cannot be read"):
        load(tmp_path / "absent.json")


@pytest.mark.gpu
def test_the_meter_on_a_gpu() -> None:
    from fusionstitch.codegen.generate import generate
    from fusionstitch.hlo.extract import extract
    from fusionstitch.hlo.importer import from_proto
    from fusionstitch.hlo.inline import inline_calls
    from fusionstitch.hlo.simplify import simplify_module
    from tests.codegen.regions import whole

    profile = builders.profile(fs.Options())
    meter = gpu.meters(profile)[0]
    assert 0.2 < meter.launch_us < 5
    assert 0 <= meter.gap_us < 2
    x = jax.ShapeDtypeStruct((1024, 1024), "float32")
    lowered = jax.jit(lambda x: jax.nn.softmax(x) * x.sum(0)).lower(x).compiler_ir("hlo")
    module = simplify_module(from_proto(inline_calls(lowered.as_serialized_hlo_module_proto())))
    kernel = generate(whole(module.entry, "k"), profile)
    [built] = builders.cuda(profile, fs.Options())([kernel])
    us = meter.kernel_us(kernel, built.artifact, 5)
    assert 1 < us < 100
    assert meter.differences((kernel, built.artifact), (kernel, built.artifact)) == [0.0]
    roots = [module.entry.root]
    if module.entry.root.opcode == "tuple":
        roots = list(module.entry.root.operands)
    part = extract(module, module.entry, module.entry.parameters, roots, "alone")
    assert 1 < meter.xla_us(part) < 100


@pytest.mark.gpu
def test_calibrating_on_a_gpu() -> None:
    profile = calibrate.calibrate()
    known = builders.profile(fs.Options())
    assert profile.sm_count == known.sm_count
    assert 0.5 < profile.dram_bytes_per_s / known.dram_bytes_per_s < 2
    times = [us for _, us in profile.bandwidth_curve]
    assert times == sorted(times)
    for name in ("barrier_block_us", "bandwidth_threads"):
        assert 0.2 < getattr(profile, name) / getattr(known, name) < 5, name


@pytest.mark.gpu
def test_timing_programs_of_xla_on_a_gpu() -> None:
    programs = [
        gemms.Gemm("f32", 64, 64, 64),
        gemms.Gemm("bf16", 2048, 2048, 2048),
        reductions.Reduction("f32", 64, 64, 0, 1, False),
        reductions.Reduction("f32", 4096, 4096, 0, 3, True),
    ]
    found = xla_programs.measure(calibrate.meter(), programs, 60)
    assert [timing.program for timing in found] == programs
    for small, large in zip(found[::2], found[1::2], strict=True):
        assert 0.5 < small.us < 20
        assert small.us < large.us
        assert len(small.kernels) == len(small.each_us)


@pytest.mark.gpu
def test_tuning_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSIONSTITCH_CACHE_DIR", str(tmp_path))
    x = jax.random.normal(jax.random.key(0), (2048, 1024))

    def both(x):
        return jax.nn.softmax(x) * x.sum(0)

    report = fs.tune(both, x, budget=10)
    assert any(result.record for result in report.results)
    compiled = fs.jit(both).lower(x).compile()
    wanted, got = jax.jit(both)(x), compiled(x)
    assert float(abs(got - wanted).max()) < 1e-4
