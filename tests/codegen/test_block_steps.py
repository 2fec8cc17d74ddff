"""What blocks that wait for each other do, phase by phase, as it is counted and priced."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from fusionstitch.codegen.count.kernel_cost import cost
from fusionstitch.codegen.count.tallies import count
from fusionstitch.codegen.count.tally import Accesses
from fusionstitch.codegen.index_maps.index import variable
from fusionstitch.codegen.ir.expressions import BLOCK, Integer, infix, number
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.statements import Branch, For, If, Skip, Statement
from fusionstitch.codegen.ir.types import INT
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.kernel_cost import Arrival, Await, KernelCost, Step
from fusionstitch.costmodel.kernel_time import cost_us
from fusionstitch.runtime import emulate
from fusionstitch.runtime.counters import Counters
from tests.codegen.counter_cases import RIGHT
from tests.codegen.grown_counters import examples, lowered
from tests.codegen.regions import counters_of
from tests.codegen.synchronised import (
    BEGIN,
    ELEMENTS,
    GRID,
    THREADS,
    B,
    T,
    arrive,
    at,
    kernel,
    printed,
    put,
    wait,
)

H200 = device("h200")
X = np.arange(ELEMENTS, dtype=np.float32)
#: How many grown kernels there are, and of how many the emulator counts what they do.
GROWN, COUNTED = 100, 12
KERNELS = {name: one for name, (one, _) in RIGHT.items()}
#: Those in which the data decides what blocks do, of which no more is done than is counted.
BY_DATA = (
    KERNELS["iterations that are skipped, and a loop that is left"],
    KERNELS["a loop that the data ends, beside them"],
)


def priced(one: Lowered) -> KernelCost:
    return cost(count(one, H200), one)


def us(*body: Statement) -> float:
    return cost_us(priced(kernel(*BEGIN, *body)), H200)


N = variable("n", 3)
TAKEN = at("x", N * THREADS + T)


def three(*body: Statement) -> For:
    return For(INT, "n", number(0), number(3), body=body)


def made(element: int = 0) -> Statement:
    return put("between", N * THREADS + T, at("x", T + element * THREADS))


def of(block: int, *body: Statement) -> If:
    """What one block does."""
    return If(infix("==", BLOCK, block), None, body)


#: Block 0 makes three tiles, for the first of which each of the others waits before it writes.
WRITES = (wait(0, 1), put("out", B * THREADS + T, at("x", T)))
SIDES = kernel(
    *BEGIN, If(infix("<", BLOCK, 1), None, (three(made(), arrive(N)),), (Branch(None, WRITES),))
)


# ---- what is counted -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def counted(host_compiler: str) -> list[tuple[Lowered, Counters]]:
    """Kernels, and what the emulator sees them do."""
    kernels = [*KERNELS.values(), SIDES, *(lowered(one) for one in examples(COUNTED))]
    texts = [printed(one) for one in kernels]
    built = emulate.build(texts, counted=True)
    return [
        (one, counters_of(text, artifact, [X]))
        for one, text, artifact in zip(kernels, texts, built, strict=True)
    ]


def accessed(each: Accesses) -> dict[tuple[str, int], int]:
    """How often memory is, that all blocks share."""
    return {
        (memory.value, width): one.accesses
        for (memory, width), one in each.items()
        if one.accesses and memory in (Memory.INPUT, Memory.OUTPUT, Memory.SCRATCH)
    }


def at_counters(steps: Sequence[Sequence[Step]], barriers: int) -> int:
    """How often blocks arrive and wait, but for so many barriers of the grid."""
    own = sum(not isinstance(step, int) for each in steps for step in each)
    return own - 2 * barriers * len(steps)


def test_phases_together_are_all_that_blocks_do(counted: list[tuple[Lowered, Counters]]) -> None:
    """To the emulator, arrivals and waits are stores. Compilers load once what is loaded twice."""
    for one, ran in counted:
        tally = count(one, H200)
        loads, stores = accessed(tally.loads), accessed(tally.stores)
        assert all(loads[key] >= number for key, number in ran.reads.items())
        stores["scratch", 4] += at_counters(tally.steps, ran.meetings["grid"])
        if one in BY_DATA:
            assert all(stores[key] >= number for key, number in ran.writes.items())
        else:
            assert stores == ran.writes


def test_every_kernel_with_counters_has_steps_and_a_price() -> None:
    kernels = [*KERNELS.values(), *(lowered(one) for one in examples(GROWN))]
    for one in kernels:
        found = priced(one)
        arrives = any(isinstance(step, Arrival) for own in found.steps for step in own)
        assert arrives == bool(found.steps)
        launch = cost_us(KernelCost((), found.blocks, THREADS, 32, 0, 0), H200)
        assert launch < cost_us(found, H200) < math.inf


# ---- steps ---------------------------------------------------------------------------------------


def is_of(block: int, step: Step, cost: KernelCost) -> bool:
    """Whether a step is a phase of one block alone."""
    having = [number for number, steps in enumerate(cost.steps) if step in steps]
    return isinstance(step, int) and having == [block]


def without_begin(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Steps after the barrier that follows the zeroing of counters."""
    [barrier] = [n for n, step in enumerate(steps) if step == Await(0, GRID)]
    return steps[barrier + 1 :]


