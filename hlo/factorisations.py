"""Factorisations of matrices, and solves by them, which JAX has libraries do: custom calls.

    potrf             a[..., n, n]  ->  (a with the Cholesky factor in one triangle, info)
    getrf             a[..., n, n]  ->  (L below the diagonal and U, the rows swapped in turn, info)
    lu-permutation    the order of rows that such swaps make
    triangular-solve  the x of a x = b, or x a = b, for one triangle of a: HLO's, or a custom call

The names are LAPACK's, as its numbers are: `getrf` counts rows from 1 (`lu-permutation` from 0). An
info of 0 means that the factorization exists. Otherwise it is the number, from 1, of the first
pivot for which it does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fusionstitch.hlo.graph import Op, Shape

#: The opcode of each custom call; those of the host have LAPACK's letters of types.
ROUTINES: Mapping[str, str] = {
    "cusolver_potrf_ffi": "potrf",
    "lapack_spotrf_ffi": "potrf",
    "lapack_dpotrf_ffi": "potrf",
    "cusolver_getrf_ffi": "getrf",
    "lapack_sgetrf_ffi": "getrf",
    "lapack_dgetrf_ffi": "getrf",
    "cu_lu_pivots_to_permutation": "lu-permutation",
    "lapack_strsm_ffi": "triangular-solve",
    "lapack_dtrsm_ffi": "triangular-solve",
}
_ENTRY = re.compile(r"(\w+) = (\w+)")
#: Of the ways to transpose the matrix of HLO's solve, not at all.
_NONE = 1


def routine(proto: Any, op: Op) -> tuple[str, dict[str, Any]] | None:
    """The opcode of a custom call of a library and its attributes; None for any other, and where
    operands and results are not those of the routine."""
    opcode = ROUTINES.get(proto.custom_call_target)
    if opcode is None or _shape(opcode, [x.shape for x in op.operands]) != op.shape:
        return None
    config = bytes(proto.backend_config).decode(errors="replace")
    entries = dict(_ENTRY.findall(config))

    def says(name: str, letter: str) -> bool:
        return entries.get(name) == str(ord(letter))

    attrs = dict(op.attrs)
    if opcode == "potrf":
        attrs["lower"] = says("uplo", "L") or entries.get("lower") == "true"
    elif opcode == "triangular-solve":
        attrs |= {"left": says("side", "L"), "lower": says("uplo", "L")}
        attrs |= {"unit": says("diag", "U"), "transposed": not says("trans_x", "N")}
    return opcode, attrs


def _shape(opcode: str, given: Sequence[Shape]) -> Shape | None:
    """What a routine gives for operands of these shapes; None where it takes no such ones."""
    if len(given) != (2 if opcode == "triangular-solve" else 1) or given[0].rank < 1:
        return None
    x, info = given[0], Shape("s32", given[0].dims[:-2])
    swaps = Shape("s32", x.dims[:-1])
    results = {"potrf": (x, info), "getrf": (x, swaps, info)}.get(opcode)
    return given[-1] if results is None else Shape("tuple", (), results)


def solve_attributes(proto: Any) -> dict[str, Any]:
    """Of HLO's triangular-solve: whether the matrix is on the left, has a lower triangle, ones on
    its diagonal, and is transposed."""
    options = proto.triangular_solve_options
    return {
        "left": options.left_side,
        "lower": options.lower,
        "unit": options.unit_diagonal,
        "transposed": options.transpose_a > _NONE,
    }


# ---- references ----------------------------------------------------------------------------------


def _potrf(op: Op, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    lower = op.attrs["lower"]
    n, work = a.shape[-1], np.array(a if lower else a.swapaxes(-1, -2))
    info = np.zeros(a.shape[:-2], np.int32)
    for k in range(n):
        pivot = work[..., k, k] - (work[..., k, :k] ** 2).sum(-1)
        info = np.where((info == 0) & ~(pivot > 0), k + 1, info).astype(np.int32)
        work[..., k, k] = np.sqrt(pivot)
        for i in range(k + 1, n):
            rest = work[..., i, k] - (work[..., i, :k] * work[..., k, :k]).sum(-1)
            work[..., i, k] = rest / work[..., k, k]
    return (work if lower else work.swapaxes(-1, -2)), info


def _getrf(_: Op, a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    work, n = np.array(a), a.shape[-1]
    swaps = np.zeros(a.shape[:-1], np.int32)
    info = np.zeros(a.shape[:-2], np.int32)
    for k in range(n):
        found = k + np.abs(work[..., k:, k]).argmax(-1)
        swaps[..., k] = found + 1
        at = found[..., None, None]
        there = np.take_along_axis(work, at, -2)
        here = work[..., k : k + 1, :].copy()
        np.put_along_axis(work, np.broadcast_to(at, (*here.shape[:-1], 1)), here, -2)
        work[..., k : k + 1, :] = there
        pivot = work[..., k, k]
        info = np.where((info == 0) & (pivot == 0), k + 1, info).astype(np.int32)
        with np.errstate(all="ignore"):
            scale = np.where(pivot == 0, 1, pivot)[..., None]
        work[..., k + 1 :, k] /= scale
        work[..., k + 1 :, k + 1 :] -= work[..., k + 1 :, k : k + 1] * work[..., k : k + 1, k + 1 :]
    return work, swaps, info


def _permutation(op: Op, swaps: np.ndarray) -> np.ndarray:
    order = np.broadcast_to(np.arange(op.dims[-1], dtype=np.int32), op.dims).copy()
    for k in range(swaps.shape[-1]):
        at = swaps[..., k : k + 1]
        there, here = np.take_along_axis(order, at, -1), order[..., k : k + 1].copy()
        np.put_along_axis(order, at, here, -1)
        order[..., k : k + 1] = there
    return order


def _solve(op: Op, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    attrs = op.attrs
    triangle = np.tril(a) if attrs["lower"] else np.triu(a)
    if attrs["unit"]:
        n = a.shape[-1]
        triangle = triangle * (1 - np.eye(n, dtype=a.dtype)) + np.eye(n, dtype=a.dtype)
    if attrs["transposed"]:
        triangle = triangle.swapaxes(-1, -2)
    if attrs["left"]:
        return np.linalg.solve(triangle, b)
    return np.linalg.solve(triangle.swapaxes(-1, -2), b.swapaxes(-1, -2)).swapaxes(-1, -2)


#: opcode -> its value, of the op and its operands' values.
REFERENCES: Mapping[str, Callable[..., Any]] = {
    "potrf": _potrf,
    "getrf": _getrf,
    "lu-permutation": _permutation,
    "triangular-solve": _solve,
}
