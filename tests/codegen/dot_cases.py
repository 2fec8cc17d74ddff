"""Cases with dots, in loops and in register tiles, and loops of a block through shared memory."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.codegen.kernel_cases import (
    BF16,
    CASES,
    F16,
    GRID,
    JOINED,
    PARTS,
    SHARED,
    SMALL,
    TENSOR,
    TILED,
    UNSHARED,
    VECTORS,
    add,
    integers,
    normal,
)


def unrolled(w, h, x):
    """A loop that was unrolled: its steps differ in what they read of `x`. What is far beyond 1
    before the tanh would leave it nothing but the errors of its sums."""
    for t in range(6):
        h = jnp.tanh(w @ h @ w * 0.1) * x[:, t * 16 : t * 16 + 16]
    return h


# ---- dots ----------------------------------------------------------------------------------------

add("small_matmul", lambda x, y: x @ y, normal(33, 17), normal(17, 29))
add("outer_product", lambda x, y: jnp.outer(x, y) * 2, normal(20), normal(30))
add("inner_product", lambda x, y: x @ y, normal(300), normal(300))
add("matrix_vector", lambda x, y: jnp.tanh(x @ y), normal(40, 77), normal(77))
add("transposed_matmul", lambda x, y: x.T @ y.T, normal(17, 33), normal(29, 17))
add("batched", lambda x, y: jnp.einsum("bij,bjk->bik", x, y), normal(5, 7, 9), normal(5, 9, 11))
add("inner_batch", lambda x, y: jnp.einsum("ibj,kjb->bik", x, y), normal(7, 5, 9), normal(11, 9, 5))
add(
    "two_contractions",
    lambda x, y: jnp.einsum("aij,ijb->ab", x, y),
    normal(6, 5, 7),
    normal(5, 7, 8),
)
add("gram", lambda x: (x @ x.T, jnp.exp(x) @ jnp.exp(x).T), normal(30, 20))
add("gram_in_batch", lambda x: (lambda s: s + s.swapaxes(1, 2))(jnp.einsum("bij,bkj->bik", x, x)),
    normal(300, 12, 8), shows=SHARED)  # fmt: skip
add(
    "squared_matrix", lambda x: jnp.einsum("bij,bjk->bik", jnp.exp(x), jnp.exp(x)), normal(40, 9, 9)
)
add(
    "dot_of_movement",
    lambda x, y: x[::-1, 2:] @ jnp.concatenate([y, y * 2]),
    normal(9, 16),
    normal(7, 10),
)
add("half_dot", lambda x, y: x @ y, normal(16, 24, dtype=BF16), normal(24, 8, dtype=BF16))
add("half_dot_to_float", lambda x, y: jnp.dot(x, y, preferred_element_type=jnp.float32),
    normal(16, 24, dtype=BF16), normal(24, 8, dtype=BF16))  # fmt: skip
add("integer_dot", lambda x, y: x @ y, integers(9, 20), integers(20, 8))
add("dot_then_sum", lambda x, y: (x @ y).sum(1), normal(40, 9), normal(9, 50))

# ---- dots in register tiles ----------------------------------------------------------------------

for _m, _k, _n in (
    (48, 40, 32),
    (100, 30, 10),
    (94, 17, 24),
    (33, 9, 64),
    (128, 200, 72),
):
    add(f"tiled_{_m}x{_k}x{_n}", lambda x, y: jnp.tanh(x @ y), normal(_m, _k), normal(_k, _n),
        shows=TENSOR)  # fmt: skip
add("tiled_once", lambda x, y: jnp.tanh(x @ y), normal(16, 8), normal(8, 8), shows=TILED)
add("tiled_many", lambda x, y: x @ y * 2, normal(160, 24), normal(24, 128), device=SMALL,
    shows=TENSOR)  # fmt: skip
add("tiled_transposed", lambda x, y: x.T @ y.T, normal(40, 32), normal(48, 40), shows=TENSOR)
add("tiled_batch", lambda x, y: jnp.einsum("bij,bjk->bik", x, y), normal(3, 32, 48),
    normal(3, 48, 16), shows=TENSOR)  # fmt: skip
add("tiled_update", lambda w, x, g: w - 0.1 * (x.T @ g), normal(64, 24), normal(50, 64),
    normal(50, 24), shows=TENSOR)  # fmt: skip
for _name, _dtype in (("bf16", BF16), ("f16", F16)):
    add(f"tiled_{_name}", lambda x, y: x @ y, normal(48, 24, dtype=_dtype),
        normal(24, 16, dtype=_dtype), shows=(TENSOR, "<1, 1>("))  # fmt: skip
add("tiled_mixed", lambda x, y: jnp.dot(x, y.astype(np.float32)), normal(32, 24),
    normal(24, 16, dtype=BF16), shows=TENSOR)  # fmt: skip
add("tiled_f64", lambda x, y: x @ y + 1, normal(48, 24, dtype=np.float64),
    normal(24, 16, dtype=np.float64), shows=TILED)  # fmt: skip
add("tiled_s32", lambda x, y: x @ y, integers(48, 24), integers(24, 16), shows=TILED)
for _name, _dtype in (("f32", np.float32), ("f64", np.float64), ("bf16", BF16)):
    add(f"tiled_parts_{_name}", lambda x, y, c: jnp.maximum(x @ y + c, 0),
        normal(32, 128, dtype=_dtype), normal(128, 10, dtype=_dtype),
        normal(32, 10, dtype=_dtype), shows=PARTS)  # fmt: skip
add("tiled_ragged_parts", lambda x, y: jnp.tanh(x.T @ y), normal(100, 50), normal(100, 24),
    shows=(TENSOR, PARTS))  # fmt: skip
add("tiled_sum", lambda w, x, y, z, a, b, c: w - 0.1 * (x.T @ a + y.T @ b + z.T @ c),
    normal(32, 24), *(normal(k, 32) for k in (64, 40, 64)), *(normal(k, 24) for k in (64, 40, 64)),
    shows=(TENSOR, PARTS))  # fmt: skip
add("tiled_long_sum", lambda w, x, *g: w - 0.1 * sum(x[:, i * 32:i * 32 + 32].T @ y for i, y in
    enumerate(g)), normal(32, 24), normal(64, 6 * 32), *(normal(64, 24) for _ in range(6)),
    shows=(TENSOR, PARTS, "_terms["))  # fmt: skip
add("tiled_joined_columns", lambda x, a, b, c, d: x @ jnp.concatenate([a, b, c, d], 1),
    normal(32, 64), *(normal(64, 32) for _ in range(4)), shows=(TENSOR, JOINED))  # fmt: skip
add("tiled_joined_depths", lambda a, b, w: jnp.tanh(jnp.concatenate([a, b], 1) @ w),
    normal(48, 64), normal(48, 64), normal(128, 24), shows=(TENSOR, JOINED, VECTORS))  # fmt: skip
add("tiled_joined_apart", lambda x, h, w: jnp.concatenate([x, h], 1) @ w,
    normal(48, 28), normal(48, 64), normal(92, 32), shows=(TENSOR, JOINED))  # fmt: skip
add("tiled_joined_computed", lambda x, h, w: jnp.concatenate([x, jnp.tanh(h)], 1) @ w,
    normal(48, 28), normal(48, 64), normal(92, 32))  # fmt: skip
add("tiled_joined_halves", lambda a, b, w: jnp.concatenate([a, b], 1) @ w,
    normal(32, 32, dtype=BF16), normal(32, 32, dtype=BF16), normal(64, 16, dtype=BF16),
    shows=(TENSOR, JOINED, VECTORS))  # fmt: skip
add("tiled_odd_depth", lambda x, w: x @ w, normal(32, 61), normal(61, 16), shows=TENSOR)
add("tiled_rows_of_13", lambda x, g: x.T @ g * 2, normal(128, 65), normal(128, 32), shows=TENSOR)
add("tied_embedding", lambda e, x, g, i, u: e - 0.1 * (g.T @ x).at[i].add(jnp.tanh(u)),
    normal(256, 64), normal(128, 64), normal(128, 256), integers(96, low=0, high=256),
    normal(96, 64), shows=(TENSOR, GRID))  # fmt: skip
add("unrolled_steps", unrolled, normal(16, 16), normal(16, 16), normal(16, 6 * 16),
    shows=(GRID, "part("))  # fmt: skip
add("tiled_sums_and_parts", lambda x, y, a, b: ((x.T @ a + y.T @ b) * 2, x.T @ b, y.T @ a),
    normal(64, 32), normal(64, 32), normal(64, 24), normal(64, 24), shows=TENSOR)  # fmt: skip
add("tiled_infinite", lambda x, y: x @ y, np.where(normal(32, 64) > 2, np.inf, np.float32(1)),
    np.abs(normal(64, 8)) + 1, shows=TENSOR)  # fmt: skip


def results_turned(a, b, c):
    """A dot's results per row, and a reader that has them in another order."""
    s = jnp.exp(a[:, 0])
    outer = lax.dot_general(a * s[:, None], b, (((), ()), ((), ())), precision="highest")
    return c + outer.transpose(0, 2, 1), s