def test_blocks_have_the_steps_of_their_roles() -> None:
    producer = of(0, three(made(), arrive(N)))
    consumer = of(1, three(wait(N, 1), put("out", N * THREADS + T, at("between", N * THREADS + T))))
    found = priced(kernel(*BEGIN, producer, consumer))
    own = [without_begin(steps) for steps in found.steps]
    requested = own[2]  # block 2 has neither role
    assert requested == own[3]
    assert all(isinstance(step, int) for step in requested)
    entered, makes = (step for step in dict.fromkeys(own[0]) if is_of(0, step, found))
    role = [step for step in own[0] if step not in requested]
    assert role == [entered, *(s for n in (1, 2, 3) for s in (makes, Arrival(n)))]
    entered, uses = (step for step in dict.fromkeys(own[1]) if is_of(1, step, found))
    role = [step for step in own[1] if step not in requested]
    assert role == [entered, *(s for n in (1, 2, 3) for s in (Await(n, 1), uses))]
    phases = found.phases
    assert (phases[makes].blocks, phases[makes].iterations, phases[uses].blocks) == (1, 3, 1)


def test_sides_of_a_branch_are_different_phases() -> None:
    found = priced(SIDES)
    first, *others = (set(without_begin(steps)) for steps in found.steps)
    assert all(own == others[0] for own in others)
    own = [step for step in others[0] - first if isinstance(step, int)]
    assert {found.phases[step].blocks for step in own} == {GRID - 1}


def test_iterations_that_are_skipped_have_no_steps_and_others_have_theirs() -> None:
    late = Skip(infix("<", Integer(N), 1))
    found = priced(kernel(*BEGIN, of(0, three(late, made(), arrive(N)))))
    role = [step for step in without_begin(found.steps[0]) if step not in found.steps[1]]
    entered, makes, *_ = role
    assert role == [entered, makes, Arrival(1), makes, Arrival(2)]


# ---- prices --------------------------------------------------------------------------------------


def busy(times: int, tile: int) -> For:
    """Waits so many times for what it has just written."""
    own = T + tile * THREADS
    more = infix("+", at("out", own), number(1))
    return For(INT, "m", number(0), number(times), body=(put("out", own, more),))


def roles(*times: int) -> tuple[Statement, ...]:
    """Blocks that are busy side by side, and arrive."""
    return tuple(of(block, busy(n, block), arrive(block)) for block, n in enumerate(times))


def test_a_shorter_role_takes_no_time_beside_a_longer_one() -> None:
    assert us(*roles(4000, 1000)) == pytest.approx(us(*roles(4000, 10)), rel=0.01)
    assert us(*roles(4000, 4000)) == pytest.approx(us(*roles(4000, 10)), rel=0.01)
    assert us(*roles(4000, 10)) > 2 * us(*roles(1000, 10))


def test_a_role_that_waits_for_another_one_comes_after_it() -> None:
    alone = us(*roles(4000, 10))
    waits = us(*roles(4000), of(1, wait(0, 1), busy(4000, 1)))
    least = us(*roles(0))
    assert waits - least == pytest.approx(2 * (alone - least), rel=0.05)


def test_tiles_that_are_handed_on_one_by_one_overlap() -> None:
    """A block makes three tiles, and another one uses each as soon as it is there, or at last."""
    work, tile = 2000, N * THREADS + T
    slow = busy(work, 0), made(), arrive(N)
    one_by_one = of(1, three(wait(N, 1), busy(work, 1), put("out", tile, TAKEN)))
    at_last = of(1, *(wait(n, 1) for n in range(3)), three(busy(work, 1), put("out", tile, TAKEN)))
    pipelined, sequential = (us(of(0, three(*slow)), one) for one in (one_by_one, at_last))
    rest = us(*roles(0))
    assert (pipelined - rest) / (sequential - rest) == pytest.approx(4 / 6, rel=0.05)
