"""The trial when a function is called: what serves, how often the user's code runs, what is
stored."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.errors import FusionStitchWarning, StitchError
from fusionstitch.execution.cuda import Cuda
from fusionstitch.execution.cuda_with_trials import CudaWithTrials
from fusionstitch.trial import alternation, fewer, outcome, request, trial
from tests.trial.conftest import Stage, kinds, options

X = jnp.asarray(np.random.default_rng(0).standard_normal((8, 12), np.float32))


def mixed(x: jax.Array) -> jax.Array:
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)


class Counted:
    """A function, and how often Python ran it."""

    __name__ = "mixed"

    def __init__(self) -> None:
        self.traces = 0

    def __call__(self, x: jax.Array, *, flip: bool = False) -> jax.Array:
        self.traces += 1
        return mixed(-x if flip else x)


def test_the_faster_one_serves_and_the_user_s_code_is_traced_once(stage: Stage) -> None:
    fun = Counted()
    jitted = fs.jit(fun, options=options())
    assert (jitted(X) == jax.jit(mixed)(X)).all()
    assert kinds(jitted) == {"c0"}
    assert fun.traces == 1
    timed = stage.timed.copy()
    assert timed["xla"] > 0 < timed["c0"]
    for _ in range(3):
        jitted(X)
    assert (fun.traces, stage.timed) == (1, timed)
    assert jitted._cache_size() == 1


@pytest.mark.parametrize(
    ("us", "wall_us"),
    [
        ({"xla": 10.0, "c0": 20.0}, {}),
        ({"xla": 10.0, "c0": 10.0}, {}),
        ({"xla": 46.6, "c0": 43.3}, {"xla": 67.0, "c0": 84.0}),
    ],
    ids=["slower", "equal", "slower for the host alone"],
)
def test_xla_serves_where_ours_is_no_faster(
    stage: Stage, us: dict[str, float], wall_us: dict[str, float]
) -> None:
    stage.us, stage.wall_us = us, wall_us
    fun = Counted()
    jitted = fs.jit(fun, options=options())
    for _ in range(3):
        assert (jitted(X) == jax.jit(mixed)(X)).all()
    assert kinds(jitted) == {"xla"}
    assert fun.traces == 1
    assert stage.compiled == {"xla": 1, "c0": 1}


def test_nothing_is_timed_where_nothing_is_stitched(stage: Stage) -> None:
    stage.patterns = 0
    jitted = fs.jit(mixed, options=options())
    assert (jitted(X) == jax.jit(mixed)(X)).all()
    assert kinds(jitted) == {"xla"}
    assert stage.timed["c0"] == 0


def test_each_program_of_a_function_has_its_own_winner(stage: Stage) -> None:
    fun = Counted()
    jitted = fs.jit(fun, options=options(), static_argnames="flip")
    jitted(X, flip=False)
    stage.us = {"xla": 1.0, "c0": 5.0}
    jitted(X[:4], flip=False)
    jitted(X, flip=True)
    assert kinds(jitted) == {"c0", "xla"}
    timed = stage.timed.copy()
    for args, flip in ((X, False), (X[:4], False), (X, True), (X, False)):
        wanted = jax.jit(mixed)(-args if flip else args)
        assert (jitted(args, flip=flip) == wanted).all()
    assert (stage.timed, fun.traces) == (timed, 3)


def test_jits_of_one_function_leave_each_other_what_serves(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    def fun(x: jax.Array) -> jax.Array:
        return mixed(x)

    fs.jit(fun, options=options())(X)
    stage.us = {"xla": 1.0, "c0": 5.0}
    fs.jit(fun, options=options())(X[:4])
    with jax.log_compiles():
        for x in (X, X[:4], X):
            assert (fs.jit(fun, options=options())(x) == jax.jit(mixed)(x)).all()
    compiled = [one for one in caplog.messages if "XLA compilation of jit(fun)" in one]
    assert not compiled


@pytest.mark.parametrize("keywords", [{}, {"static_argnames": ["flip"], "donate_argnums": ()}])
def test_wrappers_of_one_function_are_as_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, keywords: dict[str, Any]
) -> None:
    """Nothing is traced, lowered or decided once more."""
    lowered, lower = [], jax.stages.Traced.lower

    def counted(self: Any, *args: Any, **keywords: Any) -> Any:
        lowered.append(self.fun_name)
        return lower(self, *args, **keywords)

    def called(x: jax.Array) -> Any:
        jitted = fs.jit(fun, options=options(), **keywords)
        assert (jitted(x) == jax.jit(mixed)(x)).all()
        return jitted

    fun = Counted()
    assert kinds(called(X)) == {"c0"}
    stage.us = {"xla": 1.0, "c0": 5.0}
    assert kinds(called(X[:4])) == {"c0", "xla"}
    monkeypatch.setattr(jax.stages.Traced, "lower", counted)
    for x in (X, X[:4], X):
        jitted = called(x)
    assert not lowered
    assert fun.traces == 2
    assert jitted._cache_size() == 2


def test_other_options_and_keywords_are_decided_on_alone(stage: Stage) -> None:
    def fun(x: jax.Array) -> jax.Array:
        return mixed(x)

    made = [fs.jit(fun, options=options())]
    made += [fs.jit(fun, options=options(numerics="strict"))]
    made += [fs.jit(fun, options=options(fallback="error"))]
    made += [fs.jit(fun, options=options(), inline=True)]
    made += [fs.jit(fun, options=options(), compiler_options={"xla_cpu_enable_fast_math": True})]
    paths = [one._fusionstitch.execution for one in made]
    assert len({id(execution.served) for execution in paths}) == 5
    again = fs.jit(fun, options=options(), compiler_options={"xla_cpu_enable_fast_math": True})
    assert again._fusionstitch.execution.served is paths[-1].served


def test_what_fails_leaves_other_wrappers_as_they_are(stage: Stage) -> None:
    def fun(x: jax.Array) -> jax.Array:
        return mixed(x)

    jitted, other = (fs.jit(fun, options=options()) for _ in range(2))
    jitted(X)
    with pytest.warns(FusionStitchWarning, match="broken"):
        jitted._fusionstitch.execution.recovery.leave("broken", ValueError())
    jitted._fusionstitch.execution._left()
    assert (jitted(X) == other(X)).all()
    assert (kinds(jitted), kinds(other)) == ({"xla"}, {"c0"})


def test_a_later_process_uses_stored_outcomes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for us, kind in ((5.0, "c0"), (20.0, "xla")):
        stage.us = {"xla": 10.0, "c0": us}
        fun: Callable[[jax.Array], jax.Array] = lambda x, us=us: mixed(x) * us  # noqa: E731
        fs.jit(fun, options=options())(X)
        timed = stage.timed.copy()
        monkeypatch.setattr(outcome, "_known", {})
        again = fs.jit(lambda x, us=us: mixed(x) * us, options=options())
        again(X)
        assert kinds(again) == {kind}
        assert stage.timed == timed


def test_donated_arguments_are_copied_for_the_trial_and_gone_after_the_call(stage: Stage) -> None:
    def step(state: dict[str, jax.Array], x: jax.Array) -> dict[str, jax.Array]:
        return {"w": state["w"] + mixed(x)}

    jitted = fs.jit(step, donate_argnums=0, options=options())
    state = {"w": jnp.ones_like(X)}
    given = state["w"]
    with pytest.warns(UserWarning, match="donated") if not _donates() else _nothing():
        state = jitted(state, X)
    assert given.is_deleted() == _donates()
    assert not X.is_deleted()
    np.testing.assert_array_equal(state["w"], jax.jit(step)({"w": jnp.ones_like(X)}, X)["w"])
    assert stage.timed["c0"] > 0


def _donates() -> bool:
    x = jnp.ones(3) + 0
    jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    return x.is_deleted()


def _nothing() -> Any:
    import contextlib

    return contextlib.nullcontext()


def test_programs_with_effects_run_once_a_call(stage: Stage) -> None:
    seen: list[float] = []

    def with_callback(x: jax.Array) -> jax.Array:
        jax.debug.callback(lambda s: seen.append(float(s)), x.sum())
        return mixed(x)

    jitted = fs.jit(with_callback, options=options())
    for _ in range(3):
        jax.block_until_ready(jitted(X))
    jax.effects_barrier()
    assert len(seen) == 3
    assert not stage.timed
    assert kinds(jitted) == {"direct"}


@pytest.mark.parametrize(("us", "kind"), [(5.0, "c0"), (20.0, "xla")])
def test_programs_with_effects_alternate_on_real_calls_if_asked_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, us: float, kind: str
) -> None:
    seen: list[float] = []
    stage.us = {"xla": 10.0, "c0": us}

    def with_callback(x: jax.Array) -> jax.Array:
        jax.debug.callback(lambda s: seen.append(float(s)), x.sum())
        return mixed(x)

    jitted = fs.jit(with_callback, options=options(trial="calls"))
    monkeypatch.setattr(alternation, "time", Ticking(stage))
    for number in range(2 * alternation.CALLS + 3):
        assert (jitted(X) == jax.jit(mixed)(X)).all()
        jax.effects_barrier()
        assert len(seen) == number + 1
    assert kinds(jitted) == {kind}
    assert jitted(X[:4]).shape == (4, 12)  # another program takes turns of its own
    assert jitted(X).shape == X.shape


def test_a_call_inside_another_program_does_not_count(stage: Stage) -> None:
    def with_callback(x: jax.Array) -> jax.Array:
        jax.debug.callback(lambda s: None, x.sum())
        return mixed(x)

    jitted = fs.jit(with_callback, options=options(trial="calls"))
    jitted(X)
    [taking] = jitted._fusionstitch.execution.served._alternations.values()
    taken = str(taking._taken)
    jax.jit(lambda x: jitted(x) + 1).lower(X)
    jax.make_jaxpr(jitted)(X)
    assert str(taking._taken) == taken


def test_xla_serves_where_the_alternating_stitched_program_cannot_be_compiled(stage: Stage) -> None:
    seen: list[float] = []

    def with_callback(x: jax.Array) -> jax.Array:
        jax.debug.callback(lambda s: seen.append(float(s)), x.sum())
        return mixed(x)

    stage.broken = "c0"
    jitted = fs.jit(with_callback, options=options(trial="calls"))
    with pytest.warns(FusionStitchWarning, match="XLA refused the stitched program: INTERNAL"):
        found = jitted(X)
    assert (found == jax.jit(mixed)(X)).all()
    jitted(X)
    jax.effects_barrier()
    assert len(seen) == 2


class Ticking:
    """The host's clock, by which calls take what a stage says, in turns."""

    def __init__(self, stage: Stage):
        self.stage, self.now, self.readings = stage, 0.0, 0

    def perf_counter(self) -> float:
        self.readings += 1
        if self.readings % 2 == 0:
            kind = "c0" if self.readings % 4 == 2 else "xla"
            self.now += self.stage.us[kind] / 1e6
        return self.now


