"""fs.jit traces when jax.jit traces: one table of calls, counted after each."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.behaviour.table import Jit, mixed

pytestmark = pytest.mark.slow

X = jnp.asarray(np.random.default_rng(0).standard_normal((4, 6), np.float32))


class Counted:
    """Counts how often Python runs the function, that is, how often it is traced."""

    def __init__(self, fun: Callable[..., Any]):
        self.traces = 0
        self.fun = fun
        functools.update_wrapper(self, fun)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.traces += 1
        return self.fun(*args, **kwargs)


class Pair(NamedTuple):
    left: Any
    right: Any


class Tag:
    """Equal to others of its name, as static arguments are compared."""

    def __init__(self, name: str):
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tag) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


def _on(x: Any, device: Any) -> Any:
    return jax.device_put(x, device)


#: Calls of one function, in order: each is made with the jitted function.
CALLS: dict[str, Callable[[Any], Any]] = {
    "first": lambda f: f(X),
    "again": lambda f: f(X),
    "equal values": lambda f: f(jnp.array(X)),
    "NumPy": lambda f: f(np.asarray(X)),
    "a default given": lambda f: f(X, 2),
    "by name": lambda f: f(X, n=2),
    "another number": lambda f: f(X, 3),
    "a float": lambda f: f(X, 3.0),
    "a strong type": lambda f: f(X, jnp.float32(3)),
    "a bool": lambda f: f(X, True),
    "static": lambda f: f(X, flag=True),
    "static again": lambda f: f(X, flag=True),
    "static, an equal object": lambda f: (f(X, flag=Tag("a")), f(X, flag=Tag("a"))),
    "static, another object": lambda f: f(X, flag=Tag("b")),
    "another shape": lambda f: f(X[:2]),
    "another dtype": lambda f: f(X.astype(jnp.bfloat16)),
    "a tree": lambda f: f(X, {"a": 1, "b": 2}),
    "the tree in another order": lambda f: f(X, {"b": 2, "a": 1}),
    "another tree": lambda f: f(X, Pair(1, 2)),
    "shapes": lambda f: f.eval_shape(X),
    "shapes anew": lambda f: f.eval_shape(X[:3]),
    "shapes, then the call": lambda f: f(X[:3]),
    "JAX's shapes": lambda f: jax.eval_shape(f, X),
    "lowered": lambda f: f.lower(X),
    "lowered by shape": lambda f: f.lower(jax.ShapeDtypeStruct((4, 6), jnp.float32)).compile(),
    "traced": lambda f: f.trace(X[:1]),
    "traced, then the call": lambda f: f(X[:1]),
    "traced, then lowered": lambda f: f.trace(X[:1]).lower(),
    "under jit": lambda f: jax.jit(lambda x: f(x))(X),
    "under jit, another shape": lambda f: jax.jit(lambda x: f(x))(X.T),
    "under vmap": lambda f: jax.vmap(f)(jnp.stack([X, X])),
    "under grad": lambda f: jax.grad(lambda x: f(x).sum())(X),
    "under grad again": lambda f: jax.grad(lambda x: f(x).sum())(X),
    "its jaxpr": lambda f: jax.make_jaxpr(f)(X),
    "committed": lambda f: f(_on(X, jax.devices()[0])),
    "other products": lambda f: _with(jax.default_matmul_precision("highest"), f, X),
    "64 bits": lambda f: _with(jax.enable_x64(True), f, X),
    "64 bits again": lambda f: _with(jax.enable_x64(True), f, X),
    "NaNs looked for": lambda f: _with(jax.debug_nans(True), f, X),
    "without jit": lambda f: _with(jax.disable_jit(), f, X),
    "cleared": lambda f: (f.clear_cache(), f(X)),
    "after that": lambda f: (f(X), f.eval_shape(X), f.lower(X)),
}


def _with(context: Any, f: Any, x: jax.Array) -> Any:
    with context:
        return f(x)


def counts(jit: Jit) -> dict[str, int]:
    def program(x: jax.Array, n: Any = 2, *, flag: Any = False) -> jax.Array:
        return mixed(x) * sum(jax.tree.leaves(n)) * (2.0 if flag else 1.0)

    fun, found = Counted(program), {}
    jitted = jit(fun, static_argnames="flag")
    for name, call in CALLS.items():
        before = fun.traces
        call(jitted)
        found[name] = fun.traces - before
    return found


def test_traces_as_often_as_jax_jit(jit: Jit) -> None:
    theirs = counts(jax.jit)
    assert sum(theirs.values()) > 10
    assert counts(jit) == theirs


def test_compiled_programs_are_counted_as_by_jax_jit(jit: Jit) -> None:
    def sizes(jit: Jit) -> list[int]:
        jitted = jit(lambda x: mixed(x) * 2)
        found = [jitted._cache_size()]
        for x in (X, X, X[:3], X.astype(jnp.bfloat16), X):
            jitted(x)
            found.append(jitted._cache_size())
        jitted.clear_cache()
        return [*found, jitted._cache_size()]

    assert sizes(jit) == sizes(jax.jit) == [0, 1, 1, 2, 3, 3, 0]


@pytest.mark.parametrize("keywords", [{"static_argnums": (1,)}, {"donate_argnums": (0,)}, {}])
def test_two_jits_of_one_function_share_what_jax_jit_shares(
    keywords: dict[str, Any], jit: Jit
) -> None:
    def traces(jit: Jit) -> int:
        fun = Counted(lambda x, n=1: mixed(x) * n)
        for _ in range(2):
            jit(fun, **keywords)(jnp.array(X), 2)
        return fun.traces

    assert traces(jit) == traces(jax.jit)


def test_a_method_traces_per_object(jit: Jit) -> None:
    def traces(jit: Jit) -> int:
        seen = []

        class Model:
            def __init__(self, scale: float):
                self.scale = scale

            def apply(self, x: jax.Array) -> jax.Array:
                seen.append(self.scale)
                return mixed(x) * self.scale

            apply = jit(apply, static_argnums=0)

        models = [Model(1.0), Model(2.0)]
        for model in models * 2:
            model.apply(X)
        return len(seen)

    assert traces(jit) == traces(jax.jit) == 2


def test_misses_are_explained_as_by_jax_jit(jit: Jit, caplog: pytest.LogCaptureFixture) -> None:
    def explained(jit: Jit) -> list[str]:
        jitted = jit(lambda x: mixed(x) * 2)
        caplog.clear()
        with jax.explain_cache_misses(True):
            for x in (X, X, X[:3], X.astype(jnp.bfloat16)):
                jitted(x)
        # which function it was, and whether another one had stood on its line, differs
        varies = re.compile(r" id=\d+|:\d+|\n  but seen another function.*", re.DOTALL)
        return [varies.sub("", record.getMessage()) for record in caplog.records]

    theirs = explained(jax.jit)
    assert len(theirs) == 3
    assert all(f"MISS at {__file__}" in message for message in theirs)
    assert explained(jit) == theirs


def test_ops_come_from_the_lines_of_the_user(jit: Jit) -> None:
    def files(jit: Jit) -> set[str]:
        lowered = jit(lambda x: x * 2 + 1).lower(X)
        return set(re.findall(r'"(/[^":]+)":', lowered.as_text(debug_info=True)))

    assert __file__ in files(jax.jit)
    assert files(jit) == files(jax.jit)
