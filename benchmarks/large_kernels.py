"""Kernels of kinds that the replay has few of, at many sizes: what the prices of tensor
cores, register tiles, streamed chains and large arrays are fitted to.

    python -m benchmarks.large_kernels FOLDER [JOBS]    cubins, for `benchmarks/revisions.py times`
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.revisions import write
from fusionstitch.codegen.drafts import Draft
from fusionstitch.codegen.generate import Looped, draft
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.errors import CodegenError

Case = tuple[str, Callable[..., Any], tuple[jax.ShapeDtypeStruct, ...]]
_TYPES = {"f32": jnp.float32, "bf16": jnp.bfloat16}


def _array(dtype: str, *dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, _TYPES[dtype])


def elementwise() -> Iterator[Case]:
    """Large arrays, from little to much arithmetic."""
    funs = {
        "sum": lambda x, y: jax.nn.relu(x + y),
        "gelu": lambda x, y: jax.nn.gelu(x) * y,
        "waves": lambda x, y: jnp.sin(x) * jnp.exp(-y * y) + jnp.log1p(x * x),
    }
    for dtype, (name, fun), exponent in itertools.product(_TYPES, funs.items(), (18, 21, 23, 25)):
        array = _array(dtype, 1 << exponent - 10, 1 << 10)
        yield f"{name}-{dtype}-{exponent}", fun, (array, array)


def products() -> Iterator[Case]:
    """A layer with its activation."""

    def layer(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.tanh(x @ w + b)

    sizes = (
        *((64, 64, 64), (256, 128, 64), (128, 512, 128), (512, 512, 512), (1024, 256, 1024)),
        *((2048, 64, 32), (4096, 128, 256), (32, 2048, 512), (2048, 2048, 256), (96, 80, 1000)),
    )
    for dtype, (m, n, k) in itertools.product(_TYPES, sizes):
        arrays = _array(dtype, m, k), _array(dtype, k, n), _array(dtype, n)
        yield f"layer-{dtype}-{m}-{n}-{k}", layer, arrays


def normed() -> Iterator[Case]:
    """A layer of rows that are normalized before and summed after."""

    def block(x: jax.Array, w: jax.Array) -> jax.Array:
        normal = x / jnp.sqrt(jnp.mean(x * x, axis=1, keepdims=True) + 1e-5)
        y = jax.nn.gelu(normal @ w)
        return y / jnp.sum(jnp.abs(y), axis=1, keepdims=True)

    for dtype, (m, n, k) in itertools.product(
        _TYPES, ((256, 64, 64), (1024, 128, 128), (4096, 64, 256), (512, 256, 512))
    ):
        yield f"normed-{dtype}-{m}-{n}-{k}", block, (_array(dtype, m, k), _array(dtype, k, n))


def attention() -> Iterator[Case]:
    """Softmax of scores over keys, and their values."""

    def heads(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        scores = jnp.einsum("bqd,bkd->bqk", q, k) / q.shape[-1] ** 0.5
        return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores, axis=-1), v)

    sizes = (
        *((8, 128, 32), (16, 256, 64), (32, 512, 64), (64, 1024, 64), (12, 2048, 64)),
        *((96, 128, 64), (4, 1024, 128), (256, 64, 32)),
    )
    for dtype, (batch, length, depth) in itertools.product(_TYPES, sizes):
        array = _array(dtype, batch, length, depth)
        yield f"heads-{dtype}-{batch}-{length}-{depth}", heads, (array, array, array)


def drafts() -> Iterator[tuple[str, Draft | Looped]]:
    """The kernels by name, those that there can be."""
    from tests.codegen.regions import whole_of

    for name, fun, args in itertools.chain(elementwise(), products(), normed(), attention()):
        region = whole_of(fun, *args, name="k_" + name.replace("-", "_"))
        try:
            yield name, draft(region, device("h200"))
        except CodegenError as error:
            print(f"{name}: {error}", file=sys.stderr)


def main() -> None:
    kernels = ((name, one.kernel()) for name, one in drafts())
    write(kernels, Path(sys.argv[1]), *map(int, sys.argv[2:]))


if __name__ == "__main__":
    main()
