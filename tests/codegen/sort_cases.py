"""Cases of rows that threads sort together, of lengths that lanes have and that blocks have."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tests.codegen.kernel_cases import BF16, SMALL, case, integers, normal

LANES, BLOCK = "fs_sort_lanes<", "fs_sort_block<"


@case(normal(9, 33), shows=LANES)
def rows_in_order(x):
    """One more element than a thread has; nearly half of what the lanes have is nothing."""
    return jnp.sort(x, 1), jnp.argsort(x, 1)


@case(integers(70, 128, low=0, high=9), shows=LANES)
def sorted_ties(x):
    """As many as the lanes have; equal elements stay in their order."""
    return jnp.argsort(x, 1), jnp.argsort(x, 1, descending=True)


@case(normal(100, 37), shows=LANES)
def sorted_columns(x):
    return jnp.sort(jnp.exp(x), 0), jnp.argsort(x, 0)


@case(normal(5, 1000), shows=LANES)
def sorted_by_a_warp(x):
    """Centred before, summed after, in one kernel."""
    ordered = jnp.sort(x - x.mean(1, keepdims=True), 1)
    return ordered[:, 10:-10].mean(1)


@case(normal(7, 300, dtype=BF16), integers(7, 300, low=0, high=1000), shows=LANES)
def sorted_with_others(x, y):
    return lax.sort((x, y, x * 2), dimension=1, num_keys=1)


@case(normal(17, 33, dtype=BF16), shows=LANES)
def sorted_beside_a_product(x):
    """What is rounded after the product has an index of the same name as a loop of the sort."""
    return jnp.sort(x), jnp.sort(x @ x.T)


@case(normal(40, 70), shows=LANES)
def largest_of_rows(x):
    best, which = lax.top_k(jax.nn.softmax(x), 5)
    return best / best.sum(1, keepdims=True), which


@case(normal(30, 200), shows=LANES)
def onto_the_simplex(x):
    """A projection by sorting (sparsemax)."""
    ordered = -jnp.sort(-x, 1)
    bound = (jnp.cumsum(ordered, 1) - 1) / jnp.arange(1, 201)
    return jnp.maximum(x - bound.max(1, keepdims=True), 0)


@case(normal(20, 99), shows=LANES)
def median_gradient(x):
    return jax.grad(lambda x: (jnp.median(x, 1) ** 2).sum())(x)


@case(normal(5, 3000), shows=BLOCK)
def largest_by_a_block(x):
    """More than a thread has, and fewer."""
    best, which = lax.top_k(x, 40)
    return best - x.mean(1, keepdims=True), which, lax.top_k(-x, 2)[1]


@case(normal(40, 60), shows=LANES)
def last_of_rows(x):
    """What comes last, and of the columns what comes first."""
    return jnp.argsort(x, 1)[:, -5:], jnp.sort(x, 0)[:3][::-1]


@case(normal(3, 1025), shows=BLOCK)
def sorted_by_a_block(x):
    return jnp.sort(x, 1), jnp.argsort(x, 1)


@case(normal(2500, 2), shows=BLOCK)
def sorted_columns_by_a_block(x):
    return jnp.argsort(x, 0, descending=True)


@case(normal(2, 8192), shows=BLOCK)
def quantiles_by_a_block(x):
    return jnp.quantile(x, jnp.array([0.05, 0.5, 0.95]), axis=1)


@case(integers(2, 16384, low=-5, high=6), shows=BLOCK)
def longest_sorted_rows(x):
    return jnp.sort(x, 1)


@case(normal(5, 7, 50), shows=LANES, device=SMALL)
def sums_of_sorted_rows(x):
    """Rows of a block's own: what is summed over them is in their kernel."""
    return (jnp.sort(x, 2) * jnp.arange(7)[:, None]).sum(1)


@case(normal(2, 20000), shows="fs_merge_block<")
def sorted_in_parts(x):
    return jnp.argsort(x, 1), jnp.median(x, 1)


@case(normal(3, 20000), shows=LANES)
def largest_of_long_rows(x):
    best, which = lax.top_k(x, 7)
    return jax.nn.softmax(best), which
