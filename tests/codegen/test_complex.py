"""Complex numbers as pairs: at the border of kernels, in loops, where they are no numbers.

What kernels compute of them inside is also checked with the other cases (complex_cases.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from fusionstitch.codegen.invariants import check_region
from fusionstitch.codegen.rewrite.complex_pairs import fits_pairs, in_pairs, split_complex
from fusionstitch.hlo.graph import Shape
from tests.codegen.regions import whole_of

PAPER = fs.Options(backend="emulate", fallback="error", scorer="paper")
WHOLE = fs.Options(backend="emulate", fallback="error", scorer="model", device="h200")


def drawn(*dims: int, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return (draw.standard_normal(dims) + 1j * draw.standard_normal(dims)).astype(np.complex64)


def reals(*dims: int) -> np.ndarray:
    return np.random.default_rng(2).standard_normal(dims).astype(np.float32)


def assert_alike(fun: Callable[..., Any], options: fs.Options, *args: Any) -> list[Any]:
    """The kernels of a function that gives what it gives under jax.jit."""
    stitched = fs.jit(fun, options=options)
    pairs = zip(jax.tree.leaves(stitched(*args)), jax.tree.leaves(jax.jit(fun)(*args)), strict=True)
    for got, expected in pairs:
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)
    return list(stitched.lower(*args).compile().kernels)


TABLE = (1, 1j, -1, -1j)
X, Y = drawn(30, 20), drawn(30, 20, seed=1)
BORDERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "in and out": (lambda x, y: (x * y + 1j, x / y, -x), (X, Y)),
    "in alone": (lambda x: (jnp.abs(x), x.real.sum(0)), (X,)),
    "out alone": (lambda x: jnp.exp(1j * x) * 2, (reals(30, 20),)),
    "by rows and columns": (lambda x: (x.sum(0), x.mean(1), x.sum()), (X,)),
    "moved": (lambda x, y: (jnp.concatenate([x, y], 1).T[3:], jnp.roll(x, 1, 0)), (X, Y)),
    "around a transform": (
        lambda x, h: jnp.fft.ifft(jnp.fft.fft(x * jnp.hanning(20)) * h / (1 + jnp.abs(h))).real,
        (X, drawn(20)),
    ),
    "of a spectrum": (
        lambda x: jnp.log(jnp.abs(jnp.fft.rfft(x * 2)) ** 2 + 1e-3).mean(0),
        (reals(30, 64),),
    ),
    "products": (
        lambda x, u: jnp.einsum("ab,nbk->nak", u, x.reshape(30, 2, 10)).reshape(30, 20),
        (X, drawn(2, 2)),
    ),
    "gathered": (lambda x, i: x[i] * 2, (X, np.arange(7, dtype=np.int32) * 3)),
    "compared": (lambda x, y: (x == y, x != jnp.conj(x)), (X, Y)),
    "tables": (
        lambda x: jnp.abs(x * jnp.array([1, 1j, -1, -1j], jnp.complex64) - 1),
        (drawn(9, 4),),
    ),
    "gradient": (
        lambda x: jax.grad(lambda v: (jnp.abs(v * jnp.exp(1j * v.real)) ** 2).sum())(x),
        (X,),
    ),
}


@pytest.mark.parametrize("name", BORDERS)
def test_pairs_cross_borders(name: str, host_compiler: str) -> None:
    fun, args = BORDERS[name]
    assert assert_alike(fun, PAPER, *args)


def test_what_is_no_number_stays_none(host_compiler: str) -> None:
    """Quotients by zero and of infinities, and their sizes."""
    ends = np.array([0, -0.0, 1, -2.5, np.inf, -np.inf, np.nan, 1e-30, 3e38], np.float32)
    real, imag = (part.ravel() for part in np.meshgrid(ends, ends))
    z = np.empty(real.shape, np.complex64)
    z.real, z.imag = real, imag

    def fun(z: Any) -> Any:
        return jnp.abs(z), z / 0, z / (2 + 1j)

    stitched = fs.jit(fun, options=PAPER)
    size, by_zero, quotient = stitched(z)
    expected, _, other = jax.jit(fun)(z)
    np.testing.assert_allclose(size, expected, rtol=1e-6)
    with np.errstate(all="ignore"):  # XLA gives no number for some, by device
        np.testing.assert_array_equal(np.asarray(by_zero).real, real / np.float32(0))
        np.testing.assert_array_equal(np.asarray(by_zero).imag, imag / np.float32(0))
    small = np.abs(z) < 1e38
    np.testing.assert_allclose(np.asarray(quotient)[small], np.asarray(other)[small], rtol=1e-6)


LOOPS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "each number": (
        lambda c: lax.fori_loop(
            0,
            20,
            lambda i, s: (
                jnp.where(jnp.abs(s[0]) < 2, s[0] * s[0] + c, s[0]),
                s[1] + (jnp.abs(s[0]) < 2),
            ),
            (jnp.zeros_like(c), jnp.zeros(c.shape, jnp.int32)),
        ),
        (drawn(512, 64) * np.float32(0.05),),
    ),
    "states": (
        lambda s, u: lax.scan(lambda c, _: (c @ u, (jnp.abs(c) ** 2).sum(1)), s, None, length=9),
        (drawn(2000, 4), drawn(4, 4) / 3),
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_carry_pairs(name: str, host_compiler: str) -> None:
    fun, args = LOOPS[name]
    [kernel] = assert_alike(fun, WHOLE, *args)
    assert "loop" in kernel.template


def test_a_region_has_none_left() -> None:
    graph = whole_of(lambda x, y: (x * y).sum(0), X[:6, :4], Y[:6, :4])
    split = split_complex(graph)
    check_region(split, graph)
    assert not any(op.dtype == "c64" for op in split)
    assert [p.dims for p in split.parameters] == [(6, 4, 2), (6, 4, 2)]
    assert in_pairs(Shape("c64", (3,))) == Shape("f32", (3, 2))
    real = whole_of(jnp.sin, reals(3))
    assert split_complex(real) is real


@pytest.mark.parametrize(
    "fun", [jnp.tanh, lambda x: x**0.3, lambda x: jnp.prod(x, 1), lambda x: jnp.cumprod(x, 1)]
)
def test_other_functions_stay_with_xla(fun: Callable[..., Any]) -> None:
    """The program goes on as it does under jax.jit."""
    refused = [op for op in whole_of(fun, X) if op.dtype == "c64" and not fits_pairs(op)]
    assert refused
    stitched = fs.jit(lambda x: jnp.abs(fun(x * 2)), options=PAPER)
    np.testing.assert_allclose(stitched(X), jax.jit(lambda x: jnp.abs(fun(x * 2)))(X), rtol=1e-5)
