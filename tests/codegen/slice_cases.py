"""Cases whose outputs are slices of a value that other results need as well (loops/cuts.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.codegen.kernel_cases import (
    BF16,
    BLOCK,
    CARRIED,
    COLUMNS,
    GRID,
    LANES,
    SMALL,
    STRICT,
    TENSOR,
    TILED,
    VECTORS,
    add,
    normal,
)
from tests.codegen.regions import H200


def sliced(fun: Callable[..., Any], *parts: Any) -> Callable[..., Any]:
    """`fun` gives a value, and results that need all of it: these, and parts of the value."""

    def both(*args: jax.Array) -> Any:
        value, results = fun(*args)
        return results, *(value[at] for at in parts)

    return both


# ---- values in register tiles --------------------------------------------------------------------


def weights(q, k, v):
    scores = jnp.einsum("bid,bjd->bij", q, k)
    p = jnp.exp(scores - scores.max(-1, keepdims=True))
    return p, jnp.einsum("bij,bjd->bid", p, v) / p.sum(-1, keepdims=True)


def scores(q, k):
    s = jnp.einsum("bid,bjd->bij", q, k)
    return s, s.max(-1)


def layer(x, w, b):
    y = x @ w + b
    return y, jax.nn.relu(y)


_qkv = (normal(6, 14, 4), normal(6, 14, 4), normal(6, 14, 4))
for _name, _part in {
    "first_row": np.s_[:, :1],
    "middle_rows": np.s_[:, 3:7],
    "strided_rows": np.s_[:, 1::3],
    "middle_columns": np.s_[..., 5:11],
    "strided_columns": np.s_[..., 2:13:4],
    "corner": np.s_[2:5, 12:, :2],
}.items():
    # a block per batch entry, and one per few of its rows
    for _where, _on in (("", SMALL), ("_wide", H200)):
        add(f"weights_{_name}{_where}", sliced(weights, _part), *_qkv, device=_on, shows=TILED)
add("weights_cut_twice", sliced(weights, np.s_[:, :1], np.s_[:, 1::2, 3:9]), *_qkv, device=SMALL,
    shows=TILED)  # fmt: skip
add("weights_regrouped", lambda *a: (lambda o, p: (o, p.reshape(12, 28)))(
    *sliced(weights, np.s_[:, 3:7])(*a)), *_qkv, device=SMALL, shows=TILED)  # fmt: skip
add("weights_bf16", sliced(weights, np.s_[:, 5:9, 8:]),
    *(normal(4, 32, 16, dtype=BF16) for _ in range(3)), device=SMALL, shows=TENSOR)  # fmt: skip
add("weights_stored_short", lambda *a: (lambda o, p: (o, p.astype(BF16)))(
    *sliced(weights, np.s_[:, :2, 4:])(*a)), *_qkv, device=SMALL, shows=TILED)  # fmt: skip
add("slices_of_scores", sliced(scores, np.s_[:, :1], np.s_[..., 4:8]), *_qkv[:2], device=SMALL,
    shows=TILED)  # fmt: skip
add("slices_of_layer", sliced(layer, np.s_[:, 4:12], np.s_[3:9]), normal(64, 48), normal(48, 32),
    normal(32))  # fmt: skip
add("slice_of_split_dot", sliced(lambda a, b: (a @ b, a @ b * 2), np.s_[1:3]), normal(8, 8192),
    normal(8192, 8), shows=GRID)  # fmt: skip

# ---- reductions ----------------------------------------------------------------------------------


def normalised(x):
    total = jnp.exp(x).sum(1)
    return total, x / total[:, None]


def columns(x):
    total = jnp.exp(x).sum(-2)
    return total, total * 2


add("slice_of_lanes", sliced(normalised, np.s_[3:9]), normal(40, 60), shows=LANES)
add("slice_of_block", sliced(normalised, np.s_[1::2]), normal(6, 600), device=SMALL, shows=BLOCK)
add("slice_of_columns", sliced(columns, np.s_[3:17]), normal(300, 24), shows=COLUMNS)
add("slices_of_carried", sliced(columns, np.s_[:, 16:80], np.s_[2:4]), normal(8, 64, 128),
    device=SMALL, shows=(CARRIED, "fs_store_vec(slice_"))  # fmt: skip
add("slice_of_grid", sliced(columns, np.s_[:1]), normal(1 << 17, 4), shows=GRID)

# ---- elementwise values --------------------------------------------------------------------------


def heavy(x):
    """A value too costly to be computed by each of several loops."""
    y = x
    for _ in range(4):
        y = jnp.sin(jnp.tanh(y)) + jnp.exp(-y)
    return y, (y.sum(1), y.max(1))


add("slices_of_heavy", sliced(heavy, np.s_[:, 4:68], np.s_[5:9, 3:50]), normal(64, 128),
    device=SMALL, shows=(VECTORS, "fs_store_vec(slice_"))  # fmt: skip
add("slices_of_heavy_bf16", sliced(heavy, np.s_[:, 64:], np.s_[::3, :1]),
    normal(40, 256, dtype=BF16), device=SMALL, shows=(VECTORS, "fs_store_vec(slice_"))  # fmt: skip
add("slice_stored_long", lambda x: (lambda sums, y: (sums, y.astype(np.float32)))(
    *sliced(heavy, np.s_[:, 8:24])(x)), normal(24, 64, dtype=BF16), options=STRICT,
    device=SMALL)  # fmt: skip
add("slice_turned", lambda x: (lambda sums, y: (sums, y.T))(*sliced(heavy, np.s_[2:9, 10:20])(x)),
    normal(30, 40), device=SMALL)  # fmt: skip
