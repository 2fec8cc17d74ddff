"""Recorded sequences have the same effect as launching their kernels one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.dag.random_programs import ARRAYS, CODE, SIGNATURES, N, Op, random_program
from fusionstitch.dag import ArrayError, LaunchError
from tests.dag.programs import scheduler

POLICIES: list[dict[str, Any]] = [
    {},
    {"const": False},
    {"parent": "same-as-parent"},
    {"policy": "sync"},
]


def kernels_of(seed: int) -> list[Op]:
    return [op for op in random_program(seed, 20) if op.name in SIGNATURES]


def run(d: Any, ops: list[Op], recorded: bool, times: int) -> list[list[int]]:
    kernels = {name: d.kernel(CODE, name, SIGNATURES[name]) for name in SIGNATURES}
    x = [d.array(np.arange(N, dtype=np.int32) + 10 * i) for i in range(ARRAYS)]

    def sequence(*x: Any) -> None:
        for op in ops:
            kernels[op.name](1, 4)(*(x[i] for i in op.arrays), op.c, N, 0)

    launch = d.recorded(sequence) if recorded else sequence
    for number in range(times):
        launch(*x)
        x[0][number] = 100 + number
    return [np.asarray(array).tolist() for array in x]


@pytest.mark.parametrize("policies", POLICIES, ids=str)
def test_replays_are_launches_one_by_one(policies: dict[str, Any], host_compiler: str) -> None:
    for seed in range(6):
        ops = kernels_of(seed)
        wanted = run(scheduler(seed=seed), ops, False, 4)
        assert run(scheduler(seed=seed, **policies), ops, True, 4) == wanted


def test_the_function_runs_once_for_each_combination_of_arguments(host_compiler: str) -> None:
    d = scheduler()
    update = d.kernel(CODE, "update", SIGNATURES["update"])
    x, y = d.array(N, np.int32), d.array(N, np.int32)
    ran = []

    def twice(array: Any, c: int) -> None:
        ran.append(c)
        update(1, 4)(array, c, N, 0)
        update(1, 4)(array, c, N, 0)

    launch = d.recorded(twice)
    for array, c in [(x, 1), (x, 1), (x, 2), (y, 1), (x, 1)]:
        launch(array, c)
    assert ran == [1, 2, 1]
    assert [vertex.name for vertex in d.graph().vertices] == ["twice"] * 5
    # 4 after two of 1, 13 after two times two of 1 and so on: x -> 9 x + 4 c
    assert (x[0], y[0]) == (9 * (9 * (9 * 4 + 4) + 8) + 4, 4)


def test_memory_of_a_recording_is_not_freed(host_compiler: str) -> None:
    d = scheduler()
    update = d.kernel(CODE, "update", SIGNATURES["update"])
    into = d.kernel(CODE, "into", SIGNATURES["into"])
    x = d.array(N, np.int32)

    def made() -> Any:
        hidden = d.array(N, np.int32)
        hidden[...] = 1

        def sequence() -> None:
            update(1, 4)(hidden, 1, N, 0)
            into(1, 4)(hidden, x, 0, N, 0)

        launch = d.recorded(sequence)
        launch()
        launch._fun = None  # nobody but the recording knows the array now
        return launch

    launch = made()
    d.array(N, np.int32)[...] = 5  # takes memory that is free
    launch()
    assert x[0] == 4 * 5 + 13


def test_what_cannot_be_recorded_is_said(host_compiler: str) -> None:
    d = scheduler()
    x = d.array(N, np.int32)
    call = d.library(lambda _: None, "inout pointer", name="other")
    with pytest.raises(ArrayError, match="reads is being recorded"):
        d.recorded(lambda: x[0], name="reads")()
    with pytest.raises(ArrayError, match="cannot make arrays"):
        d.recorded(lambda: d.array(3))()
    with pytest.raises(LaunchError, match=r"other \(called at .*kernels alone"):
        d.recorded(lambda: call(x))()
    with pytest.raises(LaunchError, match="unhashable"):
        d.recorded(call)(np.zeros(3))
    with pytest.raises(LaunchError, match="while another"):
        d.recorded(lambda: d.recorded(call)(x))()
    assert x[0] == 0  # and all is well afterwards


def test_a_replay_of_what_was_given_away_is_refused(host_compiler: str) -> None:
    d = scheduler()
    update = d.kernel(CODE, "update", SIGNATURES["update"])
    x = d.array(N, np.int32)
    launch = d.recorded(lambda a: update(1, 4)(a, 1, N, 0), name="launch")
    launch(x)
    d.function(lambda a: a + 1, donate=(0,), name="step")(x)
    with pytest.raises(ArrayError, match=r"launch uses a0, .* it was donated to step"):
        launch(x)


def test_a_sequence_may_be_empty_or_fail(host_compiler: str) -> None:
    d = scheduler()
    update = d.kernel(CODE, "update", SIGNATURES["update"])
    x = d.array(N, np.int32)
    d.recorded(lambda: None)()

    def fails(a: Any) -> None:
        update(1, 4)(a, 1, N, 0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        d.recorded(fails)(x)
    assert x[0] == 0  # nothing of it was launched
    update(1, 4)(x, 1, N, 0)
    assert x[0] == 1
