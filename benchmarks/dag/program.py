"""A benchmark as data: kernels, arrays, steps in serial order, and the schedule of a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """One launch.

    Attributes:
        kernel: its name in the source
        args: names of arrays, and numbers
        grid, block: its sizes
        stream: where a person would put it
        after: numbers of the steps of other streams that it has to wait for
    """

    kernel: str
    args: tuple[Any, ...]
    grid: Sizes
    block: Sizes
    stream: int = 0
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Program:
    """All that a run needs.

    Attributes:
        name: of the benchmark
        size: of its input
        block: threads of a block
        signatures: of its kernels, by name; its CUDA-C is in kernels/<name>.cu
        arrays: contents of inputs, shapes and types of all others, by name
        steps: of one iteration
        sent: the inputs that the host writes before each run
        reset: what the host writes before each iteration into arrays of one element
        results: arrays of which the host reads the first element after each run
        compared: the array whose contents say whether a run was right
        iterations: how often the steps are repeated in a run
        expected: what `compared` should hold, from the inputs, in NumPy
    """

    name: str
    size: int
    block: int
    signatures: Mapping[str, str]
    arrays: Mapping[str, np.ndarray | tuple[Sizes, Any]]
    steps: tuple[Step, ...]
    sent: tuple[str, ...]
    results: tuple[str, ...]
    compared: str
    expected: Callable[[Mapping[str, Any]], np.ndarray] = field(repr=False)
    reset: Mapping[str, float] = field(default_factory=dict)
    iterations: int = 1

    @property
    def code(self) -> str:
        return _code(self.name)

    def inputs(self) -> dict[str, np.ndarray]:
        return {name: v for name, v in self.arrays.items() if isinstance(v, np.ndarray)}

    def shape(self, name: str) -> tuple[Sizes, np.dtype[Any]]:
        """Shape and type of an array."""
        value = self.arrays[name]
        if isinstance(value, np.ndarray):
            return value.shape, value.dtype
        return value[0], np.dtype(value[1])


@cache
def _code(name: str) -> str:
    return (Path(__file__).parent / "kernels" / f"{name}.cu").read_text("utf-8")


def noise(count: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    """Numbers from 0 to 1. A million different ones: more would take longer than the benchmark."""
    made = np.random.default_rng(seed).random(min(count, 1 << 20)).astype(dtype)
    return np.resize(made, count)
