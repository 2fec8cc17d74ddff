"""Programs grown step by step from a seed, and what they mean in float64."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import ml_dtypes
import numpy as np

# they fill STEPS, in the order that seeds count on
from tests.strangers import steps_elementwise, steps_movement, steps_reductions  # noqa: F401
from tests.strangers.steps import STEPS, Step
from tests.strangers.values import FLOATS, INTEGERS, Value, array, numpy_dtype, shape

#: Steps that make a program what this package is for come more often.
WEIGHTS = {"unary": 4, "binary": 5, "own_reduction": 4, "decision": 3, "windowed": 3, "pad": 2}


@dataclass(frozen=True)
class Program:
    """`__call__` on arrays for `inputs` gives the values at `results`, in JAX."""

    seed: int
    inputs: tuple[Value, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]

    @property
    def values(self) -> tuple[Value, ...]:
        return self.inputs + tuple(value for step in self.steps for value in step.results)

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        known = list(arrays)
        self.evaluate(known)
        return tuple(known[i] for i in self.results)

    def evaluate(
        self, known: list[Any], moved: Callable[[Any, Value], Any] = lambda x, value: x
    ) -> None:
        """Appends the results of each step to `known`.

        `moved` is what a step that rounds reads, and writes, for a float.
        """
        values = self.values
        for step in self.steps:
            read = [known[i] for i in step.operands]
            if step.rounds:
                read = [moved(x, values[i]) for x, i in zip(read, step.operands, strict=True)]
            made = step.run(*read)
            made = list(made) if isinstance(made, tuple | list) else [made]
            if step.rounds:
                made = [moved(x, value) for x, value in zip(made, step.results, strict=True)]
            known += made

    def arguments(self) -> list[np.ndarray]:
        rng = random.Random(f"data {self.seed}")
        return [array(rng, value) for value in self.inputs]

    def __str__(self) -> str:
        lines = [f"program {self.seed}"]
        lines += [f"  %{i} = input {v}" for i, v in enumerate(self.inputs)]
        at = len(self.inputs)
        for step in self.steps:
            names = ", ".join(f"%{at + k}" for k in range(len(step.results)))
            operands = " ".join(f"%{i}" for i in step.operands)
            kinds = "; ".join(f"{v.dtype}{list(v.shape)}" for v in step.results)
            lines.append(f"  {names} = {step.name} of {operands}: {kinds}")
            at += len(step.results)
        return "\n".join([*lines, f"  results {', '.join(f'%{i}' for i in self.results)}"])


def grow(seed: int) -> Program:
    rng = random.Random(seed)
    first = Value(shape(rng), rng.choice(FLOATS), exact=True)
    inputs = [first]
    if rng.random() < 0.6:
        inputs.append(Value(first.shape, first.dtype, exact=True))
    if rng.random() < 0.5:
        inputs.append(Value(shape(rng), rng.choice(INTEGERS), exact=True))
    if rng.random() < 0.4:
        inputs.append(Value((), "int32", exact=True))
    pool, steps = list(inputs), []
    names = list(STEPS)
    weights = [WEIGHTS.get(name, 1) for name in names]
    length = rng.randint(4, 14)
    while len(steps) < length:
        (name,) = rng.choices(names, weights)
        if (found := STEPS[name](rng, pool)) is not None:
            steps.append(found)
            pool += found.results
    read = {i for step in steps for i in step.operands}
    unread = [i for i in range(len(inputs), len(pool)) if i not in read]
    more = [i for i in range(len(inputs), len(pool)) if i in read]
    results = sorted({*unread, *rng.sample(more, min(len(more), rng.randint(0, 2)))})
    return Program(seed, tuple(inputs), tuple(steps), tuple(results))


def wide_runs(program: Program, arguments: list[np.ndarray], runs: int) -> list[list[np.ndarray]]:
    """The results in float64, and again with every rounding of the program made at random.

    The first run rounds nothing. The others move what a rounding step reads and writes by up to
    one unit in the last place of its type, which tells how far two right programs may lie apart.
    Values beyond a type's range are infinite in every second one: wider intermediates are allowed.
    """
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        return [_wide(program, arguments, k) for k in range(runs + 1)]


def _wide(program: Program, arguments: list[np.ndarray], run: int) -> list[np.ndarray]:
    generator = np.random.default_rng(run)
    known: list[Any] = [
        jax.numpy.asarray(a.astype(np.float64) if v.floating else a)
        for a, v in zip(arguments, program.inputs, strict=True)
    ]

    def moved(x: Any, value: Value) -> Any:
        if not run or not value.floating:
            return x
        return jax.numpy.asarray(_rounded(np.asarray(x), value, generator, run % 2 == 0))

    program.evaluate(known, moved)
    return [np.asarray(known[i]) for i in program.results]


def _rounded(
    wide: np.ndarray, value: Value, generator: np.random.Generator, clamped: bool
) -> np.ndarray:
    info = ml_dtypes.finfo(numpy_dtype(value.dtype))
    noise = generator.uniform(-1, 1, wide.shape)
    with np.errstate(all="ignore"):
        moved = wide * (1 + noise * float(info.eps)) + noise * float(info.smallest_subnormal)
        if clamped:
            moved = np.where(np.abs(wide) > float(info.max), np.copysign(np.inf, wide), moved)
            tiny = np.abs(wide) < float(info.tiny)
            moved = np.where(tiny & (noise < 0), np.copysign(0.0, wide), moved)
    return np.where(np.isfinite(wide), moved, wide)
