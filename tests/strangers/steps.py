"""Steps of programs, and the table of what they can be: one entry an op (steps_*.py).

An entry looks at the values there are and says which of them it takes, with which attributes, and
what comes out; `run` computes it in JAX. Nothing here knows what the project can stitch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.strangers.values import Value

Pool = Sequence[Value]
Run = Callable[..., Any]


@dataclass(frozen=True)
class Step:
    """`run(*operands)` gives one array per entry of `results`.

    `rounds`: the results are rounded anew; else they are exact, or elements of the operands.
    """

    name: str
    operands: tuple[int, ...]
    results: tuple[Value, ...]
    run: Run
    rounds: bool = False


Pick = Callable[[random.Random, Pool], Step | None]
STEPS: dict[str, Pick] = {}


def step(pick: Pick) -> Pick:
    STEPS[pick.__name__] = pick
    return pick


def one(rng: random.Random, pool: Pool, holds: Callable[[Value], bool]) -> int | None:
    """A value for which `holds`; late ones are more likely, so that programs get deep."""
    fit = [i for i, value in enumerate(pool) if holds(value)]
    if not fit:
        return None
    return rng.choice(fit[-4:]) if rng.random() < 0.7 else rng.choice(fit)


def like(rng: random.Random, pool: Pool, index: int, exact: bool | None = None) -> int:
    """Another value of the same shape and type, or the same one."""
    of = pool[index]
    return (
        one(
            rng,
            pool,
            lambda v: (v.shape, v.dtype) == (of.shape, of.dtype) and exact in (None, v.exact),
        )
        or index
    )


def result(value: Value, exact: bool, **changes: Any) -> Value:
    fields = {"shape": value.shape, "dtype": value.dtype, "exact": exact} | changes
    return Value(**fields)
