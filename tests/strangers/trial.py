"""Grown programs under fs.jit and under jax.jit.

`python -m tests.strangers.trial FIRST LAST [JOBS]` runs those from FIRST up to LAST, on the
emulator or on a GPU as FUSIONSTITCH_BACKEND says, and prints what went wrong.
"""

from __future__ import annotations

import multiprocessing
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import jax
import numpy as np

import fusionstitch as fs
from tests.strangers.compare import Disagreement, disagreements
from tests.strangers.programs import Program, grow, wide_runs

#: Programs that one process runs before it forgets what was compiled.
BLOCK = 8


@dataclass(frozen=True)
class Trial:
    program: Program
    kernels: int
    found: tuple[Disagreement, ...]

    def __str__(self) -> str:
        return "\n".join([str(self.program), *(f"  WRONG {one}" for one in self.found)])


def trial(seed: int, options: fs.Options) -> Trial:
    """Grows program `seed`, runs it both ways and compares.

    Raises what either way raises; a warning of ours is an error, because it says that the program
    was given up.
    """
    program = grow(seed)
    arguments = program.arguments()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = fs.jit(program.__call__, options=options).lower(*arguments).compile()
        ours = [np.asarray(x) for x in compiled(*arguments)]
        theirs = [np.asarray(x) for x in jax.jit(program.__call__)(*arguments)]
    wide = wide_runs(program, arguments, runs=6)
    found = disagreements(program, ours, theirs, wide)
    return Trial(program, len(compiled.kernels), tuple(found))


def block(seeds: range) -> tuple[int, list[str]]:
    """How many of these programs were stitched, and what is wrong with those that went wrong."""
    options = fs.Options(scorer="paper", fallback="error")
    stitched, wrong = 0, []
    for seed in seeds:
        try:
            done = trial(seed, options)
        except Exception as error:  # a program that fails is what is wanted
            wrong.append(f"{grow(seed)}\n  FAILED {type(error).__name__}: {error}")
            continue
        stitched += done.kernels > 0
        if done.found:
            wrong.append(str(done))
    jax.clear_caches()
    return stitched, wrong


def main(first: int, last: int, jobs: int = 1) -> int:
    blocks = [range(i, min(i + BLOCK, last)) for i in range(first, last, BLOCK)]
    stitched = wrong = 0
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawned) as pool:
        for some, texts in pool.map(block, blocks):
            stitched += some
            wrong += len(texts)
            print("\n".join(texts), end="\n" if texts else "", flush=True)
    print(f"{last - first} programs, {stitched} stitched, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
