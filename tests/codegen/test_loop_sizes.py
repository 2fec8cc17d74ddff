"""Loops in blocks of other sizes than by default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from benchmarks.loops.forced import taken
from fusionstitch.codegen.schedule.tuning import Tuning
from fusionstitch.codegen.while_loops.sizes import fastest, larger, near, read_tuning
from fusionstitch.compiler import core
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.errors import CodegenError
from tests.codegen.test_phased_loops import FIELD, SPD, conjugate_gradients, diffusion
from tests.codegen.whole_loop_programs import stitched
from tests.nearness import assert_near


def on_h200(fun: Any, *args: Any, **options: Any) -> Stitched:
    data = jax.jit(fun).lower(*args).compiler_ir("hlo").as_serialized_hlo_module_proto()
    return core.stitch(data, fs.Options(scorer="model", **options), device("h200"), None)


def relaxed(u: jax.Array) -> jax.Array:
    def step(_: Any, u: jax.Array) -> jax.Array:
        return u + 0.2 * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) - 3 * u)

    return lax.fori_loop(0, 300, step, u)


def test_twice_the_threads_twice_the_points_and_both() -> None:
    assert [(t.block, t.tile) for t in larger(Tuning(block=256), 1024)] == [
        (512, 1.0),
        (256, 2.0),
        (512, 2.0),
    ]
    for most in (512, 1024):
        [wider] = larger(Tuning(block=most, tile=4.0), most)
        assert (wider.block, wider.tile) == (most, 8.0)
        assert not list(larger(Tuning(block=most, tile=16.0), most))


@dataclass(frozen=True)
class Time:
    us: float
    tuning: Tuning


def test_the_fastest_is_gone_on_from_until_little_is_won() -> None:
    requested: list[Tuning] = []

    def made(tuning: Tuning) -> Time:
        requested.append(tuning)
        if tuning.block == 512 and tuning.tile == 1:
            raise CodegenError("There is none.")
        assert tuning.block is not None
        return Time(100 / min(4, tuning.block / 128 * tuning.tile), tuning)

    start = Tuning(block=128)
    best = fastest(Time(100, start), start, made, device("h200"))
    assert best.us == 25
    assert best.tuning == Tuning(block=256, tile=2.0)
    assert len(requested) == 6
    assert fastest(best, best.tuning, made, device("h200")) is best


def test_a_stencil_on_a_large_gpu_has_fewer_blocks_than_fit() -> None:
    u = jax.ShapeDtypeStruct((512, 512), jnp.float32)
    [stitch] = on_h200(relaxed, u).stitches
    kernel = stitch.kernel
    assert kernel.template.startswith("loop grid")
    assert kernel.grid <= device("h200").sm_count
    [default] = on_h200(relaxed, u, templates={kernel.name: "loop grid"}).stitches
    assert default.kernel.grid > 2 * kernel.grid
    assert stitch.chosen.modelled_us < 0.8 * default.chosen.modelled_us
    [again] = on_h200(relaxed, u, templates={kernel.name: kernel.template}).kernels
    assert again.source == kernel.source


@pytest.mark.parametrize(
    "large", ["threads 512 tile 1", "threads 128 tile 8", "threads 1024 tile 4"]
)
@pytest.mark.parametrize(
    ("fun", "args"),
    [(diffusion, (FIELD,)), (conjugate_gradients, (SPD, SPD[0]))],
    ids=["diffusion", "conjugate gradients"],
)
def test_larger_blocks_give_what_xla_gives(
    host_compiler: str, fun: Any, args: tuple[np.ndarray, ...], large: str
) -> None:
    with taken("grid"):
        [name] = (k.name for k in stitched(fun, *args).kernels if k.template.startswith("loop"))
        template = f"loop grid blocks 1 {large}"
        options = fs.Options(backend="emulate", fallback="error", templates={name: template})
        compiled = fs.jit(fun, options=options).lower(*args).compile()
        assert any(large in k.template for k in compiled.stitched.kernels)
        with jax.default_matmul_precision("highest"):
            assert_near(compiled(*args), jax.jit(fun)(*args), 2e-6, rough=2e-2)


@pytest.mark.parametrize("printed", [("many", "1"), ("512", "much"), ("512", "1/0"), ("500", "2")])
def test_what_blocks_cannot_be_is_refused(printed: tuple[str, str]) -> None:
    with pytest.raises(CodegenError, match=r"threads|power of two"):
        read_tuning(*printed)


def recurrence(u: jax.Array, xs: jax.Array) -> Any:
    """A gated one, whose weights registers hold if each thread has enough of them."""
    units = xs.shape[-1] // 3

    def step(h: jax.Array, x: jax.Array) -> Any:
        a, b, c = jnp.split(h @ u, 3, axis=-1)
        x, y, z = jnp.split(x, 3, axis=-1)
        r, g = jax.nn.sigmoid(a + x), jax.nn.sigmoid(b + y)
        h = (1 - g) * jnp.tanh(r * c + z) + g * h
        return h, h

    return lax.scan(step, jnp.zeros((xs.shape[1], units)), xs)


def test_sizes_near_the_default() -> None:
    assert list(near(1024)) == [256, 512]
    assert list(near(64)) == [32]
    assert not list(near(32))


def test_the_fastest_size_is_taken() -> None:
    u, xs = (jax.ShapeDtypeStruct(n, jnp.float32) for n in ((64, 192), (80, 64, 192)))
    [stitch] = on_h200(recurrence, u, xs).stitches
    kernel = stitch.kernel
    assert kernel.template == "loop dealt blocks 64 threads 512"
    assert "u_1_held[" in kernel.source
    [default] = on_h200(recurrence, u, xs, templates={kernel.name: "loop dealt"}).stitches
    assert default.kernel.block == 1024
    assert stitch.chosen.modelled_us < 0.94 * default.chosen.modelled_us
    [again] = on_h200(recurrence, u, xs, templates={kernel.name: kernel.template}).kernels
    assert again.source == kernel.source


@pytest.mark.parametrize("threads", [32, 128, 1024])
@pytest.mark.parametrize("form", ["dealt", "block"])
def test_blocks_of_any_size_give_what_xla_gives(
    host_compiler: str, form: str, threads: int
) -> None:
    draw = np.random.default_rng(0)
    u, xs = (draw.standard_normal(n, np.float32) / 4 for n in ((8, 24), (6, 5, 24)))
    with taken(f"{form} {threads}"):
        [name] = (
            k.name for k in stitched(recurrence, u, xs).kernels if k.template.startswith("loop")
        )
        template = f"loop {form} blocks 1 threads {threads}"
        options = fs.Options(backend="emulate", fallback="error", templates={name: template})
        compiled = fs.jit(recurrence, options=options).lower(u, xs).compile()
        assert any(k.block == threads for k in compiled.stitched.kernels)
        with jax.default_matmul_precision("highest"):
            assert_near(compiled(u, xs), jax.jit(recurrence)(u, xs), 2e-6, rough=2e-2)


def test_other_sizes_of_blocks_are_refused() -> None:
    u, xs = (jax.ShapeDtypeStruct(n, jnp.float32) for n in ((64, 192), (80, 64, 192)))
    [kernel] = on_h200(recurrence, u, xs).kernels
    requested = {kernel.name: "loop dealt blocks 64 threads 96"}
    with pytest.raises(fs.FusionStitchError, match="have 32, 64, 128, 256, 512, 1024 threads"):
        on_h200(recurrence, u, xs, templates=requested, fallback="error")
