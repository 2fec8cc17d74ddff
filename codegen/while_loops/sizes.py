"""Sizes of blocks that are compared for a loop.

By default, blocks that run loops alone have as many threads as an iteration keeps busy, if these
have registers for what all iterations read. More threads wait longer for each other, fewer threads
each work longer: a half and a quarter are tried.

By default a kernel has as many blocks as hide each other's loads. In a loop all of them wait for
each other in every iteration, and longer the more there are: a barrier takes 2 us of four blocks on
each multiprocessor, 1 us of one (`costmodel/profiles/h200.json`). So fewer and larger ones may be
faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Protocol, TypeVar

from fusionstitch.codegen.schedule.tuning import Tuning
from fusionstitch.codegen.search.descent import descend
from fusionstitch.codegen.search.left_out import LeftOut
from fusionstitch.codegen.while_loops.threads import SIZES
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.errors import CodegenError

#: Factors on the threads of blocks that work alone: twice as many were 1.33 and more times slower
#: where the model took them.
FACTORS = (Fraction(1, 4), Fraction(1, 2))
#: A size is chosen if it takes at most this share of the default's time. 70 loops in blocks that
#: were chosen so took 0.934 times as long as in the default ones, with 1.0 instead 0.930 and with
#: 0.93 0.944. The worst were 1.22, 1.24 and 1.11 (`python -m benchmarks.loops.by_form FOLDER JOBS
#: threads`).
WORTH = 0.97
#: Grid points of a tile as a factor, at most.
MOST_TILE = 16.0
#: The most steps from the fastest one so far, and the largest share of the time before at which a
#: step counts.
STEPS, STEP_WORTH = 4, 0.98


def near(block: int) -> Iterator[int]:
    """Other numbers of threads for blocks that work alone."""
    for factor in FACTORS:
        if (other := int(block * factor)) in SIZES:
            yield other


class Timed(Protocol):
    """What is compared."""

    @property
    def us(self) -> float: ...


T = TypeVar("T", bound=Timed)


def larger(tuning: Tuning, most: int) -> Iterator[Tuning]:
    """Blocks of twice as many threads, `most` of them at most, tiles of twice as many points, and
    both."""
    assert tuning.block is not None
    wider = replace(tuning, block=2 * tuning.block)
    for one in (wider, *(replace(t, tile=2 * t.tile) for t in (tuning, wider))):
        assert one.block is not None
        if one.block <= most and one.tile <= MOST_TILE:
            yield one


def fastest(
    first: T, tuning: Tuning, made: Callable[[Tuning], T], device: Device, check: bool = False
) -> T:
    """The first kernel, which is that of a tuning, or one that is `made` of larger blocks and tiles
    and takes less on a device. With `check`, a defect that shows in one of these is raised."""

    def near(of: tuple[T, Tuning]) -> Iterator[tuple[float, tuple[T, Tuning]]]:
        for one in larger(of[1], device.max_threads_per_block):
            with LeftOut(check):
                kernel = made(one)
                yield kernel.us, (kernel, one)

    start = first, tuning
    return descend(start, first.us, near, worth=STEP_WORTH, steps=STEPS)[1][0]


def read_tuning(threads: str, tile: str) -> Tuning:
    """What a template says of blocks and tiles. Raises CodegenError for what they cannot be."""
    try:
        return Tuning(block=int(threads), tile=float(Fraction(tile)))
    except (ValueError, ZeroDivisionError) as error:
        raise CodegenError(
            f"Loops cannot have blocks of {threads!r} threads and tiles of {tile!r}: "
            'a template says, for instance, "loop grid blocks 132 threads 512 tile 2".'
        ) from error