def test_nothing_is_tried_inside_of_a_trace(stage: Stage) -> None:
    jitted = fs.jit(mixed, options=options())
    wanted = jax.jit(mixed)(X)
    np.testing.assert_allclose(jax.jit(lambda x: jitted(x) + 1)(X), wanted + 1, 1e-6)
    np.testing.assert_allclose(jax.jit(lambda: jitted(X))(), wanted, 1e-6)
    jax.vmap(jitted)(jnp.stack([X, X]))
    jax.grad(lambda x: jitted(x).sum())(X)
    jax.eval_shape(jitted, X)
    assert not stage.timed
    assert (jitted(X) == wanted).all()
    assert kinds(jitted) == {"c0"}


def test_nothing_is_tried_op_by_op(stage: Stage) -> None:
    jitted = fs.jit(mixed, options=options())
    with jax.disable_jit():
        np.testing.assert_allclose(jitted(X), mixed(X), 1e-6)
    assert not stage.timed


def test_nothing_is_tried_while_jax_checks_each_run(stage: Stage) -> None:
    drawn = lambda key: mixed(jax.random.normal(key, X.shape))  # noqa: E731
    with jax.debug_key_reuse(True):
        key = jax.random.key(0)
        jitted = fs.jit(drawn, options=options())
        jitted(key)
        with pytest.raises(jax.errors.KeyReuseError):
            jitted(key)
    with jax.debug_nans(True):
        fs.jit(mixed, options=options())(X)
    assert not stage.timed
    assert not outcome._known


