"""Grown loops, with all that may leave them taken out: they give what they gave."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.edit import put
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.importer import from_message
from fusionstitch.hlo.verify import verify_module
from fusionstitch.patterns.loop_rules import RULES, opened
from tests.patterns.edits import module_of

STEPS, ROWS, WIDTH = 4, 6, 3
#: Where all leaves that may: launches cost nothing, weights are slow to read, barriers too.
EAGER = dataclasses.replace(device("h100"), launch_us=0.0, l2_bytes_per_s=1.0, grid_barrier_us=1e6)
draw = np.random.default_rng(0)
FIRST, WEIGHTS = draw.standard_normal((ROWS, WIDTH)), draw.standard_normal((WIDTH, WIDTH))
XS = draw.standard_normal((STEPS, ROWS, WIDTH))
ARGS = tuple(np.asarray(a, np.float32) for a in (FIRST, WEIGHTS, XS))


def dear(x: Any) -> Any:
    """A number that takes many instructions."""
    for _ in range(9):
        x = jnp.sin(x + 1)
    return x


#: From two [ROWS, WIDTH] values and the weights to one.
MAKES: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda a, b, w: jnp.sin(a) * b,
    lambda a, b, w: a @ w,
    lambda a, b, w: a @ jnp.tanh(w).T + b,
    lambda a, b, w: jnp.einsum("kh,bk->hb", w, a).T,
    lambda a, b, w: jnp.concatenate([a, b], 1) @ jnp.concatenate([w, w * 2]),
    lambda a, b, w: a - a.mean(0),
    lambda a, b, w: a / (1 + jnp.square(a).sum(1, keepdims=True)),
    lambda a, b, w: jnp.where(a[0, 0] > 0, a, b),
    lambda a, b, w: jnp.pad(a[1:, ::-1], ((1, 0), (0, 0)), constant_values=0.5),
    lambda a, b, w: jnp.clip(a, -0.5, jnp.max(w)),
    lambda a, b, w: (a.T @ b).sum() * a,
    lambda a, b, w: jnp.einsum("bk,bh->bkh", a, b).max(2),
    lambda a, b, w: jnp.einsum("bk,bk->b", a, b)[:, None] * a,
    lambda a, b, w: jnp.einsum("bk,bkh->bh", a, jnp.stack([b, a, b], 1)),
    lambda a, b, w: a * lax.bitcast_convert_type(a[0, 0], jnp.uint8)[1],
    lambda a, b, w: a.astype(jnp.bfloat16).astype(np.float32) + b,
    lambda a, b, w: a * dear(b[0, 0]),
)
#: What an iteration stacks, or adds to what it carries.
TAKES: tuple[Callable[[Any, Any], Any], ...] = (
    lambda a, w: a,
    lambda a, w: a.mean(0),
    lambda a, w: a[0] @ w,
    lambda a, w: a.T @ a,
    lambda a, w: jnp.max(a),
)


@st.composite
def steps(draw: st.DrawFn) -> Callable[..., Any]:
    """A step whose state, outputs and sums are any of the values that it makes."""
    number = draw(st.integers(1, 6))
    makes = [
        (draw(st.sampled_from(MAKES)), draw(st.integers(0, n + 1)), draw(st.integers(0, n + 1)))
        for n in range(number)
    ]
    takes = st.tuples(st.sampled_from(TAKES), st.integers(0, number + 1))
    kept, added = draw(st.lists(takes, max_size=3)), draw(takes)
    next_state = draw(st.integers(0, number + 1))

    def step(weights: Any, carry: Any, x: Any) -> Any:
        state, total = carry
        values = [state, x]
        for make, a, b in makes:
            values.append(make(values[a], values[b], weights))
        state = jnp.tanh(values[next_state])
        return (state, total + added[0](values[added[1]], weights)), [
            take(values[index], weights) for take, index in kept
        ]

    return step


@settings(max_examples=60, deadline=None)
@given(steps(), st.booleans(), st.booleans())
def test_what_leaves_a_loop_is_computed_all_the_same(
    step: Callable[..., Any], reverse: bool, derived: bool
) -> None:
    def grown(first: Any, weights: Any, xs: Any) -> Any:
        one = jax.eval_shape(lambda: step(weights, (first, 0.0), xs[0]))[0][1]
        start = (first, jnp.zeros(one.shape, one.dtype))
        return lax.scan(lambda c, x: step(weights, c, x), start, xs, reverse=reverse)

    module = module_of(gradient_of(grown) if derived else grown, *ARGS)
    before = evaluate(module.entry, ARGS, float64=True)
    edited = opened(module, EAGER)
    verify_module(edited.proto.SerializeToString())
    after = evaluate(from_message(edited.proto).entry, ARGS, float64=True)
    for one, other in zip(before, after, strict=True):
        scale = np.max(np.abs(one), initial=1e-3)
        np.testing.assert_allclose(other / scale, one / scale, atol=1e-9)


def gradient_of(fun: Callable[..., Any]) -> Callable[..., Any]:
    """That of a sum of what `fun` gives."""

    def loss(*args: Any) -> Any:
        floats = [x for x in jax.tree.leaves(fun(*args)) if jnp.issubdtype(x.dtype, jnp.floating)]
        return sum(jnp.sum(jnp.sin(x)) for x in floats)

    return jax.grad(loss, tuple(range(len(ARGS))))


def run(first: Any, weights: Any, xs: Any) -> Any:
    """A loop of which each rule takes something."""

    def step(carry: Any, x: Any) -> Any:
        n, state, total = carry
        made = jnp.sin(state) * x * dear(n.astype(x.dtype)) + x @ weights
        return (n + 1, made, total + x.T @ made), made.mean(0)

    return lax.scan(step, (jnp.int32(0), first, jnp.zeros((WIDTH, WIDTH))), xs)


def cubes(first: Any, weights: Any, xs: Any) -> Any:
    """A loop of whose values a gradient may compute some again."""
    step = lambda h, x: (h * h * h * x + jnp.sin(h) * 2, None)  # noqa: E731
    return lax.scan(step, first, xs)[0] @ weights


def test_every_rule_finds_something_in_grown_loops() -> None:
    """Or else the test above shows nothing."""
    modules = [module_of(run, *ARGS), module_of(gradient_of(cubes), *ARGS)]
    for rule in RULES:
        found = [rule(module, EAGER) for module in modules]
        assert any(found)
        modules = [from_message(module.proto) for module in modules]


def test_instructions_that_are_numbered_through_the_module_stay_so() -> None:
    module = module_of(run, *ARGS)
    numbers: dict[int, int] = {}
    for computation in module.proto.computations:
        for instruction in computation.instructions:
            numbers[instruction.id] = len(numbers) + 1
    for computation in module.proto.computations:
        computation.root_id = numbers[computation.root_id]
        for instruction in computation.instructions:
            instruction.id = numbers[instruction.id]
            for field in (instruction.operand_ids, instruction.control_predecessor_ids):
                put(field, [numbers[ident] for ident in field])
    before = evaluate(module.entry, ARGS, float64=True)
    edited = opened(from_message(module.proto), EAGER)
    ids = [i.id for computation in edited.proto.computations for i in computation.instructions]
    assert len(ids) == len(set(ids)) > len(numbers)
    for one, other in zip(before, evaluate(edited.entry, ARGS, float64=True), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-12)


def test_rules_do_not_go_as_deep_as_an_iteration() -> None:
    """Steps of hundreds of ops in a row, with fewer frames left on Python's stack."""

    def loss(h: Any, rate: Any) -> Any:
        def step(h: Any, _: None) -> Any:
            for _ in range(200):
                h = h + 0.001 * h * h * rate
            return h, None

        return jnp.sum(lax.scan(step, h, None, length=3)[0])

    module = module_of(jax.grad(loss, (0, 1)), np.ones(8, np.float32), np.float32(0.5))
    slow = dataclasses.replace(EAGER, dram_bytes_per_s=1.0)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 150)
    try:
        changed = [rule(module, slow) for rule in (RULES[0], RULES[3])]
    finally:
        sys.setrecursionlimit(limit)
    assert changed == [True, True]
