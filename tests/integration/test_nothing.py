"""Arrays without elements: programs grown with extents of zero, through every stage."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import fusionstitch as fs
from fusionstitch.compiler import core
from fusionstitch.costmodel.devices import device

#: The first is the most likely.
EXTENTS = (0, 3, 0, 1, 4)
EMULATE = fs.Options(backend="emulate", scorer="paper", fallback="error")
Draw = Callable[[int], int]
Step = Callable[[jax.Array, jax.Array, Draw], jax.Array]

#: What is made of two matrices; a step that JAX refuses for their shapes is left out.
STEPS: tuple[Step, ...] = (
    lambda x, y, draw: x + y,
    lambda x, y, draw: jnp.tanh(x) * 2,
    lambda x, y, draw: x.T @ y,
    lambda x, y, draw: x @ y.T,
    lambda x, y, draw: x @ y,
    lambda x, y, draw: jnp.einsum("ij,kl->ikjl", x, y).sum((2, 3)),
    lambda x, y, draw: jnp.einsum("bi,bi->b", x, y)[:, None] + 1,
    lambda x, y, draw: x.sum(draw(2), keepdims=True) + 1,
    lambda x, y, draw: x.max(draw(2), keepdims=True, initial=-1.0) * 2,
    lambda x, y, draw: x.sum() + y,
    lambda x, y, draw: jax.nn.softmax(x, axis=draw(2)),
    lambda x, y, draw: (x - x.mean(1, keepdims=True)) * 2,
    lambda x, y, draw: jnp.cumsum(x, draw(2)),
    lambda x, y, draw: jnp.concatenate([x, y], draw(2)),
    lambda x, y, draw: jnp.pad(x, ((draw(2), draw(2)), (0, 1))),
    lambda x, y, draw: lax.slice_in_dim(x, 0, draw(x.shape[0] + 1)),
    lambda x, y, draw: x.reshape(x.shape[1], x.shape[0]),
    lambda x, y, draw: x.T,
    lambda x, y, draw: jnp.flip(x, draw(2)),
    lambda x, y, draw: jnp.broadcast_to(x[:1], (EXTENTS[draw(5)], x.shape[1])),
    lambda x, y, draw: jnp.take(x, jnp.zeros(EXTENTS[draw(5)], int), 0, mode="clip"),
    lambda x, y, draw: x.at[jnp.zeros(y.shape[0], int)].add(y),
    lambda x, y, draw: lax.dynamic_update_slice(x, y, (jnp.int32(0), jnp.int32(0))),
    lambda x, y, draw: jnp.where(x > 0, x, y),
    lambda x, y, draw: jnp.sort(x, draw(2)),
    lambda x, y, draw: lax.reduce_window(x, 0.0, lax.add, (1, 2), (1, 1), "SAME"),
    lambda x, y, draw: lax.fori_loop(0, draw(3), lambda _, s: s * 0.5 + 1, x),
    lambda x, y, draw: lax.map(lambda row: row * row.sum(), x),
    lambda x, y, draw: lax.convert_element_type(lax.bitcast_convert_type(x, jnp.int8)[..., 0], x),
)


def drawn(places: np.random.Generator, below: int) -> int:
    return int(places.integers(below))


def grown(seed: int) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """A program of two matrices, some without elements, and the matrices."""
    rng = np.random.default_rng(seed)
    shapes = [tuple(int(e) for e in rng.choice(EXTENTS, 2)) for _ in range(2)]
    args = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    chosen = [(STEPS[rng.integers(len(STEPS))], int(rng.integers(1 << 30))) for _ in range(9)]

    def program(*args: jax.Array) -> list[jax.Array]:
        values = list(args)
        for step, number in chosen:
            places = np.random.default_rng(number)
            x, y = (values[places.integers(len(values))] for _ in range(2))
            try:
                made = step(x, y, partial(drawn, places))
            except (TypeError, ValueError, IndexError, ZeroDivisionError):
                continue
            if made.ndim == 2:
                values.append(made)
        return values[len(args) :]

    return program, args


@settings(max_examples=25)
@given(st.integers(0, 1 << 20))
def test_programs_without_elements_are_planned_and_generated(seed: int) -> None:
    program, args = grown(seed)
    lowered: Any = jax.jit(program).lower(*args).compiler_ir("hlo")
    module = lowered.as_serialized_hlo_module_proto()
    for name in ("emulated", "h200"):
        options = fs.Options(scorer="paper", fallback="error")
        assert not core.stitch(module, options, device(name), None).fallbacks


@pytest.mark.usefixtures("host_compiler")
@pytest.mark.parametrize("seed", range(3))
def test_programs_without_elements_give_what_jax_gives(seed: int) -> None:
    programs = [grown(number) for number in range(8 * seed, 8 * seed + 8)]

    def together(args: list[list[jax.Array]]) -> list[Any]:
        return [program(*own) for (program, _), own in zip(programs, args, strict=True)]

    args = [own for _, own in programs]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fs.jit(together, options=EMULATE)(args)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, strict=True),
        found,
        jax.jit(together)(args),
    )


@pytest.mark.usefixtures("host_compiler")
def test_a_product_over_nothing_is_zero() -> None:
    z, x = np.zeros((0, 4), np.float32), np.ones((4, 4), np.float32)

    def fun(z: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return z.T @ z, jnp.tanh(x) * x + z.T @ z

    for options in (EMULATE, EMULATE.replace(scorer="model")):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            product, other = fs.jit(fun, options=options)(z, x)
        np.testing.assert_array_equal(product, np.zeros((4, 4), np.float32))
        np.testing.assert_allclose(other, np.tanh(x), rtol=1e-6)
