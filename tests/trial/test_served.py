"""What wrappers and threads of a function share: what serves, and what is released."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.arguments import Statics
from fusionstitch.execution.served import Served
from fusionstitch.execution.variants import frozen, shared
from fusionstitch.trial import outcome, triable
from tests.trial.conftest import Stage, kinds, options

X = jnp.asarray(np.random.default_rng(0).standard_normal((8, 12), np.float32))


def mixed(x: jax.Array) -> jax.Array:
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)


class Jit:
    """As jax.jit; counts how often its cache is cleared."""

    def __init__(self, kind: str, cleared: Counter[str]):
        self.kind, self.cleared = kind, cleared

    def clear_cache(self) -> None:
        self.cleared[self.kind] += 1


def on_a_thread(work: Any) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_what_another_thread_has_on_trial_is_not_let_go() -> None:
    cleared: Counter[str] = Counter()
    served = Served(lambda kind: Jit(kind, cleared), Statics(mixed, {}))

    def decide(x: jax.Array) -> None:
        with served.deciding():
            served.jit("c0")
            served.add((x,), {}, "xla")
            served.forget_losers()

    with served.deciding():
        on_trial = served.jit("c0")
        on_a_thread(lambda: decide(X))
        assert served.jit("c0") is on_trial
        assert not cleared
        served.add((X[:4],), {}, "xla")
        served.forget_losers()
    assert cleared == {"c0": 1}
    decide(X[:2])  # where a trial ends in an error nothing is held for ever
    assert cleared == {"c0": 2}


def test_threads_have_one_jit_of_a_kind() -> None:
    made = threading.Barrier(2)
    cleared: Counter[str] = Counter()
    count: Counter[str] = Counter()

    def make(kind: str) -> Jit:
        count[kind] += 1
        return Jit(kind, cleared)

    served = Served(make, Statics(mixed, {}))
    found: list[Any] = []

    def ask() -> None:
        made.wait()
        found.append(served.jit("c0"))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] is found[1]
    assert count == {"c0": 1}


def test_keywords_are_a_key_where_they_have_a_hash() -> None:
    assert frozen({"a": [1, {"b": (2,)}], "c": None}) == frozen({"c": None, "a": [1, {"b": (2,)}]})
    assert frozen({"a": [1]}) != frozen({"a": (1,)})
    assert frozen({"a": {1}}) is None


def test_what_is_shared_is_of_one_function() -> None:
    class Two:
        def __call__(self) -> None: ...

        def method(self) -> None: ...

    one, other = Two(), Two()
    assert shared(one, "key", lambda held: [held]) is shared(one, "key", lambda held: [held])
    assert shared(one, "key", lambda held: [held]) is not shared(other, "key", lambda held: [held])
    assert shared(one, "key", lambda held: [held]) is not shared(one, "lock", lambda held: [held])
    assert shared(one, None, lambda held: [held]) is not shared(one, None, lambda held: [held])
    held = one.method
    assert shared(held, "key", lambda of: [of])[0]() is held
    assert shared(one.method, "key", lambda of: [of])[0]() == held


def test_arrays_of_the_host_decide_nothing_for_those_of_a_gpu(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    jitted = fs.jit(mixed, options=options())
    with monkeypatch.context() as patched:
        patched.setattr(jax, "default_backend", lambda: "gpu")
        for _ in range(2):
            assert (jitted(X) == jax.jit(mixed)(X)).all()
    assert not stage.timed
    assert not kinds(jitted)
    assert (jitted(X) == jax.jit(mixed)(X)).all()
    assert kinds(jitted) == {"c0"}
    assert stage.timed["c0"] > 0


def test_a_default_device_says_where_a_call_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    committed = jax.device_put(X, jax.devices("cpu")[0])
    numbers = np.ones(3)
    assert all(map(triable.here, (X, committed, numbers, ())))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert not triable.here(committed)
    assert triable.here((numbers, 1))
    for device in ("cpu", jax.devices("cpu")[0]):
        with jax.default_device(device):
            assert not any(map(triable.here, (X, committed, numbers, ())))


def test_a_program_whose_plan_is_lost_is_tried_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fusionstitch.compiler import builders

    def later() -> Any:
        monkeypatch.setattr(outcome, "_known", {})
        jitted = fs.jit(lambda x: mixed(x), options=options())
        stage.timed.clear()
        assert (jitted(X) == jax.jit(mixed)(X)).all()
        return jitted

    assert kinds(later()) == {"c0"}
    assert stage.timed["c0"] > 0
    assert kinds(later()) == {"c0"}
    assert not stage.timed
    store = builders.store()
    kept, lost = store.get, outcome.plan_key("plan of c0")
    monkeypatch.setattr(store, "get", lambda key: None if key == lost else kept(key))
    stage.us = {"xla": 1.0, "c0": 5.0}
    assert kinds(later()) == {"xla"}
    assert stage.timed["c0"] > 0
    assert kinds(later()) == {"xla"}
    assert not stage.timed
