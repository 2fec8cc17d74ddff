"""Random programs of integer kernels, host reads and host writes, and what they give serially."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import fusionstitch as fs
from fusionstitch.dag.backends.choice import backend as chosen

CODE = """
// Waits for so many ticks of the clock: what does not wait for this kernel comes too early.
static __device__ void wait(int ticks) {
  const long long until = clock64() + ticks;
  while (ticks > 0 && clock64() < until) {}
}

extern "C" __global__ void update(int* x, int c, int n, int ticks) {
  wait(ticks);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    x[i] = x[i] * 3 + c;
}

extern "C" __global__ void into(const int* x, int* y, int c, int n, int ticks) {
  wait(ticks);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    y[i] = y[i] * 5 + x[(i + 1) % n] + c;
}

extern "C" __global__ void join(const int* x, const int* y, int* z, int c, int n, int ticks) {
  wait(ticks);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    z[i] = x[i] * 7 - y[(i + c) % n];
}
"""
_NUMBERS = "sint32, sint32, sint32"
SIGNATURES = {
    "update": f"inout pointer sint32, {_NUMBERS}",
    "into": f"const pointer sint32, inout pointer sint32, {_NUMBERS}",
    "join": f"const pointer sint32, const pointer sint32, inout pointer sint32, {_NUMBERS}",
}
#: Elements of an array, and arrays of a program.
N, ARRAYS = 8, 4
#: A delay of up to 0.1 ms on a device.
_TICKS = 200_000


@dataclass(frozen=True)
class Op:
    """A kernel by name, "read" or "write"; arrays by number; a number for it."""

    name: str
    arrays: tuple[int, ...]
    c: int


def random_program(seed: int, length: int = 12) -> list[Op]:
    """The program of a seed."""
    chance = random.Random(seed)
    count = {"update": 1, "into": 2, "join": 3, "read": 1, "write": 1}
    program = []
    for _ in range(length):
        name = chance.choice(["update", "into", "into", "join", "join", "read", "write"])
        # what a kernel writes it does not read as well, at other places: that would be a race
        numbers = chance.sample(range(ARRAYS), count[name])
        program.append(Op(name, tuple(numbers), chance.randrange(1, N)))
    return program


def serially(program: list[Op]) -> list[list[int]]:
    """What is read by the program, and all arrays at its end."""
    x = [np.arange(N, dtype=np.int32) + 10 * i for i in range(ARRAYS)]
    seen = []
    with np.errstate(over="ignore"):
        for op in program:
            a, c = op.arrays, np.int32(op.c)
            if op.name == "update":
                x[a[0]] = x[a[0]] * np.int32(3) + c
            elif op.name == "into":
                x[a[1]] = x[a[1]] * np.int32(5) + np.roll(x[a[0]], -1) + c
            elif op.name == "join":
                x[a[2]] = x[a[0]] * np.int32(7) - np.roll(x[a[1]], -op.c)
            elif op.name == "read":
                seen.append([int(x[a[0]][op.c])])
            else:
                x[a[0]][: op.c] = c
    return seen + [values.tolist() for values in x]


def scheduled(
    program: list[Op], d: Any, signatures: dict[str, str] = SIGNATURES, ticks: int = 0
) -> list[list[int]]:
    """The same through a scheduler; kernels wait for up to so many ticks of a GPU's clock."""
    chance = random.Random(len(program))
    kernels = {name: d.kernel(CODE, name, signatures[name]) for name in SIGNATURES}
    x = [d.array(np.arange(N, dtype=np.int32) + 10 * i) for i in range(ARRAYS)]
    seen = []
    for op in program:
        if op.name == "read":
            seen.append([int(x[op.arrays[0]][op.c])])
        elif op.name == "write":
            x[op.arrays[0]][: op.c] = op.c
        else:
            late = chance.randrange(ticks) if ticks else 0
            kernels[op.name](1, 4)(*(x[i] for i in op.arrays), op.c, N, late)
    return seen + [np.asarray(array).tolist() for array in x]


def rows(backend: str, seconds: float, count: int = 1000) -> Iterator[dict[str, Any]]:
    """One row: how many of `count` programs gave something else than serially."""
    row: dict[str, Any] = {"section": "random programs"}
    try:
        device = chosen(backend, 0)  # type: ignore[arg-type]
        ticks = 0 if backend == "emulate" else _TICKS
        until, wrong, run = time.monotonic() + seconds, [], 0
        for seed in range(20 if backend == "emulate" else count):
            if time.monotonic() > until:
                break
            options = {
                "const": seed % 2 == 0,
                "prefetch": seed % 3 != 0,
                "streams": ("always-new", "reuse")[seed % 4 < 2],
                "parent": ("disjoint", "same-as-parent")[seed % 5 == 0],
            }
            program = random_program(seed)
            d = fs.dag.Scheduler(backend=device, **options)  # type: ignore[arg-type]
            if scheduled(program, d, ticks=ticks) != serially(program):
                wrong.append(seed)
            run += 1
        row |= {"device": device.device, "run": run, "wrong": wrong}
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {error}"
    yield row
