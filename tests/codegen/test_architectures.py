"""What is planned for GPUs of every generation is built for them, and could be launched there."""

from __future__ import annotations

import functools
from types import ModuleType

import jax
import jax.numpy as jnp
import pytest

from fusionstitch.codegen.generate import generate
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.compiler import core
from fusionstitch.costmodel.properties import from_properties
from fusionstitch.options import Options
from fusionstitch.runtime import cuda
from tests.codegen.regions import whole_of
from tests.gpus import GPUS

SHAPE = jax.ShapeDtypeStruct


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("hid,hjd->hij", q, k).astype(jnp.float32)
    return jnp.einsum("hij,hjd->hid", jax.nn.softmax(scores).astype(q.dtype), v)


def program(
    x: jax.Array, w: jax.Array, long: jax.Array, heads: jax.Array
) -> tuple[tuple[jax.Array, ...], jax.Array, jax.Array]:
    """A layer norm with its gradient in bf16, rows that outgrow a block, attention."""

    def cost(x: jax.Array, w: jax.Array) -> jax.Array:
        x = x.astype(jnp.float32)
        y = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
        return (jax.nn.gelu(y * w) ** 2).sum()

    return jax.grad(cost, (0, 1))(x, w), jax.nn.softmax(long), attention(heads, heads, heads)


@functools.cache
def module() -> bytes:
    bf16 = functools.partial(SHAPE, dtype=jnp.bfloat16)
    long = SHAPE((512, 1 << 16), jnp.float32)
    lowered = jax.jit(program).lower(bf16((4096, 1024)), bf16((1024,)), long, bf16((96, 512, 64)))
    data: bytes = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    return data


@functools.cache
def kernels(name: str) -> tuple[Kernel, ...]:
    """What is planned, and a kernel each for attention and for long rows."""
    profile = from_properties(GPUS[name])
    planned = core.stitch(module(), Options(fallback="error"), profile, None).kernels
    heads, rows = SHAPE((96, 512, 64), jnp.bfloat16), SHAPE((512, 1 << 16), jnp.float32)
    alone = [
        whole_of(attention, heads, heads, heads, name="attention"),
        whole_of(jax.nn.softmax, rows, name="long_rows"),
    ]
    return *planned, *(generate(graph, profile) for graph in alone)


@pytest.mark.parametrize("name", GPUS)
def test_kernels_of_each_generation(nvrtc: ModuleType, name: str) -> None:
    profile = from_properties(GPUS[name])
    if profile.sm_arch not in nvrtc.architectures():
        pytest.skip(f"NVRTC {nvrtc.version()} does not know {profile.sm_arch}")
    assert kernels(name)
    for built in cuda.build_each(kernels(name), profile):
        assert isinstance(built, cuda.Built), built


def test_what_kernels_use_follows_the_capability() -> None:
    """Tensor cores multiply bf16 from 8.0 on, clusters come with 9.0."""
    for name, gpu in GPUS.items():
        *_, streamed, long_rows = kernels(name)
        assert ("fs_mma" in streamed.source) == (gpu.capability >= 80), name
        assert (long_rows.cluster > 1) == (gpu.capability >= 90), name
        if gpu.capability < 80:
            assert not any("fs_mma" in kernel.source for kernel in kernels(name)), name
