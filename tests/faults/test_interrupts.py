"""What the user's signal handlers raise comes out as it is, wherever in a compile it arrives.

A signal is sent once so many functions were called, for many such numbers, so that what its handler
raises arrives at every stage of a call: each number must give the exception or the result.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import math
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.execution import cuda as execution_cuda
from fusionstitch.runtime import apart, emulated_call, toolchain, xla_pass
from fusionstitch.runtime.entry import Entry
from fusionstitch.runtime.outcome import Failed
from fusionstitch.runtime.signals import held
from tests.behaviour.conftest import EMULATE
from tests.behaviour.conftest import marked as marked
from tests.faults.sandbox import HANG, each_call

X = np.random.default_rng(0).standard_normal((16, 32), np.float32)
PACKAGE = Path(fs.__file__).parent
#: Signals per compile, in parts of the calls of functions that it takes without interruption.
STEPS = 13


class LateError(Exception):
    """As a user's timeout: an Exception like any other."""


class LateFileError(TimeoutError):
    """A timeout that is an OSError, which files raise as well."""


KINDS: tuple[type[BaseException], ...] = (LateError, LateFileError, KeyboardInterrupt)


def program() -> Callable[[Any], Any]:
    def normalised(x: jax.Array) -> jax.Array:
        return x - x.sum(1, keepdims=True)

    return normalised


EXPECTED = np.asarray(jax.jit(program())(X))


@contextlib.contextmanager
def raising(error: BaseException) -> Iterator[None]:
    """The handler of the signal that `send` sends raises `error`."""

    def late(*_: object) -> None:
        raise error

    before = signal.signal(signal.SIGALRM, late)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


