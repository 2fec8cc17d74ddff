"""Small programs that between them use every way a kernel can be scheduled, as one table.

`CASES` maps a name to a `Program`; `shows` are texts its kernel must contain, so that a case goes
on testing what it is there for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from codegen.generate import CodegenOptions
from costmodel.devices import Device
from tests.codegen.regions import DEFAULT, H200, SMALL, Case, lowered, whole

# What the text of a kernel shows about its schedule.
VECTORS = "fs_load_vec<"
LANES = "fs_reduce_lanes<"
BLOCK = "fs_reduce_block<"
COLUMNS = "fs_reduce_strided<"
GRID = "fs_grid_barrier();"
SHARED = "_shared["
KEPT = "_row["
TILED = "_tile["
TENSOR = "fs_mma"
TABLE = "static __device__ const"

STRICT = CodegenOptions(numerics="strict")
UNSHARED = CodegenOptions(sharing=False)


@dataclass(frozen=True)
class Program:
    """`fun(*args)` as one kernel for `device`."""

    name: str
    fun: Callable[..., Any]
    args: tuple[Any, ...]
    device: Device = H200
    options: CodegenOptions = DEFAULT
    shows: tuple[str, ...] = ()

    @property
    def wide(self) -> bool:
        """Whether it must be traced with 64-bit types on."""
        return any(np.asarray(a).dtype.itemsize == 8 for a in jax.tree.leaves(self.args))

    def case(self) -> Case:
        graph = lowered(self.fun, *self.args)
        args = [np.asarray(a) for a in jax.tree.leaves(self.args)]
        return Case(whole(graph, f"k_{self.name}"), args, self.device, self.options)


CASES: dict[str, Program] = {}


def add(name: str, fun: Callable[..., Any], *args: Any, shows: Any = (), **fields: Any) -> None:
    assert name not in CASES, name
    shows = (shows,) if isinstance(shows, str) else shows
    CASES[name] = Program(name, fun, args, shows=shows, **fields)


def case(*args: Any, **fields: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enters the decorated function under its own name."""

    def enter(fun: Callable[..., Any]) -> Callable[..., Any]:
        add(fun.__name__, fun, *args, **fields)
        return fun

    return enter


_draw = np.random.default_rng(0)


def normal(*dims: int, dtype: Any = np.float32) -> np.ndarray:
    return np.asarray(_draw.standard_normal(dims), dtype)


def integers(*dims: int, dtype: Any = np.int32, low: int = 0, high: int = 100) -> np.ndarray:
    return np.asarray(_draw.integers(low, high, dims), dtype)


BF16 = ml_dtypes.bfloat16
F16 = np.float16

# ---- elementwise ---------------------------------------------------------------------------------

add("chain", lambda x: jnp.tanh(x) * jnp.exp(-x * x) + 1.0, normal(7, 33))
add("scalar", lambda x: x * 2.0 + 1.0, np.float32(3.0))
add("one_element", lambda x: jnp.sin(x), normal(1, 1))
add("prime_size", lambda x: x * x, normal(1021))
add("ragged_tile", lambda x, y: x + y, normal(33, 257), normal(33, 257), device=SMALL)
add(
    "vectors", lambda x, y: x * y + 1, normal(64, 128), normal(64, 128), device=SMALL, shows=VECTORS
)
add("row_vectors", lambda x, y: x + y, normal(64, 128), normal(128), device=SMALL, shows=VECTORS)
add("unaligned_rows", lambda x: x[:, 1:] * 2, normal(64, 129), device=SMALL)
add("aligned_slice", lambda x: x[:, 4:68] * 2, normal(64, 128), device=SMALL, shows=VECTORS)
add("half_vectors", lambda x: x * x, normal(40, 256, dtype=BF16), device=SMALL, shows=VECTORS)
add("mixed_widths", lambda x: x.astype(np.float32) * 2, normal(40, 256, dtype=F16), device=SMALL)
add("many_outputs", lambda x: (x + 1, x.T * 2, x.sum(), x.max(0)), normal(6, 10))
add("output_reused", lambda x: (lambda e: (e, e * 2, e.T))(jnp.exp(x)), normal(9, 12))

