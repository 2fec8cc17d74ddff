"""One grown program under fs.jit and under jax.jit: python -m tests.strangers.trial SEED..."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass

import jax
import numpy as np

import fusionstitch as fs
from tests.strangers.compare import Disagreement, disagreements
from tests.strangers.programs import Program, grow, wide_runs


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


def main(seeds: list[int]) -> int:
    options = fs.Options(scorer="paper", fallback="error")
    wrong = stitched = 0
    for seed in seeds:
        try:
            done = trial(seed, options)
        except Exception as error:  # the program that fails is what is wanted
            wrong += 1
            print(f"{grow(seed)}\n  FAILED {type(error).__name__}: {error}", flush=True)
            continue
        finally:
            jax.clear_caches()
        stitched += done.kernels > 0
        if done.found:
            wrong += 1
            print(done, flush=True)
    print(f"{len(seeds)} programs, {stitched} stitched, {wrong} wrong", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    first, last = map(int, sys.argv[1:])
    sys.exit(main(list(range(first, last))))
