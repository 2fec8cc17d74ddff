"""IMG and DL: the benchmarks whose kernels have two and three dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.dag.program import Program, Sizes, Step, noise

#: What two and three dimensions make of the threads of a block.
_SQUARE: dict[int, Sizes] = {32: (8, 4), 128: (16, 8), 256: (16, 16), 1024: (32, 32)}
_CUBE: dict[int, Sizes] = {32: (4, 4, 2), 128: (8, 4, 4), 256: (8, 8, 4), 1024: (16, 8, 8)}
#: Blocks of a launch in each of two dimensions, in the paper.
_GRID_IMG = 32

F, D = np.float32, np.float64
_READ, _WRITE = "const pointer float", "inout pointer float"


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