def send() -> None:
    """To the main thread, as all signals, from any."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)


#: What is interrupted: an exception amid the context managers of JAX leaves its traces open, under
#: jax.jit as well.
OURS = f"{PACKAGE}/"


def calls_of(work: Callable[[], Any]) -> int:
    """How many functions of this project are called."""
    found: list[int] = []
    with each_call(found.append, OURS):
        work()
    return len(found)


@contextlib.contextmanager
def losing(error: BaseException) -> Iterator[None]:
    """Python itself loses, and only reports, what a handler raises inside the callback of a weak
    reference, under jax.jit as well."""
    before = sys.unraisablehook
    sys.unraisablehook = lambda lost: None if lost.exc_value is error else before(lost)
    try:
        yield
    finally:
        sys.unraisablehook = before


def interrupted(at: float, error: BaseException, work: Callable[[], Any]) -> bool:
    """Whether `error` came out of `work`, where the signal is sent at the call with this number of
    a function of ours, and that nothing else did."""
    with warnings.catch_warnings(), losing(error):
        warnings.simplefilter("error")
        gc.disable()  # JAX collects in a callback of its own, where an exception is lost
        try:
            with raising(error), each_call(lambda n: send() if n == at else None, OURS):
                work()
        except BaseException as raised:
            if raised is not error:
                raise
            return True
        finally:
            gc.enable()
    return False


class ExecutionPath:
    """An execution path that `fs.jit` takes. `stitches` counts the patterns that became kernels."""

    def __init__(self, make: Callable[[], Any], stitches: Callable[[Any], int]):
        self.make, self.stitches = make, stitches


def through_the_emulator() -> Iterator[ExecutionPath]:
    def stitches(jitted: Any) -> int:
        return sum(len(one.stitches) for one in jitted._fusionstitch.execution.known.values())

    yield ExecutionPath(lambda: fs.jit(program(), options=EMULATE), stitches)


def inside_xla(patch: pytest.MonkeyPatch) -> Iterator[ExecutionPath]:
    """XLA for the CPU calls the pass. It could not run what the pass gives back, and what it offers
    has been fused: the pass sees the lowered program instead, and what it gives is only counted."""
    found: list[int] = []
    lowered: Any = jax.jit(program()).lower(X).compiler_ir("hlo")
    given = lowered.as_serialized_hlo_module_proto()

    def plan(module: bytes, token: str) -> None:
        assert execution_cuda._inside_xla(given, token)
        found.append(1)

    def stitches(jitted: Any) -> int:
        return len(found)

    def make() -> Any:
        found.clear()
        return fs.jit(program(), options=fs.Options(scorer="paper"))

    patch.setattr(xla_pass, "_state", xla_pass._State())
    assert REGISTER(plan, "cpu")
    try:
        yield ExecutionPath(make, stitches)
    finally:
        xla_pass.unregister()


REGISTER = xla_pass.register


@pytest.fixture(params=["emulator", "XLA"])
def execution(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ExecutionPath]:
    if request.param == "emulator":
        request.getfixturevalue("host_compiler")
        yield from through_the_emulator()
    else:
        request.getfixturevalue("nvrtc")
        request.getfixturevalue("marked")
        yield from inside_xla(monkeypatch)


def innermost(error: BaseException) -> str:
    """Our function that ran when `error` was raised: `call` is the one that calls jax.jit's, and
    no work of ours is under way below it."""
    frames = traceback.extract_tb(error.__traceback__)
    return [frame.name for frame in frames if PACKAGE in Path(frame.filename).parents][-1]


def test_what_a_handler_raises_comes_out_and_the_next_call_is_stitched(
    execution: ExecutionPath,
) -> None:
    execution.make()(X)  # what is loaded and built once
    whole = calls_of(functools.partial(execution.make(), X))
    came = 0
    lost: list[RecursionError] = []
    for step in range(STEPS):
        jitted, late = execution.make(), KINDS[step % len(KINDS)]("late")
        at = (2 * step + 1) * whole // (2 * STEPS)
        came += interrupted(at, late, functools.partial(jitted, X))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                result = np.asarray(jitted(X))
            except RecursionError as error:
                # a cache of JAX's own takes the call that was interrupted inside it for one that
                # still goes on: under jax.jit, JAX 0.10.2, after 1 of 400 interrupts, too
                lost.append(error)
                assert innermost(late) == "call"
                continue
        np.testing.assert_allclose(result, EXPECTED, rtol=1e-5, atol=1e-6)
        assert execution.stitches(jitted)
    assert came > len(lost)
    for error in lost:
        assert "Recursively calling <weakref" in str(error)
        assert innermost(error) == "call"


def test_programs_that_are_not_ours_lose_nothing_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass sees them too; a handler's exception is neither swallowed nor XLA's error."""
    monkeypatch.setattr(xla_pass, "_state", xla_pass._State())
    inside: list[int] = []
    transform = xla_pass.transform

    def sends(module: bytes) -> bytes | None:
        if inside:
            inside.clear()
            send()
        return transform(module)

    monkeypatch.setattr(xla_pass, "transform", sends)
    assert REGISTER(lambda module, token: None, "cpu")

    def lowered(number: int) -> Any:
        def fun(x: jax.Array) -> jax.Array:
            for _ in range(40):
                x = jnp.sin(x) * number
            return x

        return jax.jit(fun).lower(X)

    whole = calls_of(lowered(0).compile)
    for step in range(1, STEPS):
        interrupted(step * whole // STEPS, LateError("late"), lowered(step).compile)
    stage = lowered(STEPS)
    inside.append(1)
    assert interrupted(math.inf, LateError("late"), stage.compile)
    xla_pass.unregister()


# ---- the parts ----------------------------------------------------------------------------------


def test_an_entry_raises_once_it_is_left() -> None:
    error = LateError("late")

    def work(module: bytes) -> bytes | None:
        if module:
            raise error
        return b"reply"

    entry = Entry(work)

    def called() -> None:
        assert entry(b"module") is None
        for _ in range(2):  # the next step backwards at the latest
            pass

    assert entry(b"") == b"reply"
    gc.disable()  # as above
    try:
        for _ in range(200):  # more than calls that wait
            with pytest.raises(LateError) as caught:
                called()
            assert caught.value is error
            assert entry(b"") == b"reply"
    finally:
        gc.enable()


def test_calls_may_begin_inside_each_other_and_on_any_thread() -> None:
    def work(module: bytes) -> bytes | None:
        return module if len(module) > 40 else entry(module + b"x")

    entry = Entry(work)
    threads = [threading.Thread(target=entry, args=(b"",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert entry(b"") == b"x" * 41


def test_work_apart_gives_its_result_or_its_exception() -> None:
    def fail() -> None:
        raise ValueError("ours")

    assert apart.apart(lambda: 7) == 7
    found = apart.apart(fail)
    assert isinstance(found, Failed)
    assert str(found.error) == "ours"
    with pytest.raises(ValueError, match="ours"):
        apart.alone(fail)


def test_work_apart_stops_when_asked_to() -> None:
    ended = threading.Event()

    def work() -> None:
        send()
        try:
            while True:
                apart.check()
                time.sleep(0.001)
        finally:
            ended.set()

    assert interrupted(math.inf, LateError("late"), lambda: apart.apart(work))
    assert ended.wait(HANG)


def test_work_apart_carries_nothing_of_the_user_s() -> None:
    def state() -> tuple[Any, Any]:
        return np.geterr()["over"], jax.numpy.arange(2.0).dtype

    before = threading.stack_size(1 << 18)
    try:
        with np.errstate(over="raise"), jax.enable_x64(True):
            assert apart.alone(state) == ("warn", np.float32)
            assert state() == ("raise", np.float64)
        assert threading.stack_size() == 1 << 18
    finally:
        threading.stack_size(before)


def test_without_a_thread_work_runs_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert apart.apart(threading.get_ident) == threading.get_ident()


@pytest.mark.parametrize("error", [LateError("late"), RuntimeError("can't, the user says")])
def test_a_thread_begins_before_what_a_handler_raises(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Inside of Thread.start it would leave a thread that is neither known nor unknown."""
    begun, plain = threading.Event(), threading.Thread.start

    def start(thread: threading.Thread) -> None:
        signal.raise_signal(signal.SIGALRM)
        plain(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(type(error)) as caught, raising(error):
        apart.apart(begun.set)
    assert caught.value is error
    assert begun.wait(HANG)


def test_a_handler_s_runtime_error_is_the_user_s() -> None:
    def slow() -> None:
        send()
        ended.wait(HANG)

    ended = threading.Event()
    error = RuntimeError("the user's")
    assert interrupted(math.inf, error, lambda: apart.apart(slow))
    ended.set()


def test_a_compiler_nobody_waits_for_is_ended(tmp_path: Path) -> None:
    started = tmp_path / "started"
    script = tmp_path / "compiler"
    script.write_text(f"#!/bin/sh\necho $$ > {started}\nexec sleep 3000\n")
    script.chmod(0o755)
    error = LateError("late")

    def late(*_: object) -> None:
        if started.exists() and started.read_text().strip():
            raise error

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        with pytest.raises(LateError):
            apart.apart(lambda: toolchain._run([str(script)], HANG))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    process = int(started.read_text())
    for _ in range(60_000):  # how soon it ends is no matter
        if not Path(f"/proc/{process}").exists():
            break
        time.sleep(0.01)
    assert not Path(f"/proc/{process}").exists()
    assert str(script) not in toolchain._hung


def test_held_signals_come_afterwards_and_all_of_them() -> None:
    came: list[int] = []

    def first(number: int, frame: Any) -> None:
        came.append(number)
        raise LateError("first")

    def second(number: int, frame: Any) -> None:
        came.append(number)

    handlers = {signal.SIGUSR1: first, signal.SIGUSR2: second}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}

    def work() -> str:
        for number in handlers:
            signal.raise_signal(number)
        assert not came
        return "done"

    try:
        with pytest.raises(LateError, match="first"):
            held(work)
        assert sorted(came) == sorted(handlers)
        assert {number: signal.getsignal(number) for number in handlers} == handlers
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert isinstance(held(lambda: 1 // 0), Failed)


def test_a_signal_that_comes_as_handlers_are_put_back_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: came.append(number))
    plain = signal.signal

    def late(number: int, handler: Any) -> Any:
        if worked and not came:
            worked.clear()
            signal.raise_signal(signal.SIGUSR1)
        return plain(number, handler)

    worked: list[int] = []
    monkeypatch.setattr(signal, "signal", late)
    try:
        held(lambda: worked.append(1))
        assert came == [signal.SIGUSR1]
    finally:
        plain(signal.SIGUSR1, before)


def test_what_another_thread_throws_into_the_lowering_comes_out(
    host_compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As libraries do for timeouts, on any thread: no handler of a signal takes part."""
    lower, left = emulated_call.lower, [LateError]

    def interrupted(*args: Any) -> Any:
        while left:
            thread, error = ctypes.c_ulong(threading.get_ident()), ctypes.py_object(left.pop())
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, error)
        return lower(*args)

    monkeypatch.setattr(emulated_call, "lower", interrupted)
    jitted = fs.jit(program(), options=EMULATE)
    with pytest.raises(LateError):
        jitted(X)
    np.testing.assert_allclose(jitted(X), EXPECTED, rtol=1e-5, atol=1e-5)
    assert jitted.lower(X).compile().kernels


def test_a_process_that_ends_after_an_interrupted_compile_ends(tmp_path: Path) -> None:
    """The thread that stitches is told to stop, and nothing is cut off inside a library."""
    script = """
import os, signal, threading
import jax, numpy as np
import fusionstitch as fs
from fusionstitch.compiler import planning

plain = planning.draft

def draft(*args):
    os.kill(os.getpid(), signal.SIGINT)
    waiting.wait()
    return plain(*args)

waiting = threading.Event()
planning.draft = draft
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs behind
options = fs.Options(backend="emulate", scorer="paper")
f = fs.jit(lambda x: x * jax.numpy.exp(x), options=options)
try:
    f(np.ones(8, np.float32))
except KeyboardInterrupt:
    print("interrupted", flush=True)
waiting.set()
"""
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert (found.returncode, found.stdout.strip()) == (0, "interrupted"), found.stderr
    assert not found.stderr
