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