def results_both_ways(p, u, v, c):
    """Two dots whose results per row are of the same axes, each in its order."""
    p = jax.nn.softmax(p)
    turned = jnp.einsum("ic,ckj->ikj", p, v).transpose(0, 2, 1)
    return jnp.einsum("ic,cjk->ijk", p, u) * turned + c


add("tiled_results_turned", results_turned, normal(2, 3), normal(7), normal(2, 7, 3),
    shows="_partial[21]")  # fmt: skip
add("tiled_results_both_ways", results_both_ways, normal(40, 24), normal(24, 2, 4),
    normal(24, 4, 2), normal(40, 2, 4))  # fmt: skip

# ---- dots whose lanes take several neighbours at once --------------------------------------------


def exact(x, y):
    """A product that keeps all of f32: no tensor cores."""
    return jnp.dot(x, y, precision=jax.lax.Precision.HIGHEST)


add("tiled_lots", lambda x, y, c: jnp.tanh(x @ y + c), normal(48, 160), normal(160, 96),
    normal(96), device=SMALL, shows=("fs_mma<2, 2, 4>", VECTORS))  # fmt: skip
add("tiled_lots_of_two", lambda x, y: x.T @ y * 2, normal(64, 48), normal(64, 16),
    device=SMALL, shows=("fs_mma<2, 2, 2>", VECTORS))  # fmt: skip
