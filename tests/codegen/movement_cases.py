"""Cases that move elements: index maps, indices that the data decides, constants."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.codegen.kernel_cases import BF16, SMALL, TABLE, VECTORS, add, integers, normal

# ---- movement ------------------------------------------------------------------------------------

add("transposed", lambda x, y: x + y.T, normal(45, 70), normal(70, 45))
add("permuted", lambda x: jnp.exp(jnp.transpose(x, (2, 0, 1))), normal(3, 5, 70))
add("x_plus_its_transpose", lambda x: (jnp.exp(x) + jnp.exp(x).T).sum(1), normal(40, 40))
add("reshape_merges", lambda x: (x + 1).reshape(-1, 5) * 2, normal(3, 4, 5))
add("reshape_splits", lambda x: x.reshape(4, 3, 6).swapaxes(0, 1) * 2, normal(12, 6))
add("reshape_around_sum", lambda x: x.reshape(6, 4, 10).sum(2).reshape(3, 8) * 2, normal(12, 20))
add("reshape_across", lambda x: jnp.tanh(x).reshape(15, 14).sum(1), normal(10, 21))
add(
    "softmax_of_heads",
    lambda x: jax.nn.softmax(x.reshape(4, 5, 12).transpose(1, 0, 2)),
    normal(20, 12),
)
add("sliced", lambda x: x.T[2:9, 1:4] * 2, normal(6, 12))
add("strided_slices", lambda x: x[1::2, ::3] - x[:-1:2, ::3], normal(8, 13))
add("sum_of_slice", lambda x: x[3:40, 2:].sum(0), normal(50, 30))
add("reversed", lambda x: x[::-1] + jnp.flip(x, 1), normal(5, 8))
add("padded", lambda x: jnp.pad(jnp.exp(x), ((1, 2), (0, 3)), constant_values=-1.0), normal(4, 5))
add("padded_sum", lambda x: jnp.pad(x, ((0, 30), (3, 0))).sum(1), normal(10, 50))
add(
    "interior_padding",
    lambda x: lax.pad(x, np.float32(0.5), ((-1, 2, 0), (1, -2, 1))) * 2,
    normal(5, 6),
)
add("concatenated", lambda x, y: jnp.concatenate([x, -y, x * y], 1) + 1, normal(4, 6), normal(4, 6))
add(
    "concatenated_rows",
    lambda x, y: jnp.concatenate([x.T, y], 0).sum(1),
    normal(35, 3),
    normal(20, 35),
)
# a piece's integers are read where the piece is, and nowhere else
add(
    "concatenated_gathers",
    lambda x, y, a, b: jnp.exp(jnp.concatenate([x[a % 5], y[b % 7]])),
    *(normal(5, 6), normal(7, 6), integers(3), integers(4)),
)
add(
    "concatenated_gather_by_constants",
    lambda x, y: jnp.concatenate([x, y[np.array([1, 0, 2, 0, 2, 1, 3, 0, 3, 1])]]).sum(1),
    *(normal(8, 40), normal(4, 40)),
)
add(
    "pad_and_concatenate",
    lambda x, y: jnp.concatenate([jnp.pad(x, ((1, 2), (0, 0))), y.T[:, ::-1]], 0),
    normal(4, 6),
    normal(6, 3),
)
add("rolled", lambda x: jnp.roll(x, 3, axis=1) - x, normal(4, 9))
add(
    "concatenated_reductions",
    lambda x: jnp.concatenate([x.sum(1), x.max(1), x.min(1)]),
    normal(9, 50),
)
add("broadcast_rows_and_columns", lambda r, c: r[None] * c[:, None] + 1, normal(17), normal(13))
add(
    "broadcast_sum",
    lambda x: jnp.broadcast_to(x.sum(1)[:, None, None], (9, 4, 6)) * 2,
    normal(9, 50),
)
add("iota_masks", lambda x: jnp.where(jnp.tri(*x.shape, dtype=bool), x, 0).sum(1), normal(30, 40))
add("positions", lambda: (jnp.arange(7), jnp.arange(12.0).reshape(3, 4) * 2))

# ---- gathers, slices at run-time indices, scatters -----------------------------------------------

PLACES = "_index"
#: Below, inside and above an array of at most 40 rows.
_far = np.array([[-100, -41, -3], [0, 7, 12], [39, 40, 1000]], np.int32)
for _mode in ("fill", "clip", "wrap"):
    add(f"take_{_mode}", lambda x, i, m=_mode: jnp.take(x, i, axis=1, mode=m) * 2,
        normal(5, 13), _far, shows=PLACES)  # fmt: skip
for _mode in ("fill", "clip"):
    add(
        f"take_along_{_mode}",
        lambda x, i, m=_mode: jnp.take_along_axis(jnp.exp(x), i, axis=1, mode=m),
        normal(3, 13),
        _far,
        shows=PLACES,
    )
for _name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
    _ends = np.iinfo(_name)
    _i = np.array([0, 3, _ends.max, _ends.min, 12, _ends.max // 2], _name)
    for _rows in (13, 300):
        add(
            f"gather_{_name}_of_{_rows}",
            lambda x, i: lax.gather(
                x,
                i[:, None],
                lax.GatherDimensionNumbers((1,), (0,), (0,)),
                (1, 2),
                mode=lax.GatherScatterMode.CLIP,
            ),
            normal(_rows, 2),
            _i,
        )
add("embedding", lambda t, i: jnp.tanh(t[i]) + 1, normal(40, 64), integers(7, 5, low=-40, high=40),
    device=SMALL, shows=(PLACES, VECTORS))  # fmt: skip
add("embedding_sum", lambda t, i: t[i].sum(1), normal(40, 9), integers(7, 5, high=40))
add("gather_of_rows_and_columns", lambda x, i, j: x[i[:, None], :, j], normal(9, 3, 8),
    integers(5, low=-9, high=9), integers(6, high=8))  # fmt: skip
add("gather_in_batches", lambda x, i: jax.vmap(lambda x, i: x[:, i])(x, i), normal(4, 3, 9),
    integers(4, 7, low=-12, high=12))  # fmt: skip
add(
    "gather_in_two_batches",
    jax.vmap(jax.vmap(lambda x, i: x[i])),
    normal(4, 3, 9, 2),
    integers(4, 3, 7, low=-12, high=12),
)
add("gather_of_slices", jax.vmap(lambda x, i: lax.dynamic_slice(x, (i, 2), (3, 4)), (None, 0)),
    normal(9, 8), integers(6, low=-3, high=12))  # fmt: skip
add("gather_of_gather", lambda x, i, j: x[i[j]], normal(9, 4), integers(7, high=9),
    integers(11, low=-7, high=7))  # fmt: skip
add("gather_of_a_sum", lambda x, i: x.sum(1)[i] + 1, normal(50, 70), integers(9, high=50))
add("gather_of_a_padded_array", lambda x, i: jnp.pad(x, ((1, 2), (0, 0)))[i], normal(5, 4),
    integers(9, high=8))  # fmt: skip
add("gather_inside_a_branch", lambda x, i: jnp.concatenate([x[i], x * 2]), normal(5, 4),
    integers(9, low=-5, high=5))  # fmt: skip
add("gather_before_a_dot", lambda x, i, y: x[i] @ y, normal(9, 12), integers(6, high=9),
    normal(12, 5))  # fmt: skip
add("gather_by_a_sum", lambda x, i: x[i.sum(1)] * 2, normal(40, 6), integers(7, 20, low=-2, high=5))
add("gather_both_ways", lambda x, i: (x[i], x[:, i], x[i][:, i]), normal(9, 9), integers(6, high=9))
add("gather_then_softmax", lambda t, i: jax.nn.softmax(t[i]), normal(40, 300), integers(9, high=40))
add("shuffled_rows", lambda x, i: (x * 2)[i].sum(0), normal(300, 40), integers(300, high=300))
add("one_hot", lambda i: jax.nn.one_hot(i, 12), _far)
add("slice_at", lambda x, i, j: lax.dynamic_slice(jnp.exp(x), (i, j), (3, 8)) + 1, normal(9, 12),
    np.int32(4), np.int32(-3), shows=PLACES)  # fmt: skip
add("slice_behind_the_end", lambda x, i: lax.dynamic_slice_in_dim(x, i, 4, 1).sum(1),
    normal(9, 12), np.int32(11))  # fmt: skip
add("update_at", lambda x, u, i, j: lax.dynamic_update_slice(x * 2, u, (i, j)) + 1, normal(9, 12),
    normal(3, 5), np.int32(5), np.int32(99))  # fmt: skip
add("update_of_a_row", lambda x, u, i: x.at[i].set(u) * 2, normal(9, 12), normal(12), np.int32(-2))
add("update_of_an_element", lambda x, i: x.at[i, 3].add(1.0) * 2, normal(9, 12), np.int32(4))
for _method in ("set", "add", "multiply", "min", "max"):
    for _mode in ("drop", "clip"):
        add(
            f"scatter_{_method}_{_mode}",
            lambda x, u, i, f=_method, m=_mode: getattr(
                (x * 2).at[jnp.arange(9), i], f
            )(u, mode=m),
            normal(9, 13),
            normal(9),
            _far.ravel(),
        )  # fmt: skip


def one_per_row(u, i):
    """u[r] added at [r, i[r]] of zeros [rows, 300]; indices outside are dropped."""
    numbers = lax.ScatterDimensionNumbers((), (1,), (1,), (0,), (0,))
    return lax.scatter_add(jnp.zeros((u.shape[0], 300), u.dtype), i[:, None], u, numbers)


for _name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
    _ends = np.iinfo(_name)
    _i = np.array([0, 3, _ends.max, _ends.min, 120, min(_ends.max, 300)], _name)
    add(f"scatter_of_{_name}", one_per_row, normal(6), _i)
add("scatter_in_batches", jax.vmap(jax.vmap(lambda x, i, u: (x * 2).at[i].add(u))),
    normal(4, 3, 7), integers(4, 3, low=-9, high=9), normal(4, 3))  # fmt: skip
add("scatter_to_columns", lambda x, i, u: (x * 2).at[i, jnp.arange(7)].set(u), normal(9, 7),
    integers(7, low=-12, high=12), normal(7))  # fmt: skip
add("scatter_of_rows", jax.vmap(lambda x, i, u: (x + 1).at[i].set(u)), normal(4, 3, 7),
    integers(4, low=-5, high=5), normal(4, 7))  # fmt: skip
add(
    "sums_of_a_scatter",
    lambda u, i: (lambda s: (s, s.sum(1), s.sum(0), s.sum()))(
        jnp.zeros((9, 13)).at[jnp.arange(9), i].add(u, mode="drop")
    ),
    normal(9),
    _far.ravel(),
)


def label_loss(x, labels):
    log_p = jax.nn.log_softmax(x.astype(jnp.float32))
    return -jnp.mean(jnp.take_along_axis(log_p, labels[:, None], axis=1))


for _rows, _columns in ((33, 10), (9, 64), (7, 512), (5, 1000), (3, 4096)):
    _labels = integers(_rows, low=-_columns, high=_columns)
    add(f"label_loss_{_columns}", jax.value_and_grad(label_loss), normal(_rows, _columns), _labels)
add("label_loss_bf16", jax.value_and_grad(label_loss), normal(9, 2048, dtype=BF16),
    integers(9, high=2048), shows=VECTORS)  # fmt: skip
add("label_loss_picked", jax.value_and_grad(
    lambda x, y: -jax.nn.log_softmax(x)[jnp.arange(x.shape[0]), y].mean()),
    normal(9, 130), integers(9, low=-130, high=130))  # fmt: skip

# what replaces sums at an index that the data decides is read from memory alone
for _rows in (8, 32):
    add(f"placed_in_sums_{_rows}",
        lambda x, y, i: jax.lax.dynamic_update_slice(jnp.sin(y).sum(1), x, (i[0],)),
        normal(_rows), normal(34, 16), integers(1, low=1, high=3))  # fmt: skip
add("placed_in_sums_of_rows",
    lambda x, y, i: y - jax.lax.dynamic_update_slice(
        jnp.sin(y).sum(1, keepdims=True), x, (i[0], 0)),
    normal(32, 1), normal(34, 16), integers(1, low=1, high=3))  # fmt: skip

add("reshaped_and_placed",
    lambda x, y, i: (jax.lax.dynamic_update_slice(
        jnp.zeros(158, x.dtype), x.reshape(128), (i[0],))[:, None] * y).sum(),
    normal(8, 16), normal(158, 8), integers(1, low=9, high=31))  # fmt: skip


def squeezed_and_placed(c, i):
    x = c.astype(jnp.float32)
    placed = jax.lax.dynamic_update_slice(jnp.sin(x.max(1)), x[:9, 0], (i[0],))
    return (placed[:, None] * x).sum(1).astype(c.dtype)


add("squeezed_and_placed", squeezed_and_placed, normal(17, 31, dtype=np.float16),
    integers(1, low=3, high=4))  # fmt: skip

# ---- constants -----------------------------------------------------------------------------------

TABLE_OF = np.arange(30, dtype=np.float32).reshape(5, 6) ** 0.5
add("table", lambda x: x * TABLE_OF, normal(5, 6), shows=TABLE)
add(
    "table_moved", lambda x: (x @ TABLE_OF, TABLE_OF.T[1:4] * x[1:4, :5]), normal(6, 5), shows=TABLE
)
add("tables_of_other_types", lambda x: (
    jnp.where(np.array([True, False, True]), x, np.array([1, -2, 3], np.int32)),
    x * np.array([1.5, 2.5, -1.0], BF16).astype(np.float32),
), normal(3), shows=TABLE)  # fmt: skip
add("odd_numbers", lambda x: (x * np.float32(np.pi), jnp.where(x > 0, np.inf, -np.inf), x + 1e-38,
    jnp.where(x > 9, np.nan, x)), normal(20))  # fmt: skip

# ---- records, sorts ------------------------------------------------------------------------------

STAGED = "_staged["


def rotation(q):
    """Matrices of quaternions."""
    w, x, y, z = (q[:, n] for n in range(4))
    rows = [
        (1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)),
        (2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)),
        (2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)),
    ]
    return jnp.stack([jnp.stack(row, -1) for row in rows], -2)


add("records", rotation, normal(20001, 4), shows=STAGED)
add("records_beside_elements",
    lambda x: (jnp.stack([jnp.sin(n * x) for n in range(1, 11)], -1), x * 2,
               jnp.stack([jnp.cos(n * x) for n in range(1, 16)], -1)),
    normal(8001), shows=STAGED)  # fmt: skip
add("sorted_rows", lambda x: jnp.sort(x, 1), normal(300, 12))
add("ranks_of_rows", lambda x: jnp.argsort(x, 1), normal(301, 9))
add("best_of_rows", lambda x: jax.lax.top_k(jax.nn.softmax(x), 2), normal(302, 7))
