"""equinox's own transformations and flax's lifted jit around functions under fs.jit, and inside."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import pytest

import fusionstitch as fs
from tests.behaviour.same import outcome, plain_text
from tests.behaviour.wrappings import arguments, base

eqx = pytest.importorskip("equinox")
linen = pytest.importorskip("flax.linen")

LIFTS: dict[str, Callable[[Any], Any]] = {
    "filter_jit": eqx.filter_jit,
    "filter_grad": eqx.filter_grad,
    "filter_value_and_grad": eqx.filter_value_and_grad,
    "filter_vmap": eqx.filter_vmap,
    "filter_checkpoint": eqx.filter_checkpoint,
    "filter_jvp": lambda fun: lambda x, scale: eqx.filter_jvp(fun, (x, scale), (x, scale)),
    "filter_closure_convert": lambda fun: eqx.filter_closure_convert(fun, *arguments(())),
    "nn.jit": lambda fun: _lifted(fun),
}


def _lifted(fun: Any) -> Any:
    class Module(linen.Module):
        @linen.jit
        @linen.compact
        def __call__(self, x: Any, scale: Any) -> Any:
            return fun(x, scale * self.param("p", lambda key: jax.numpy.float32(2.0)))

    module = Module()
    return lambda x, scale: module.init_with_output(jax.random.key(0), x, scale)[0]


@pytest.mark.parametrize("name", LIFTS)
def test_the_program_is_that_of_jax_jit(name: str) -> None:
    lift, args = LIFTS[name], arguments(("vmap",) if name == "filter_vmap" else ())

    def programs(jit: Any) -> list[Any]:
        """Their texts, or how they fail: JAX cannot jit what has no hash, as some of these."""
        inner = lift(jit(base))
        funs = [jit(lift(base)), inner, jit(inner), jit(lambda x, scale: inner(x, scale))]
        texts: list[Any] = []
        for fun in funs:
            texts.append(outcome(lambda fun=fun: texts.append(_text(fun, args))))
        return texts

    ours = functools.partial(fs.jit, options=fs.Options(backend="emulate"))
    assert programs(ours) == programs(jax.jit)


def _text(fun: Any, args: Any) -> str:
    return plain_text(str(jax.make_jaxpr(fun)(*args)))
