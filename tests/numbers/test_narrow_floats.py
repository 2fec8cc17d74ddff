"""Roundings to floats of one byte are the program's own: kernels keep each of them."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from tests.numbers.same import BACKENDS, check

NARROW = (
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3", "float8_e3m4", "float8_e4m3b11fnuz"),
    *("float8_e4m3fnuz", "float8_e5m2fnuz"),
)
X = np.random.default_rng(0).uniform(-3, 3, 4000).astype(np.float32)


def there_and_back(x, dtype):
    return (x * 1.5).astype(dtype).astype(x.dtype) + 1


def product(x, dtype):
    x = x.astype(dtype)
    return (x * x + x).astype(np.float32)


def scaled_sum(x, dtype):
    """A quantized dot product by hand, whose sums are exact in float32."""
    q = (x * 0.25).astype(dtype).astype(np.float32)
    return jnp.sum(q.reshape(40, 100), axis=1), jnp.max(q)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fun", [there_and_back, scaled_sum])
@pytest.mark.parametrize("dtype", NARROW)
def test_conversions_round(dtype, fun, backend):
    """XLA for GPUs drops the roundings, as excess precision."""
    check(lambda x: fun(x, jnp.dtype(dtype)), X, backend=backend, on_cpu=True)


@pytest.mark.parametrize("dtype", NARROW[:2])
def test_arithmetic_rounds(dtype):
    check(lambda x: product(x, jnp.dtype(dtype)), X)


def test_conversions_of_16_bits_round():
    x = (np.round(X * 4) / 4).astype(ml_dtypes.bfloat16)  # exact products
    check(lambda x: there_and_back(x, jnp.float8_e4m3fn), x)
