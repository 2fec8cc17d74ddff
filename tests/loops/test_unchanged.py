"""Loops that carry what no iteration changes, each iteration one kernel."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from tests.loops.forms import cases, wholes
from tests.loops.growth import Grown


@pytest.mark.parametrize("size", [16, 100])
def test_a_kernel_of_all_that_changes_does_not_end_a_loop_s_counting(size: int) -> None:
    def loop(x: jax.Array, unchanged: jax.Array, first: jax.Array) -> jax.Array:
        def step(v: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
            v = lax.dynamic_update_slice(unchanged, v, (first[0] + k,)) * v + v
            return v, v

        return lax.scan(step, x, jnp.arange(3))[0]

    x, first = np.full(size, 0.5, np.float32), np.zeros(2, np.int32)
    options = fs.Options(backend="emulate", fallback="error", scorer="paper")
    jitted = fs.jit(loop, options=options)
    compiled = jitted.lower(x, x, first).compile()
    assert compiled.kernels
    # where XLA takes the kernel's operands for its results, the loop never ends
    assert "constant(true)" not in compiled.as_text()
    np.testing.assert_allclose(jitted(x, x, first), jax.jit(loop)(x, x, first), rtol=1e-6)


def test_every_form_deals_a_target_that_is_replaced_as_a_whole() -> None:
    def loop(x: jax.Array, unchanged: jax.Array, first: jax.Array) -> jax.Array:
        def step(v: jax.Array, k: jax.Array) -> tuple[jax.Array, None]:
            return lax.dynamic_update_slice(unchanged, v, (first[0] + k,)) * v + v, None

        return lax.scan(step, x, jnp.arange(3))[0]

    x, first = np.full(64, 0.5, np.float32), np.zeros(2, np.int32)
    [whole] = wholes(Grown(loop, (x, x, first), "replaced"))
    forms = {case.form for case in cases(whole, "132 multiprocessors")}
    assert {"rows", "dealt"} <= forms
