"""Functions that XLA has served for long: calls go to its jit, and new programs are still tried."""

from __future__ import annotations

import gc
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.errors import FusionStitchWarning
from fusionstitch.execution import deferred, served
from tests.trial.conftest import Stage, kinds, options

X = jnp.asarray(np.random.default_rng(0).standard_normal((8, 12), np.float32))
OURS = {"xla": 10.0, "c0": 5.0}
XLAS = {"xla": 10.0, "c0": 20.0}


def mixed(x: jax.Array, scale: float = 1.0) -> jax.Array:
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0) * scale


@pytest.fixture(autouse=True)
def _soon(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "DIRECT_AFTER", 3)
    stage.us = dict(XLAS)


def settled(fun: Callable[..., Any] | None = None, *args: Any, **keywords: Any) -> Any:
    """A function that is called directly, and what it was called with so far."""
    if fun is None:
        fun = lambda *args, **kwargs: mixed(*args, **kwargs)  # noqa: E731
    asked = keywords.pop("options", options())
    jitted = fs.jit(fun, options=asked, **keywords)
    for _ in range(5):
        jitted(*(args or (X,)))
    return jitted


def frames(call: Callable[[], Any]) -> int:
    """How many Python functions a call of JAX's fast path enters."""
    entered = []
    sys.setprofile(lambda frame, event, _: entered.append(frame) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(entered) - 1  # `call` itself


def as_jax(got: Any, fun: Any, *args: Any, **kwargs: Any) -> None:
    np.testing.assert_array_equal(got, jax.jit(fun)(*args, **kwargs))


def test_a_call_enters_no_python_once_xla_has_served_for_long() -> None:
    jitted = settled()
    assert frames(lambda: jitted(X)) == 0
    as_jax(jitted(X), mixed, X)
    assert frames(lambda: jax.jit(mixed)) > 0  # it counts
    assert jitted._cache_size() == 1


def test_a_call_of_a_stitched_program_stays_guarded(stage: Stage) -> None:
    stage.us = dict(OURS)
    jitted = settled()
    assert kinds(jitted) == {"c0"}
    assert frames(lambda: jitted(X)) > 0


@pytest.mark.parametrize("us", [OURS, XLAS])
def test_the_second_call_of_a_later_program_decides(stage: Stage, us: dict[str, float]) -> None:
    jitted = settled()
    timed, stage.us = stage.timed.copy(), dict(us)
    as_jax(jitted(X[:4]), mixed, X[:4])
    assert stage.timed == timed
    as_jax(jitted(X[:4]), mixed, X[:4])
    assert stage.timed["c0"] > timed["c0"]
    assert kinds(jitted) == {"xla", "c0"} if us is OURS else {"xla"}
    timed = stage.timed.copy()
    for x in (X, X[:4], X, X[:4], X):
        as_jax(jitted(x), mixed, x)
    assert stage.timed == timed
    assert (frames(lambda: jitted(X)) == 0) == (us is XLAS)


@pytest.mark.parametrize(
    "argument",
    [2.0, 3, True, np.float32(2), np.ones((8, 3)), np.ones((4, 4), np.float32), jnp.ones(2)],
    ids=lambda a: type(a).__name__,
)
def test_a_later_program_is_known_again_by_any_kind_of_argument(
    stage: Stage, argument: Any
) -> None:
    def fun(x: Any) -> Any:
        return jnp.sin(x) * 2

    jitted = settled(fun, X)
    stage.us = dict(OURS)
    for _ in range(2):
        as_jax(jitted(argument), fun, argument)
    assert kinds(jitted) == {"xla", "c0"}
    assert not jitted._fusionstitch.execution.served._undecided


def test_static_arguments_and_keywords(stage: Stage) -> None:
    def fun(x: jax.Array, *, scale: float) -> jax.Array:
        return mixed(x, scale)

    jitted = fs.jit(fun, options=options(), static_argnames="scale")
    for _ in range(5):
        jitted(X, scale=1.0)
    assert frames(lambda: jitted(X, scale=1.0)) == 0
    stage.us = dict(OURS)
    for _ in range(2):
        as_jax(jitted(X, scale=2.0), lambda x: mixed(x, 2.0), X)
    assert kinds(jitted) == {"xla", "c0"}


def test_equal_arguments_under_another_setting_of_jax_s_are_another_program(stage: Stage) -> None:
    jitted = settled()
    stage.us = dict(OURS)
    timed = stage.timed.copy()
    with jax.default_matmul_precision("highest"):
        for _ in range(2):
            as_jax(jitted(X), mixed, X)
    assert stage.timed == timed  # the text is that of the known program, and so is its outcome
    assert kinds(jitted) == {"xla"}
    as_jax(jitted(X), mixed, X)


def test_a_program_that_does_not_come_again_is_waited_for_no_longer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "ONCE_AFTER", 4)
    jitted = settled()
    jitted(X[:4])
    assert frames(lambda: jitted(X)) > 0
    for _ in range(8):
        jitted(X)
    assert frames(lambda: jitted(X)) == 0
    as_jax(jitted(X[:4]), mixed, X[:4])


