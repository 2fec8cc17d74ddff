"""The six benchmarks of GrCUDA's paper, at a size and with a number of threads in a block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.dag.images import dl, img
from benchmarks.dag.program import Program, Step, noise

#: The sizes of the paper's P100, and ones for a CPU.
SIZES: dict[str, tuple[int, ...]] = {
    "vec": (120_000_000, 200_000_000, 500_000_000, 600_000_000, 700_000_000),
    "bs": (12_000_000, 20_000_000, 50_000_000, 60_000_000, 70_000_000),
    "img": (4800, 8000, 10_000, 12_000, 16_000),
    "ml": (1_200_000, 2_000_000, 4_000_000, 5_000_000, 6_000_000),
    "hits": (20_000_000, 40_000_000, 60_000_000, 100_000_000, 140_000_000),
    "dl": (7000, 10_000, 12_000, 14_000, 16_000),
}
TINY = {"vec": 500, "bs": 60, "img": 12, "ml": 96, "hits": 90, "dl": 63}
#: Threads of a block.
BLOCKS = (32, 128, 256, 1024)
#: Blocks of a launch, as in the paper.
_GRID, _GRID_ML = 448, 64

F, D, INT = np.float32, np.float64, np.int32
_READ, _WRITE = "const pointer float", "inout pointer float"


def vec(n: int, block: int, grid: int = _GRID) -> Program:
    def step(kernel: str, *args: Any, **hand: Any) -> Step:
        return Step(kernel, args, (grid,), (block,), **hand)

    def expected(x: Mapping[str, Any]) -> np.ndarray:
        return np.array([(x["x"].astype(D) ** 2 - x["y"].astype(D) ** 2).sum()])

    return Program(
        "vec",
        n,
        block,
        {
            "square": f"{_READ}, {_WRITE}, sint32",
            "reduce": f"{_READ}, {_READ}, {_WRITE}, sint32",
        },
        {
            "x": noise(n),
            "y": noise(n, seed=1) * F(0.5),
            "x1": ((n,), F),
            "y1": ((n,), F),
            "res": ((1,), F),
        },
        (
            step("square", "x", "x1", n),
            step("square", "y", "y1", n, stream=1),
            step("reduce", "x1", "y1", "res", n, after=(1,)),
        ),
        sent=("x", "y"),
        reset={"res": 0.0},
        results=("res",),
        compared="res",
        expected=expected,
    )


def bs(n: int, block: int, grid: int = _GRID) -> Program:
    constants = (0.08, 0.3, 1.0, 60.0)

    def expected(x: Mapping[str, Any]) -> np.ndarray:
        # K is discounted here as in the kernel; the reference's check discounts x
        r, v, t, k = constants
        d1 = (np.log(x["x0"] / k) + (r + 0.5 * v * v) * t) / (v * np.sqrt(t))
        return x["x0"] * _normal(d1) - k * np.exp(-r * t) * _normal(d1 - v * np.sqrt(t))

    many = range(10)
    return Program(
        "bs",
        n,
        block,
        {"bs": "const pointer double, inout pointer double, sint32, " + ", ".join(["double"] * 4)},
        {f"x{i}": 40.0 + 40.0 * noise(n, D, seed=i) for i in many}
        | {f"y{i}": ((n,), D) for i in many},
        tuple(
            Step("bs", (f"x{i}", f"y{i}", n, *constants), (grid,), (block,), stream=i) for i in many
        ),
        sent=tuple(f"x{i}" for i in many),
        results=tuple(f"y{i}" for i in many),
        compared="y0",
        expected=expected,
    )


def _normal(d: np.ndarray) -> np.ndarray:
    k = 1.0 / (1.0 + 0.2316419 * np.abs(d))
    series = [0.31938153, -0.356563782, 1.781477937, -1.821255978, 1.330274429]
    tail = (
        np.exp(-0.5 * d * d)
        / np.sqrt(2 * np.pi)
        * sum(a * k ** (i + 1) for i, a in enumerate(series))
    )
    return np.where(d > 0, 1 - tail, tail)


def ml(n: int, block: int, grid: int = _GRID_ML) -> Program:
    def step(kernel: str, *args: Any, **hand: Any) -> Step:
        return Step(kernel, (*args, n), (grid,), (block,), **hand)

    def expected(x: Mapping[str, Any]) -> np.ndarray:
        rows = x["x"].astype(D).reshape(n, 200)
        z = (rows - rows.mean(0)) / rows.std(0)
        naive = rows @ x["F"].astype(D).reshape(10, 200).T
        naive = np.exp(naive - np.logaddexp.reduce(naive, 1, keepdims=True))
        ridge = z @ x["C"].astype(D).reshape(10, 200).T + x["bias"]
        return (_softmax(naive) + _softmax(ridge)).argmax(1)

    return Program(
        "ml",
        n,
        block,
        {
            "rr_1": f"{_READ}, {_WRITE}, sint32",
            "nb_1": f"{_READ}, {_READ}, {_WRITE}, sint32",
            "rr_2": f"{_READ}, {_READ}, {_WRITE}, sint32",
            "nb_2": f"{_READ}, {_WRITE}, sint32",
            "nb_3": f"{_READ}, {_READ}, {_WRITE}, sint32",
            "rr_3": f"{_WRITE}, {_READ}, sint32",
            "nb_4": f"{_WRITE}, {_READ}, sint32",
            "softmax": f"{_WRITE}, sint32",
            "argmax": f"{_READ}, {_READ}, inout pointer sint32, sint32",
        },
        {
            "x": np.floor(noise(n * 200) * F(10)),
            "F": noise(2000, seed=1) * F(0.02),
            "C": noise(2000, seed=2) - F(0.5),
            "bias": noise(10, seed=3),
            "z": ((n * 200,), F),
            "r1": ((n * 10,), F),
            "r2": ((n * 10,), F),
            "largest": ((n,), F),
            "logarithm": ((n,), F),
            "r": ((n,), INT),
        },
        (
            step("rr_1", "x", "z"),
            step("nb_1", "x", "F", "r1", stream=1),
            step("rr_2", "z", "C", "r2"),
            step("nb_2", "r1", "largest", stream=1),
            step("nb_3", "r1", "largest", "logarithm", stream=1),
            step("rr_3", "r2", "bias"),
            step("nb_4", "r1", "logarithm", stream=1),
            step("softmax", "r1", stream=1),
            step("softmax", "r2"),
            step("argmax", "r1", "r2", "r", after=(7,)),
        ),
        sent=("x",),
        results=("r",),
        compared="r",
        expected=expected,
    )


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def hits(n: int, block: int, grid: int = _GRID, iterations: int = 5) -> Program:
    """A graph of `n` vertices with three edges out of each and three into each."""
    multipliers, degree = _coprime(n), 3
    columns = np.empty((n, degree), INT)
    rows = np.empty((n, degree), INT)
    vertex = np.arange(n, dtype=np.int64)
    for edge, a in enumerate(multipliers):
        columns[:, edge] = (a * vertex + edge) % n
        rows[:, edge] = pow(a, -1, n) * (vertex - edge) % n  # the vertices that lead here
    starts = np.arange(0, degree * n + 1, degree, dtype=INT)

    def step(kernel: str, *args: Any, **hand: Any) -> Step:
        return Step(kernel, (*args, n), (grid,), (block,), **hand)

    def expected(x: Mapping[str, Any]) -> np.ndarray:
        authority, hub = x["auth1"].astype(D), x["hub1"].astype(D)
        for _ in range(iterations):
            next_authority = hub[rows].sum(1)
            next_hub = authority[columns].sum(1)
            authority, hub = next_authority / next_authority.sum(), next_hub / next_hub.sum()
        return authority

    spmv = f"const pointer sint32, const pointer sint32, {_READ}, {_READ}, {_WRITE}, sint32"
    return Program(
        "hits",
        n,
        block,
        {
            "spmv": spmv,
            "sum": f"{_READ}, {_WRITE}, sint32",
            "divide": f"{_READ}, {_WRITE}, {_READ}, sint32",
        },
        {
            "starts": starts,
            "starts2": starts,
            "columns": columns.reshape(-1),
            "rows": rows.reshape(-1),
            "values": np.ones(degree * n, F),
            "values2": np.ones(degree * n, F),
            "auth1": noise(n) + F(0.5),
            "hub1": noise(n, seed=1) + F(0.5),
            "auth2": ((n,), F),
            "hub2": ((n,), F),
            "auth_norm": ((1,), F),
            "hub_norm": ((1,), F),
        },
        (
            step("spmv", "starts2", "rows", "values2", "hub1", "auth2"),
            step("spmv", "starts", "columns", "values", "auth1", "hub2", stream=1),
            step("sum", "auth2", "auth_norm"),
            step("sum", "hub2", "hub_norm", stream=1),
            step("divide", "auth2", "auth1", "auth_norm", after=(1,)),
            step("divide", "hub2", "hub1", "hub_norm", stream=1, after=(0,)),
        ),
        sent=("auth1", "hub1"),
        reset={"auth_norm": 0.0, "hub_norm": 0.0},
        results=("auth1", "hub1"),
        compared="auth1",
        expected=expected,
        iterations=iterations,
    )


def _coprime(n: int) -> list[int]:
    """Three numbers far apart that have no factor in common with `n`."""
    found: list[int] = []
    candidate = n * 5 // 13
    while len(found) < 3:
        candidate += 1
        if np.gcd(candidate, n) == 1:
            found.append(candidate)
            candidate += n // 7
    return found


PROGRAMS: dict[str, Callable[..., Program]] = {
    "vec": vec,
    "bs": bs,
    "img": img,
    "ml": ml,
    "hits": hits,
    "dl": dl,
}
