"""Larger blocks and tiles for a loop that all blocks run together.

A kernel has as many blocks by default as hide each other's loads. In a loop all of them wait for
each other in every iteration, and the more there are, the longer: a barrier takes 2 us of four
blocks on each multiprocessor, 1 us of one (`costmodel/profiles/h200.json`). So fewer and larger
ones may be faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Protocol, TypeVar

from fusionstitch.codegen.schedule.tuning import Tuning
from fusionstitch.hlo.errors import CodegenError

#: Threads of a block, and grid points of a tile as a factor, at most.
MOST_THREADS, MOST_TILE = 1024, 16.0
#: How often the fastest one so far is gone on from, and what a step has to take at most of before.
STEPS, WORTH = 4, 0.98


class Timed(Protocol):
    """What is compared."""

    @property
    def us(self) -> float: ...


T = TypeVar("T", bound=Timed)


def larger(tuning: Tuning) -> Iterator[Tuning]:
    """Blocks of twice as many threads, tiles of twice as many points, and both."""
    assert tuning.block is not None
    wider = replace(tuning, block=2 * tuning.block)
    for one in (wider, *(replace(t, tile=2 * t.tile) for t in (tuning, wider))):
        assert one.block is not None
        if one.block <= MOST_THREADS and one.tile <= MOST_TILE:
            yield one


def fastest(first: T, tuning: Tuning, made: Callable[[Tuning], T]) -> T:
    """The first kernel, which is that of a tuning, or one that is `made` of larger blocks and tiles
    and takes less."""
    best = first
    for _ in range(STEPS):
        near: list[tuple[T, Tuning]] = []
        for one in larger(tuning):
            with suppress(CodegenError):
                near.append((made(one), one))
        kernel, one = min(near, key=lambda each: each[0].us, default=(best, tuning))
        if kernel.us >= WORTH * best.us:
            break
        best, tuning = kernel, one
    return best


def read_tuning(threads: str, tile: str) -> Tuning:
    """What a template says of blocks and tiles. Raises CodegenError for what they cannot be."""
    try:
        return Tuning(block=int(threads), tile=float(Fraction(tile)))
    except (ValueError, ZeroDivisionError) as error:
        raise CodegenError(
            f"Loops cannot have blocks of {threads!r} threads and tiles of {tile!r}: "
            'a template says, for instance, "loop grid blocks 132 threads 512 tile 2".'
        ) from error
