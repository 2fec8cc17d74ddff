"""Chains longer than Python's stack: nothing that looks at a pattern recurses over its ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.accuracy import limit, relative_error
from fusionstitch.compiler import builders, core
from tests.programs import reference, reference64

pytestmark = pytest.mark.slow

X = np.linspace(-1, 1, 96, dtype=np.float32).reshape(8, 12)


def unary(steps: int) -> Callable[[Any], Any]:
    def fun(x: Any) -> Any:
        for i in range(steps):
            x = jnp.tanh(x) if i % 3 else x * 0.9 + 0.1
        return x

    return fun


def binary(steps: int) -> Callable[[Any], Any]:
    def fun(x: Any) -> Any:
        y = x
        for i in range(steps):
            x, y = x - y * 0.1, jnp.sin(x) if i % 2 else jnp.maximum(x, y)
        return x, y

    return fun


@pytest.mark.parametrize(("make", "steps"), [(unary, 400), (unary, 1400), (binary, 600)])
def test_a_chain_in_one_pattern(host_compiler: str, make: Any, steps: int) -> None:
    fun = make(steps)
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    compiled = fs.jit(fun, options=options).lower(X).compile()
    [one] = compiled.stitched.stitches
    assert len(one.chosen.pattern.ops) > steps
    values = [np.asarray(leaf) for leaf in jax.tree.leaves(compiled(X))]
    for mine, xla, wide in zip(values, reference(fun, (X,)), reference64(fun, (X,)), strict=True):
        assert relative_error(mine, wide) <= limit(mine.dtype, relative_error(xla, wide))


def test_a_chain_too_long_for_one_text_is_refused_with_a_reason() -> None:
    data = jax.jit(unary(3000)).lower(X).compiler_ir("hlo").as_serialized_hlo_module_proto()
    options = fs.Options(backend="emulate", scorer="paper")
    result = core.stitch(data, options, builders.profile(options), None)
    assert not result.fallbacks
    assert any("would take too long to compile" in r.reason for r in result.rejected)
    assert not [r for r in result.rejected if "Defect" in r.reason]
