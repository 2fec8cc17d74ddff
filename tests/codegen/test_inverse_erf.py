"""The inverse error function is known by its values, in whatever ops it is spelled out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from fusionstitch.codegen.rewrite.strength import reduce_strength
from fusionstitch.codegen.rewrite.strength_rules import RULES
from fusionstitch.hlo.numeric import ELEMENTWISE
from tests.codegen.regions import whole_of


def known(fun: Callable[[Any], Any], exact: bool = False, dtype: Any = jnp.float32) -> int:
    """How often it is found in a function."""
    graph = reduce_strength(whole_of(fun, jax.ShapeDtypeStruct((8,), dtype)), RULES, exact)
    return sum(op.opcode == "inverse-erf" for op in graph)


def spelled(x: Any, first: float = 1.50140941, largest: float = 5.0) -> Any:
    """As XLA has it, with some other numbers."""
    w = -jnp.log1p(-x * x)
    few, many = w - 2.5, jnp.sqrt(w) - 3.0
    p, q = jnp.full_like(x, 2.81022636e-08), jnp.full_like(x, -0.000200214257)
    near = [3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087]
    near += [-0.00125372503, -0.00417768164, 0.246640727]
    far = [0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773]
    far += [-0.0076224613, 0.00943887047, 1.00167406]
    for a, b in zip(near, far, strict=True):
        p, q = a + p * few, b + q * many
    made = jnp.where(w < largest, first + p * few, 2.83297682 + q * many)
    return jnp.where(jnp.abs(x) == 1, x * jnp.inf, made * x)


def test_the_function_is_known() -> None:
    assert known(lax.erf_inv) == 1
    assert known(spelled) == 1
    assert known(lambda x: lax.erf_inv(x) + lax.erf_inv(x * 0.5)) == 2
    assert known(lambda x: jnp.sqrt(2.0) * lax.erf_inv(jnp.maximum(x, -0.9))) == 1


def test_others_are_not() -> None:
    assert known(lambda x: spelled(x, first=1.5015)) == 0
    assert known(lambda x: spelled(x, largest=7.0)) == 0
    assert known(lambda x: jnp.where(jnp.abs(x) == 1, x * jnp.inf, x * x)) == 0
    assert known(lambda x: jnp.where(jnp.abs(x) == 1, x * 3, lax.erf_inv(x))) == 1
    assert known(lax.erf_inv, exact=True) == 0
    assert known(lambda x: jnp.where(jnp.abs(x) == 1, x * jnp.inf, jnp.clip(x, -1, 1))) == 0


#: What a program may have between the ends of the inverse error function, in parts of it.
GUARDED: dict[str, Callable[[Any], Any]] = {
    "beyond its ends": lambda x: jnp.where(jnp.abs(x) > 1, 7.0, spelled(x)),
    "NaN": lambda x: jnp.where(jnp.isnan(x), 0.0, spelled(x)),
    "clipped": lambda x: lax.erf_inv(jnp.clip(x, -1, 1)),
    "around zero": lambda x: jnp.where(jnp.abs(x) < 1e-7, 5.0, lax.erf_inv(x)),
    "at one number": lambda x: jnp.where(x == 0.5, 3.0, spelled(x)),
}


@pytest.mark.parametrize("inner", GUARDED.values(), ids=GUARDED)
def test_what_differs_in_few_places_is_another_one(
    host_compiler: str, inner: Callable[[Any], Any]
) -> None:
    def fun(x: Any) -> Any:
        return jnp.where(jnp.abs(x) == 1, x * jnp.inf, inner(x))

    x = np.array([1.2, np.nan, 0.5, 1e-8, -3, 1, -1, 0.25], np.float32)
    found = fs.jit(fun, options=fs.Options(backend="emulate", scorer="paper"))(x)
    np.testing.assert_allclose(found, jax.jit(fun)(x), rtol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_its_argument_is_rounded_as_its_type_says(host_compiler: str, dtype: Any) -> None:
    x = np.linspace(-1, 1, 4001).astype(np.float32)
    options = fs.Options(backend="emulate", scorer="paper")
    found = fs.jit(lambda x: lax.erf_inv(x.astype(dtype)), options=options)(x)
    expected = lax.erf_inv(x.astype(dtype))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))
    np.testing.assert_allclose(
        np.float32(found), np.float32(expected), rtol=2 * float(jnp.finfo(dtype).eps)
    )
    assert known(lax.erf_inv, dtype=jnp.float16) == 1  # of the float that it is converted to


@pytest.mark.parametrize("numerics", ["default", "strict"])
def test_kernels_compute_it(host_compiler: str, numerics: str) -> None:
    last = 1 - 2.0**-24
    ends = [0, -0.0, 1, -1, last, -last, 1e-30, 1.5, np.nan]
    x = np.concatenate([np.linspace(-1, 1, 2039), ends]).astype(np.float32)
    options = fs.Options(backend="emulate", scorer="paper", numerics=numerics)

    def fun(x: Any) -> Any:
        y = x.reshape(8, 256)
        return lax.erf_inv(y) * (jnp.isnan(y).sum(1, keepdims=True) + 1.0)

    found = fs.jit(fun, options=options).lower(x).compile().stitched
    assert found is not None
    [kernel] = found.kernels
    assert ("erfinvf(" in kernel.source) is (numerics == "default")
    with np.errstate(all="ignore"):
        expected = ELEMENTWISE["inverse-erf"](x)
    result = np.asarray(fs.jit(fun, options=options)(x)).reshape(-1)
    rows = np.where(np.isnan(x.reshape(8, 256)).any(1, keepdims=True), 2, 1)
    np.testing.assert_allclose(result, (expected.reshape(8, 256) * rows).reshape(-1), rtol=2e-6)
