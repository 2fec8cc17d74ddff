"""Grown programs with loops: every form of kernel on the emulator against NumPy, races looked for,
and some under fs.jit against jax.jit.

FUSIONSTITCH_FUZZ=N tries about N programs; without it a few, always the same ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import jax
import pytest

import fusionstitch as fs
from benchmarks.loops.forced import taken
from fusionstitch.runtime import emulate
from tests.loops.forms import DEVICES, FORMS, Case, cases, run, wholes
from tests.loops.growth import from_seed
from tests.nearness import assert_near

#: Programs of one translation unit.
BATCH = 15
PROGRAMS = int(os.environ.get("FUSIONSTITCH_FUZZ") or 4 * BATCH)
#: Programs that fs.jit runs, of which one in so many is.
WHOLE = 10

pytestmark = pytest.mark.usefixtures("host_compiler")


def batch(first: int) -> Iterator[tuple[int, Case]]:
    """The cases of a batch of programs, each with its seed."""
    names = list(DEVICES)
    for seed in range(first, first + BATCH):
        for whole in wholes(from_seed(seed)):
            if whole.is_clear:
                yield from ((seed, case) for case in cases(whole, names[seed % len(names)]))


@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
def test_every_form_of_a_grown_loop_gives_what_numpy_gives(first: int) -> None:
    drawn = list(batch(first))
    artifacts = emulate.build([case.kernel for _, case in drawn], checked=True)
    wrong = [
        f"{case.whole.name}, {case.kernel.template}: {found}"
        for (seed, case), artifact in zip(drawn, artifacts, strict=True)
        if (found := run(case, artifact, seed))
    ]
    assert not wrong, "\n".join(wrong)


def test_grown_loops_have_every_form() -> None:
    forms = {case.form for first in range(0, PROGRAMS, BATCH) for _, case in batch(first)}
    assert forms >= set(FORMS)


@pytest.mark.parametrize("seed", range(0, PROGRAMS, WHOLE))
def test_a_grown_program_gives_what_jax_gives(seed: int) -> None:
    grown = from_seed(seed)
    options = fs.Options(backend="emulate", fallback="error")
    with taken(), grown.width():
        ours = fs.jit(grown.fun, options=options)(*grown.args)
        theirs = jax.jit(grown.fun)(*grown.args)
    assert_near(ours, theirs, 5e-6, rough=2e-2)
