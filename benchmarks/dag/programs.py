"""The six benchmarks of GrCUDA's paper, at a size and with a number of threads in a block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.dag.program import Program, Sizes, Step, noise

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
#: Threads of a block, and what two and three dimensions make of them.
BLOCKS = (32, 128, 256, 1024)
_SQUARE: dict[int, Sizes] = {32: (8, 4), 128: (16, 8), 256: (16, 16), 1024: (32, 32)}
_CUBE: dict[int, Sizes] = {32: (4, 4, 2), 128: (8, 4, 4), 256: (8, 8, 4), 1024: (16, 8, 8)}
#: Blocks of a launch, as in the paper.
_GRID, _GRID_ML, _GRID_IMG = 448, 64, 32

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


def img(side: int, block: int, grid: int = _GRID_IMG) -> Program:
    n, square = side * side, _SQUARE[block]

    def step(kernel: str, *args: Any, **hand: Any) -> Step:
        if kernel in ("blur", "sobel"):
            return Step(kernel, args, (grid, grid), square, **hand)
        return Step(kernel, args, (grid * 14,), (block,), **hand)

    def expected(x: Mapping[str, Any]) -> np.ndarray:
        image = x["image"].astype(D).reshape(side, side)
        small = _filtered(image, x["k_small"].astype(D).reshape(3, 3))
        large = _filtered(image, x["k_large"].astype(D).reshape(5, 5))
        blurred = _filtered(image, x["k_unsharpen"].astype(D).reshape(3, 3))
        mask_small, mask_large = _sobel(small), _sobel(large)
        low, high = mask_large.min(), mask_large.max()
        mask_large = np.minimum(5 * (mask_large - low) / (high - low), 1)
        sharp = np.clip(image * 1.5 - blurred * 0.5, 0, 1)
        image2 = sharp * mask_large + large * (1 - mask_large)
        return (image2 * mask_small + small * (1 - mask_small)).reshape(-1)

    names = "small large unsharpen mask_small mask_large sharp image2 image3"
    return Program(
        "img",
        side,
        block,
        {
            "blur": f"{_READ}, {_WRITE}, sint32, {_READ}, sint32",
            "sobel": f"{_READ}, {_WRITE}, sint32",
            "maximum": f"{_READ}, {_WRITE}, sint32",
            "minimum": f"{_READ}, {_WRITE}, sint32",
            "extend": f"{_WRITE}, {_READ}, {_READ}, sint32",
            "unsharpen": f"{_READ}, {_READ}, {_WRITE}, float, sint32",
            "combine": f"{_READ}, {_READ}, {_READ}, {_WRITE}, sint32",
        },
        {
            "image": noise(n),
            "k_small": _gauss(3, 1),
            "k_large": _gauss(5, 10),
            "k_unsharpen": _gauss(3, 5),
            "most": ((1,), F),
            "least": ((1,), F),
            **dict.fromkeys(names.split(), ((n,), F)),
        },
        (
            step("blur", "image", "small", side, "k_small", 3),
            step("blur", "image", "large", side, "k_large", 5, stream=1),
            step("blur", "image", "unsharpen", side, "k_unsharpen", 3, stream=2),
            step("sobel", "small", "mask_small", side),
            step("sobel", "large", "mask_large", side, stream=1),
            step("maximum", "mask_large", "most", n, stream=1),
            step("minimum", "mask_large", "least", n, stream=3, after=(4,)),
            step("extend", "mask_large", "least", "most", n, stream=1, after=(6,)),
            step("unsharpen", "image", "unsharpen", "sharp", 0.5, n, stream=2),
            step("combine", "sharp", "large", "mask_large", "image2", n, stream=1, after=(8,)),
            step("combine", "image2", "small", "mask_small", "image3", n, stream=1, after=(3,)),
        ),
        sent=("image",),
        reset={"most": 0.0, "least": 3e38},
        results=("image3",),
        compared="image3",
        expected=expected,
    )


def _gauss(diameter: int, sigma: float) -> np.ndarray:
    at = np.arange(diameter) - diameter // 2
    weights = np.exp(-(at[:, None] ** 2 + at**2) / (2 * sigma * sigma))
    return (weights / weights.sum()).astype(F).reshape(-1)


def _filtered(image: np.ndarray, weights: np.ndarray) -> np.ndarray:
    side, radius = len(image), len(weights) // 2
    padded = np.pad(image, radius, mode="edge")
    return sum(
        weights[y, x] * padded[y : y + side, x : x + side] for y, x in np.ndindex(weights.shape)
    )


def _sobel(image: np.ndarray) -> np.ndarray:
    dx = _filtered(image, np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]]))
    dy = _filtered(image, np.array([[-1, -2, -1], [0, 0, 0], [1, 2, 1]]))
    return np.sqrt(dx * dx + dy * dy)


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


def dl(side: int, block: int, grid: int = 16) -> Program:
    first = (side - 3) // 2 + 1
    second = first // 5
    third = (second - 3) // 2 + 1
    n, cube = third * third * 16, _CUBE[block]

    def step(kernel: str, *args: Any, **hand: Any) -> Step:
        if kernel in ("conv", "pool"):
            return Step(kernel, args, (grid, grid, 2), cube, **hand)
        return Step(kernel, (*args, n * (2 if kernel == "dot" else 1)), (448,), (block,), **hand)

    def expected(x: Mapping[str, Any]) -> np.ndarray:
        z = np.concatenate(
            [
                _conv(
                    _pool(_conv(x[name].astype(D).reshape(side, side, 1), x[k1], 8)), x[k2], 16
                ).reshape(-1)
                for name, k1, k2 in (("x", "kx1", "kx2"), ("y", "ky1", "ky2"))
            ]
        )
        return np.array([z @ x["dense"].astype(D)])

    def branch(x: str, stream: int) -> tuple[Step, Step, Step]:
        return (
            step("conv", f"{x}1", x, f"k{x}1", side, 1, first, 8, 2, stream=stream),
            step("pool", f"{x}2", f"{x}1", first, second, 8, stream=stream),
            step("conv", f"{x}3", f"{x}2", f"k{x}2", second, 8, third, 16, 2, stream=stream),
        )

    (cx1, px, cx2), (cy1, py, cy2) = branch("x", 0), branch("y", 1)
    sizes = {"1": first * first * 8, "2": second * second * 8, "3": n}
    return Program(
        "dl",
        side,
        block,
        {
            "conv": f"{_WRITE}, {_READ}, {_READ}, sint32, sint32, sint32, sint32, sint32",
            "pool": f"{_WRITE}, {_READ}, sint32, sint32, sint32",
            "concat": f"{_WRITE}, {_READ}, {_READ}, sint32",
            "dot": f"{_READ}, {_READ}, {_WRITE}, sint32",
        },
        {
            "x": noise(side * side),
            "y": noise(side * side, seed=1),
            **{f"k{x}1": noise(72, seed=2) - F(0.3) for x in "xy"},
            **{f"k{x}2": noise(1152, seed=3) - F(0.4) for x in "xy"},
            "dense": noise(2 * n, seed=4) / F(2 * n),
            **{f"{x}{i}": ((size,), F) for x in "xy" for i, size in sizes.items()},
            "z": ((2 * n,), F),
            "res": ((1,), F),
        },
        (
            cx1,
            cy1,
            px,
            py,
            cx2,
            cy2,
            step("concat", "z", "x3", "y3", after=(5,)),
            step("dot", "z", "dense", "res"),
        ),
        sent=("x", "y"),
        reset={"res": 0.0},
        results=("res",),
        compared="res",
        expected=expected,
    )


def _conv(x: np.ndarray, weights: np.ndarray, channels: int) -> np.ndarray:
    side = (len(x) - 3) // 2 + 1
    k = weights.astype(D).reshape(channels, 3, 3, x.shape[2])
    made = sum(
        x[i : i + 2 * side : 2, j : j + 2 * side : 2][:side, :side] @ k[:, i, j].T
        for i, j in np.ndindex(3, 3)
    )
    return np.maximum(made, 0)


def _pool(x: np.ndarray) -> np.ndarray:
    side = len(x) // 5
    return x[: side * 5, : side * 5].reshape(side, 5, side, 5, -1).mean((1, 3))


PROGRAMS: dict[str, Callable[..., Program]] = {
    "vec": vec,
    "bs": bs,
    "img": img,
    "ml": ml,
    "hits": hits,
    "dl": dl,
}
