"""The core: bytes in, bytes and a plan out. What fails is left to XLA, and the reason is
recorded."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from fusionstitch.codegen import passes
from fusionstitch.codegen.drafts import Draft
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.passes import Pass
from fusionstitch.codegen.settings import CodegenOptions, Settings
from fusionstitch.compiler import builders, core, kernels
from fusionstitch.compiler.built import Built
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.costmodel.devices import device
from fusionstitch.errors import CodegenError, StitchError, ToolchainError
from fusionstitch.hlo.graph import Graph
from fusionstitch.hlo.importer import from_proto
from fusionstitch.options import Options
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.runtime.artifact import LOAD_TARGET, TARGET, Artifact
from fusionstitch.tuning.tuned import Tuned
from tests.kept import kept_sort
from tests.tuning.stubs import in_blocks_of

DEVICE = device("emulated")


def mixed(x: jax.Array) -> jax.Array:
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)


def module(fun: Any, *shapes: tuple[int, ...]) -> bytes:
    specs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    data: bytes = jax.jit(fun).lower(*specs).compiler_ir("hlo").as_serialized_hlo_module_proto()
    return data


def fake(kernels: Sequence[Kernel]) -> list[Built | ToolchainError]:
    return [
        Built(Artifact(f"key-{k.name}", b"image", k.name, k.grid, k.block, 0, k.cooperative), 32)
        for k in kernels
    ]


def stitch(data: bytes, builder: Any = fake, **options: Any) -> Stitched:
    return core.stitch(data, Options(**options), DEVICE, builder)


def calls(data: bytes) -> list[str]:
    return [
        op.name
        for graph in from_proto(data).graphs
        for op in graph
        if op.opcode == "custom-call" and op.attrs["target"] == TARGET
    ]


def test_a_pattern_becomes_a_custom_call() -> None:
    data = module(mixed, (16, 24))
    result = stitch(data)
    assert len(calls(result.module)) == 1
    assert [s.built.registers for s in result.stitches if s.built] == [32]
    assert list(result.timings) == ["import", "simplify", "plan", "codegen", "build", "export"]
    assert result.fallbacks == ()
    assert stitch(data).module == result.module


def test_what_planning_drafted_is_not_generated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Kernel:
        raise AssertionError

    data = module(mixed, (16, 24))
    with monkeypatch.context() as patched:
        patched.setattr(kernels, "generate", never)
        [drafted] = stitch(data).kernels
    monkeypatch.setattr(kernels.Kernels, "drafted", lambda *_: None)
    [generated] = stitch(data).kernels
    assert drafted.source == generated.source
    assert drafted == generated


def test_nothing_to_stitch_returns_the_module() -> None:
    data = module(kept_sort, (16, 64))
    result = stitch(data)
    assert result.module == data
    assert result.kernels == ()
    assert result.fallbacks == ()


def test_without_a_builder_nothing_is_built() -> None:
    data = module(mixed, (16, 24))
    result = stitch(data, builder=None)
    assert result.module == data
    assert len(result.kernels) == 1
    assert result.artifacts == ()


def test_equal_patterns_share_a_kernel_and_its_image() -> None:
    def twice(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        return mixed(x) @ jnp.ones((24, 4096)), mixed(y) @ jnp.ones((24, 4096))

    result = stitch(module(twice, (16, 24), (16, 24)), packing=False)
    names = [one.kernel.name for one in result.stitches]
    assert len(result.kernels) == len(set(names))
    assert result.module.count(b"image") >= len(names)
    images = [config.count(b'image = "image"') for config in [result.module]]
    assert images == [len(result.kernels)]


def test_one_call_loads_all_kernels() -> None:
    def three(x: jax.Array, y: jax.Array, *z: jax.Array) -> Any:
        y = jax.lax.fori_loop(0, 9, lambda _, y: mixed(y) + 1, y)
        return mixed(sum(z, x)), mixed(kept_sort(x)), y

    shapes = [(16, 24), (96, 24), *[(16, 24)] * 3]
    result = stitch(module(three, *shapes), scorer="paper", packing=False)
    assert len(calls(result.module)) == len(result.kernels) == 3
    check_loading(result)


def test_kernels_of_a_loop_are_loaded_outside() -> None:
    def loop(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 9, lambda _, y: kept_sort(mixed(kept_sort(y))), x)

    check_loading(stitch(module(loop, (96, 24)), scorer="paper"))


def check_loading(result: Stitched) -> None:
    """The entry, and nothing else, has a call that loads all kernels and that XLA must keep."""
    proto = from_proto(result.module).proto
    [(load, where)] = [
        (instruction, computation.id)
        for computation in proto.computations
        for instruction in computation.instructions
        if instruction.custom_call_target == LOAD_TARGET
    ]
    assert where == proto.entry_computation_id
    assert load.custom_call_has_side_effect
    assert not load.operand_ids
    for kernel in result.kernels:
        assert b'"key-%s" = {image = "image", kernels = {%s = ' % (
            kernel.name.encode(), kernel.name.encode()
        ) in load.backend_config  # fmt: skip


def test_loop_bodies_are_stitched_and_equal_ones_planned_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned: list[str] = []
    planner = core.GraphPlanner

    def counted(graph: Any, *rest: Any) -> Any:
        planned.append(graph.name)
        return planner(graph, *rest)

    monkeypatch.setattr(core, "GraphPlanner", counted)

    def loops(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        def run(x: jax.Array) -> jax.Array:
            return jax.lax.while_loop(lambda c: c.sum() < 9.0, lambda c: mixed(c) + 1, x)

        return run(x), run(y)

    result = stitch(module(loops, (64, 24), (64, 24)), scorer="paper")
    assert len(result.plans) == 5  # two bodies, two conditions, the entry
    assert len(planned) == 3
    bodies = [plan for plan in result.plans if len(plan.graph) > 10]
    assert [len(plan.chosen) for plan in bodies] == [1, 1]
    assert bodies[0].graph is not bodies[1].graph
    assert len(calls(result.module)) == sum(len(plan.chosen) for plan in result.plans)


@pytest.mark.parametrize("data", [b"", b"no module", b"\x0a\x03abc"])
def test_bad_bytes(data: bytes) -> None:
    result = stitch(data)
    assert result.module == data
    [fallback] = result.fallbacks
    assert fallback.ops == ()
    assert "HloModuleProto" in fallback.reason
    with pytest.raises(StitchError, match=r"could not be stitched: .*HloModuleProto"):
        stitch(data, fallback="error")


def test_kernels_the_toolchain_refuses() -> None:
    def refuse(kernels: Sequence[Kernel]) -> list[ToolchainError]:
        return [ToolchainError(f"{k.name} is refused.") for k in kernels]

    data = module(mixed, (16, 24))
    result = stitch(data, builder=refuse)
    assert result.module == data
    [fallback] = result.fallbacks
    assert fallback.reason.endswith("is refused.")
    assert len(fallback.ops) > 5
    with pytest.raises(StitchError, match=r"A pattern of jit_mixed .* could not be stitched: fs_"):
        stitch(data, builder=refuse, fallback="error")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (CodegenError("No schedule fits."), "No schedule fits."),
        (ValueError("oops"), "Defect in fusionstitch: ValueError: oops. Please report it"),
    ],
)
def test_patterns_without_a_kernel(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    def fail(*_: Any) -> Kernel:
        raise error

    monkeypatch.setattr(Draft, "kernel", fail)
    monkeypatch.setattr(kernels, "generate", fail)
    data = module(mixed, (16, 24))
    result = stitch(data)
    assert result.module == data
    assert result.fallbacks[0].reason.startswith(reason)


def test_a_defect_in_planning_leaves_the_program_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(core, "GraphPlanner", fail)
    data = module(mixed, (16, 24))
    assert stitch(data).module == data
    with pytest.raises(StitchError, match="Defect in fusionstitch: KeyError: 'lost'"):
        stitch(data, fallback="error")


def test_a_pass_that_breaks_a_region_leaves_it_to_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_it(graph: Graph, _: Settings) -> Graph:
        return Graph(graph.name, graph.ops[:-1], graph.ops[-2])

    bad = Pass("a bad one", "breaks what it gets", break_it)
    data = module(mixed, (16, 24))
    planners: list[Any] = []  # by kernels without the defect
    plan = core._Run.plan
    monkeypatch.setattr(
        core._Run, "plan", lambda *given: planners.extend((found := plan(*given)).values()) or found
    )
    stitch(data)
    monkeypatch.setattr(core._Run, "plan", plan)
    monkeypatch.setattr(passes, "PASSES", (bad,))
    result = stitch(data)
    assert result.module == data
    assert any('pass "a bad one" broke' in one.reason for one in result.rejected)
    monkeypatch.setattr(
        core._Run,
        "plan",
        lambda self, module: dict(zip(module.stitchable, planners, strict=True)),
    )
    result = stitch(data)
    assert result.module == data
    assert 'The pass "a bad one" broke fs_' in result.fallbacks[0].reason


def test_dump(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    monkeypatch.setenv("FUSIONSTITCH_DUMP_DIR", str(folder))
    [kernel] = stitch(module(mixed, (16, 24))).kernels
    texts = sorted((folder / kernel.name).iterdir())
    assert texts[-1].name.endswith("_kernel.cu")
    assert texts[-1].read_text() == kernel.source
    assert (folder / "fusionstitch.cuh").exists()


def test_tuned_kernels_are_dumped_as_they_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where the tuned schedule is refused, and the default one is taken."""
    monkeypatch.setenv("FUSIONSTITCH_DUMP_DIR", str(tmp_path))
    [one] = stitch(module(mixed, (16, 24))).stitches
    fitting = in_blocks_of(64, one.chosen.pattern, DEVICE)
    for template in (fitting, fitting.replace("cta_size=64;", "cta_size=48;")):
        settings = CodegenOptions(tuned=template)
        monkeypatch.setattr(Tuned, "settings", lambda *_, s=settings: s)
        [kernel] = stitch(module(mixed, (16, 24))).kernels
        assert kernel.block == (64 if template is fitting else one.kernel.block) != 48
        [schedule] = (tmp_path / kernel.name).glob("*_schedule.txt")
        assert f"block   {kernel.block} threads\n" in schedule.read_text()