add("tiled_lots_and_parts", lambda x, y, c: jnp.tanh(x @ y + c), normal(32, 160), normal(160, 32),
    normal(32), device=SMALL, shows=("fs_mma<2, 2, 4>", PARTS, VECTORS))  # fmt: skip
add("tiled_parts_and_picked_rows", lambda x, y, t, i: jnp.tanh(x @ y + t[i]), normal(32, 160),
    normal(160, 32), normal(50, 32), integers(32, low=0, high=50), device=SMALL,
    shows=(TENSOR, PARTS))  # fmt: skip
add("exact_parts", lambda x, y, c: jnp.tanh(exact(x, y) + c), normal(32, 512), normal(512, 64),
    normal(32, 64), device=SMALL, shows=(PARTS, VECTORS))  # fmt: skip
add("exact_transposed", lambda x, y: exact(x, y.T) - 1, normal(32, 512), normal(64, 512),
    device=SMALL, shows=(PARTS, VECTORS))  # fmt: skip
add("exact_along_rows", lambda x, y: exact(x.T, y), normal(512, 32), normal(512, 64),
    device=SMALL, shows=(PARTS, VECTORS))  # fmt: skip
add("exact_many_tiles", lambda x, y: exact(x, y) * 2, normal(512, 64), normal(64, 256),
    shows=VECTORS)  # fmt: skip
add("exact_seven_rows", lambda x, y: exact(x.T, y), normal(64, 13), normal(64, 48),
    device=SMALL, shows=(TILED, "r < 7"))  # fmt: skip
add("exact_ragged", exact, normal(20, 90), normal(90, 53), shows=TILED)
add("exact_joined", lambda x, h, w: jnp.tanh(exact(jnp.concatenate([x, h], 1), w)),
    normal(32, 128), normal(32, 384), normal(512, 64),
    device=SMALL, shows=(JOINED, PARTS, VECTORS))  # fmt: skip
add("joined_slices", lambda x, h, w: jnp.tanh(jnp.concatenate([x[:, 1], h], 1) @ w),
    normal(48, 3, 28), normal(48, 64), normal(92, 32), shows=(TENSOR, JOINED, VECTORS))  # fmt: skip
add("joined_along_rows", lambda x, h, g: jnp.concatenate([x[:, 1], h], 1).T @ g,
    normal(128, 3, 28), normal(128, 37), normal(128, 32), shows=(TENSOR, JOINED))  # fmt: skip

# ---- block composition: several loops of a block through shared memory ---------------------------


