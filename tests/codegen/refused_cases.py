"""Cases that whole programs and grown graphs found: each once made a kernel that was refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.codegen.kernel_cases import VECTORS, add, integers, normal

# An index computed or joined inside the loop over a vector, for the load before that loop.
add("softmax_of_the_best_of_few", lambda x, s: jax.nn.softmax(x[jnp.arange(9), jnp.argmax(s, 1)]),
    normal(9, 4, 64), normal(9, 4), shows=VECTORS)  # fmt: skip
add("softmax_of_joined_rows", lambda x, i, j: jax.nn.softmax(x[jnp.concatenate([i, j])]),
    normal(30, 64), integers(3, high=30), integers(4, high=30))  # fmt: skip
add("softmax_of_padded_places", lambda x, i: jax.nn.softmax(x[jnp.pad(i, (1, 1))]), normal(9, 64),
    integers(7, high=9))  # fmt: skip
# In its first row both operands read the same vectors, in later ones they do not.
add("small_gram", lambda x: jnp.einsum("aik,ajk->ij", x, x), normal(64, 2, 16))
# Pieces of an operand whose index is known to be in bounds only where it is read.
add(
    "padded_pieces",
    lambda x, y: jnp.pad(jnp.concatenate([x, y]), (2, 3)) * 2,
    normal(30),
    normal(20),
)
add("pieces_put_somewhere", lambda x, y, i: lax.dynamic_update_slice(
    x * 2, jnp.concatenate([y, y, y]), (i,)), normal(40), normal(9), np.int32(5))  # fmt: skip
