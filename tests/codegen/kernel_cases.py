"""Small programs that between them use every way a kernel can be scheduled, as one table.

`CASES` maps a name to a `Program`; `shows` are texts its kernel must contain, so that a case goes
on testing what it is there for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from fusionstitch.codegen.generate import CodegenOptions, plan_kernel
from fusionstitch.codegen.schedule.tuning import Tuning
from fusionstitch.costmodel.devices import Device
from tests.codegen.regions import DEFAULT, H200, SMALL, Case, lowered, whole

# What the text of a kernel shows about its schedule.
VECTORS = "fs_load_vec<"
LANES = "fs_reduce_lanes<"
BLOCK = "fs_reduce_block<"
TEAM = "fs_reduce_team<"
CARRIED = "_carried["
AHEAD = "fs_announce("
COLUMNS = "fs_reduce_strided<"
GRID = "fs_grid_barrier();"
SHARED = "_shared["
KEPT = "_row["
TILED = "_tile["
TENSOR = "fs_mma"
PARTS = "fs_join_parts<"
JOINED = "_from = "
TABLE = "static __device__ constexpr"

STRICT = CodegenOptions(numerics="strict")
UNSHARED = CodegenOptions(sharing=False)


@dataclass(frozen=True)
class Program:
    """`fun(*args)` as one kernel for `device`, on `blocks` blocks if that is given."""

    name: str
    fun: Callable[..., Any]
    args: tuple[Any, ...]
    device: Device = H200
    options: CodegenOptions = DEFAULT
    shows: tuple[str, ...] = ()
    blocks: int | None = None

    @property
    def wide(self) -> bool:
        """Whether it must be traced with 64-bit types on."""
        return any(np.asarray(a).dtype.itemsize == 8 for a in jax.tree.leaves(self.args))

    def case(self) -> Case:
        graph = lowered(self.fun, *self.args)
        args = [np.asarray(a) for a in jax.tree.leaves(self.args)]
        region, options = whole(graph, f"k_{self.name}"), self.options
        if self.blocks:
            own = plan_kernel(region, self.device, options).template
            printed = re.sub(r"cta_num=\d+;", f"cta_num={self.blocks};", own)
            options = replace(options, tuning=Tuning(), template=printed)
        return Case(region, args, self.device, options)


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


_drawn: Counter[tuple[int, ...]] = Counter()


def _draw(dims: tuple[int, ...]) -> np.random.Generator:
    """A generator for the next array of these extents: a new case leaves alone what others with
    other extents draw."""
    _drawn[dims] += 1
    return np.random.default_rng((_drawn[dims], *dims))


def normal(*dims: int, dtype: Any = np.float32) -> np.ndarray:
    return np.asarray(_draw(dims).standard_normal(dims), dtype)


def integers(*dims: int, dtype: Any = np.int32, low: int = 0, high: int = 100) -> np.ndarray:
    return np.asarray(_draw(dims).integers(low, high, dims), dtype)


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


def gated(x: jax.Array, means: jax.Array, w: jax.Array) -> jax.Array:
    """Images whose channels are gated by two dots of their means: an image is a block's."""
    gates = jax.nn.sigmoid(jnp.tanh(means @ w) @ w.T)
    return x * gates.astype(x.dtype)[:, None]


add("gated_vectors", gated, normal(5, 324, 8), normal(5, 8), normal(8, 5), device=SMALL,
    shows=(VECTORS, "% 2) * 4 + v_1]"))  # fmt: skip
add("gated_runs", gated, normal(5, 330, 7), normal(5, 7), normal(7, 5), device=SMALL,
    shows=("+ 462]", "+ 1848]"))  # fmt: skip
add("gated_halves", gated, normal(4, 331, 10, dtype=BF16), normal(4, 10), normal(10, 5),
    device=SMALL, shows="fs_load_vec<bf16, 2>")  # fmt: skip
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
add("bf16_strict", lambda x: (x * x + x) * x, normal(6, 70, dtype=BF16), options=STRICT)
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

# ---- grid scope: phases after a grid barrier ----------------------------------------------------


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

