"""Small programs in which kernels may round otherwise than XLA: python -m benchmarks.rounding.

Each runs under jax.jit and, with every pattern stitched, under fs.jit. What is printed are the
errors of both against NumPy in float64: the norm of the difference by the norm of the result, the
largest over some draws of the arguments. The exit status is 1 if an error of ours is more than
twice XLA's and more than the type can help.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import fusionstitch as fs
from fusionstitch.accuracy import limit, relative_error

DRAWS = 8
Array = Any


@dataclass(frozen=True)
class Program:
    """`fun` of arrays of `shapes`, and what it is in float64."""

    fun: Callable[..., Array]
    exact: Callable[..., np.ndarray]
    shapes: tuple[tuple[int, ...], ...]
    offset: float = 0.0

    def arguments(self, seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [(rng.normal(size=s) + self.offset).astype(np.float32) for s in self.shapes]


def standardized(x: Array) -> Array:
    """Of deviations from the mean, squared."""
    apart = x - jnp.mean(x, axis=-1, keepdims=True)
    return apart * lax.rsqrt(jnp.mean(apart * apart, axis=-1, keepdims=True) + 1e-5)


def exactly_standardized(x: np.ndarray) -> np.ndarray:
    apart = x - x.mean(-1, keepdims=True)
    return apart / np.sqrt((apart * apart).mean(-1, keepdims=True) + 1e-5)


def slopes(y: Array, x: Array) -> Array:
    """Central differences of y along its last axis, at places x that are not evenly spaced."""
    before, after = x[1:-1] - x[:-2], x[2:] - x[1:-1]
    weighted = (
        before**2 * y[..., 2:] + (after**2 - before**2) * y[..., 1:-1] - after**2 * y[..., :-2]
    )
    return weighted / (before * after * (before + after))


def areas(y: Array, x: Array) -> Array:
    """Of trapezoids under y between the places x."""
    return (0.5 * (y[..., 1:] + y[..., :-1]) * (x[..., 1:] - x[..., :-1])).sum(-1)


def weighted_mean(x: Array, w: Array) -> Array:
    return (x * w).sum((0, 2)) / w.sum((0, 2))


def product(algorithm: str | None) -> Program:
    preset = lax.DotAlgorithmPreset[algorithm] if algorithm else lax.Precision.HIGHEST
    return Program(
        lambda x, y: lax.dot(x, y, precision=preset) * 2.0,
        lambda x, y: (x @ y) * 2.0,
        ((3, 4), (4, 3)),
    )


PROGRAMS: Mapping[str, Program] = {
    "mean by weights": Program(weighted_mean, weighted_mean, ((4, 6, 5), (4, 6, 5)), offset=3.0),
    "standardized": Program(standardized, exactly_standardized, ((8, 3),)),
    "standardized far from 0": Program(
        lambda x: standardized(jnp.round(x) + 1e6),
        lambda x: exactly_standardized(np.round(x) + 1e6),
        ((8, 3),),
    ),
    "slopes": Program(
        lambda y, x: slopes(y, jnp.cumsum(jnp.abs(x) + 0.1)),
        lambda y, x: slopes(y, np.cumsum(np.abs(x) + 0.1)),
        ((5, 10, 30), (30,)),
    ),
    "areas": Program(areas, areas, ((3, 10), (3, 10))),
    "products of vectors": Program(
        lambda x, y: jnp.einsum("bi,bi->b", x, y, precision="highest") + 1.0,
        lambda x, y: (x * y).sum(-1) + 1.0,
        ((6, 4), (6, 4)),
    ),
    "dot in f32": product(None),
    **{
        f"dot {name}": product(name)
        for name in ("F32_F32_F32", "TF32_TF32_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6")
    },
}


def errors(program: Program, options: fs.Options) -> tuple[float, float, int]:
    """The largest error under jax.jit and under fs.jit, and the kernels of the latter."""
    args = [program.arguments(seed) for seed in range(DRAWS)]
    plain = jax.jit(program.fun).lower(*args[0]).compile()
    stitched = fs.jit(program.fun, options=options).lower(*args[0]).compile()
    found = []
    for run in (plain, stitched):
        each = [
            relative_error(np.asarray(run(*a)), program.exact(*(x.astype(np.float64) for x in a)))
            for a in args
        ]
        found.append(max(each))
    return found[0], found[1], len(stitched.kernels)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backend", default="auto", choices=("auto", "cuda", "emulate"))
    options = fs.Options(backend=parser.parse_args().backend, scorer="paper")
    print(f"{'program':28} {'kernels':>7} {'xla':>9} {'ours':>9}")
    worse = False
    for name, program in PROGRAMS.items():
        try:
            xla, ours, kernels = errors(program, options)
        except (ValueError, jax.errors.JaxRuntimeError) as error:  # the device lacks an algorithm
            print(f"{name:28} {str(error).partition(chr(10))[0]}")
            continue
        bad = ours > limit(np.dtype(np.float32), xla)
        worse |= bad
        print(f"{name:28} {kernels:7} {xla:9.2e} {ours:9.2e}{'  worse' if bad else ''}")
    return int(worse)


if __name__ == "__main__":
    sys.exit(main())
