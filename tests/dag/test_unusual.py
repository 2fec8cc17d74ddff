"""Unusual arrays, arguments and moments."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.dag.random_programs import CODE, SIGNATURES, N, random_program, scheduled, serially
from fusionstitch.dag import ArrayError, KernelError, LaunchError
from fusionstitch.dag.backends.backend import DeviceFailure
from fusionstitch.dag.backends.emulated import Emulated
from tests.dag.programs import scheduler


def adder(d: Any) -> Any:
    return d.library(lambda a: np.add(a, 1, out=a), "pointer", name="add")


# ---- arrays ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0,), (3, 0), ()])
def test_arrays_without_elements_or_dimensions(shape: tuple[int, ...], host_compiler: str) -> None:
    d = scheduler(timing=True)
    x, y = d.array(shape), d.array(np.ones(shape, np.float32))
    code = 'extern "C" __global__ void k(const float* x, float* y, int n) { if (n) y[0] = x[0]; }'
    k = d.kernel(code, "k", "const pointer float, pointer float, sint32")
    k(1, 1)(x, y, x.size)
    assert np.asarray(y).shape == shape
    assert np.asarray(y).sum() == 0
    assert np.from_dlpack(y).shape == shape
    y[...] = 5
    assert np.asarray(d.function(jax.jit(lambda a: a + 1))(y)).shape == shape
    assert next(s.name for s in d.timeline().spans if s.kind == "kernel") == "k"


@pytest.mark.parametrize("shape", [-1, (2, -1)])
def test_shapes_that_are_none(shape: Any) -> None:
    with pytest.raises(ArrayError, match="is not a shape"):
        scheduler().array(shape)


@pytest.mark.parametrize("value", ["text", ["a", "b"], [object()], np.array(["2020-01-01"], "M8")])
def test_values_that_are_no_numbers(value: Any) -> None:
    with pytest.raises(ArrayError, match="must be numbers"):
        scheduler().array(value)


def test_memory_that_another_array_has_is_refused() -> None:
    d = scheduler()
    theirs = np.zeros(8, np.float32)
    whole = d.from_dlpack(theirs, name="whole")
    for part in (theirs, theirs[2:4], theirs.reshape(2, 4)[1]):
        with pytest.raises(ArrayError, match="that whole has, too"):
            d.from_dlpack(part)
    x = d.array(4, name="x")
    adder(d)(x)
    with pytest.raises(ArrayError, match="that x has, too"):
        d.from_dlpack(np.from_dlpack(x))
    adder(d)(whole)
    d.synchronize()
    assert theirs.tolist() == [1] * 8
    del whole
    assert np.asarray(d.from_dlpack(theirs[2:4])).tolist() == [1, 1]
    assert d.from_dlpack(np.zeros(0)).size == d.from_dlpack(np.zeros(0)).size == 0


def test_what_never_changes_may_be_shared_twice() -> None:
    d = scheduler()
    theirs = jnp.arange(4.0)
    assert d.from_dlpack(theirs)[1] == d.from_dlpack(theirs)[1] == 1


@pytest.mark.parametrize("view", [np.s_[::2], np.s_[::-1], np.s_[:, :2]])
def test_memory_with_gaps_is_copied_or_refused(view: Any) -> None:
    d = scheduler()
    host = np.arange(16.0).reshape(4, 4)[view]
    assert np.array_equal(np.asarray(d.array(host)), host)
    with pytest.raises(ArrayError, match="row-major"):
        d.from_dlpack(host)


def test_a_value_that_does_not_fit_changes_nothing() -> None:
    d = scheduler()
    x = d.array(np.ones(4, np.float32))
    adder(d)(x)
    for key, value in [(..., np.zeros(3)), (slice(0, 2), [1, 2, 3]), (..., "text")]:
        with pytest.raises(ValueError, match=r"broadcast|convert"):
            x[key] = value
    adder(d)(x)
    assert np.asarray(x).tolist() == [3] * 4


# ---- arguments ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        ("sint32", np.int64(-4), -4),
        ("sint32", np.uint8(200), 200),
        ("sint32", 4.0, 4),
        ("sint32", np.float32(4), 4),
        ("sint32", True, 1),
        ("uint64", 2**64 - 1, 2.0**64),
        ("float", np.float64(0.5), 0.5),
        ("double", 3, 3),
        ("float", np.int8(3), 3),
        ("bool", np.True_, 1),
        ("bool", 0, 0),
    ],
)
def test_numbers_that_fit(kind: str, value: Any, wanted: float) -> None:
    d = scheduler()
    x = d.array(1, np.float64)
    call = d.library(lambda a, n: np.copyto(a, n), f"pointer, {kind}")
    call(x, value)
    assert x[0] == wanted


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("sint32", np.int64(2**40)),
        ("sint32", -(2**31) - 1),
        ("uint8", -1),
        ("uint8", np.int32(256)),
        ("sint32", float("nan")),
        ("sint32", np.float32(1.5)),
        ("bool", 2),
        *(("float", value) for value in ("1.5", None, 1j, [1.0], np.array([1.0]))),
    ],
)
def test_numbers_that_do_not_fit(kind: str, value: Any) -> None:
    d = scheduler()
    call = d.library(lambda *_: None, f"pointer, {kind}")
    with pytest.raises(LaunchError, match="does not fit"):
        call(d.array(1), value)
    with pytest.raises(LaunchError, match="does not fit"):  # the array itself, not its element
        call(d.array(1), d.array(1))


def test_a_number_is_converted_anew_when_it_changes() -> None:
    d = scheduler()
    x = d.array(1, np.float64)
    call = d.library(lambda a, n: np.copyto(a, n), "pointer, float")
    for value in (0.0, -0.0, 2, 2.5, np.float64(2.5), True, 1):
        call(x, value)
        assert (x[0], np.signbit(x[0])) == (value, np.signbit(value))


def test_an_array_that_is_passed_twice_is_written_if_one_parameter_says_so() -> None:
    d = scheduler()
    x = d.array(4)
    both = d.library(lambda a, b: None, "const pointer, pointer", name="both")
    reads = d.library(lambda a, b: None, "const pointer, const pointer", name="reads")
    both(x, x)
    reads(x, x)
    reads(x, x)
    assert d.graph().pairs() == [("both", "reads"), ("both", "reads")]


# ---- moments -----------------------------------------------------------------------------------


def broken(d: Any) -> Any:
    def fail(_: Any) -> None:
        raise ZeroDivisionError("division by zero")

    return d.library(fail, "pointer", name="broken")


def make(d: Any, x: Any) -> None:
    with contextlib.suppress(DeviceFailure):
        d._engine.backend.drain()
    d.array(4)  # looks for memory that can be given back


ACCESSES: dict[str, Callable[[Any, Any], Any]] = {
    "part": lambda d, x: x[1:3],
    "whole": lambda d, x: np.asarray(x),
    "write": lambda d, x: x.__setitem__(0, 1),
    "share": lambda d, x: np.from_dlpack(x),
    "call": lambda d, x: adder(d)(x),
    "make": make,
}


def many_times(d: Any, x: Any, access: str) -> None:
    for _ in range(20):
        ACCESSES[access](d, x)
    d.synchronize()


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("access", ACCESSES)
def test_every_access_may_be_the_one_that_sees_a_failure(access: str, seed: int) -> None:
    """Whose error it is does not depend on who comes first."""
    d = scheduler(seed=seed)
    x, y, dropped = d.array(np.ones(4, np.float32)), d.array(4), d.array(4)
    add = adder(d)
    for array in (x, dropped):
        add(array)
    broken(d)(y)
    add(dropped)
    add(x)
    del dropped
    with pytest.raises(KernelError, match=r"^broken \(called at"):
        many_times(d, x, access)


def test_an_interrupt_in_a_launch_leaves_an_order(monkeypatch: pytest.MonkeyPatch) -> None:
    d = scheduler()
    x = d.array(np.ones(4, np.float32))
    add = adder(d)
    add(x)
    call = Emulated.call

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Emulated, "call", interrupted)
    with pytest.raises(KeyboardInterrupt):
        add(x)
    monkeypatch.setattr(Emulated, "call", call)
    add(x)
    assert x[0] == 3


@pytest.mark.parametrize("policy", ["async", "sync"])
def test_after_a_refused_launch_nothing_stays_pending(policy: Any, host_compiler: str) -> None:
    d = scheduler(policy=policy)
    x = d.array(np.arange(N, dtype=np.int32))
    update = d.kernel(CODE, "update", SIGNATURES["update"])
    with pytest.raises(LaunchError):
        update(1, 2048)(x, 1, N, 0)
    if policy == "sync":
        assert d._engine.pending() == []
    x[...] = 1
    update(1, 4)(x, 1, N, 0)
    assert np.asarray(x).tolist() == [4] * N
    d.synchronize()
    assert d._engine.pending() == []


def test_two_schedulers_at_once(host_compiler: str) -> None:
    first, second = random_program(1), random_program(2)
    backend = Emulated(3)
    made = [scheduler(backend=backend), scheduler(backend=backend)]
    assert scheduled(first, made[0]) == serially(first)
    assert scheduled(second, made[1]) == serially(second)
    x = made[0].array(np.ones(4, np.float32))
    adder(made[0])(x)
    y = made[1].array(made[1].from_dlpack(x))
    adder(made[1])(y)
    assert (x[0], y[0]) == (2, 3)


def test_schedulers_of_several_threads(host_compiler: str) -> None:
    programs = [random_program(seed) for seed in range(4)]
    found: dict[int, Any] = {}

    def run(seed: int) -> None:
        found[seed] = scheduled(programs[seed], scheduler(seed=seed))

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {seed: serially(program) for seed, program in enumerate(programs)}


def test_arrays_outlive_the_name_of_their_scheduler() -> None:
    d = scheduler()
    x = d.array(np.ones(4, np.float32))
    adder(d)(x)
    del d
    assert x[0] == 2
