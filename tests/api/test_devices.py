"""Programs over several devices: the emulator leaves them to XLA, with the right result."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import warnings
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import fusionstitch as fs

def mixed(x):
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)

emulate = fs.Options(backend="emulate")
mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.{axis},))
rows = NamedSharding(mesh, P("d"))
x = jnp.asarray(np.random.default_rng(0).standard_normal((16, 24), np.float32))
cases = [
    (fs.jit(mixed, options=emulate), jax.device_put(x, rows), 0),
    (fs.jit(mixed, options=emulate, in_shardings=rows, out_shardings=rows), x, 0),
    (fs.jit(jax.shard_map(mixed, mesh=mesh, in_specs=P(), out_specs=P()), options=emulate), x, 0),
    (fs.jit(mixed, options=emulate), jax.device_put(x, jax.devices()[1]), 1),
]
for jitted, x, kernels in cases:
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        result = jitted(x)
        compiled = jitted.lower(x).compile()
    np.testing.assert_allclose(result, mixed(np.asarray(x)), rtol=1e-5, atol=1e-6)
    assert len(compiled.kernels) == kernels
    assert kernels or "devices" in compiled.fallbacks[0].reason, compiled.fallbacks
"""


@pytest.mark.parametrize("axis", ["Auto", "Explicit"])
def test_several_devices(axis: str) -> None:
    env = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    code = f"import os; os.environ.update({env})" + PROGRAM.replace("{axis}", axis)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
