"""What goes wrong under jax.jit goes wrong the same way under fs.jit, on every execution path."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify
from jax.extend.core import Primitive

import fusionstitch as fs
from fusionstitch.errors import FusionStitchWarning
from fusionstitch.execution import deferred
from tests.behaviour.same import assert_same, outcome
from tests.behaviour.table import Jit, mixed

X = jnp.asarray(np.random.default_rng(0).standard_normal((4, 6), np.float32))


def scaled(x: jax.Array, n: Any = 2, *, shift: float = 0.0) -> jax.Array:
    return mixed(x) * n + shift


ERRORS: dict[str, Callable[[Jit], Any]] = {}


def _leaked(jit: Jit) -> Any:
    kept = []

    def keeps(x: jax.Array) -> jax.Array:
        kept.append(x)
        return mixed(x)

    jit(keeps)(X)
    return kept[-1] + 1


def _donated_twice(jit: Jit) -> Any:
    jitted, p = jit(lambda p: mixed(p) + p, donate_argnums=0), jnp.array(X)
    jitted(p)
    return jitted(p)


def _same_buffer_donated(jit: Jit) -> Any:
    p = jnp.array(X)
    return jit(lambda p, q: (mixed(p), q + 1), donate_argnums=(0, 1))(p, p)


def _checked(jit: Jit, outside: bool) -> Any:
    def fun(x: jax.Array) -> jax.Array:
        checkify.check(x.sum() > 100, "a sum of {s}", s=x.sum())
        return mixed(x)

    found, _ = (checkify.checkify(jit(fun)) if outside else jit(checkify.checkify(fun)))(X)
    return found.throw()


def _nan(jit: Jit) -> Any:
    with jax.debug_nans(True):
        return jit(lambda x: jnp.log(mixed(x) - 1.0))(X)


def _checking_leaks(jit: Jit) -> Any:
    with jax.checking_leaks():
        return _leaked(jit)


def _grown(carry: Any, _: Any) -> Any:
    return (carry, carry), None


def _branches(x: jax.Array) -> Any:
    return jax.lax.cond(x[0, 0] > 0, lambda: mixed(x), lambda: x.sum())


def _without_a_rule(jit: Jit) -> Any:
    primitive = Primitive("without_a_rule")
    primitive.def_abstract_eval(lambda x: x)
    return jit(lambda x: mixed(primitive.bind(x)))(X)


def _without_a_rule_beside_a_reference(jit: Jit) -> Any:
    ref = jax.new_ref(X)
    primitive = Primitive("without_a_rule")
    primitive.def_abstract_eval(lambda x: x)
    return jit(lambda x: primitive.bind(x) + ref[...])(X)


def _on_two_devices(jit: Jit) -> Any:
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jit(scaled, in_shardings=(sharding,))(X, 3)


def _freed_twice(jit: Jit) -> Any:
    def fun(x: jax.Array) -> None:
        ref = jax.new_ref(mixed(x))
        jax.free_ref(ref)
        jax.free_ref(ref)

    jitted = jit(fun)
    for _ in range(2):
        try:
            jitted(X)
        except KeyError:  # JAX names the reference by a number
            continue
        raise AssertionError("nothing was raised")
    raise KeyError("a reference")


def _key_used_twice(jit: Jit, closed_over: bool, in_one_call: bool) -> Any:
    key = jax.random.key(0)

    def drawn(key: Any) -> jax.Array:
        return mixed(jax.random.normal(key, (4, 6)))

    def twice(key: Any) -> jax.Array:
        return drawn(key) + drawn(key)

    fun = twice if in_one_call else drawn
    jitted = jit(lambda: fun(key)) if closed_over else jit(fun)
    given = () if closed_over else (key,)
    with jax.debug_key_reuse(True):
        return [jitted(*given) for _ in range(1 if in_one_call else 2)]


ERRORS |= {
    "a reference freed twice": _freed_twice,
    "a key used by two calls": lambda jit: _key_used_twice(jit, False, False),
    "a key used twice by a call": lambda jit: _key_used_twice(jit, False, True),
    "a key closed over, used by two calls": lambda jit: _key_used_twice(jit, True, False),
    "a key closed over, used twice by a call": lambda jit: _key_used_twice(jit, True, True),
    "a primitive without a lowering rule": _without_a_rule,
    "such a primitive beside a reference": _without_a_rule_beside_a_reference,
    "shardings for fewer arguments": _on_two_devices,
    "shapes that do not fit": lambda jit: jit(lambda x: mixed(x) @ x)(X),
    "a branch on a traced value": lambda jit: jit(lambda x: x if x.sum() > 0 else -x)(X),
    "an index of a list": lambda jit: jit(lambda x: [1, 2][x.astype(int)[0, 0]])(X),
    "a traced value to NumPy": lambda jit: jit(lambda x: np.asarray(x))(X),
    "a traced shape": lambda jit: jit(lambda n: jnp.zeros(n))(3),
    "an unhashable static argument": lambda jit: jit(scaled, static_argnums=1)(X, [1]),
    "an unhashable static name": lambda jit: jit(scaled, static_argnames="n")(X, n=[1]),
    "an argument that is no array": lambda jit: jit(scaled)("text"),
    "an object": lambda jit: jit(scaled)({"a": scaled}),
    "a result that is no array": lambda jit: jit(lambda x: "text")(X),
    "no argument": lambda jit: jit(scaled)(),
    "too many arguments": lambda jit: jit(scaled)(X, 1, 2),
    "an unknown keyword": lambda jit: jit(scaled)(X, width=2),
    "an integer too large": lambda jit: jit(lambda x, n: x * n)(X, 2**70),
    "a donated argument out of range": lambda jit: jit(scaled, donate_argnums=5),
    "a static argument out of range": lambda jit: jit(scaled, static_argnums=7),
    "an unknown static name": lambda jit: jit(scaled, static_argnames="zz"),
    "no function": lambda jit: jit(3),
    "an error of the user": lambda jit: jit(lambda x: {}["missing"])(X),
    "a leaked tracer": _leaked,
    "a leak looked for": _checking_leaks,
    "an argument used after donation": _donated_twice,
    "a buffer donated twice": _same_buffer_donated,
    "a donation of no use": lambda jit: jit(lambda p: p.sum(), donate_argnums=0)(jnp.array(X)),
    "a failed check outside": lambda jit: _checked(jit, outside=True),
    "a failed check inside": lambda jit: _checked(jit, outside=False),
    "a NaN looked for": _nan,
    "a loop whose carry grows": lambda jit: jit(lambda x: jax.lax.scan(_grown, x, None, 2))(X),
    "branches of unlike types": lambda jit: jit(_branches)(X),
    "a compiled program with another shape": lambda jit: jit(scaled).lower(X).compile()(X[:2]),
    "a compiled program with another dtype": lambda jit: (
        jit(scaled).lower(X).compile()(X.astype(jnp.bfloat16))
    ),
    "a compiled program with another tree": lambda jit: jit(scaled).lower(X).compile()((X,)),
    "a compiled program under a transformation": lambda jit: jax.jit(
        lambda x: jit(scaled).lower(x).compile()(x)
    )(X),
    "a gradient of no scalar": lambda jit: jax.grad(jit(scaled))(X),
    "a map over unequal sizes": lambda jit: jax.vmap(jit(lambda x, y: x + y))(X, X[:2]),
    "a keyword beside in_shardings": lambda jit: jit(
        scaled, in_shardings=jax.sharding.SingleDeviceSharding(jax.devices()[0])
    )(X, n=3),
    "a compiler option that is none": lambda jit: (
        jit(scaled).lower(X).compile({"xla_is_no_option": 1})
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_and_warnings_are_those_of_jax_jit(name: str, jit: Jit) -> None:
    run = ERRORS[name]
    ours, theirs = outcome(lambda: run(jit)), outcome(lambda: run(jax.jit))
    assert ours == theirs
    assert theirs != (None, [])


@pytest.mark.parametrize("stage", ["lower", "trace"])
def test_a_reference_freed_twice_is_reported_by_stages_too(jit: Jit, stage: str) -> None:
    def fun(x: jax.Array) -> None:
        ref = jax.new_ref(mixed(x))
        jax.free_ref(ref)
        jax.free_ref(ref)

    with pytest.raises(KeyError):
        jit(fun).lower(X) if stage == "lower" else jit(fun).trace(X).lower()


def test_a_failed_trace_is_tried_again(jit: Jit) -> None:
    broken = [True]

    def fun(x: jax.Array) -> jax.Array:
        if broken[0]:
            raise RuntimeError("not yet")
        return mixed(x)

    jitted = jit(fun)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="not yet"):
            jitted(X)
    broken[0] = False
    assert_same(jitted(X), jax.jit(mixed)(X), committed=False)


def test_copies_are_functions_of_their_own(jit: Jit) -> None:
    jitted = jit(scaled, static_argnums=1)
    want = jitted(X, 3)
    for made in (copy.copy(jitted), copy.deepcopy(jitted), copy.deepcopy({"f": jitted})["f"]):
        assert made is not jitted
        assert made._fusionstitch.options == jitted._fusionstitch.options
        assert_same(made(X, 3), want)


def test_compiler_options(jit: Jit) -> None:
    options = {"xla_cpu_enable_fast_min_max": True}
    jitted = jit(scaled, compiler_options=options)
    want = jax.jit(scaled)(X)
    assert_same(jitted(X), want, committed=False)
    assert_same(jitted.lower(X).compile(options)(X), want, committed=False)


@pytest.mark.parametrize("name", ["a primitive without a lowering rule"])
def test_errors_of_the_user_are_no_failure_to_stitch(name: str, emulated: Jit) -> None:
    """fallback="error" is about what jax.jit can do."""
    strict = fs.Options(backend="emulate", fallback="error")
    run = ERRORS[name]
    ours = outcome(lambda: run(lambda fun: emulated(fun, options=strict)))
    assert ours == outcome(lambda: run(jax.jit))


def test_tokens(jit: Jit) -> None:
    def fun(token: Any, x: jax.Array) -> Any:
        return token, mixed(x)

    def run(jit: Jit) -> Any:
        return jit(fun)(jax.lax.create_token(), X)[1]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FusionStitchWarning)
        ours = run(jit)
    assert_same(ours, run(jax.jit), committed=False)


def test_one_warning_per_function(emulated: Jit) -> None:
    kept = jax.new_ref(X[0, 0])

    def fun(x: jax.Array) -> jax.Array:
        return mixed(x) + kept[...]

    jitted = emulated(fun)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for rows in (1, 2, 3):
            jitted(X[:rows])
        jitted.lower(X).compile()
        emulated(lambda x: fun(x) + 1.0)(X)
    assert [w.category for w in seen] == [FusionStitchWarning] * 2


def test_deferred_warnings_are_issued_once_per_function(marked: Jit) -> None:
    jitted = marked(mixed)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for rows in (1, 2, 3):
            deferred.reasons.append(("mixed", "Something was missing."))
            jitted(X[:rows])
    assert len(seen) == 1


def test_a_reason_of_another_function_is_not_taken_for_its_own(marked: Jit) -> None:
    """Gradients, say, are compiled after the call whose function they belong to."""
    jitted = marked(mixed)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for name in ("other", "mixed", "mixed"):
            deferred.reasons.append((name, "Something was missing."))
            jitted(X)
    assert [str(w.message).split()[0] for w in seen] == ["other", "mixed"]


def test_references_are_left_to_xla(jit: Jit) -> None:
    """Arrays by reference, as arguments and closed over, are written as under jax.jit."""

    def run(jit: Jit) -> tuple[jax.Array, ...]:
        taken, kept = jax.new_ref(X), jax.new_ref(X)

        def add(ref: Any, x: jax.Array) -> None:
            ref[...] += mixed(x)

        def close(x: jax.Array) -> jax.Array:
            kept[...] = kept[...] * mixed(x)
            inner = jax.new_ref(x)
            inner[...] += 1.0
            return inner[...]

        jit(add)(taken, X)
        return jit(close)(X), taken[...], kept[...]

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        ours = run(jit)
    assert_same(ours, run(jax.jit), committed=False)
    said = [str(w.message) for w in seen if w.category is FusionStitchWarning]
    assert all("by reference (jax.new_ref)" in text for text in said)
    assert len(said) in (0, 2)


def test_what_jax_jit_warns_of_is_said_once(jit: Jit) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        jitted = jit(scaled, backend="cpu")
        assert [one.category for one in said] == [DeprecationWarning]
        jitted(X)
        jitted.lower(X).compile()
    assert len(said) == 1


def test_tokens_are_left_to_xla(jit: Jit) -> None:
    def made(x: jax.Array) -> Any:
        return mixed(x), jax.lax.create_token()

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for value, token in (
            jit(lambda x, token: (mixed(x), token))(X, jax.lax.create_token()),
            jit(made)(X),
        ):
            assert_same(value, jax.jit(mixed)(X), committed=False)
            assert type(token) is type(jax.lax.create_token())
    assert all("(a token, say)" in str(w.message) for w in seen)
