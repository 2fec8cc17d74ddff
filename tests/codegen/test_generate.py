"""Kernels as text: golden sources, what a kernel says about itself, and what is refused."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fusionstitch.codegen.generate import CodegenOptions, draft, generate, plan_kernel
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.schedule.parser import parse_template
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph, Op, Shape
from fusionstitch.runtime import emulate
from tests.codegen.regions import SMALL, whole
from tests.conftest import Golden
from tests.fuzz.growth import from_seed
from tests.graphs import Builder, layernorm, softmax

H200 = device("h200")


def named(b: Builder, name: str, dims: tuple[int, ...], dtype: str = "f32") -> Op:
    x = b.parameter(dims, dtype)
    x.name = name
    return x


# ---- golden sources ------------------------------------------------------------------------------


def source(graph: Graph, options: CodegenOptions | None = None) -> str:
    """The text of a kernel, and how it is launched."""
    kernel = generate(graph, H200, options)
    launch = (
        f"// {kernel.grid} blocks of {kernel.block} threads, {kernel.shared_bytes} bytes of shared "
        f"memory, {'cooperative' if kernel.cooperative else 'not cooperative'}\n"
    )
    return launch + kernel.source


def test_source_of_a_softmax(golden: Golden) -> None:
    b = Builder()
    golden(source(whole(b.graph(softmax(b, named(b, "x", (8192, 4096)))), "softmax")))


def test_source_of_a_layer_norm(golden: Golden) -> None:
    b = Builder()
    x = named(b, "x", (4096, 768))
    out = layernorm(b, x, named(b, "scale", (768,)), named(b, "bias", (768,)))
    golden(source(whole(b.graph(out), "layer_norm")))


def figure1() -> Graph:
    """The paper's Figure 1 at batch 16384, depth 2."""
    b = Builder()
    batch, rows, depth = 16_384, 94, 2
    q, v, gate = (named(b, name, (batch, rows, depth)) for name in ("q", "v", "gate"))
    k = named(b, "k", (batch, depth, rows))
    bias = named(b, "bias", (rows, rows))
    scores = b.mul(b.dot(q, k, batch=1), b.splat(0.5, (batch, rows, rows)))
    scores = b.add(scores, b.broadcast(bias, scores.dims, (1, 2)))
    top = b.reduce(scores, (2,), "maximum")
    e = b.exp(b.sub(scores, b.like(top, scores, (2,))))
    total = b.reduce(e, (2,))
    safe = b.binary("maximum", total, b.splat(1e-6, total.dims))
    divide = b.div(b.dot(e, v, batch=1), b.like(safe, v, (2,)))
    outputs = divide, b.unary("log", total), b.mul(divide, gate), b.sub(v, divide)
    return whole(b.graph(*outputs), "figure1")


def test_source_of_figure_1(golden: Golden) -> None:
    golden(source(figure1()))


def test_source_of_packed_adds(golden: Golden) -> None:
    b = Builder()
    outputs = []
    for name, size in (("a", 1000), ("b", 64), ("c", 1 << 20)):
        x = named(b, name, (size,))
        outputs.append(b.add(x, b.splat(1.0, x.dims)))
    golden(source(whole(b.graph(*outputs), "packed_adds")))


def test_source_of_a_gradient_in_two_phases(golden: Golden) -> None:
    """Weight gradients of tanh(x w1) w2 against y: the batch is summed after a grid barrier."""
    b = Builder()
    x, w1 = named(b, "x", (512, 32)), named(b, "w1", (32, 64))
    w2, y = named(b, "w2", (64, 8)), named(b, "y", (512, 8))
    h = b.tanh(b.dot(x, w1))
    error = b.mul(b.sub(b.dot(h, w2), y), b.splat(2 / y.shape.size, y.dims))
    slope = b.sub(b.splat(1.0, h.dims), b.mul(h, h))
    back = b.mul(b.dot(error, b.transpose(w2, (1, 0))), slope)
    dw1 = b.dot(b.transpose(x, (1, 0)), back)
    dw2 = b.dot(b.transpose(h, (1, 0)), error)
    golden(source(whole(b.graph(dw1, dw2), "mlp_gradient")))


# ---- the same input gives the same text ----------------------------------------------------------

_DIGEST = """
import hashlib
from fusionstitch.codegen.generate import generate
from fusionstitch.costmodel.devices import device
from tests.codegen.regions import whole
from tests.fuzz.growth import from_seed
texts = [generate(whole(from_seed(n).graph), device("h200")).source for n in range(40)]
print(hashlib.sha256("".join(texts).encode()).hexdigest())
"""


