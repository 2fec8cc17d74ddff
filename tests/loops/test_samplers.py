"""A slice sampler, loops in a loop whose iterations the data decides: the same bits in every form.

Its numbers are multiples of 1/256 and its density's are exact, so nothing rounds and no decision
can fall otherwise than under jax.jit.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from benchmarks.loops.forced import taken
from fusionstitch.codegen.while_loops.generate import FORMS

STEPS, CHAINS, WIDTH = 20, 64, 1.5

pytestmark = pytest.mark.usefixtures("host_compiler")


def density(x: Any) -> Any:
    return -jnp.minimum(jnp.abs(x - 2), jnp.abs(x + 1.5))


def drawn(key: Any, most: Any) -> Any:
    return jnp.floor(jax.random.uniform(key) * most * 256) / 256


def step(key: Any, x: Any) -> tuple[Any, tuple[Any, Any, Any]]:
    """Another number of the slice of x, and how often each of the loops ran."""
    depth, index, rest = jax.random.split(key, 3)
    level = density(x) - drawn(depth, 2) - 1 / 1024
    first = x - drawn(index, WIDTH)

    def inside(s: Any) -> Any:
        return density(s[0]) > level

    low, left = lax.while_loop(inside, lambda s: (s[0] - WIDTH, s[1] + 1), (first, 0))
    high, right = lax.while_loop(inside, lambda s: (s[0] + WIDTH, s[1] + 1), (first + WIDTH, 0))

    def shrunk(s: Any) -> Any:
        low, high, key, _, iterations, _ = s
        key, own = jax.random.split(key)
        new = low + drawn(own, high - low)
        found = density(new) > level
        low = jnp.where(found | (new >= x), low, new)
        return low, jnp.where(found | (new < x), high, new), key, new, iterations + 1, found

    start = (low, high, rest, x, 0, False)
    *_, new, iterations, _ = lax.while_loop(lambda s: ~s[5], shrunk, start)
    return new, (left, right, iterations)


def alone(key: Any, x: Any) -> Any:
    def body(state: Any, _: Any) -> Any:
        key, own = jax.random.split(state[0])
        x, iterations = step(own, state[1])
        return (key, x), (x, iterations)

    return lax.scan(body, (key, x), None, length=STEPS)


def together(key: Any, x: Any) -> Any:
    """Chains that wait for each other in each of the loops inside."""

    def body(state: Any, _: Any) -> Any:
        key, own = jax.random.split(state[0])
        x, iterations = jax.vmap(step)(jax.random.split(own, CHAINS), state[1])
        return (key, x), (x, iterations)

    return lax.scan(body, (key, x), None, length=STEPS)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("chains", ["each by itself", "together"])
def test_every_form_of_a_slice_sampler_draws_the_same(chains: str, form: str) -> None:
    key, x = jax.random.PRNGKey(3), jnp.arange(CHAINS) / 16 - 2
    fun, args = together, (key, x)
    if chains == "each by itself":
        fun, args = jax.vmap(alone), (jax.random.split(key, CHAINS), x)
    with taken(form):
        ours = fs.jit(fun, options=fs.Options(backend="emulate", scope="loop", scorer="model"))
        compiled = ours.lower(*args).compile()
    assert any(kernel.template.startswith(f"loop {form}") for kernel in compiled.kernels)
    got, expected = compiled(*args), jax.jit(fun)(*args)
    jax.tree.map(np.testing.assert_array_equal, got, expected)
