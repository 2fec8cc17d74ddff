"""Exact numbers of kernels: in the stitched module, and in the report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import adam
import figure1
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.compiler import builders, core
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.hlo.importer import from_proto
from fusionstitch.reports import counting
from fusionstitch.reports.report import report_trial
from fusionstitch.reports.trial import Trial
from tests.programs import PROGRAMS, layer_norm, mean_square, precision

draw = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return draw.standard_normal(shape, np.float32)


def independent_adds(count: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """`count` adds of unlike shapes with no data dependence between any two."""
    pairs = [(f32(3 + k, 50 - k), f32(3 + k, 50 - k)) for k in range(count)]
    return lambda pairs: [x + y for x, y in pairs], (pairs,)


#: Programs that are one kernel, and nothing beside it, under the paper's scorer.
ONE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "softmax": (lambda x: jax.nn.softmax(x, -1), (f32(64, 128),)),
    "layer norm": (layer_norm, (f32(32, 256), f32(256), f32(256))),
    "layer norm backward": (mean_square(layer_norm), (f32(32, 256), f32(256), f32(256))),
    "two adds": independent_adds(2),
    "seven adds": independent_adds(7),
    "forty adds": independent_adds(40),
    "figure 1": figure1.original(),
    "figure 1, ComiRec's order": figure1.variant(),
    "multi-tensor Adam": adam.gpt2_small(),
    "softmax by column sums": (
        lambda x: jax.nn.softmax(x, -1) * (jax.nn.softmax(x, -1) * x).sum(0),
        (f32(64, 128),),
    ),
    "attention": (PROGRAMS["attention"].fun, PROGRAMS["attention"].args),
}


def lower(fun: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    lowered = jax.jit(fun, keep_unused=True).lower(*args)
    data: bytes = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    return data


def stitched(data: bytes, build: bool, **options: Any) -> Stitched:
    chosen = fs.Options(backend="emulate", fallback="error", **options)
    builder = builders.emulated() if build else None
    return core.stitch(data, chosen, builders.profile(chosen), builder)


def kernels_left(module: bytes) -> list[str]:
    """What launches a kernel in a stitched module. A copy at its end gives the root the layout
    that lowering happened to write; the emulator needs none."""
    entry = from_proto(module).entry
    return [op.opcode for op in entry if counting.is_kernel(op) and op.opcode != "copy"]


@pytest.mark.parametrize("name", ONE)
def test_one_kernel_and_nothing_beside_it(host_compiler: str, name: str) -> None:
    data = lower(*ONE[name])
    result = stitched(data, build=True, scorer="paper")
    assert len(result.stitches) == 1
    assert kernels_left(result.module) == ["custom-call"]
    report = report_trial(Trial(name, "emulate", data, result))
    assert report.kernels["fusionstitch"] == 1
    assert report.kernels["unfused"] > 1
    assert len(report.patterns) == 1


#: XLA fuses all after the FFT into its complex op, which no pattern may hold; the paper's score
#: knows nothing of what XLA fuses.
BY_THE_PAPER_ONE_MORE = "fft_between"


@pytest.mark.parametrize("scorer", ["model", "paper"])
@pytest.mark.parametrize("name", [*ONE, *PROGRAMS])
def test_never_more_kernels_than_xla(name: str, scorer: str) -> None:
    fun, args = ONE[name] if name in ONE else (PROGRAMS[name].fun, PROGRAMS[name].args)
    with precision(args):
        data = lower(fun, args)
    result = stitched(data, build=False, scorer=scorer)
    kernels = report_trial(Trial(name, "emulate", data, result)).kernels
    more = int((name, scorer) == (BY_THE_PAPER_ONE_MORE, "paper"))
    assert kernels["fusionstitch"] - more <= kernels["xla"] <= kernels["unfused"]
    assert len(result.stitches) <= kernels["fusionstitch"]
    if name in ONE:
        assert kernels["fusionstitch"] == 1 or scorer == "model"


def test_an_optimizer_step_over_hundreds_of_tensors_is_one_launch() -> None:
    """Adam over GPT-2 small: 577 arrays in, 433 out, about 1,800 ops."""
    shapes = adam.block_shapes(768) * 12
    tensors = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    count = jax.ShapeDtypeStruct((), jnp.int32)
    state = (tensors, {"count": count, "m": tensors, "v": tensors})
    data = lower(adam.step, (state, tensors))
    result = stitched(data, build=False, device="h200")
    [kernel] = result.kernels
    assert (len(kernel.inputs), len(kernel.outputs)) == (577, 433)
    report = report_trial(Trial("adam", "cuda", data, result))
    assert report.kernels["fusionstitch"] == 1 < report.kernels["xla"]


@pytest.mark.parametrize(
    ("fun", "args", "wanted"),
    [
        (lambda x: jax.nn.softmax(x, -1), (f32(64, 128),), {"unfused": 10, "xla": 1}),
        (lambda x, y: (x + y, x[0] * y[1]), (f32(8, 4), f32(8, 4)), {"unfused": 4, "xla": 2}),
        (lambda x: jnp.sin(x), (f32(8, 4),), {"unfused": 1, "xla": 1, "fusionstitch": 1}),
        (lambda x: x.reshape(4, 8), (f32(8, 4),), {"unfused": 0, "xla": 0, "fusionstitch": 0}),
        (lambda x: x @ x, (f32(2048, 2048),), {"unfused": 1, "xla": 1, "fusionstitch": 1}),
    ],
    ids=["softmax", "two results", "one op", "a view", "a large product"],
)
def test_exact_counts(fun: Callable[..., Any], args: tuple[Any, ...], wanted: dict) -> None:
    data = lower(fun, args)
    result = stitched(data, build=False)
    kernels = report_trial(Trial("fun", "emulate", data, result)).kernels
    assert {side: kernels[side] for side in wanted} == wanted
