"""Maximum and minimum take -0 for less than +0, as XLA's do on every platform."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.importer import from_proto
from tests.numbers.same import BACKENDS, assert_same_bits, check, compiled

ZEROS = np.array([0.0, -0.0, 0.0, -0.0, 1.0, -1.0, np.nan, -0.0, 0.0])
OTHERS = np.array([-0.0, 0.0, 0.0, -0.0, -0.0, 0.0, 0.0, np.nan, -1.0])
#: Rows whose zeros meet in every order, across lanes, warps and vectors.
ROWS = {
    "first": lambda n: np.where(np.arange(n) == 0, 0.0, -0.0),
    "last": lambda n: np.where(np.arange(n) == n - 1, 0.0, -0.0),
    "negative": lambda n: np.where(np.arange(n) == n // 2, -0.0, 0.0),
    "all": lambda n: np.full(n, -0.0),
}
PROGRAMS = {
    "maximum": lambda x, y: jnp.maximum(x, y) * 2,
    "minimum": lambda x, y: jnp.minimum(x, y) * 2,
    "clip": lambda x, y: jnp.clip(x, y, 0.0) * 2,
    "clamp": lambda x, y: jax.lax.clamp(jnp.zeros_like(x), y, -jnp.zeros_like(x)) * 2,
    "relu": lambda x, y: jax.nn.relu(-x) * jax.nn.relu(y),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_elementwise(name, dtype, backend):
    with jax.enable_x64(dtype == "float64"):
        check(
            PROGRAMS[name], *(v.astype(jnp.dtype(dtype)) for v in (ZEROS, OTHERS)), backend=backend
        )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n", [7, 96, 1500])
@pytest.mark.parametrize("axis", [0, 1])
def test_reductions(n, axis, backend):
    """Against the definition: XLA:CPU's own vectorized maximum of long rows forgets signs."""
    x = np.stack([row(n) for row in ROWS.values()]).astype(np.float32)
    x = np.concatenate([x, -x])
    negative = np.signbit(x)
    x = jnp.asarray(x if axis else x.T)
    run = compiled(lambda x: (jnp.max(x * 2, axis), jnp.min(x * 2, axis)), x, backend=backend)
    assert run.kernels
    largest, smallest = (np.signbit(v) for v in run(x))
    np.testing.assert_array_equal(largest, negative.all(axis=1))
    np.testing.assert_array_equal(smallest, negative.any(axis=1))


def test_windows_and_running_extrema():
    x = np.tile(np.array([-0.0, 0.0, -0.0, -0.0], np.float32), 20)
    check(lambda x: (jax.lax.cummax(x * 1.5), jax.lax.cummin(x * 1.5)), x)


@pytest.mark.parametrize("name", PROGRAMS)
def test_reference(name):
    args = [v.astype(np.float32) for v in (ZEROS, OTHERS)]
    assert_reference(lambda x, y: (PROGRAMS[name](x, y), x + y), args)
    assert_reference(lambda x, y: (jnp.max(x[:4]), jnp.min(y[:4]), jnp.max(x[1:2] + y[3:4])), args)


def assert_reference(fun, args):
    module = jax.jit(fun).lower(*args).compiler_ir("hlo").as_serialized_hlo_module_proto()
    wanted = jax.tree.leaves(jax.jit(fun)(*args))
    for got, want in zip(evaluate(from_proto(module).entry, args), wanted, strict=True):
        assert_same_bits(got, np.asarray(want))