# ---- bodies of the user's own, windows, collisions, other bits -----------------------------------

JOIN = "FsJoin0::apply("


def value_and_place(x, axis):
    indices = lax.broadcasted_iota(jnp.int32, x.shape, axis)

    def larger(a, b):
        first = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
        return tuple(jnp.where(first, p, q) for p, q in zip(a, b, strict=True))

    inits = (jnp.asarray(-jnp.inf, x.dtype), jnp.int32(2**31 - 1))
    return lax.reduce((x * 2, indices), inits, larger, (axis,))


def log_sum_pairs(x):
    def join(a, b):
        top = jnp.maximum(a[0], b[0])
        safe = jnp.where(jnp.isfinite(top), top, 0.0)
        return top, a[1] * jnp.exp(a[0] - safe) + b[1] * jnp.exp(b[0] - safe)

    zero = jnp.zeros((), x.dtype)
    return lax.reduce((x, jnp.ones_like(x)), (zero - jnp.inf, zero), join, (1,))


def variance(x):
    """Chan's, in one pass."""

    def join(a, b):
        n = a[0] + b[0]
        delta, total = b[1] - a[1], jnp.maximum(n, 1.0)
        return n, a[1] + delta * b[0] / total, a[2] + b[2] + delta**2 * a[0] * b[0] / total

    zero = jnp.zeros((), x.dtype)
    n, _, squares = lax.reduce((jnp.ones_like(x), x, zero * x), (zero,) * 3, join, (1,))
    return squares / n


def recurrence(x, y):
    """What x -> p x + q, one after the other, make of 0.5: the order counts."""

    def join(a, b):
        return a[0] * b[0], a[1] * b[0] + b[1]

    inits = (np.float32(1), np.float32(0.5))
    return lax.reduce((jnp.tanh(x), y), inits, join, (1,))[1]


def pool(x):
    return lax.reduce_window(x * 2, -np.float32(np.inf), lax.max, (1, 3, 3), (1, 2, 1), "SAME")


def running_sum(x):
    """Of rows, as a reduction over windows whatever JAX makes of lax.cumsum."""
    n = x.shape[1]
    edges = ((0, 0), (n - 1, 0))
    return lax.reduce_window(x, np.float32(0), lax.add, (1, n), (1, 1), edges)


add("argmax", lambda x: jnp.argmax(x * 2, 1), normal(9, 100), shows=(JOIN, LANES))
add("recurrence", recurrence, normal(9, 700), normal(9, 700), shows=(JOIN, SHARED))
add("recurrence_of_many", recurrence, normal(2, 20_000), normal(2, 20_000), shows=(JOIN, GRID))
add("argmax_block", lambda x: jnp.argmax(x * 2, 1), normal(3, 3000), shows=(JOIN, BLOCK))
add("argmax_columns", lambda x: jnp.argmin(x * 2, 0), normal(200, 9), shows=JOIN)
add("argmax_split", lambda x: jnp.argmax(x * 2), normal(1 << 17), shows=(JOIN, GRID))
add("value_and_place", lambda x: value_and_place(x, 1), normal(70, 33), shows=(JOIN, "fs_record<"))
add("value_and_place_small", lambda x: value_and_place(x, 0), normal(3, 50), shows=JOIN)
add("log_sum_pairs", log_sum_pairs, normal(5, 1100), shows=(JOIN, BLOCK))
add("variance_by_chan", variance, normal(40, 200), shows=JOIN)
add("variance_by_chan_f64", variance, normal(4, 900, dtype=np.float64), shows=(JOIN, BLOCK))
add("picked_by_argmax", lambda x, y: y[jnp.argmax(x, 1)] * 2, normal(20, 60), normal(60, 4))
add("pool", pool, normal(3, 15, 14))
add("running_sum", lambda x: running_sum(x * 2), normal(3, 1500))
add("running_sum_reversed", lambda x: lax.cumsum(jnp.exp(x), 0, reverse=True), normal(70, 5))
add("running_maximum", lambda x: x - lax.cummax(x, 1), normal(40, 20))
add("rows_added", lambda x, i, u: jnp.tanh(x).at[i].add(u), normal(12, 40),
    integers(20, low=-3, high=15), normal(20, 40))  # fmt: skip
