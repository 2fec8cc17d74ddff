"""Sums that leave their loops: which do, and that programs give what they gave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from fusionstitch.hlo.edit import sort_instructions
from fusionstitch.hlo.importer import from_message
from fusionstitch.hlo.stacking import take_out
from fusionstitch.hlo.trips import carried
from fusionstitch.patterns.loop_sums import loop_sums
from tests.nearness import assert_near
from tests.patterns.edits import edited, module_of

STEPS, BATCH, WIDTH, HIDDEN = 5, 3, 4, 6
draw = np.random.default_rng(0)


def array(*dims: int) -> np.ndarray:
    return draw.standard_normal(dims, np.float32) * np.float32(0.5)


WEIGHTS = {"w": array(WIDTH, HIDDEN), "u": array(HIDDEN, HIDDEN), "b": array(HIDDEN)}
XS = array(STEPS, BATCH, WIDTH)


def taken_out(fun: Callable[..., Any], *args: Any) -> list[str]:
    """The opcodes of the sums that leave loops, after a look at what they give."""
    module = module_of(fun, *args)
    found = loop_sums(module)
    after = edited(module, lambda module: take_out(module, found), *args)
    if found:
        assert not loop_sums(after)
    return sorted(one.term.opcode for sums in found for one in sums.sums)


def recurrent(params: Any, xs: Any, reverse: bool = False, unroll: int = 1) -> Any:
    def step(h: Any, x: Any) -> tuple[Any, Any]:
        h = jnp.tanh(x @ params["w"] + h @ params["u"] + params["b"])
        return h, h

    first = jnp.zeros((xs.shape[1], params["u"].shape[0]))
    return lax.scan(step, first, xs, reverse=reverse, unroll=unroll)[1]


def loss(params: Any, xs: Any, **keywords: Any) -> Any:
    return jnp.sum(recurrent(params, xs, **keywords) ** 2)


@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_of_weights_and_biases_leave_the_loop(reverse: bool) -> None:
    gradient = jax.grad(lambda params, xs: loss(params, xs, reverse=reverse))
    assert taken_out(gradient, WEIGHTS, XS) == ["dot", "dot", "reduce"]


def computed_again(params: Any, xs: Any) -> Any:
    """The loss of a loop whose gradient computes each step again."""

    @jax.checkpoint
    def step(h: Any, x: Any) -> tuple[Any, Any]:
        h = jnp.tanh(x @ params["w"] + h @ params["u"] + params["b"])
        return h, h

    first = jnp.zeros((xs.shape[1], params["u"].shape[0]))
    return jnp.sum(lax.scan(step, first, xs)[1] ** 2)


def fitted(rates: Any, first: Any) -> Any:
    """The loss of an ensemble whose solver asks for the rates at several stages of a step."""

    def slope(y: Any) -> Any:
        return rates[0] * jnp.sin(y) - rates[1] * y

    def step(y: Any, _: None) -> tuple[Any, None]:
        k = slope(y)
        return y + 0.1 * slope(y + 0.05 * k) + 0.01 * k, None

    return jnp.mean(lax.scan(step, first, None, length=STEPS)[0] ** 2)


def test_several_terms_of_one_sum_leave_the_loop() -> None:
    """Each stage adds to the gradient of each rate."""
    rates = (np.float32(0.7), np.float32(0.2))
    assert taken_out(jax.grad(fitted), rates, array(BATCH)) == ["reduce"] * 4


def test_a_sum_with_other_terms_stays() -> None:
    def step(total: Any, x: Any) -> tuple[Any, None]:
        return total + x.sum() + x[0, 0], None

    assert not taken_out(lambda xs: lax.scan(step, 0.0, xs)[0], XS)


def test_sums_leave_both_loops_of_a_function_that_is_called_twice() -> None:
    called = jax.jit(recurrent)

    def both(params: Any, xs: Any) -> Any:
        return jnp.sum(called(params, xs) ** 2) + jnp.sum(called(params, xs + 1) ** 3)

    once = taken_out(jax.grad(loss), WEIGHTS, XS)
    assert taken_out(jax.grad(both), WEIGHTS, XS) == sorted(once * 2)


def test_what_is_computed_again_is_read_where_the_loop_read_it(host_compiler: str) -> None:
    gradient = jax.grad(computed_again)
    [found] = loop_sums(module_of(gradient, WEIGHTS, XS))
    assert (len(found.sums), len(found.stacks)) == (3, 1)
    ours = fs.jit(gradient, options=fs.Options(backend="emulate", fallback="error"))(WEIGHTS, XS)
    assert_near(ours, jax.jit(gradient)(WEIGHTS, XS), 2e-6, rough=2e-6)


def test_what_is_joined_in_an_iteration_is_joined_after_the_loop() -> None:
    """As XLA merges the products of one operand before the pass gets them."""

    def step(sums: Any, given: Any) -> tuple[Any, None]:
        x, h, d = given
        both = jnp.concatenate([x, h], 1).T @ d
        return (sums[0] + both[:WIDTH], sums[1] + both[WIDTH:]), None

    def run(x: Any, h: Any, d: Any) -> Any:
        first = (jnp.ones((WIDTH, HIDDEN)), jnp.zeros((HIDDEN, HIDDEN)))
        return lax.scan(step, first, (x, h, d))[0]

    h, d = array(STEPS, BATCH, HIDDEN), array(STEPS, BATCH, HIDDEN)
    assert taken_out(run, XS, h, d) == ["dot", "dot"]


def test_a_loss_over_the_batch_leaves_the_loop() -> None:
    def step(carry: Any, x: Any) -> tuple[Any, None]:
        h, total = carry
        h = jnp.tanh(h + x)
        return (h, total + jnp.sum(h, axis=0)), None

    def run(xs: Any) -> Any:
        return lax.scan(step, (xs[0], jnp.zeros(WIDTH)), xs)[0]

    assert taken_out(run, XS) == ["reduce"]


def test_loops_in_loops() -> None:
    def outer(sums: Any, xs: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, sums, jax.grad(loss)(WEIGHTS, xs)), None

    def run(many: Any) -> Any:
        return lax.scan(outer, jax.tree.map(jnp.zeros_like, WEIGHTS), many)[0]

    assert taken_out(run, array(2, STEPS, BATCH, WIDTH)) == ["dot", "dot", "reduce"]


def _read_meanwhile(xs: Any) -> Any:
    def step(total: Any, x: Any) -> tuple[Any, Any]:
        return total + x.T @ x, total[0]

    return lax.scan(step, jnp.zeros((WIDTH, WIDTH)), xs)


def _read_by_a_loop(xs: Any) -> Any:
    """A loop inside gets it in a tuple."""

    def step(total: Any, x: Any) -> tuple[Any, Any]:
        return total + x.T @ x, lax.fori_loop(0, 2, lambda _, y: y * 0.5 + total[0], x)

    return lax.scan(step, jnp.zeros((WIDTH, WIDTH)), xs)


def _handed_to_a_loop(xs: Any) -> Any:
    """The same of the sum that an iteration ends with."""

    def step(total: Any, x: Any) -> tuple[Any, Any]:
        total = total + x.T @ x
        return total, lax.fori_loop(0, 2, lambda _, y: y * 0.5 + total[0], x)

    return lax.scan(step, jnp.zeros((WIDTH, WIDTH)), xs)


def _of_squares(xs: Any) -> Any:
    """What a reduction adds up are no elements."""

    def step(total: Any, x: Any) -> tuple[Any, Any]:
        row = lax.reduce(x.sum(0)[None], np.float32(0), lambda a, b: a + b * b, (0,))
        return total + row, jnp.tanh(x)

    return lax.scan(step, jnp.zeros(WIDTH), xs)


def _asked_for(xs: Any) -> Any:
    def step(s: Any) -> Any:
        return s[0] + 1, s[1] + jnp.sum(jnp.sin(xs[s[0]]))

    return lax.while_loop(lambda s: (s[0] < STEPS) & (s[1] < 1.0), step, (0, jnp.float32(0)))


def _of_integers(xs: Any) -> Any:
    step = lambda total, x: (total + jnp.sum(x.astype(int), axis=0), x)  # noqa: E731
    return lax.scan(step, jnp.zeros(WIDTH, int), xs)


def _of_much(xs: Any) -> Any:
    """A field would have to be kept of each iteration."""

    def step(carry: Any, x: Any) -> tuple[Any, None]:
        field, total = carry
        field = jnp.tanh(field + x[0, 0])
        return (field, total + jnp.sum(field, axis=0)), None

    return lax.scan(step, (jnp.ones((64, 64)), jnp.zeros(64)), xs)[0]


def _of_unknown_length(xs: Any) -> Any:
    step = lambda s: (s[0] + 1, s[1] + xs[s[0]].T @ xs[s[0]])  # noqa: E731
    return lax.while_loop(lambda s: xs[s[0], 0, 0] < 9, step, (0, jnp.zeros((WIDTH, WIDTH))))


STAYING = [
    _read_meanwhile,
    _read_by_a_loop,
    _handed_to_a_loop,
    _of_squares,
    _asked_for,
    _of_integers,
    _of_much,
]


@pytest.mark.parametrize("fun", STAYING, ids=lambda f: f.__name__)
def test_what_stays_in_its_loop(fun: Callable[..., Any]) -> None:
    assert taken_out(fun, XS) == []


def test_a_loop_that_the_data_ends_keeps_its_sums() -> None:
    assert not loop_sums(module_of(_of_unknown_length, XS))


def test_iterations_without_end_are_not_listed() -> None:
    """Their numbers alone would fill the memory."""
    step = lambda _, total: total + jnp.sum(jnp.sin(total.mean() + XS), axis=(0, 1))  # noqa: E731
    run = lambda xs: lax.fori_loop(0, (1 << 31) - 1, step, xs[0, 0])  # noqa: E731
    assert not loop_sums(module_of(run, XS))


@pytest.mark.parametrize("where", ["around", "body"])
def test_what_is_read_as_a_whole_gets_no_more_elements(where: str) -> None:
    """A loop that is what its computation gives, or a tuple in it that another op reads."""
    module = module_of(jax.grad(loss), WEIGHTS, XS)
    [sums] = loop_sums(module)
    graph = {"around": module.entry, "body": sums.loop.called[1]}[where]
    [computation] = [c for c in module.proto.computations if c.id == graph.proto_id]
    if where == "around":
        computation.root_id = sums.loop.origin
    else:
        [whole] = [i for i in computation.instructions if i.opcode == "parameter"]
        state = next(op for op in graph if op.dims == (BATCH, HIDDEN) and carried(op))
        [reader] = [i for i in computation.instructions if i.id == state.origin]
        copy = computation.instructions.add()
        copy.CopyFrom(whole)
        copy.name, copy.opcode = "whole", "copy"
        copy.id = 1 + max(i.id for i in computation.instructions)
        copy.operand_ids.append(whole.id)
        reader.operand_ids[0] = copy.id
        sort_instructions(computation)
    assert not loop_sums(from_message(module.proto))


@pytest.mark.parametrize(("inner", "sums"), [(jnp.tanh, ["dot"]), (fs.leave(jnp.tanh), [])])
def test_sums_stay_beside_what_is_left_to_xla(inner: Callable[..., Any], sums: list[str]) -> None:
    """In a loop inside, too: the loop around it stays XLA's as a whole."""

    def step(total: Any, x: Any) -> tuple[Any, None]:
        y = lax.fori_loop(0, 2, lambda _, y: inner(y), x)
        return total + jnp.tensordot(x, y, (0, 0)), None

    def run(xs: Any) -> Any:
        return lax.scan(step, jnp.zeros((WIDTH, WIDTH)), xs)[0]

    assert taken_out(run, XS) == sums


@pytest.mark.parametrize(("numerics", "products"), [("strict", 0), ("default", 2)])
def test_strict_numbers_are_added_one_by_one(numerics: str, products: int) -> None:
    options = fs.Options(backend="emulate", numerics=numerics)
    found = fs.jit(jax.grad(loss), options=options).lower(WEIGHTS, XS).compile().stitched
    assert found is not None
    assert sum(op.opcode == "dot" for op in found.plans[-1].program) == products


def test_a_gradient_gives_what_jax_gives(host_compiler: str) -> None:
    gradient = jax.value_and_grad(loss)
    ours = fs.jit(gradient, options=fs.Options(backend="emulate", fallback="error"))(WEIGHTS, XS)
    assert_near(ours, jax.jit(gradient)(WEIGHTS, XS), 2e-6, rough=2e-6)
