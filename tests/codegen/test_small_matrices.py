"""Factorisations and solves of small matrices in kernels, against NumPy and jax.jit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as linalg
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.codegen.generate import generate
from fusionstitch.codegen.rewrite.region import region
from fusionstitch.codegen.rewrite.small_matrices import MOST_ROWS, is_small
from fusionstitch.codegen.settings import CodegenOptions
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.factorisations import ROUTINES
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.hlo.semantics import FACTORS
from fusionstitch.hlo.simplify import simplify
from fusionstitch.hlo.text import text_to_proto
from fusionstitch.patterns.fusible import fusible
from tests.codegen.regions import Case, build, whole

CHECKED = CodegenOptions(check=True)


def for_gpus(fun: Callable[..., Any], *args: Any) -> Graph:
    """The region of a function as JAX lowers it for GPUs."""
    wide = any(np.dtype(a.dtype).itemsize == 8 for a in args)
    with jax.enable_x64(wide):
        lowered = jax.jit(fun).trace(*args).lower(lowering_platforms=("cuda",))
        module = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    return whole(simplify(from_proto(inline_calls(module)).entry))


def drawn(*dims: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(dims).standard_normal(dims).astype(dtype)


def definite(*dims: int, dtype: Any = np.float32) -> np.ndarray:
    a = drawn(*dims, dtype=dtype)
    return (a @ a.swapaxes(-1, -2) + dims[-1] * np.eye(dims[-1])).astype(dtype)


def rows_to_swap(*dims: int) -> np.ndarray:
    """Matrices that are well conditioned, whose pivots lie on the other diagonal."""
    return np.flip(definite(*dims), -2).copy()


def log_density(x, mean, covariance):  # type: ignore[no-untyped-def]
    factor = jnp.linalg.cholesky(covariance)
    z = linalg.solve_triangular(factor, (x - mean)[..., None], lower=True)[..., 0]
    return -0.5 * (z * z).sum(-1) - jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)


def gradient(a, b):  # type: ignore[no-untyped-def]
    def loss(a):  # type: ignore[no-untyped-def]
        factor = linalg.cho_factor(a)
        return (linalg.cho_solve(factor, b) * b).sum()

    return jax.grad(loss)(a)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    **{f"cholesky {n}": (jnp.linalg.cholesky, (definite(11, n, n),)) for n in (1, 2, 5, 12)},
    "cholesky upper": (lambda a: jnp.linalg.cholesky(a, upper=True), (definite(7, 3, 3),)),
    "cholesky wide": (jnp.linalg.cholesky, (definite(5, 4, 4, dtype=np.float64),)),
    "cholesky of one": (jnp.linalg.cholesky, (definite(4, 4),)),
    "log density": (log_density, (drawn(2, 9, 4), drawn(4), definite(2, 9, 4, 4))),
    "gradient": (gradient, (definite(13, 3, 3), drawn(13, 3, 2))),
    **{f"inverse {n}": (jnp.linalg.inv, (rows_to_swap(12, n, n),)) for n in (2, 3, 6)},
    "solve": (jnp.linalg.solve, (rows_to_swap(9, 4, 4), drawn(9, 4, 3))),
    "determinant": (jnp.linalg.det, (drawn(20, 5, 5),)),
    "log determinant": (jnp.linalg.slogdet, (drawn(20, 4, 4),)),
    "whitened": (
        lambda a, b: linalg.solve_triangular(jnp.tril(a), b.T, lower=True).sum(0),
        (definite(16, 16), drawn(40, 16)),
    ),
    "solves": (
        lambda a, b: [
            linalg.solve_triangular(a, b, lower=lower, trans=trans, unit_diagonal=unit)
            for lower in (False, True)
            for trans in (0, 1)
            for unit in (False, True)
        ],
        (definite(6, 3, 3), drawn(6, 3, 2)),
    ),
}


@pytest.fixture(scope="module")
def built() -> Any:
    cases = {
        name: Case(
            for_gpus(fun, *args),
            args,
            options=CHECKED,
            limit=5e-6 if args[0].itemsize < 8 else None,
        )
        for name, (fun, args) in PROGRAMS.items()
    }
    return cases, build(cases.values())


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_have_the_values_of_jax(name: str, built: Any) -> None:
    cases, kernels = built
    case = cases[name]
    assert any(op.opcode in FACTORS for op in case.graph)
    kernels.check(case, "random", 5)
    fun, args = PROGRAMS[name]
    with jax.enable_x64(args[0].itemsize == 8):
        expected = jax.tree.leaves(fun(*args))
    for got, one in zip(kernels.run(case), expected, strict=True):
        np.testing.assert_allclose(got, one, rtol=1e-4, atol=1e-5)


def test_each_matrix_is_one_threads() -> None:
    kernel = generate(for_gpus(jnp.linalg.cholesky, definite(4096, 3, 3)), device("h200"))
    waits = [line for line in kernel.source.splitlines() if "__syncthreads" in line]
    assert all("_out_staged" in line for line in waits)  # on the way to memory
    assert kernel.source.count("fs_sqrt(") == 3


# ---- what has no factorisation -------------------------------------------------------------------


@pytest.mark.parametrize("fun", [jnp.linalg.cholesky, jnp.linalg.inv, jnp.linalg.slogdet])
def test_what_cannot_be_factorised_is_as_under_jax(fun: Callable[..., Any]) -> None:
    a = np.stack([np.eye(3), -np.eye(3), np.ones((3, 3)), np.diag([1.0, 0.0, 2.0])])
    case = Case(for_gpus(fun, a.astype(np.float32)), [a.astype(np.float32)], options=CHECKED)
    for got, one in zip(build([case]).run(case), jax.tree.leaves(fun(a)), strict=True):
        finite = np.isfinite(np.asarray(one))
        assert (np.isfinite(got) == finite).all()
        np.testing.assert_allclose(got[finite], np.asarray(one)[finite], rtol=1e-6)


def test_info_is_the_first_pivot_that_is_none() -> None:
    case = Case(_info(3, 3, 3), [_indefinite()], options=CHECKED)
    [info] = build([case]).run(case)
    assert info.tolist() == [0, 2, 3]


def _indefinite() -> np.ndarray:
    diagonals = [(1, 1, 1), (1, -1, 1), (1, 1, -1)]
    return np.stack([np.diag(one) for one in diagonals]).astype(np.float32)


def _info(*dims: int) -> Graph:
    """The number of the first such pivot, of a Cholesky factorisation."""
    graph = for_gpus(jnp.linalg.cholesky, np.zeros(dims, np.float32))
    parts = [op for op in graph if op.opcode == "get-tuple-element"]
    [info] = [op for op in parts if op.attrs["index"] == 1]
    expected = graph.reach[info.id]
    ops = [op for op in graph if expected >> op.id & 1 and op.opcode != "parameter"]
    return region("info", ops, graph.parameters, [info])


# ---- what is left to libraries -------------------------------------------------------------------


def first(graph: Graph) -> Op:
    return next(op for op in graph if op.opcode in FACTORS)


@pytest.mark.parametrize("opcode", ["potrf", "getrf", "triangular-solve"])
def test_large_matrices_are_left_to_libraries(opcode: str) -> None:
    n = MOST_ROWS[opcode]
    fun, *more = {
        "potrf": (jnp.linalg.cholesky,),
        "getrf": (jnp.linalg.det,),
        "triangular-solve": (linalg.solve_triangular, lambda n: (n, 2)),
    }[opcode]

    def verdict(n: int) -> Any:
        args = [drawn(4, n, n), *(drawn(4, *dims(n)) for dims in more)]
        return fusible(first(for_gpus(fun, *args)), device("h200"))

    assert verdict(n)
    refused = verdict(n + 1)
    assert not refused
    assert "too many rows" in refused.reason


def test_complex_matrices_are_left_to_libraries() -> None:
    graph = for_gpus(jnp.linalg.cholesky, definite(4, 3, 3).astype(np.complex64))
    assert not is_small(first(graph))
    assert not fusible(first(graph), device("h200"))


@pytest.mark.parametrize("target", ROUTINES)
def test_a_call_of_other_arrays_stays_a_call(target: str) -> None:
    """Another library may have a routine of the name."""
    text = (
        "HloModule m\n\nENTRY e {\n  p = f32[3,4] parameter(0)\n"
        f'  ROOT c = f32[7] custom-call(p), custom_call_target="{target}"\n}}\n'
    )
    graph = from_proto(text_to_proto(text)).entry
    assert graph.root.opcode == "custom-call"


# ---- for users -----------------------------------------------------------------------------------


def test_users_get_one_kernel(host_compiler: str) -> None:
    args = drawn(64, 4), drawn(4), definite(64, 4, 4)
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    compiled = fs.jit(log_density, options=options).lower(*args).compile()
    assert len(compiled.kernels) == 1
    np.testing.assert_allclose(compiled(*args), log_density(*args), rtol=1e-4, atol=1e-5)