@pytest.mark.parametrize("changes", [{"trial": "off"}, {"scorer": "model"}, {"scorer": "paper"}])
def test_options_leave_the_trial_out(stage: Stage, changes: dict[str, str]) -> None:
    asked = options().replace(**changes)
    jitted = fs.jit(mixed, options=asked)
    jitted(X)
    execution = jitted._fusionstitch.execution
    assert isinstance(execution, Cuda)
    assert not isinstance(execution, CudaWithTrials)


def test_half_of_a_loser_s_patterns_are_tried_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter([2, 1])
    monkeypatch.setattr(trial, "fewer", lambda planned, judge: next(left, None) and planned)
    stage.us = {"xla": 10.0, "c0": 20.0, "c1": 11.0, "c2": 7.0}
    jitted = fs.jit(mixed, options=options())
    jitted(X)
    assert kinds(jitted) == {"c2"}
    assert stage.compiled == {"xla": 1, "c0": 1, "c1": 1, "c2": 1}
    [found] = outcome._known.values()
    assert [one.span_us for one in found.times] == [20.0, 11.0, 7.0]
    assert fewer.LEFT == outcome.LEFT


def test_an_attempt_that_cannot_be_compiled_is_left_to_xla_with_a_warning(stage: Stage) -> None:
    stage.broken = "c0"
    jitted = fs.jit(mixed, options=options())
    with pytest.warns(FusionStitchWarning, match="XLA refused the stitched program: INTERNAL"):
        found = jitted(X)
    assert (found == jax.jit(mixed)(X)).all()
    assert (jitted(X[:4]) == jax.jit(mixed)(X[:4])).all()  # no second warning
    jitted.clear_cache()
    assert (jitted(X) == jax.jit(mixed)(X)).all()  # nor is it tried again
    strict = fs.jit(lambda x: mixed(x), options=options(fallback="error"))
    with pytest.raises(StitchError, match=r"XLA refused .* a kernel is broken\. Use fallback"):
        strict(X)


