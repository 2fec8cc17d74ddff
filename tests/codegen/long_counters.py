"""Grown kernels whose blocks wait for each other, by the thousand.

    python -m tests.codegen.long_counters --kernels 5000

Each is compared with NumPy under random delays, as built for speed and as built with checks. What
the verifier refuses of them without some of their statements of synchronisation, the emulator has
to find; what it accepts has to give the same. Prints how many were compared, as it goes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import numpy as np

from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.verifier import verify
from fusionstitch.hlo.errors import PassError, VerifyError
from fusionstitch.runtime import emulate
from fusionstitch.runtime.artifact import Artifact
from tests.codegen.grown_counters import Grown, examples, lowered, mutants, wanted
from tests.codegen.synchronised import ELEMENTS, printed, runs

#: Kernels of one translation unit, without how many statements each is tried, and with how many
#: delays each runs.
TOGETHER, MUTANTS, DELAYS = 12, 2, 4
X = np.arange(ELEMENTS, dtype=np.float32) % 32


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.codegen.long_counters")
    parser.add_argument("--kernels", type=int, default=5000, help="how many (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="how many are left out before them")
    parser.add_argument("--delays", type=int, default=DELAYS, help="delays a kernel (%(default)s)")
    parser.add_argument(
        "--mutants", type=int, default=MUTANTS, help="statements left out of each (%(default)s)"
    )
    chosen = parser.parse_args(arguments)
    done = 0
    programs = examples(chosen.first + chosen.kernels)[chosen.first :]
    for number, some in enumerate(batches(programs)):
        compare(some, chosen.first + number, chosen.mutants, chosen.delays)
        done += len(some)
        print(f"{done} kernels under {chosen.delays} delays each are equal", flush=True)


def batches(programs: Sequence[Grown]) -> Iterator[Sequence[Grown]]:
    """What is built together."""
    for first in range(0, len(programs), TOGETHER):
        yield programs[first : first + TOGETHER]


def compare(
    programs: Sequence[Grown], seed: int, without: int = MUTANTS, delays: int = DELAYS
) -> None:
    """Runs all, and each without some of its statements of synchronisation. Raises AssertionError
    for results that differ."""
    right = [(one, lowered(one)) for one in programs]
    for _, kernel in right:
        verify(kernel)
    rng = np.random.default_rng(seed)
    changed: list[tuple[Grown, Lowered]] = []
    for one, kernel in right:
        less = list(mutants(kernel))
        picked = rng.choice(len(less), min(without, len(less)), replace=False)
        changed += ((one, less[n]) for n in picked)
    both = [*right, *changed]
    texts = [printed(kernel) for _, kernel in both]
    plain = emulate.build(texts[: len(right)], checked=False)
    for (one, kernel), artifact in zip(right, plain, strict=True):
        agrees(one, kernel, artifact, delays)
    for (one, kernel), artifact in zip(both, emulate.build(texts, checked=True), strict=True):
        if not is_refused(kernel):
            agrees(one, kernel, artifact, delays)
            continue
        try:
            agrees(one, kernel, artifact, delays)
        except VerifyError:
            continue
        raise AssertionError(f"The verifier alone refuses this kernel: {one}")


def agrees(one: Grown, kernel: Lowered, artifact: Artifact, delays: int) -> None:
    """Compares a kernel under delays with NumPy."""
    orders: list[tuple[emulate.Order, int]] = [("delayed", seed) for seed in range(delays)]
    for out in runs(printed(kernel), artifact, X, orders):
        np.testing.assert_array_equal(out, wanted(one, X))


def is_refused(kernel: Lowered) -> bool:
    """Whether the verifier refuses a kernel."""
    try:
        verify(kernel)
    except PassError:
        return True
    return False


if __name__ == "__main__":
    main()
