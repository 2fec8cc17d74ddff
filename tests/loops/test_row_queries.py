"""Iterations that query all rows: a count replaces the query, and rows stop on their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo import row_queries
from fusionstitch.hlo.loop_editor import LoopEditor
from fusionstitch.hlo.marks import LEAVE, ORIGINAL
from fusionstitch.patterns.fusible import LEFT
from fusionstitch.patterns.loop_rules import formed
from fusionstitch.reports.answers import Answers
from tests.patterns.edits import edited, module_of

pytestmark = pytest.mark.usefixtures("host_compiler")

#: Iterations at most, and the time at which rows stop.
LIMIT, END = 40, 30
draw = np.random.default_rng(3)


def fresh(first: Any, taken: Any, y: Any) -> Any:
    """Whether a row has yet to take its first step."""
    return first & ~taken


def solved(
    y: Any,
    speed: Any,
    begin: Any,
    carried: bool = True,
    falls: Callable[[Any, Any, Any], Any] = fresh,
    asks: Callable[[Any, Any], Any] = lambda first, y: jnp.any(first),
) -> Any:
    """What a row computes again while any has yet to take a first step is not what it kept, so that
    a wrong answer shows. Integers, which nothing rounds."""

    def body(s: Any) -> Any:
        y, t, first, retained, i, *going = s
        slope = jnp.where(asks(first, y), y * 3 + 1, retained)
        tried = (y * 5 + slope) % 1009
        taken = (tried % 7 < 4) & (speed > 0)
        mask = going[0] if carried else t < END
        later = jnp.where(taken, t + tried % 3 + speed, t)
        new = (
            jnp.where(taken, tried, y + 1),
            later,
            falls(first, taken, y),
            jnp.where(taken, slope + 11, retained),
        )
        kept_by_rows = [jnp.where(mask, a, b) for a, b in zip(new, s, strict=False)]
        return *kept_by_rows, i + 1, *(one & (later < END) for one in going)

    ones, zeros = jnp.ones(y.shape, bool), jnp.zeros_like(y)
    start = y, zeros if carried else begin, ones, zeros, 0, *([ones] if carried else [])
    more = lambda s: jnp.any(s[1] < END) & (s[4] < LIMIT)  # noqa: E731
    y, t, first, retained, *_ = lax.while_loop(more, body, start)
    return y, t, first, retained


def _drawn(*shape: int) -> list[np.ndarray]:
    """Where rows are, how fast they are, and when they begin."""
    return [draw.integers(low, high, shape) for low, high in ((0, 900), (1, 9), (0, 12))]


def _with(number: int, value: Any) -> list[np.ndarray]:
    rows = _drawn(37)
    rows[number][value] = 0 if number == 1 else END
    return rows


ROWS: dict[str, list[np.ndarray]] = {
    "each its own": _drawn(37),
    "one never takes a step": _with(1, 5),
    "none takes a step": _with(1, slice(None)),
    "one is there at first": _with(2, 7),
    "all are there at first": _with(2, slice(None)),
    "two axes": _drawn(5, 8),
    "two": _drawn(2),
}
BY: dict[str, Callable[..., Any]] = {
    "a mask that is carried": solved,
    "the condition itself": partial(solved, carried=False),
}


def compiled(fun: Callable[..., Any], *args: Any) -> Any:
    options = fs.Options(backend="emulate", scorer="model", fallback="error")
    return fs.jit(fun, options=options).lower(*args).compile()


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("rows", ROWS)
def test_rows_that_are_told_stop_on_their_own(rows: str, by: str) -> None:
    fun, args = BY[by], [jnp.asarray(x, jnp.int32) for x in ROWS[rows]]
    found = compiled(fun, *args)
    size = " x ".join(map(str, args[0].shape))
    loops = [k.template for k in found.kernels if k.template.startswith("loop")]
    assert loops == [f"loop rows {size} threads 32"] * 2
    for own, their in zip(found(*args), jax.jit(fun)(*args), strict=True):
        np.testing.assert_array_equal(own, their)


@pytest.mark.parametrize("by", BY)
def test_the_module_gives_what_it_gave(by: str) -> None:
    args = [jnp.asarray(x, jnp.int32) for x in ROWS["each its own"]]
    module = module_of(BY[by], *args)
    after = formed(module, device("h200"))
    assert [op.opcode for op in after.entry].count("while") == 3
    assert formed(after, device("h200")) is after
    edited(module_of(BY[by], *args), lambda module: formed(module, device("h200")), *args)


def test_the_original_of_a_loop_is_not_said_to_be_what_the_program_leaves() -> None:
    args = [jnp.asarray(x, jnp.int32) for x in ROWS["each its own"]]
    found = compiled(solved, *args).stitched
    reasons = {answer.reason for answer in Answers(found) if answer.opcode == "while"}
    assert LEFT[ORIGINAL] in reasons
    assert LEFT[LEAVE] not in reasons


def again(first: Any, taken: Any, y: Any) -> Any:
    """A row may begin once more."""
    return (first & ~taken) | (y % 5 == 0)


def leaving(y: Any, leaves: Any, pace: Any) -> Any:
    """Rows that have stopped still lose the mask, which none reads after the loop."""

    def body(s: Any) -> Any:
        y, t, first, retained, i, mask = s
        slope = jnp.where(jnp.any(first), y * 3 + 1, retained)
        later = t + pace
        new = (y * 5 + slope) % 1009, later, slope + 11
        y, t, retained = (jnp.where(mask, a, b) for a, b in zip(new, (y, t, retained), strict=True))
        return y, t, first & (i < leaves), retained, i + 1, mask & (later < END)

    ones, zeros = jnp.ones(y.shape, bool), jnp.zeros_like(y)
    more = lambda s: jnp.any(s[1] < END) & (s[4] < LIMIT)  # noqa: E731
    y, _, _, retained, *_ = lax.while_loop(more, body, (y, zeros, ones, zeros, 0, ones))
    return y, retained


def begun(first: Any, y: Any) -> Any:
    """Yes, whatever the rows have."""
    return lax.reduce(first, np.bool_(True), lax.bitwise_or, (0,))


#: What has no count: a mask that is set again, two queries, no mask, or a row's query of itself.
NOT_TOLD: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "again": (partial(solved, falls=again), (37,)),
    "two masks": (partial(solved, asks=lambda first, y: jnp.any(first) & jnp.any(y > 3)), (37,)),
    "no mask": (partial(solved, asks=lambda first, y: jnp.max(y) > 500), (37,)),
    "one row": (solved, (1,)),
    "a mask that rows lose behind their end": (leaving, (37,)),
    "yes": (partial(solved, asks=begun), (37,)),
    "rows that mix": (partial(solved, asks=lambda first, y: jnp.any(first) | (y > y[::-1])), (37,)),
}


@pytest.mark.parametrize("name", NOT_TOLD)
def test_what_is_not_told_stays_as_it_is(name: str) -> None:
    fun, shape = NOT_TOLD[name]
    args = [jnp.asarray(x, jnp.int32) for x in _drawn(*shape)]
    module = module_of(fun, *args)
    assert formed(module, device("h200")) is module
    options = fs.Options(backend="emulate")
    for own, their in zip(fs.jit(fun, options=options)(*args), jax.jit(fun)(*args), strict=True):
        np.testing.assert_array_equal(own, their)


def test_rows_without_numbers_ask_to_the_end() -> None:
    """A row of NaN never takes a step: the query stays true to the end."""

    def fun(y: Any) -> Any:
        def body(s: Any) -> Any:
            y, t, first, retained, i = s
            slope = jnp.where(jnp.any(first), -y, retained)
            tried = y + 0.125 * slope
            taken, going = jnp.abs(tried) < 4, t < 1
            new = (
                jnp.where(taken, tried, y),
                jnp.where(taken, t + 0.0625 + 0.0625 * (y > 1), t),
                first & ~taken,
                jnp.where(taken, -tried * 0.5, retained),
            )
            return *(jnp.where(going, a, b) for a, b in zip(new, s, strict=False)), i + 1

        start = y, jnp.zeros_like(y), jnp.ones(y.shape, bool), y * 0, 0
        more = lambda s: jnp.any(s[1] < 1) & (s[4] < LIMIT)  # noqa: E731
        return lax.while_loop(more, body, start)[:3]

    y = draw.uniform(-2, 2, 37).astype(np.float32)
    for number, value in ((0, 0.5), (4, np.nan), (7, np.inf)):
        y[number] = value
        found = compiled(fun, y)
        loops = [k.template for k in found.kernels if k.template.startswith("loop")]
        assert [template.split()[1] for template in loops] == ["rows"] * 2
        for own, their in zip(found(y), jax.jit(fun)(y), strict=True):
            np.testing.assert_allclose(own, their, rtol=2e-6)


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("rows", ["each its own", "none takes a step"])
@pytest.mark.parametrize("number", [0, 3, 1000])
def test_a_wrong_count_is_found_out(
    number: int, rows: str, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the counting loop rounds otherwise than the other one."""

    def misled(loop: LoopEditor, found: row_queries.RowQuery) -> Any:
        return loop.outer.constant(row_queries.COUNT, number, loop.instruction)

    monkeypatch.setattr(row_queries, "_most", misled)
    fun, args = BY[by], [jnp.asarray(x, jnp.int32) for x in ROWS[rows]]
    found = compiled(fun, *args)
    assert sum(k.template.startswith("loop rows") for k in found.kernels) == 1
    for own, their in zip(found(*args), jax.jit(fun)(*args), strict=True):
        np.testing.assert_array_equal(own, their)
