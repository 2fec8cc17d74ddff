"""Cases of scatters of many updates to few elements, in the ways in which they are written."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tests.codegen.kernel_cases import BF16, case, integers, normal

U = 1 << 14
BINS = "fs_bins_join<"


@case(integers(U, low=-3, high=43), normal(U), shows=BINS)
def bins_of_floats(i, u):
    """Some indices count from the end, some lie outside; what follows is in the same kernel."""
    total = jnp.zeros(40).at[i].add(jnp.exp(u), mode="drop")
    return total / total.sum()


@case(integers(U, low=0, high=2), normal(U), shows=BINS)
def bins_of_two(i, u):
    """Nearly all lanes of a warp have the same element."""
    return jax.ops.segment_sum(u, i, 2)


@case(integers(U, low=0, high=700), integers(U, low=0, high=200), shows=BINS)
def bins_of_bytes(i, u):
    return jnp.zeros(700, jnp.uint8).at[i].max(u.astype(jnp.uint8))


@case(integers(U, low=0, high=9), integers(U, low=-9, high=9), shows=BINS)
def bins_of_integers(i, u):
    """Onto what is there already, by several reducers."""
    x = jnp.arange(9, dtype=jnp.int32)
    return x.at[i].add(u), x.at[i].min(u), x.at[i].mul(2 * u + 1), jnp.bincount(i, length=9)


@case(integers(U, low=0, high=30), normal(U, 3), shows=BINS)
def bins_of_vectors(i, u):
    return jax.ops.segment_sum(u, i, 30) * 2, jax.ops.segment_max(u, i, 31)


@case(integers(5, 3300, low=-1, high=12), normal(5, 3300), shows=BINS)
def bins_of_rows(i, u):
    """Rows with indices of their own."""
    return jax.vmap(lambda i, u: jnp.zeros(11).at[i].add(u))(i, u)


@case(integers(4100, low=0, high=7), normal(6, 4100), shows=BINS)
def bins_of_columns(i, u):
    """Rows with the same indices: what is scattered along is the last dim."""
    return jnp.zeros((6, 7)).at[:, i].add(u)


@case(integers(U, low=0, high=8), integers(U, low=-9, high=9), normal(U), shows=BINS)
def bins_in_a_plane(i, j, u):
    return jnp.ones((8, 9)).at[i, j].add(jnp.sin(u))


@case(integers(17000, low=0, high=8000), normal(17000, dtype=BF16), shows=BINS)
def bins_of_halves(i, u):
    """So many that a block has room for those of two warps."""
    return jnp.zeros(8000, BF16).at[i].add(u), jnp.zeros(8000, BF16).at[i].max(u)


@case(integers(130, 127, low=0, high=60), normal(130, 127), shows=BINS)
def bins_of_a_picture(i, u):
    """Two dims of updates, of which no number of parts has as many."""
    return jnp.zeros(60).at[i].add(u)


@case(integers(70, 300, low=-1, high=40), normal(70, 300), shows=BINS)
def bins_of_many_rows(i, u):
    """More than the device has blocks."""
    return jax.vmap(lambda i, u: jnp.zeros(40).at[i].add(u))(i, u)


@case(integers(1100, low=-1, high=900), normal(1100, 24), shows=BINS)
def bins_of_wide_rows(i, u):
    """Each block has a part of every row, of three."""
    return jnp.zeros((800, 24)).at[i].add(jnp.sin(u), mode="drop")


def joined_rows(i, u, size):
    """As XLA's GPU compiler writes a batch: the index vectors say which row an update is of."""
    rows, count = i.shape
    row = jnp.broadcast_to(jnp.arange(rows, dtype=jnp.int32)[:, None], i.shape)
    vectors = jnp.stack([row, i], -1).reshape(rows * count, 2)
    dims = lax.ScatterDimensionNumbers((1, 2), (), (0, 1))
    zeros = jnp.zeros((rows, size), u.dtype)
    return lax.scatter_add(zeros, vectors, u.reshape(-1, 1, 1), dims, mode="drop")


@case(integers(4, 4500, low=-2, high=53), normal(4, 4500), shows=BINS)
def bins_of_joined_rows(i, u):
    return joined_rows(i, u, 50)


@case(integers(700, 36, low=-2, high=12), normal(700, 36))
def scatter_into_few_elements_a_row(i, u):
    """More than all elements could be compared with, but few are of the same row."""
    return joined_rows(i, jnp.exp(u), 9)


@case(integers(700, 3, low=-2, high=12), normal(700, 3, 2))
def scatter_of_batches(i, u):
    return jax.vmap(lambda i, u: jnp.zeros((9, 2)).at[i].add(u))(i, u)


def largest_of_eight_bits(i, u):
    """In a type that has no infinity; the last elements have no update."""
    values = u.astype(jnp.float8_e4m3fn)
    return jnp.full(12, -1, values.dtype).at[i].max(values).astype(jnp.float32) * 2


@case(integers(U, low=0, high=9), integers(U, low=-9, high=9), shows=BINS)
def bins_of_eight_bits(i, u):
    return largest_of_eight_bits(i, u)


@case(integers(100, low=0, high=9), integers(100, low=-9, high=9))
def scatter_of_eight_bits(i, u):
    return largest_of_eight_bits(i, u)
