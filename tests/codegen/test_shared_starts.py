"""Programs with loops that begin with one state: each loop is a kernel, on the emulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from benchmarks.loops.forced import taken
from fusionstitch.codegen.while_loops.generate import FORMS
from fusionstitch.plan.scores import is_loop
from tests.nearness import assert_near

STEPS, BATCH, WIDTH = 5, 3, 4
draw = np.random.default_rng(0)


def array(*dims: int) -> np.ndarray:
    return draw.standard_normal(dims, np.float32) * np.float32(0.5)


def recurrent(xs: Any, weights: Any, first: Any) -> Any:
    """A bidirectional network whose directions have one first state."""

    def direction(w: Any, reverse: bool) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = jnp.tanh(x + h @ w)
            return h, h

        return lax.scan(step, first, xs, reverse=reverse)

    (a, left), (b, right) = direction(weights[0], False), direction(weights[1], True)
    return jnp.concatenate([left, right], 2), a + b


def markov(likely: Any, chances: Any, first: Any) -> Any:
    """Forward and backward messages of a hidden Markov model, and what states are given both."""

    def forward(message: Any, one: Any) -> Any:
        message = (message @ chances) * one
        total = message.sum(1, keepdims=True)
        return message / total, (message / total, jnp.log(total[:, 0]))

    def backward(message: Any, one: Any) -> Any:
        before = (message * one) @ chances.T
        return before / before.sum(1, keepdims=True), message

    _, (seen, logs) = lax.scan(forward, first, likely)
    _, ahead = lax.scan(backward, first, likely, reverse=True)
    both = seen * ahead
    return both / both.sum(2, keepdims=True), logs.sum(0)


def solvers(x: Any, y: Any) -> Any:
    """Two ways from one pair of arrays, to where they stop moving."""
    more = lambda s: jnp.max(jnp.abs(s[0] - s[1])) > 1e-3  # noqa: E731
    slow = lax.while_loop(more, lambda s: (s[1], 0.6 * s[1] + 0.1 * s[0]), (x, y))
    return slow, lax.while_loop(more, lambda s: (s[0] * 0.5, s[1] * 0.25), (x, y))


LIKELY = np.abs(array(STEPS, BATCH, WIDTH)) + np.float32(0.1)
CHANCES = np.asarray(jax.nn.softmax(array(WIDTH, WIDTH)))
EVEN = np.full((BATCH, WIDTH), 1 / WIDTH, np.float32)
#: Programs, what they are given, and what of that they may overwrite.
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...], tuple[int, ...]]] = {
    "recurrent": (
        recurrent,
        (array(STEPS, BATCH, WIDTH), array(2, WIDTH, WIDTH), array(BATCH, WIDTH)),
        (2,),
    ),
    "markov": (markov, (LIKELY, CHANCES, EVEN), (0,)),
    "solvers": (solvers, (array(BATCH, WIDTH), array(BATCH, WIDTH)), (0, 1)),
}


@pytest.mark.parametrize("given", [False, True], ids=["kept", "given"])
@pytest.mark.parametrize("form", [None, *FORMS])
@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_that_begin_with_one_state_are_a_kernel_each(
    host_compiler: str, name: str, form: str | None, given: bool
) -> None:
    fun, args, donated = PROGRAMS[name]
    options = fs.Options(backend="emulate", fallback="error")
    with taken(form):
        ours = fs.jit(fun, options=options, donate_argnums=donated if given else ())
        found = ours.lower(*args).compile()
        loops = [c for plan in found.plan for c in plan.chosen if is_loop(c.pattern)]
        results = found(*map(jnp.array, args))
    if form in (None, "block", "grid"):
        assert len(loops) == 2
    assert_near(results, jax.jit(fun)(*args), 5e-6, rough=2e-2)