# small sums: exp makes relative errors of their absolute ones, and XLA's depend on who adds first
add("segments", lambda u, i: jnp.exp(jax.ops.segment_sum(u, i, 6)), normal(300, 5) / 8,
    integers(300, low=0, high=7))  # fmt: skip
add("bytes_of_floats", lambda x: lax.bitcast_convert_type(x * 2, jnp.uint8) ^ 1, normal(33))
add("floats_of_bytes", lambda x: lax.bitcast_convert_type(x + 1, jnp.float32) * 2,
    np.tile(np.arange(120, dtype=np.uint8), (5, 1)).reshape(-1, 4))  # fmt: skip
# numbers that eight bits hold: the float64 run of the table does not round to them
add("eight_bits", lambda x: (x * 2).astype(jnp.float8_e4m3fn).astype(jnp.float32),
    integers(1000, low=-8, high=9).astype(np.float32) / 8)  # fmt: skip
add("eight_bits_stored", lambda x, s: (x.astype(jnp.float32) * s).astype(jnp.float8_e5m2),
    integers(16, 64, low=-4, high=5).astype(ml_dtypes.float8_e4m3fn),
    np.exp2(integers(64, low=-2, high=3).astype(np.float32)))  # fmt: skip

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


# ---- sums of columns, carried down the rows of a block -------------------------------------------


def norm_both_ways(x, g, b, dy):
    y, back = jax.vjp(layer_norm, x, g, b)
    return y, back(dy)


for _rows, _columns, _dtype, _shows in (
    (128, 1024, BF16, (TEAM, CARRIED, AHEAD, VECTORS)),  # two warps to a row
    (96, 1024, np.float32, (TEAM, CARRIED, VECTORS)),
    (132, 512, BF16, (LANES, CARRIED, AHEAD)),  # one warp, rows fetched ahead
    (40, 4096, BF16, (BLOCK, CARRIED, AHEAD)),
    (70, 1000, np.float32, (TEAM, CARRIED)),  # rows that no team divides
):
    add(
        f"norm_both_ways_{_columns}_{np.dtype(_dtype).name}",
        norm_both_ways,
        normal(_rows, _columns, dtype=_dtype),
        *(normal(_columns, dtype=_dtype) for _ in range(2)),
        normal(_rows, _columns, dtype=_dtype),
        device=SMALL,
        shows=_shows,
    )
add("column_sums", lambda x: (jnp.exp(x).sum(0), x.max(0)), normal(600, 260), device=SMALL,
    shows=CARRIED)  # fmt: skip


@case(*(normal(1024, 192, dtype=d) for d in (np.float32, BF16, np.float32, BF16)),
      normal(2048, 96, dtype=BF16), device=replace(SMALL, sm_count=4),
      shows=(CARRIED, GRID, "_split_scratch", "FS_UNROLL_BY(", "< 24)"))  # fmt: skip
def column_sums_side_by_side(a, b, c, d, e):
    """Sums over arrays that have nothing in common, one of two of them, and rows of another."""
    return a.sum(0), (b.astype(jnp.float32) * c).sum(0), b.sum(0), jax.nn.softmax(d), e.sum(0)


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


@case(*_qkv_of(288, 288, 16, 8, BF16), device=SMALL,
      shows=(STREAMED, LEFT_OUT, "int first", "__syncthreads_and"))  # fmt: skip
def streamed_window(q, k, v):
    """Each row sees a few columns: its blocks begin with them, and end behind them."""
    s = jnp.einsum("bhid,bhjd->bhij", q, k).astype(np.float32)
    i, j = jnp.arange(288)[:, None], jnp.arange(288)
    s = jnp.where((j > i) | (i - j >= 40), -1e30, s)
    return jnp.einsum("bhij,bhjd->bhid", jax.nn.softmax(s).astype(BF16), v)


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