for _name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
    _x = integers(5, 70, dtype=_name, low=0, high=120)
    add(f"{_name}_wraps", lambda x: (x * x - 7, x.sum(1), x.max(0), x // 3, x < 50), _x)
for _name, _dtype in (("bf16", BF16), ("f16", F16), ("f64", np.float64)):
    add(
        f"{_name}_arithmetic",
        lambda x: (jnp.tanh(x) + x * x, x.sum(0), x.max(1), x.astype(np.float32)),
        normal(12, 70, dtype=_dtype),
    )
add("f16_strict", lambda x: (x * x + x).sum(1), normal(6, 70, dtype=F16), options=STRICT)
add("bf16_strict", lambda x: (x * x + x) * x - x, normal(6, 70, dtype=BF16), options=STRICT)
add("booleans", lambda x: (~x, x.any(1), x.all(0), x.sum(1), x ^ x.T), integers(9, 9, high=2) > 0)
add("compares", lambda x, y: (x < y, x == x, jnp.where(x > y, x, y)), normal(31), normal(31))
add("special_values", lambda x: (x.max(), x.min(), jnp.isnan(x), jnp.sign(x), jnp.maximum(x, 0)),
    np.array([1, np.nan, np.inf, -np.inf, -0.0, 0.0], np.float32))  # fmt: skip

# ---- reductions ----------------------------------------------------------------------------------

for _length in (1, 2, 4, 5, 31, 32, 33, 100, 511, 512, 513, 1000):
    add(f"rows_of_{_length}", lambda x: (jnp.exp(x).sum(1), x.max(1)), normal(9, _length))
add("block_row", lambda x: jnp.exp(x).sum(1), normal(3, 4096), shows=BLOCK)
add("lane_rows", lambda x: jnp.exp(x).sum(1), normal(50, 100), shows=LANES)
add("ragged_lane_rows", lambda x: x.sum(1), normal(101, 12), device=SMALL, shows=LANES)
add("columns", lambda x: (x * 2).sum(0), normal(300, 40), shows=COLUMNS)
add("few_columns", lambda x: (x * 2).sum(0), normal(500, 3), shows=COLUMNS)
add("one_column", lambda x: x.sum(0), normal(77, 1))
add("middle_dim", lambda x: x.max(1), normal(20, 65, 40), shows=COLUMNS)
add("outer_dims", lambda x: x.sum((0, 1)), normal(20, 6, 40), shows=COLUMNS)
add("outer_and_inner", lambda x: x.sum((0, 2)), normal(30, 20, 10))
add("split_columns", lambda x: (x * 2).sum(0), normal(9001, 33), shows=(GRID, COLUMNS))
add("split_rows", lambda x: x.sum(), normal(400, 333), shows=(GRID, BLOCK))
add("split_unevenly", lambda x: x.max(0), normal(20_011, 7), shows=GRID)
add("product", lambda x: jnp.prod(x, 1), normal(20, 16) + 1)
add("logical", lambda x: ((x > 0).any(1), (x > 0).all(0), (x > 0).sum()), normal(30, 40))
add("bits", lambda x: (lax.reduce_xor(x, (1,)), lax.reduce_and(x, (0,)), lax.reduce_or(x, (0, 1))),
    integers(20, 70, high=2**31 - 1))  # fmt: skip
add(
    "init_computed",
    lambda x, y: lax.reduce(x, y * 2, lax.max, (0,)),
    normal(20, 50),
    np.float32(0.7),
)
add("short_inside_long", lambda x: jnp.tanh(x.reshape(20, 30, 3).sum(2)).sum(1), normal(20, 90))
add("of_reduction", lambda x: jnp.exp(x.sum(2)).sum(1), normal(6, 50, 40))
add("two_axes", lambda x: (x.var(0), x.mean((0, 2)), x.sum((1, 2))), normal(30, 20, 10))
add("narrow_sums", lambda x: (x.sum(0), x.sum(1)), normal(60, 80, dtype=BF16))

# ---- rows kept in registers ----------------------------------------------------------------------


def layer_norm(x, g, b):
    m = x.mean(-1, keepdims=True)
    v = ((x - m) ** 2).mean(-1, keepdims=True)
    return (x - m) * lax.rsqrt(v + 1e-5) * g + b


def cross_entropy(x, labels):
    hot = labels[:, None] == jnp.arange(x.shape[1])
    return -jnp.where(hot, jax.nn.log_softmax(x), 0.0).sum(1)


for _rows, _columns in ((33, 10), (9, 31), (9, 64), (7, 300), (5, 1000), (3, 4096)):
    add(f"softmax_{_columns}", jax.nn.softmax, normal(_rows, _columns))
add("softmax_kept", jax.nn.softmax, normal(7, 512), shows=(BLOCK, KEPT))
add("softmax_warps", jax.nn.softmax, normal(700, 256), device=SMALL, shows=(LANES, KEPT))
add("softmax_vectors", jax.nn.softmax, normal(3, 4096), shows=(BLOCK, KEPT, VECTORS))
add("softmax_bf16", jax.nn.softmax, normal(5, 2048, dtype=BF16), shows=VECTORS)
add("softmax_split", jax.nn.softmax, normal(4, 20_000), shows=GRID)
add("softmax_columns", lambda x: jax.nn.softmax(x, 0), normal(70, 40), shows=COLUMNS)
add("softmax_leading", lambda x: jax.nn.softmax(x, 1), normal(5, 12, 20))
add("softmax_backward", jax.grad(lambda x: (jax.nn.softmax(x) ** 3).sum()), normal(20, 70))
add("layer_norm_100", layer_norm, normal(101, 100), normal(100), normal(100))
add("layer_norm_1024", layer_norm, normal(5, 1024), normal(1024), normal(1024), shows=VECTORS)
add("layer_norm_backward", jax.grad(lambda x, g, b: (layer_norm(x, g, b) ** 2).sum(), (0, 1, 2)),
    normal(64, 200), normal(200), normal(200), shows=(GRID, COLUMNS))  # fmt: skip
add("cross_entropy", cross_entropy, normal(20, 130), integers(20, high=130))
add(
    "logsumexp_both_ways",
    lambda x: (jax.nn.logsumexp(x, 0), jax.nn.logsumexp(x, 1)),
    normal(50, 60),
)
add("normalized_rows", lambda x: x / jnp.sqrt((x * x).sum(1, keepdims=True)), normal(33, 65))
add("rms_norm", lambda x, g: x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g,
    normal(3, 5, 96), normal(96))  # fmt: skip

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

# ---- gathers, slices at run-time places, scatters ------------------------------------------------

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
    """u[r] added at [r, i[r]] of zeros [rows, 300]; places outside are dropped."""
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
        normal(24, 16, dtype=_dtype), shows=f"{TENSOR}<1, 1>")  # fmt: skip
add("tiled_mixed", lambda x, y: jnp.dot(x, y.astype(np.float32)), normal(32, 24),
    normal(24, 16, dtype=BF16), shows=TENSOR)  # fmt: skip
add("tiled_f64", lambda x, y: x @ y + 1, normal(48, 24, dtype=np.float64),
    normal(24, 16, dtype=np.float64), shows=TILED)  # fmt: skip
add("tiled_s32", lambda x, y: x @ y, integers(48, 24), integers(24, 16), shows=TILED)
add("tiled_infinite", lambda x, y: x @ y, np.where(normal(32, 64) > 2, np.inf, np.float32(1)),
    np.abs(normal(64, 8)) + 1, shows=TENSOR)  # fmt: skip

# ---- block composition: several loops of a block through shared memory ---------------------------


def attention(q, k, v):
    s = jnp.einsum("bid,bjd->bij", q, k) * 0.3
    return jnp.einsum("bij,bjd->bid", jax.nn.softmax(s), v)


def self_attention(x, w):
    q = x @ w
    return jax.nn.softmax(q @ x.transpose(0, 2, 1)) @ x


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

# ---- grid scope: phases behind a grid barrier ----------------------------------------------------


def mlp_loss(w, x, y):
    return ((jnp.tanh(x @ w[0] + w[1]) @ w[2] - y) ** 2).mean()


def batch_norm(x, g, b):
    m = x.mean(0)
    v = ((x - m) ** 2).mean(0)
    return (x - m) * lax.rsqrt(v + 1e-5) * g + b


_mlp = ((normal(20, 64), normal(64), normal(64, 8)), normal(32, 20), normal(32, 8))
add("mlp_gradient", jax.grad(mlp_loss), *_mlp, shows=GRID)
add("mlp_gradient_small", jax.grad(mlp_loss), *_mlp, device=SMALL)
add("batch_norm", batch_norm, normal(300, 40), normal(40), normal(40))
add("batch_norm_backward", jax.grad(lambda *a: (batch_norm(*a) ** 3).sum(), (0, 1, 2)),
    normal(300, 40), normal(40), normal(40))  # fmt: skip
add("whole_norm", lambda x: x / jnp.sqrt((x * x).sum()), normal(300, 400), shows=GRID)
add("center_both_ways", lambda x: (lambda c: c - c.mean(1, keepdims=True))(x - x.mean(0)),
    normal(200, 60), shows=GRID)  # fmt: skip
add("three_phases", lambda x: (lambda m: (lambda v: x / v)((jnp.abs(x - m)).max()))(x.mean()),
    normal(300, 300), shows=GRID)  # fmt: skip
add("chained_dots", lambda x, y: jnp.tanh(x @ y) @ x, normal(70, 9), normal(9, 70))

# ---- packing: unlike work in one launch ----------------------------------------------------------

add("packed_adds", lambda *a: tuple(x + 1 for x in a), normal(10), normal(1000), normal(64))
add("packed_like_tensors", lambda *a: tuple(x * 2 + y for x, y in zip(a[:4], a[4:], strict=True)),
    *(normal(n) for n in (100, 3000, 77, 1) * 2))  # fmt: skip
add("packed_unlike", lambda x, y, z: (x.sum(0), jnp.exp(y), z @ z.T, y.T.max(1)), normal(90, 40),
    normal(33, 5), normal(12, 7))  # fmt: skip


@case(normal(30, 40), normal(6, 14, 4), normal(7, 512), normal(500), device=SMALL,
      shows=(LANES, BLOCK, SHARED))  # fmt: skip
def all_four_compositions(x, q, wide, flat):
    """Thread (flat), warp (x), block (q: two loops through shared memory; wide) and packing."""
    inside = jax.nn.softmax(jax.nn.softmax(q, 1), 2)
    return flat * 2 + 1, jax.nn.softmax(x), inside, jax.nn.softmax(wide)


@case(normal(40, 30), normal(40, 30), normal(40, 30), normal(40, 30))
def adam(p, m, v, g):
    m, v = 0.9 * m + 0.1 * g, 0.999 * v**2 + 0.001 * g * g
    return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v


# ---- long rows between two dots, walked block by block -------------------------------------------

STREAMED = "fs_mma_across<"
LEFT_OUT = "left_out"


def long_attention(q, k, v):
    p = jax.nn.softmax(jnp.einsum("bhid,bhjd->bhij", q, k) * 0.3)
    return jnp.einsum("bhij,bhjd->bhid", p.astype(v.dtype), v)


def causal(x, bias):
    """Attention of a transformer on packed queries, keys and values [b, n, 3 h d]; 3 heads."""
    b, n, w = x.shape[0], x.shape[1], x.shape[2] // 3
    q, k, v = ((x + bias).reshape(b, n, 3, 3, w // 3)[:, :, i] for i in range(3))
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.25
    s = jnp.where(jnp.tril(jnp.ones((n, n), bool)), s.astype(np.float32), -1e30)
    p = jax.nn.softmax(s).astype(x.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", p, v).reshape(b, n, w)


def streamed(name: str, fun: Callable[..., Any], *args: Any, shows: Any = STREAMED) -> None:
    add(f"streamed_{name}", fun, *args, device=SMALL, shows=shows)


def _qkv_of(queries: int, keys: int, depth: int, results: int, dtype: Any = np.float32) -> Any:
    dims = (2, queries, depth), (2, keys, depth), (2, keys, results)
    return [np.asarray(normal(2, *d) * 0.5, dtype) for d in dims]


for _name, _dtype in (("f32", np.float32), ("bf16", BF16), ("f16", F16)):
    streamed(f"causal_{_name}", causal, normal(1, 144, 144, dtype=_dtype),
             normal(144, dtype=_dtype), shows=(STREAMED, LEFT_OUT))  # fmt: skip
    streamed(_name, long_attention, *_qkv_of(64, 160, 24, 16, _dtype))
    streamed(f"ragged_{_name}", long_attention, *_qkv_of(37, 131, 11, 21, _dtype))
    _depth = 128 if _name != "f32" else 48
    streamed(f"wide_{_name}", long_attention, *_qkv_of(16, 129, _depth, 72, _dtype))


@case(*_qkv_of(48, 150, 16, 8), integers(2, 150, high=2) > 0, device=SMALL, shows=STREAMED)
def streamed_padded(q, k, v, keep):
    """Rows relative to a maximum that is made a number first; its logarithm is a result, too."""
    s = jnp.where(keep[:, None, None, :], jnp.einsum("bhid,bhjd->bhij", q, k), -jnp.inf)
    m = s.max(-1, keepdims=True)
    e = jnp.exp(s - jnp.where(jnp.isfinite(m), m, 0))
    z = e.sum(-1, keepdims=True)
    return jnp.einsum("bhij,bhjd->bhid", e, v) / z, (m + jnp.log(z))[..., 0]


@case(*_qkv_of(40, 140, 8, 16), normal(2, 40, 140), device=SMALL, shows=STREAMED)
def streamed_biased(q, k, v, bias):
    s = 5 * jnp.tanh((jnp.einsum("bhid,bhjd->bhij", q, k) + bias) / 5)
    return jnp.einsum("bhij,bhjd->bhid", jax.nn.softmax(s), v)


@case(*_qkv_of(32, 140, 8, 16), device=SMALL, shows=STREAMED)
def streamed_weights(q, k, v):
    """The weights are a result as well: a second walk."""
    p = jax.nn.softmax(jnp.einsum("bhid,bhjd->bhij", q, k))
    return p, jnp.einsum("bhij,bhjd->bhid", p, v)


@case(*_qkv_of(48, 136, 16, 16), device=SMALL, shows=STREAMED)
def streamed_without_softmax(q, k, v):
    return jnp.einsum("bhij,bhjd->bhid", jnp.tanh(jnp.einsum("bhid,bhjd->bhij", q, k)), v)


@case(normal(2, 3, 40, 16, dtype=BF16), normal(2, 150, 16, dtype=BF16),
      normal(2, 150, 16, dtype=BF16), device=SMALL, shows=STREAMED)  # fmt: skip
def streamed_grouped(q, k, v):
    """Several heads of queries to one of keys."""
    s = jnp.einsum("bgqd,btd->bgqt", q, k)
    return jnp.einsum("bgqt,btd->bgqd", jax.nn.softmax(s.astype(np.float32)).astype(BF16), v)
