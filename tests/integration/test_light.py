"""What a first call loads: solvers, graph libraries and CuPy only where they are needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

CALL = """
import sys, jax, jax.numpy as jnp, fusionstitch as fs
jax.block_until_ready(fs.jit({fun}, options=fs.Options(backend={backend!r}))(jnp.ones((8, 8))))
print([m for m in ("networkx", "pulp", "highspy", "cupy") if m in sys.modules])
"""


def loaded(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("backend", ["auto", "emulate"])
def test_a_call_with_nothing_to_stitch(backend: str) -> None:
    assert loaded(CALL.format(fun="lambda x: x @ x", backend=backend)) == "[]"


def test_a_call_with_a_pattern() -> None:
    """One that needs no solver loads none."""
    fun = "lambda x: (jax.nn.softmax(x), x.sum(0))"
    assert loaded(CALL.format(fun=fun, backend="emulate")) == "[]"


def test_without_a_gpu_no_compiler_is_loaded() -> None:
    code = CALL.format(fun="lambda x: x @ x", backend="auto")
    code += "print([m for m in sys.modules if m.startswith(('codegen', 'fusionstitch.core'))])"
    assert loaded(code) == "[]\n[]"
