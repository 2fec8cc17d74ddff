"""How often a loop turned, asked after it: told by the most iterations of any row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.counting import count_by_rows
from fusionstitch.patterns.loop_counts import loop_counts
from tests.patterns.edits import edited, module_of

H200 = device("h200")
X = 3 * np.abs(np.random.default_rng(0).standard_normal(40, np.float32))


def counted(fun: Callable[..., Any], *args: Any) -> list[tuple[bool, tuple[int, ...]]]:
    """By loop: whether it asks for those that are done, and the steps of its counters, after a look
    at what the program gives."""
    module = module_of(fun, *args)
    found = loop_counts(module, H200)
    after = edited(module, lambda module: count_by_rows(module, found), *args)
    assert not loop_counts(after, H200)
    return [(one.done, tuple(step for _, step in one.counters)) for one in found]


def solved(
    asks: Callable[[Any], Any],
    kept: Callable[[Any, Any, Any], Any] = lambda done, old, new: jnp.where(done, old, new),
    after: Callable[[Any, Any], Any] = jnp.logical_or,
    counts: Callable[[Any, Any], Any] = lambda i, y: i + 1,
    start: Any = 0,
    gives: Callable[[Any], Any] = lambda s: s,
) -> Callable[[Any], Any]:
    def step(s: Any) -> Any:
        y, done, i = s
        y = kept(done, y, 0.8 * y + 0.05)
        return y, after(done, y < 0.5), counts(i, y)

    def run(x: Any) -> Any:
        more = lambda s: asks(s[1]) & (s[2] < 15)  # noqa: E731
        return gives(lax.while_loop(more, step, (x, x < 0.5, start)))

    return run


def any_not(done: Any) -> Any:
    return jnp.any(~done)


def test_iterations_until_all_rows_are_done() -> None:
    assert counted(solved(any_not), X) == [(False, (1,))]
    assert counted(solved(lambda done: ~jnp.all(done)), X) == [(True, (1,))]


def test_those_that_the_limit_ends_and_that_never_begin() -> None:
    assert counted(solved(any_not), X * 1000) == [(False, (1,))]
    assert counted(solved(any_not), X * 0) == [(False, (1,))]


def test_counters_have_starts_and_steps() -> None:
    assert counted(solved(any_not, counts=lambda i, y: i + 4, start=-5), X) == [(False, (4,))]
    assert counted(solved(any_not, counts=lambda i, y: i - 2, start=9), X) == [(False, (-2,))]


@pytest.mark.parametrize(
    "fun",
    [
        solved(any_not, gives=lambda s: s[:2]),
        solved(any_not, gives=lambda s: s[2]),
        solved(jnp.any),
        solved(any_not, after=lambda done, below: below & ~done),
        solved(any_not, kept=lambda done, old, new: new),
        solved(any_not, counts=lambda i, y: i + 1.0, start=0.0),
        solved(any_not, counts=lambda i, y: i * 2 + 1),
        lambda x: lax.while_loop(lambda s: s[1] < 9, lambda s: (s[0] * 0.9, s[1] + 1), (x, 0)),
    ],
    ids=[
        "nobody asks",
        "nothing else",
        "the other way",
        "done for once",
        "rows that are done change",
        "a float",
        "no counter",
        "known",
    ],
)
def test_what_stays_as_it_is(fun: Callable[..., Any]) -> None:
    assert counted(fun, X) == []


def test_rows_by_a_mask_that_falls_before_what_is_asked() -> None:
    """Rows may stop by what is carried, and the loop go on for nothing: that is counted, too."""

    def run(x: Any) -> Any:
        def step(s: Any) -> Any:
            y, mask, i = s
            return jnp.where(mask, 0.8 * y, y), mask & (0.8 * y > 0.5) & (y < 2), i + 1

        return lax.while_loop(lambda s: jnp.any(s[0] > 0.5) & (s[2] < 9), step, (x, x > 0.5, 0))

    assert counted(run, X) == []
