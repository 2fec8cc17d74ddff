"""Functions of floats against float64 over all exponents: default numerics, results of 16 bits,
numerics="fast", and special values.

The emulator has the host's functions instead of the GPU's special-function unit: there the sweep
tests the formulas, on a GPU the instructions too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

from fusionstitch.codegen.text.expressions import Spelt, expression
from fusionstitch.hlo.graph import Op, Shape
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.numeric import ELEMENTWISE
from tests.codegen.small_kernels import Launch, on_emulator, on_gpu

Function = Callable[..., np.ndarray]


def logistic(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


#: opcode -> (exact function, greatest error of an f32 result in units of its last place)
FUNCTIONS: dict[str, tuple[Function, float]] = {
    # div.full promises a relative error of 2^-22, up to four places just below a power of two
    "divide": (np.divide, 4),
    "sqrt": (np.sqrt, 1),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 2),
    "logistic": (logistic, 4),
    "exponential": (np.exp, 2),
    "exponential-minus-one": (np.expm1, 2),
    "log": (np.log, 1),
    "log-plus-one": (np.log1p, 2),
    "tanh": (np.tanh, 2),
    "erf": (np.vectorize(math.erf, otypes=[np.float64]), 1.1),
    "inverse-erf": (ELEMENTWISE["inverse-erf"], 3),
    "cbrt": (np.cbrt, 1),
}
#: The same with numerics="fast": greatest relative error, or absolute where the result is smaller
#: than 1; and the arguments that are meant (where results are normal numbers).
FAST: dict[str, tuple[float, float, float]] = {
    "divide": (3e-7, 1e-18, 1e18),
    "exponential": (2.0**-16, -87, 88),
    "logistic": (2.0**-16, -87, 88),
    "log": (2.0**-21, 1e-37, 3e38),
    "tanh": (2.0**-10.9, -20, 20),
}


def all_exponents(size: int = 1 << 15) -> np.ndarray:
    """f32 bit patterns at random, and as many around 1 and in -100..100."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, size, np.uint64).astype(np.uint32).view(np.float32)
    near = 1 + rng.standard_normal(size) * 2.0 ** -rng.integers(1, 24, size)
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0**-149, 2.0**-126, 3.4e38, -3.4e38]
    drawn = [near, rng.uniform(-100, 100, size), np.array(edges)]
    found: np.ndarray = np.concatenate([bits, *(x.astype(np.float32) for x in drawn)])
    return found


@dataclass(frozen=True)
class Sweep:
    """One op over a set of arguments."""

    opcode: str
    dtype: str
    numerics: str

    @property
    def arguments(self) -> list[np.ndarray]:
        x = all_exponents()
        if self.opcode == "inverse-erf":  # there it is defined
            inside = np.random.default_rng(2).uniform(-1, 1, x.size)
            x = np.concatenate([x, inside.astype(np.float32)])
        count = 2 if self.opcode == "divide" else 1
        order = np.random.default_rng(1).permutation(x.size)
        kind = NUMPY_DTYPES[self.dtype]
        with np.errstate(all="ignore"):
            return [np.ascontiguousarray(v.astype(kind)) for v in (x, x[order])[:count]]

    def launch(self) -> Launch:
        arguments = self.arguments
        operands = tuple(Op("parameter", Shape(self.dtype, (1,))) for _ in arguments)
        op = Op(self.opcode, Shape(self.dtype, (1,)), operands)
        values = [Spelt("fs_load(a[i])"), Spelt("fs_load(b[i])")][: len(arguments)]
        name = f"{self.opcode}_{self.dtype}_{self.numerics}".replace("-", "_")
        text = expression(op, values, self.numerics).text
        return Launch.elementwise(name, text, arguments, self.dtype)

    def exact(self) -> np.ndarray:
        with np.errstate(all="ignore"):
            return FUNCTIONS[self.opcode][0](*[x.astype(np.float64) for x in self.arguments])


SWEEPS = [
    *(Sweep(opcode, "f32", numerics) for opcode in FUNCTIONS for numerics in ("default", "strict")),
    *(Sweep(opcode, dtype, "default") for opcode in FUNCTIONS for dtype in ("bf16", "f16")),
    *(Sweep(opcode, "f32", "fast") for opcode in FAST),
]


@np.errstate(all="ignore")
def check(sweep: Sweep, result: np.ndarray) -> None:
    exact = sweep.exact()
    rounded = exact.astype(result.dtype).astype(np.float64)
    found = result.astype(np.float64)
    if sweep.numerics == "fast":
        bound, low, high = FAST[sweep.opcode]
        meant = np.isfinite(rounded)
        for x in sweep.arguments:
            size = np.abs(x) if low > 0 else x
            meant &= (low <= size) & (size <= high)
        off = np.abs(found[meant] - exact[meant])
        scale = np.abs(exact[meant])
        assert np.all(off <= bound * (np.maximum(scale, 1) if sweep.opcode == "log" else scale))
        return
    finite = np.isfinite(rounded) & np.isfinite(found)
    special = ~finite
    limits = ml_dtypes.finfo(result.dtype)
    # at the edge of the range an error of an ulp makes the difference between finite and not
    edge = np.abs(exact) >= float(limits.max)
    np.testing.assert_array_equal(found[special & ~edge], rounded[special & ~edge])
    _, exponent = np.frexp(np.where(finite, exact, 1.0))
    smallest = int(np.log2(float(limits.smallest_subnormal)))
    ulp = np.ldexp(1.0, np.maximum(exponent - limits.nmant - 1, smallest))
    tiny = np.abs(exact) < float(limits.tiny)  # those may be flushed to zero
    error = np.abs(found - np.where(finite, exact, 0)) / ulp
    error = np.where(tiny & (np.abs(found) <= float(limits.tiny)), 0, error)
    bound = FUNCTIONS[sweep.opcode][1] if sweep.dtype == "f32" else 0.7
    worst = int(np.argmax(np.where(finite, error, 0)))
    at = [x[worst] for x in sweep.arguments]
    assert error[worst] <= bound, (at, result[worst], exact[worst])


@pytest.fixture(scope="module")
def emulated() -> dict[Sweep, np.ndarray]:
    launches = [sweep.launch() for sweep in SWEEPS]
    return dict(zip(SWEEPS, on_emulator(launches), strict=True))


@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda s: f"{s.opcode}-{s.dtype}-{s.numerics}")
def test_a_function(sweep: Sweep, emulated: dict[Sweep, np.ndarray]) -> None:
    check(sweep, emulated[sweep])


@pytest.mark.gpu
def test_all_functions_on_the_gpu() -> None:
    for sweep, result in zip(SWEEPS, on_gpu([s.launch() for s in SWEEPS]), strict=True):
        check(sweep, result)