def test_errors_of_the_user_s_stay_as_they_are(stage: Stage) -> None:
    def wrong(x: jax.Array) -> jax.Array:
        return jnp.reshape(x, (5, 5))

    with pytest.raises(TypeError, match="cannot reshape") as raised:
        fs.jit(wrong, options=options())(X)
    assert raised.value.__context__ is None or "NewProgram" not in repr(raised.value.__context__)


def test_threads_hold_one_trial_of_a_program(stage: Stage) -> None:
    jitted = fs.jit(mixed, options=options())
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(jitted(X))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all((one == results[0]).all() for one in results)
    assert stage.compiled == {"xla": 1, "c0": 1}


def test_a_program_that_calls_back_may_call_another_one(stage: Stage) -> None:
    inner = fs.jit(mixed, options=options())

    def outer(x: jax.Array) -> jax.Array:
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(lambda x: np.asarray(inner(jnp.asarray(x))), shape, x) + 1

    found = fs.jit(outer, options=options())(X)
    np.testing.assert_allclose(found, jax.jit(mixed)(X) + 1, 1e-6)


def test_arguments_are_awaited_before_the_trial(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they wait for may be a callback that needs a trial of its own."""
    inner, waits = fs.jit(lambda x: mixed(x) + 1, options=options()), jax.block_until_ready
    found: list[Any] = []

    def waiting(tree: Any) -> Any:
        if not found and any(leaf is X for leaf in jax.tree.leaves(tree)):
            assert not request._lock.locked()
            called = threading.Thread(target=lambda: found.append(inner(X + 0)))
            called.start()
            called.join()
        return waits(tree)

    monkeypatch.setattr(jax, "block_until_ready", waiting)
    fs.jit(mixed, options=options())(X)
    assert len(found) == 1
    assert stage.compiled == {"xla": 2, "c0": 2}


def test_options_of_a_jit_are_of_its_programs_keys(stage: Stage) -> None:
    fs.jit(mixed, options=options())(X)
    fs.jit(mixed, options=options(numerics="strict"))(X)
    fs.jit(mixed, options=options(), donate_argnums=())(X)
    assert len(outcome._known) == 2


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Checked:
    """A class of the user's that takes nothing but matrices."""

    x: jax.Array

    def __post_init__(self) -> None:
        if self.x.ndim != 2:
            raise ValueError("x must be a matrix")


def test_classes_of_the_user_s_are_made_of_arrays_alone(stage: Stage) -> None:
    """JAX's stages put other things into those of arguments: such programs run untried."""

    def step(state: Checked) -> Checked:
        return Checked(mixed(state.x))

    def made(x: jax.Array) -> Checked:
        return Checked(mixed(x))

    jitted = fs.jit(step, options=options())
    assert (jitted(Checked(X)).x == jax.jit(step)(Checked(X)).x).all()
    assert kinds(jitted) == {"direct"}
    jitted = fs.jit(made, options=options())
    assert (jitted(X).x == jax.jit(made)(X).x).all()
    assert kinds(jitted) == {"c0"}