def test_donated_parameters_are_overwritten() -> None:
    def step(params: list[jax.Array], grads: list[jax.Array]) -> list[jax.Array]:
        return [p - 0.1 * g for p, g in zip(params, grads, strict=True)]

    def aliases(aliasing: bool, **keywords: Any) -> list[tuple[int, int]]:
        specs = [jax.ShapeDtypeStruct((512, 384 + i), jnp.float32) for i in range(3)]
        ir = jax.jit(step, **keywords).lower(specs, specs).compiler_ir("hlo")
        data = ir.as_serialized_hlo_module_proto()
        result = core.stitch(data, Options(), DEVICE, fake, aliasing=aliasing)
        assert len(calls(result.module)) == 1
        return [
            (pair.output_shape_index[0], pair.operand_index)
            for computation in from_proto(result.module).proto.computations
            for instruction in computation.instructions
            for pair in instruction.output_operand_aliasing
        ]

    assert aliases(True) == []
    assert aliases(False, donate_argnums=0) == []
    assert aliases(True, donate_argnums=0) == [(0, 0), (1, 2), (2, 4)]


def test_a_pattern_whose_buffers_do_not_fit_is_left_to_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    def fun(i: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        first = kept_sort(jax.nn.softmax(y) * jnp.tanh(y), 0)
        return jnp.exp(x[i]) * first[:, 0]

    specs = [((64,), "int32"), ((99,), "float32"), ((64, 32), "float32")]
    ir = jax.jit(fun).lower(*(jax.ShapeDtypeStruct(*s) for s in specs)).compiler_ir("hlo")
    data = ir.as_serialized_hlo_module_proto()
    options = Options(scorer="paper")
    whole = core.stitch(data, options, DEVICE, fake, aliasing=True)
    assert len(whole.stitches) == 2

    def every_pair(module: object, pattern: Pattern, kernel: Kernel) -> list[tuple[int, int]]:
        return [(0, n) for n, op in enumerate(pattern.inputs) if op.dtype == "s32"]

    monkeypatch.setattr(core, "in_place", every_pair)
    result = core.stitch(data, options, DEVICE, fake, aliasing=True)
    assert len(result.stitches) == len(calls(result.module)) == 1
    [left] = result.fallbacks
    assert "over its input" in left.reason
    assert "s32[64]; please report" in left.reason
    with pytest.raises(StitchError, match="over its input"):
        core.stitch(
            data, dataclasses.replace(options, fallback="error"), DEVICE, fake, aliasing=True
        )


def test_profiles_follow_the_options() -> None:
    assert builders.profile(Options(device="a100")).name == "a100"
    assert builders.profile(Options(backend="emulate")).name == "emulated"
    assert builders.profile(Options(device="a100")).rounds_floats
    emulated = builders.profile(Options(device="a100", backend="emulate"))
    assert emulated.name == "a100"
    assert not emulated.rounds_floats