def attention(q, k, v):
    s = jnp.einsum("bid,bjd->bij", q, k) * 0.3
    return jnp.einsum("bij,bjd->bid", jax.nn.softmax(s), v)


def self_attention(x, w):
    q = x @ w
    return jax.nn.softmax(q @ x.transpose(0, 2, 1) * 0.05) @ x  # scores near 1: exact to f32's end


def heads(x, wq, wk):
    q, k = ((x @ w).reshape(4, 10, 3, 5).transpose(0, 2, 1, 3) for w in (wq, wk))
    p = jax.nn.softmax(jnp.einsum("bhid,bhjd->bhij", q, k))
    return jnp.einsum("bhij,bhjd->bihd", p, k).reshape(4, 10, 15)


def masked(q, k, v, keep):
    s = jnp.where(keep, jnp.einsum("bid,bjd->bij", q, k), -jnp.inf)
    return jax.nn.softmax(s) @ v


for _b, _i, _j, _d, _f in ((5, 9, 31, 3, 2), (2, 33, 12, 16, 16), (40, 16, 94, 2, 2),
                           (3, 47, 94, 8, 8), (2, 32, 32, 16, 40), (1, 7, 200, 5, 3)):  # fmt: skip
    _values = normal(_b, _i, _d), normal(_b, _j, _d), normal(_b, _j, _f)
    add(f"attention_{_i}x{_j}_{_d}_{_f}", attention, *_values, shows=TILED)
    add(f"attention_{_i}x{_j}_{_d}_{_f}_small", attention, *_values, device=SMALL, shows=TILED)
add("attention_masked", masked, normal(3, 20, 8), normal(3, 24, 8), normal(3, 24, 8),
    np.tri(20, 24, dtype=bool), shows=TILED)  # fmt: skip
add("attention_bf16", attention, *(normal(4, 32, 16, dtype=BF16) for _ in range(3)), device=SMALL,
    shows=TENSOR)  # fmt: skip
add("attention_f64", attention, *(normal(4, 30, 5, dtype=np.float64) for _ in range(3)),
    shows=TILED)  # fmt: skip
add("softmax_then_dot", lambda x, w: jax.nn.softmax(x) @ w, normal(70, 40), normal(40, 6))
add("chain_of_dots", lambda a, b, c: (a @ b) @ c, normal(9000, 12), normal(12, 20), normal(20, 6))

_qkv = (normal(6, 14, 4), normal(6, 14, 4), normal(6, 14, 4))
add("attention", attention, *_qkv, device=SMALL, shows=TILED)
add("attention_wide", attention, *_qkv, shows=TILED)
add("attention_unshared", attention, *(normal(6, 14, 20, dtype=np.float64) for _ in range(3)),
    device=SMALL, options=UNSHARED, shows=SHARED)  # fmt: skip
add(
    "attention_backward",
    jax.grad(lambda *a: (attention(*a) ** 2).sum(), (0, 1, 2)),
    *_qkv,
    device=SMALL,
)
add(
    "attention_ragged",
    attention,
    *(normal(130, 3, 2) for _ in range(3)),
    device=SMALL,
    shows=SHARED,
)
add("grouped_queries",
    lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True),
    normal(1, 160, 6, 32), normal(1, 160, 2, 32), normal(1, 160, 2, 32), device=SMALL,
    shows="fs_mma_along<")  # fmt: skip
add("self_attention", self_attention, normal(3, 17, 24), normal(24, 24), device=SMALL)
add("heads", heads, normal(4, 10, 15), normal(15, 15), normal(15, 15), device=SMALL)


def squares(x):
    """Three matrices of which two are alive at once."""
    for _ in range(4):
        x = jnp.tanh(jnp.einsum("bij,bjk->bik", x, x) * 0.1)
    return x


add("squares", squares, normal(9, 12, 12), device=SMALL, shows=SHARED)
add("squares_unshared", squares, CASES["squares"].args[0], device=SMALL, options=UNSHARED)
add("columns_then_rows", lambda x: jax.nn.softmax(x - x.mean(1, keepdims=True), 2),
    normal(9, 20, 30), device=SMALL, shows=SHARED)  # fmt: skip
add("softmax_both_ways", lambda x: jax.nn.softmax(jax.nn.softmax(x, 1), 2), normal(9, 20, 30),
    device=SMALL, shows=SHARED)  # fmt: skip
