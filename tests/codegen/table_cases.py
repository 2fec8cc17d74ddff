"""Constants that become tables of a kernel, with elements that C has no literals for."""

from __future__ import annotations

import jax.numpy as jnp
import ml_dtypes
import numpy as np

from tests.codegen.kernel_cases import TABLE, add

SPECIAL = (np.inf, -np.inf, np.nan, 0.0, -0.0, 1.5, -2.0, 0.1)


def _picked(values: np.ndarray):
    def fun(x):
        table = jnp.asarray(values)
        return jnp.maximum(x, 0) + table, jnp.where(jnp.signbit(table), -x, x)

    return fun


for dtype in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16):
    x = np.linspace(-2, 2, 5 * len(SPECIAL)).reshape(5, -1).astype(dtype)
    add(f"special_table_{np.dtype(dtype).name}", _picked(np.array(SPECIAL, dtype)), x, shows=TABLE)
add("zeros_of_both_signs", _picked(np.array([0.0, -0.0] * 4, np.float32)),
    np.ones((5, 8), np.float32), shows=TABLE)  # fmt: skip
add("integers_at_their_limits",
    lambda x: x ^ jnp.asarray(np.array([-(2**31), 2**31 - 1, -1, 0], np.int32)),
    np.arange(12, dtype=np.int32).reshape(3, 4), shows=TABLE)  # fmt: skip