def test_texts_depend_on_nothing_but_the_region() -> None:
    """Neither on Python's hashes, nor on what was generated before."""
    seeds = range(39, -1, -1)
    texts = [generate(whole(from_seed(n).graph), H200).source for n in seeds][::-1]
    here = hashlib.sha256("".join(texts).encode()).hexdigest()
    folder, path = Path(__file__).parents[2], os.pathsep.join(sys.path)
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        run = subprocess.run(
            [sys.executable, "-c", _DIGEST], env=env, cwd=folder, capture_output=True, text=True
        )
        assert run.stdout.strip() == here, run.stderr


# ---- what a kernel says about itself -------------------------------------------------------------


def attention(options: CodegenOptions | None = None) -> Kernel:
    b = Builder()
    s = b.dot(b.parameter((9, 14, 4)), b.parameter((9, 4, 14)), batch=1)
    out = b.dot(softmax(b, s), b.parameter((9, 14, 4)), batch=1)
    return generate(whole(b.graph(out), "attention"), SMALL, options)


def both_ways() -> Kernel:
    """Shares of columns, then a softmax along rows: two loops of a block."""
    b = Builder()
    e = b.exp(b.parameter((9, 20, 30)))
    share = b.div(e, b.like(b.reduce(e, (1,)), e, (1,)))
    return generate(whole(b.graph(softmax(b, share)), "both_ways"), SMALL)


def test_parameters_are_inputs_outputs_scratch() -> None:
    b = Builder()
    x = named(b, "x", (300, 400), "bf16")
    total = b.reduce(b.op("convert", x.dims, x, dtype="f32"), (0, 1))
    out = b.div(b.op("convert", x.dims, x, dtype="f32"), b.broadcast(total, x.dims))
    kernel = generate(whole(b.graph(out, total), "norm"), H200)
    assert kernel.name == "norm"
    assert kernel.inputs == (Shape("bf16", (300, 400)),)
    assert kernel.outputs == (Shape("f32", (300, 400)), Shape("f32"))
    assert len(kernel.scratch) == 1
    assert kernel.cooperative
    signature = kernel.source[kernel.source.index("norm(") : kernel.source.index(") {")]
    types = [line.split()[0] for line in signature.replace("const ", "").splitlines()[1:]]
    assert types == ["bf16*", "float*", "float*", "float*"]


def test_a_source_includes_only_the_device_header() -> None:
    assert [x for x in attention().source.splitlines() if x.startswith("#")] == [
        '#include "fusionstitch.cuh"'
    ]


def test_an_output_wanted_twice_is_stored_twice() -> None:
    b = Builder()
    graph = b.graph(b.exp(b.parameter((4,))))
    root = graph.root
    twice = Op("tuple", Shape("tuple", elements=(root.shape,) * 2), (root, root), name="outputs")
    kernel = generate(Graph("twice", [*graph.ops, twice], twice), H200)
    assert len(kernel.outputs) == 2
    assert kernel.source.count("] = exponential_1;") == 2


def test_facts_are_those_of_the_kernel() -> None:
    graph = figure1()
    facts, kernel = draft(graph, H200).facts, generate(graph, H200)
    assert facts.cost.shared_bytes == kernel.shared_bytes
    assert facts.cost.threads == kernel.block
    assert facts.cost.blocks == kernel.grid
    assert dict(kernel.facts)["scope"] == facts.scope == "warp"
    assert len(facts.cost.phases) == 1


def test_templates_are_in_the_papers_grammar() -> None:
    for kernel in (attention(), generate(figure1(), H200), both_ways()):
        parsed = parse_template(kernel.template)
        assert str(parsed) == kernel.template
        assert parsed.cta_num == kernel.grid
        assert parsed.cta_size == kernel.block
        shared = any(schedule.shared for schedule in parsed.schedules)
        assert shared == (kernel.shared_bytes > 0)
    assert kernel.shared_bytes


@pytest.mark.parametrize(
    ("build", "scope"),
    [
        (lambda b: b.exp(b.parameter((64,))), "thread"),
        (lambda b: b.reduce(b.parameter((64, 64)), (1,)), "warp"),
        (lambda b: b.reduce(b.parameter((1 << 20,)), (0,)), "grid"),
    ],
)
def test_the_scope_is_the_widest_an_intermediate_crosses(build, scope: str) -> None:
    b = Builder()
    assert dict(generate(whole(b.graph(build(b))), H200).facts)["scope"] == scope


def test_many_elements_take_wide_indices() -> None:
    b = Builder()
    large = generate(whole(b.graph(b.unary("not", b.parameter((1 << 16, 1 << 15), "pred")))), H200)
    assert "const long long tile" in large.source
    b = Builder()
    small = generate(whole(b.graph(b.unary("not", b.parameter((1 << 16, 1 << 14), "pred")))), H200)
    assert "long long" not in small.source