def test_errors_in_a_later_program_have_no_frames_of_ours() -> None:
    def fun(x: jax.Array) -> jax.Array:
        return x.reshape(8, 12) + 1

    jitted = settled(fun, X)
    for _ in range(2):  # directly, and then not
        with pytest.raises(TypeError, match="reshape") as raised:
            jitted(X[:4])
        files = [frame.filename for frame in traceback.extract_tb(raised.value.__traceback__)]
        assert not [file for file in files if "fusionstitch/" in file and "tests/" not in file]
    as_jax(jitted(X), fun, X)


def test_what_is_deferred_is_delivered_by_the_next_call() -> None:
    jitted = settled()
    deferred.defer_warning("another", "it was not to be.")
    with pytest.warns(FusionStitchWarning, match="it was not to be"):
        jitted(X)
    for _ in range(4):
        jitted(X)
    assert frames(lambda: jitted(X)) == 0


def test_where_errors_are_asked_for_every_first_call_decides(stage: Stage) -> None:
    def fun(x: jax.Array) -> jax.Array:
        return mixed(x)

    jitted = settled(fun, X, options=options(fallback="error"))
    assert frames(lambda: jitted(X)) > 0
    settled(fun, X)  # directly
    stage.us = dict(OURS)
    jitted(X[:4])
    assert kinds(jitted) == {"xla", "c0"}


def test_wrappers_of_a_function_go_together(stage: Stage) -> None:
    def fun(x: jax.Array) -> jax.Array:
        return mixed(x)

    first = settled(fun, X)
    later = fs.jit(fun, options=options())
    as_jax(later(X), fun, X)
    assert frames(lambda: later(X)) == 0
    stage.us = dict(OURS)
    for jitted in (first, later):
        as_jax(jitted(X[:4]), fun, X[:4])
    assert kinds(first) == kinds(later) == {"xla", "c0"}


def test_other_options_decide_on_their_own_about_what_one_let_pass(stage: Stage) -> None:
    def fun(x: jax.Array) -> jax.Array:
        return mixed(x)

    other = fs.jit(fun, options=options(numerics="strict"))
    other(X)
    jitted = settled(fun, X)
    stage.us = dict(OURS)
    for _ in range(2):
        as_jax(other(X[:4]), fun, X[:4])
    assert kinds(other) == {"xla", "c0"}
    assert kinds(jitted) == {"xla"}


def test_transformations_of_what_is_called_directly(stage: Stage) -> None:
    jitted, timed = settled(), stage.timed.copy()
    stacked = jnp.stack([X, X])
    as_jax(jax.vmap(jitted)(stacked), jax.vmap(mixed), stacked)
    grads = (jax.grad(lambda x, f=f: f(x).sum())(X) for f in (jitted, mixed))
    np.testing.assert_allclose(*grads, 1e-5, 1e-6)
    np.testing.assert_allclose(jax.jit(lambda x: jitted(x) + 1)(X[:4]), mixed(X[:4]) + 1, 1e-6)
    with jax.disable_jit():
        np.testing.assert_allclose(jitted(X), mixed(X), 1e-6)
    assert stage.timed == timed
    as_jax(jitted(X), mixed, X)


def test_what_is_forgotten_is_decided_on_again(stage: Stage) -> None:
    jitted = settled()
    jitted.clear_cache()
    assert jitted._cache_size() == 0
    for _ in range(6):
        as_jax(jitted(X), mixed, X)
    assert frames(lambda: jitted(X)) == 0
    jax.clear_caches()
    as_jax(jitted(X), mixed, X)
    as_jax(jitted(X), mixed, X)
    assert kinds(jitted) == {"xla"}


def test_it_is_freed_at_once() -> None:
    def fun(x: jax.Array) -> jax.Array:
        return mixed(x)

    jitted = settled(fun, X)
    gone = [weakref.ref(jitted), weakref.ref(fun), weakref.ref(jitted._fusionstitch.execution)]
    gc.disable()
    try:
        del jitted, fun
        assert [one() for one in gone] == [None] * 3
    finally:
        gc.enable()


def test_methods_and_donated_arguments() -> None:
    class Model:
        @fs.jit(options=options(), donate_argnums=1, static_argnums=0)
        def step(self, state: dict[str, jax.Array]) -> dict[str, jax.Array]:
            return {"w": state["w"] * 0.5}

    model, state = Model(), {"w": X + 0}
    for _ in range(6):
        given, state = state, model.step(state)
    assert given["w"].is_deleted()
    np.testing.assert_array_equal(state["w"], X * 0.5**6)


def test_threads_bring_new_programs_at_once(stage: Stage) -> None:
    """Of calls that have begun directly none sees how programs are told to be new."""
    jitted = settled()
    stage.us = dict(OURS)
    begin, wrong = threading.Barrier(4), []

    def work(rows: int) -> None:
        begin.wait()
        for number in range(6):
            x = X[: 1 + (rows + number) % 7]
            try:
                np.testing.assert_allclose(jitted(x), mixed(x), 1e-4, 1e-6)
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    as_jax(jitted(X), mixed, X)
