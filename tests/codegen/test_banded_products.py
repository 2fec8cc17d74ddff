"""Products with known matrices of which few elements are not 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fusionstitch as fs
from fusionstitch.accuracy import relative_error
from fusionstitch.codegen.passes import rewritten
from fusionstitch.codegen.rewrite.banded_products import is_banded, with_banded_products
from fusionstitch.codegen.rewrite.known_matrices import LEAST_SPARED, MOST_TAPS, known_band
from fusionstitch.codegen.settings import CodegenOptions, Settings
from fusionstitch.codegen.watch import NOBODY
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.patterns.fusible import fusible
from tests.codegen.regions import lowered, whole_of

Array = jax.Array
F32 = np.float32
X = np.random.default_rng(2).standard_normal((3, 96, 80, 2)).astype(F32)


def dots(graph: Graph) -> list[Op]:
    return [op for op in graph if op.opcode == "dot"]


def resized(method: str, *dims: int, antialias: bool = True) -> Callable[[Array], Array]:
    return lambda x: jax.image.resize(x, (3, *dims, 2), method, antialias)


def differences(x: Array) -> Array:
    """By a matrix, along the second dim."""
    n = x.shape[1]
    i, j = jnp.arange(n)[:, None], jnp.arange(n)
    matrix = jnp.where(i == j, -1.0, jnp.where(i == j + 1, 1.0, 0.0))
    return jnp.einsum("bnwc,nm->bmwc", x, matrix)


PROGRAMS: dict[str, Callable[[Array], Any]] = {
    "twice as large": resized("linear", 192, 160),
    "larger by a fraction": resized("linear", 137, 91),
    "along one dim": resized("linear", 96, 120),
    "smaller": resized("linear", 37, 50),
    "smaller without a filter": resized("linear", 37, 50, antialias=False),
    "cubic": resized("cubic", 131, 160),
    "cubic and smaller": resized("cubic", 64, 50),
    "lanczos": resized("lanczos3", 192, 99),
    "a gradient": jax.grad(lambda x: (resized("linear", 192, 160)(x) ** 2).sum()),
    "moved": lambda x: jax.image.scale_and_translate(
        x, (3, 96, 80, 2), (1, 2), jnp.ones(2) * 1.0, jnp.zeros(2), "linear"
    ),
    "differences": differences,
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_known_matrices_are_gone(name: str) -> None:
    graph = whole_of(PROGRAMS[name], X)
    assert dots(graph)
    made = with_banded_products(graph)
    assert not dots(made)
    for got, wanted in zip(evaluate(made, [X]), evaluate(graph, [X]), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_jax(name: str, host_compiler: str) -> None:
    fun = PROGRAMS[name]
    ours = fs.jit(fun, options=fs.Options(backend="emulate", fallback="error", scorer="paper"))(X)
    assert relative_error(np.asarray(ours), np.asarray(jax.jit(fun)(X))) < 2e-6


def test_an_image_is_resized_by_one_kernel(host_compiler: str) -> None:
    def fun(x: Array) -> Array:
        return jax.nn.relu(resized("linear", 192, 160)(x)) * 2

    options = fs.Options(backend="emulate", fallback="error", scorer="paper")
    compiled = fs.jit(fun, options=options).lower(X).compile()
    assert len(compiled.kernels) == 1
    assert "fs_mma" not in compiled.kernels[0].source


def test_large_products_with_bands_are_left_to_no_library() -> None:
    x = jax.ShapeDtypeStruct((16, 512, 512, 4), jnp.float32)
    graph = lowered(lambda x: jax.image.resize(x, (16, 768, 768, 4), "linear"), x)
    assert [bool(fusible(op, device("h200"))) for op in dots(graph)] == [True, True]


def eyes() -> Array:
    return jnp.eye(80) + jnp.zeros((2, 1, 1))


#: Products of x [96, 80] that stay.
STAY: dict[str, Callable[[Array], Array]] = {
    "of data": lambda x: x @ x.T,
    "with a dense matrix": lambda x: x @ jnp.arange(6400.0).reshape(80, 80),
    "with infinities": lambda x: x @ jnp.where(jnp.eye(80) > 0, jnp.inf, 0.0),
    "with a matrix that data moves": lambda x: x @ jnp.where(jnp.eye(80) > x[0, 0], 1.0, 0.0),
    "with few rows": lambda x: x[:, :12] @ jnp.tri(12, 12, 3),
    "in batches": lambda x: jnp.einsum("abk,bkm->abm", x.reshape(48, 2, 80), eyes()),
}  # fmt: skip


@pytest.mark.parametrize("name", STAY)
def test_other_products_stay(name: str) -> None:
    graph = whole_of(STAY[name], X[0, :, :, 0])
    assert [is_banded(dot) for dot in dots(graph)] == [False]
    assert with_banded_products(graph) is graph


def test_strict_numerics_multiply_by_every_0() -> None:
    graph = whole_of(PROGRAMS["twice as large"], X)
    strict = Settings.of(device("h200"), CodegenOptions("strict"))
    assert dots(rewritten(graph, strict, None, NOBODY))
    assert not dots(rewritten(graph, Settings.of(device("h200"), CodegenOptions()), None, NOBODY))


@given(
    rows=st.integers(8, 200),
    columns=st.integers(1, 120),
    scale=st.floats(0.3, 3),
    taps=st.integers(1, 9),
)
def test_bands_are_found_where_they_lie(rows: int, columns: int, scale: float, taps: int) -> None:
    """Against the matrix itself."""

    def matrix() -> Array:
        i, j = jnp.arange(rows)[:, None], jnp.arange(columns)
        apart = i - jnp.floor(j * F32(scale))
        return jnp.where((apart >= 0) & (apart < taps), 1.0 + apart, 0.0)

    graph = whole_of(lambda x: x @ matrix(), np.zeros((5, rows), F32))
    [dot] = dots(graph)
    band = known_band(dot.operands[1], 0)
    whole = np.asarray(matrix())
    if band is None:
        assert taps * LEAST_SPARED > rows or taps > MOST_TAPS
        return
    found = np.zeros_like(whole)
    for tap, weights in enumerate(band.weights):
        found[band.starts + tap, np.arange(columns)] = weights
    np.testing.assert_array_equal(found, whole)