def test_a_cooperative_grid_fits_the_device_at_once() -> None:
    b = Builder()
    x = b.parameter((4096, 4096))
    graph = whole(b.graph(b.div(x, b.broadcast(b.reduce(x, (0, 1)), x.dims))))
    kernel = generate(graph, H200)
    assert kernel.cooperative
    assert kernel.grid * kernel.block <= H200.sm_count * 1024
    assert generate(graph, replace(H200, cooperative_limit=7)).grid == 7
    assert f"__launch_bounds__({kernel.block}, {1024 // kernel.block})" in kernel.source


def test_names_of_the_program_are_names_in_the_kernel() -> None:
    b = Builder()
    x = named(b, "temperature", (64,))
    y = b.exp(x)
    y.name = "boltzmann.3"
    kernel = generate(whole(b.graph(y)), H200)
    assert "const float* temperature" in kernel.source
    assert "const float boltzmann_3 = expf(" in kernel.source


RESERVED = [
    *("step", "float", "int8_t", "threadIdx", "gridDim", "warpSize", "NULL", "NAN", "INFINITY"),
    *("M_PI", "nullptr", "true", "fs_min", "fs_limits", "FsAdd", "FS_UNROLL", "bf16", "expf", "v"),
    *("shared_memory", "row", "lane", "tile", "a-b", "template", "elementwise", "points"),
]


def test_any_name_makes_a_kernel_that_compiles(host_compiler: str) -> None:
    kernels = []
    for name in RESERVED:
        b = Builder()
        x = named(b, name, (3, 4096))
        out = softmax(b, x)
        out.name = name
        flat = named(b, name, (4096,))
        kernels.append(generate(whole(b.graph(out, b.exp(flat)), f"k{len(kernels)}"), SMALL))
    assert len(emulate.build(kernels)) == len(RESERVED)


# ---- what is refused -----------------------------------------------------------------------------


def refusal(graph: Graph, on=H200) -> str:
    with pytest.raises(CodegenError) as caught:
        generate(graph, on)
    return str(caught.value)


def refused(build) -> str:
    b = Builder()
    return refusal(whole(b.graph(build(b))))


def test_a_region_without_outputs_is_refused() -> None:
    root = Op("tuple", Shape("tuple"), name="outputs")
    assert "computes nothing" in refusal(Graph("nothing", [root], root))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (
            lambda b: b.kept(b.parameter((4,))),
            "collective-permute cannot be computed inside a kernel",
        ),
        (lambda b: b.exp(b.parameter((0, 5))), "parameter.0 has no elements (f32[0,5])"),
        (lambda b: b.exp(b.parameter((5,), "c128")), "c128 has no CUDA-C type"),
        (
            lambda b: b.exp(b.parameter((5,), "c64")),
            "exponential of complex numbers cannot be computed inside a kernel",
        ),
        (
            lambda b: b.op("bitcast-convert", (6,), b.parameter((6, 2), "f32"), dtype="c64"),
            "bitcast-convert of complex numbers cannot be computed inside a kernel",
        ),
        (
            lambda b: b.op(
                "reduce", (6,), b.parameter((6, 9)), b.constant(0.0), dimensions=(1,), reducer=None
            ),
            "leave it to XLA. Its reducer is not known.",
        ),
    ],
)
def test_what_has_no_kernel_is_refused_in_words(build, words: str) -> None:
    message = refused(build)
    assert words in message
    assert "leave it to XLA" in message or "leave the op to XLA" in message


def test_too_little_shared_memory_splits_the_region_into_phases() -> None:
    b = Builder()
    x = b.parameter((9, 40, 40))
    square = b.dot(x, x, batch=1)
    graph = whole(b.graph(b.dot(square, square, batch=1)))
    roomy, tight = generate(graph, SMALL), generate(graph, replace(SMALL, shared_per_block=4096))
    assert roomy.shared_bytes > 4096 >= tight.shared_bytes
    assert (roomy.cooperative, tight.cooperative) == (False, True)


def test_a_plan_can_be_made_without_text() -> None:
    b = Builder()
    graph = whole(b.graph(softmax(b, b.parameter((512, 1024)))))
    planned = plan_kernel(graph, H200)
    assert len(planned.plan.groups) == 1
    assert planned.layout.total == generate(graph, H200).shared_bytes


def test_texts_that_would_take_minutes_to_compile_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = Builder()
    x = b.parameter((8, 600))
    graph = whole(b.graph(softmax(b, x)))
    assert draft(graph, SMALL).cost.phases
    monkeypatch.setattr("fusionstitch.codegen.decisions.MOST_OPS", 3)
    with pytest.raises(CodegenError, match="compile"):
        draft(graph, SMALL)
