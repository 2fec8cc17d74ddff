"""Ops and types that kernels do not have: XLA's, with the rest of the program stitched."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from fusionstitch.runtime.portable import portable_artifact

X = np.arange(64, dtype=np.uint8)


def halves(dtype: Any) -> Callable[[jax.Array], jax.Array]:
    """Apart and together again, with ops to stitch on both sides."""

    def fun(x: jax.Array) -> jax.Array:
        parts = lax.bitcast_convert_type(x * x + x, dtype)
        return lax.bitcast_convert_type(parts, jnp.uint8) * 2 + x

    return fun


@pytest.mark.usefixtures("host_compiler")
@pytest.mark.parametrize("dtype", [jnp.int4, jnp.uint4, jnp.int2, jnp.uint2])
def test_bitcasts_of_integers_that_share_a_byte(dtype: Any) -> None:
    fun = halves(dtype)
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = fs.jit(fun, options=options).lower(X).compile()
    assert compiled.kernels
    np.testing.assert_array_equal(compiled(X), jax.jit(fun)(X))


def test_the_high_word_of_a_product_gets_through() -> None:
    """As a module only: XLA:CPU has no such op in every JAX."""

    def fun(x: jax.Array) -> jax.Array:
        return lax.mulhi(x, x) + x * x

    lowered: Any = jax.jit(fun).lower(X.astype(np.int32)).compiler_ir("hlo")
    assert portable_artifact(lowered.as_serialized_hlo_module_proto())


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: jnp.linalg.cholesky(x @ x.T + 4 * jnp.eye(4)),
        lambda x: abs(jnp.linalg.qr(x)[1]),
        lambda x: jax.scipy.linalg.expm(x),
        lambda x: lax.linalg.tridiagonal_solve(x[0], x[1] + 9, x[2], x),
    ],
    ids=["cholesky", "qr", "expm", "tridiagonal"],
)
def test_calls_with_a_rule_of_how_to_partition_them(fun: Callable[[jax.Array], Any]) -> None:
    """JAX says for random bits, too, how to partition them: XLA then reads what all ops say."""

    def program(key: jax.Array) -> Any:
        return fun(jax.random.normal(key, (4, 4)) * 0.5) * 2 + 1

    key = jax.random.key(1)
    ours = fs.jit(program, options=fs.Options(backend="emulate", fallback="error"))(key)
    np.testing.assert_allclose(ours, jax.jit(program)(key), rtol=1e-4, atol=1e-5)
