"""Random programs of integer kernels, host reads and host writes, and what they give serially."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

CODE = """
extern "C" __global__ void update(int* x, int c, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    x[i] = x[i] * 3 + c;
}

extern "C" __global__ void into(const int* x, int* y, int c, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    y[i] = y[i] * 5 + x[(i + 1) % n] + c;
}

extern "C" __global__ void join(const int* x, const int* y, int* z, int c, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    z[i] = x[i] * 7 - y[(i + c) % n];
}
"""
SIGNATURES = {
    "update": "inout pointer sint32, sint32, sint32",
    "into": "const pointer sint32, inout pointer sint32, sint32, sint32",
    "join": "const pointer sint32, const pointer sint32, inout pointer sint32, sint32, sint32",
}
#: Elements of an array.
N = 8


@dataclass(frozen=True)
class Op:
    """A kernel by name, "read" or "write"; arrays by number; a number for it."""

    name: str
    arrays: tuple[int, ...]
    c: int


def random_program(seed: int, length: int = 12, arrays: int = 4) -> list[Op]:
    chance = random.Random(seed)
    count = {"update": 1, "into": 2, "join": 3, "read": 1, "write": 1}
    names = ["update", "into", "into", "join", "join", "read", "write"]
    program = []
    for _ in range(length):
        name = chance.choice(names)
        numbers = [chance.randrange(arrays) for _ in range(count[name])]
        # what a kernel writes it does not read as well, at other places: that would be a race
        while name in ("into", "join") and numbers[-1] in numbers[:-1]:
            numbers[-1] = chance.randrange(arrays)
        program.append(Op(name, tuple(numbers), chance.randrange(1, N)))
    return program


def serially(program: list[Op], arrays: int = 4) -> list[list[int]]:
    """What is read by the program, and all arrays at its end."""
    x = [np.arange(N, dtype=np.int32) + 10 * i for i in range(arrays)]
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
    program: list[Op], d: Any, arrays: int = 4, signatures: dict[str, str] = SIGNATURES
) -> list[list[int]]:
    """The same through a scheduler."""
    kernels = {name: d.kernel(CODE, name, signatures[name]) for name in SIGNATURES}
    x = [d.array(np.arange(N, dtype=np.int32) + 10 * i) for i in range(arrays)]
    seen = []
    for op in program:
        if op.name == "read":
            seen.append([int(x[op.arrays[0]][op.c])])
        elif op.name == "write":
            x[op.arrays[0]][: op.c] = op.c
        else:
            kernels[op.name](1, 4)(*(x[i] for i in op.arrays), op.c, N)
    return seen + [np.asarray(array).tolist() for array in x]
