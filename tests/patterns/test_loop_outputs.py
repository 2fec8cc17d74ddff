"""Outputs that are computed after their loops: which are, and that programs give the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.importer import from_message, parse
from fusionstitch.hlo.stacking import take_out
from fusionstitch.hlo.text import text_to_proto
from fusionstitch.patterns.loop_outputs import loop_outputs
from tests.kept import kept_sort
from tests.nearness import assert_near
from tests.patterns.edits import edited, module_of

STEPS, ROWS, WIDTH = 5, 6, 3
#: Where launches cost nothing, and weights are slow to read: all outputs that may move do.
QUICK = dataclasses.replace(device("h100"), launch_us=0.0, l2_bytes_per_s=1.0)
draw = np.random.default_rng(0)
W = draw.standard_normal((3, 2), np.float32)
FIRST = draw.standard_normal((ROWS, WIDTH), np.float32)
XS = draw.standard_normal((STEPS, ROWS, WIDTH), np.float32)


def moved_out(fun: Callable[..., Any], *args: Any) -> list[tuple[int, int]]:
    """By loop: how many outputs are computed after it, and how many new stacks that takes, after a
    look at what programs give."""
    module = module_of(fun, *args)
    found = loop_outputs(module, QUICK)
    after = edited(module, lambda module: take_out(module, found), *args)
    assert not loop_outputs(after, QUICK)
    return [(len(one.written), len(one.stacks)) for one in found]


def recorded(record: Callable[[Any, Any], Any], **keywords: Any) -> Callable[..., Any]:
    """Rows that have nothing to do with each other, and what `record` makes of them and of inputs
    in each iteration."""

    def run(first: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> tuple[Any, Any]:
            h = h + 0.1 * jnp.sin(h) * x
            return h, record(h, x)

        return lax.scan(step, first, xs, **keywords)

    return run


MOVING: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, int]]] = {
    "a mean": (lambda h, x: h.mean(0), (1, 1)),
    "a mean and what is made of it": (lambda h, x: jnp.tanh(h.mean(0) * 2 - x[0]) @ x.T, (1, 1)),
    "two of one": (lambda h, x: (h.mean(0), jnp.square(h).sum((0, 1))), (2, 1)),
    "of what is stacked anyway": (lambda h, x: (h, h.max(0)), (1, 0)),
    "of inputs": (lambda h, x: (h * x).sum(0), (1, 1)),
    "a standard deviation": (lambda h, x: h.std(0), (1, 1)),
    "one of the rows": (lambda h, x: h[0], (1, 1)),
    "rows in another order": (lambda h, x: h[::-1], (1, 1)),
    "a product of rows": (lambda h, x: h.T @ h, (1, 1)),
    "a product with weights": (lambda h, x: jnp.tanh(h @ W + 1), (1, 1)),
    "a product of what is stacked": (lambda h, x: (h, jnp.cos(h) @ W), (1, 0)),
    "differences": (lambda h, x: jnp.concatenate([h[:1], h[1:] - h[:-1]]), (1, 1)),
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", MOVING)
def test_what_is_computed_after_the_loop(name: str, reverse: bool) -> None:
    record, counts = MOVING[name]
    assert moved_out(recorded(record, reverse=reverse), FIRST, XS) == [counts]


#: A loop that stacks the same sum in each iteration: what it is of goes through a tuple, as where
#: two steps change places and back.
SAME = """
HloModule same
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
more {
  s = (s32[], f32[12], f32[4], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(4)
  ROOT m = pred[] compare(i, n), direction=LT
}
step {
  s = (s32[], f32[12], f32[4], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[12] get-tuple-element(s), index=1
  all = f32[4] get-tuple-element(s), index=2
  a = f32[] get-tuple-element(s), index=3
  both = (f32[12], f32[]) tuple(x, a)
  y = f32[12] get-tuple-element(both), index=0
  zero = f32[] constant(0)
  total = f32[] reduce(y, zero), dimensions={0}, to_apply=sum
  row = f32[1] reshape(total)
  stacked = f32[4] dynamic-update-slice(all, row, i)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  half = f32[] multiply(a, a)
  ROOT t = (s32[], f32[12], f32[4], f32[]) tuple(next, y, stacked, half)
}
ENTRY main {
  x = f32[12] parameter(0)
  i = s32[] constant(0)
  zero = f32[] constant(0)
  all = f32[4] broadcast(zero), dimensions={}
  begin = f32[] constant(0.5)
  t = (s32[], f32[12], f32[4], f32[]) tuple(i, x, all, begin)
  w = (s32[], f32[12], f32[4], f32[]) while(t), condition=more, body=step
  given = f32[4] get-tuple-element(w), index=2
  last = f32[] get-tuple-element(w), index=3
  ROOT r = (f32[4], f32[]) tuple(given, last)
}
"""


def test_outputs_that_are_the_same_in_each_iteration() -> None:
    module = from_message(parse(text_to_proto(SAME)))
    [found] = loop_outputs(module, QUICK)
    assert (len(found.written), len(found.stacks)) == (1, 0)
    edited(module, lambda module: take_out(module, [found]), draw.standard_normal(12, np.float32))


def shared_maxima(h: Any, x: Any) -> Any:
    """Inputs are compared with their maxima, of which the state is made, too."""
    numbers = jnp.sin(x)
    largest = numbers.max(1)
    return h * 0.5 + largest[:, None], (largest, (numbers == largest[:, None]).sum(0))


STAYING: dict[str, Callable[..., Any]] = {
    "each row's own": recorded(lambda h, x: h.sum(1)),
    "nothing": recorded(lambda h, x: None),
    "what the state needs": lambda first, xs: lax.scan(
        lambda h, x: (h - h.mean(0) + x, h.mean(0)), first, xs
    ),
    "what is compared with a maximum": lambda first, xs: lax.scan(shared_maxima, first, xs),
    "what XLA has to do": recorded(lambda h, x: kept_sort(h, 0)),
    "of a loop that the data ends": lambda first, xs: lax.while_loop(
        lambda s: (s[0] < STEPS) & (s[1][0, 0] < 9),
        lambda s: (s[0] + 1, s[1] * 2, s[2].at[s[0]].set(s[1].mean(0))),
        (0, first, jnp.zeros((STEPS, WIDTH))),
    ),
}


@pytest.mark.parametrize("name", STAYING)
def test_what_stays_in_its_loop(name: str) -> None:
    assert moved_out(STAYING[name], FIRST, XS) == []


def test_large_states_are_not_stacked() -> None:
    shapes = [
        jax.ShapeDtypeStruct((1 << 20, 4), np.float32),
        jax.ShapeDtypeStruct((100, 1, 1), np.float32),
    ]
    assert not loop_outputs(module_of(recorded(lambda h, x: h.mean(0)), *shapes), device("h100"))


def test_rows_are_dealt_once_their_mean_is_taken_after_the_loop(host_compiler: str) -> None:
    fun = recorded(lambda h, x: h.mean(0))
    args = draw.standard_normal((64, 3), np.float32), draw.standard_normal((20, 64, 3), np.float32)
    ours = fs.jit(fun, options=fs.Options(backend="emulate", fallback="error"))
    assert_near(ours(*args), jax.jit(fun)(*args), 2e-6, rough=2e-6)
    [kernel] = [k for k in ours.lower(*args).compile().kernels if k.template.startswith("loop")]
    assert kernel.template.startswith("loop rows")


def written_at(place: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A `fori_loop` that writes sums at a place of its own: JAX puts what its body gives into a
    tuple in a tuple."""

    def run(x: Any) -> Any:
        def step(i: Any, carry: Any) -> Any:
            n, x, sums = carry
            sums = lax.dynamic_update_slice(sums, jnp.sum(x)[None], (place(i, n),))
            return n + np.uint8(1), x * 0.5, sums

        return lax.fori_loop(0, 300, step, (jnp.uint8(0), x, jnp.ones(300)))

    return run


@pytest.mark.parametrize(
    ("place", "moves"),
    [
        (lambda i, n: i, True),
        (lambda i, n: 299 - i, True),
        (lambda i, n: n.astype(np.int32), False),
    ],
    ids=["forwards", "backwards", "wrapping around"],
)
def test_stacks_that_a_loop_writes_itself(place: Callable[[Any, Any], Any], moves: bool) -> None:
    x = FIRST.reshape(-1)
    assert bool(moved_out(written_at(place), x)) == moves
    ours = fs.jit(written_at(place), options=fs.Options(backend="emulate", fallback="error"))
    assert_near(ours(x), jax.jit(written_at(place))(x), 2e-6, rough=2e-6)
