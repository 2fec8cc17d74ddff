"""Small JAX programs whose layouts, control flow or aliasing bite, as one table.

`PROGRAMS` maps a name to a `Program`. Arguments are NumPy arrays, so that every test may
donate them. Programs with f64 arguments must run inside `precision(args)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.experimental.layout import Format, Layout, with_layout_constraint

Args = tuple[Any, ...]


@dataclass(frozen=True)
class Program:
    """`fun(*args)` under jit with `donate_argnums=donate` and the other `keywords` of jit."""

    name: str
    fun: Callable[..., Any]
    args: Args
    donate: tuple[int, ...] = ()
    keywords: Callable[[], Mapping[str, Any]] = field(default=dict)


def precision(args: Args) -> AbstractContextManager[Any]:
    """The context in which `args` keep their dtypes."""
    return jax.enable_x64(any(np.asarray(x).dtype == np.float64 for x in jax.tree.leaves(args)))


def reference(fun: Callable[..., Any], args: Args) -> list[np.ndarray]:
    """The leaves of what jax.jit computes."""
    with precision(args):
        return [np.asarray(x) for x in jax.tree.leaves(jax.jit(fun)(*args))]


def reference64(fun: Callable[..., Any], args: Args) -> list[np.ndarray]:
    """The leaves of a run whose float inputs are widened to f64, float leaves as f64.

    Casts that `fun` spells out stay, random bits are the same, integers may come out wider.
    """

    def widen(x: Any) -> Any:
        is_float = jnp.issubdtype(np.asarray(x).dtype, np.floating)
        return np.asarray(x, np.float64) if is_float else x

    with jax.enable_x64(True):
        leaves = jax.tree.leaves(jax.jit(fun)(*jax.tree.map(widen, args)))
        return [np.asarray(widen(x)) for x in leaves]


PROGRAMS: dict[str, Program] = {}


def add(name: str, fun: Callable[..., Any], *args: Any, **fields: Any) -> None:
    """Puts a program into the table."""
    assert name not in PROGRAMS, name
    PROGRAMS[name] = Program(name, fun, args, **fields)


def program(*args: Any, **fields: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Puts the decorated function into the table under its own name."""

    def enter(fun: Callable[..., Any]) -> Callable[..., Any]:
        add(fun.__name__, fun, *args, **fields)
        return fun

    return enter


_draw = np.random.default_rng(0)


def f32(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Standard normal values, others at each call."""
    return _draw.standard_normal(shape).astype(dtype)


def f64(*shape: int) -> np.ndarray:
    return f32(*shape, dtype=np.float64)


def f16(*shape: int) -> np.ndarray:
    return f32(*shape, dtype=np.float16)


def bf16(*shape: int) -> np.ndarray:
    return f32(*shape, dtype=ml_dtypes.bfloat16)


def i32(*shape: int, high: int = 100, low: int = 0) -> np.ndarray:
    return _draw.integers(low, high, shape, np.int32)


def boolean(*shape: int) -> np.ndarray:
    return _draw.random(shape) < 0.5


# --- elementwise and index maps -------------------------------------------------------------------

add("elementwise_chain", lambda x: jnp.tanh(x) * jnp.exp(-x * x) + 1.0, f32(7, 33))
add("scalar_in_and_out", lambda x: x * 2.0 + 1.0, np.float32(3.0))
add("empty_array", lambda x: x + 1.0, f32(0, 5))
add("one_element", lambda x: jnp.sin(x), f32(1, 1))
add("broadcast_rows_and_columns", lambda r, c: r[None, :] * c[:, None] + 1.0, f32(17), f32(13))
add("transposed_operand", lambda x, y: x + y.T, f32(5, 9), f32(9, 5))
add("transposed_output", lambda x: jnp.sin(x).T, f32(6, 11))
add("permuted_output", lambda x: jnp.transpose(x * 2.0, (2, 0, 1)), f32(3, 5, 7))
add("x_plus_its_transpose", lambda x: x + x.T, f32(19, 19))
add("slice_of_transpose", lambda x: x.T[2:9, 1:4] * 2.0, f32(6, 12))
add("strided_slices", lambda x: x[1::2, ::3] - x[:-1:2, ::3], f32(8, 13))
add("reversed", lambda x: x[::-1] + jnp.flip(x, 1), f32(5, 8))
add("padded", lambda x: jnp.pad(jnp.exp(x), ((1, 2), (0, 3)), constant_values=-1.0), f32(4, 5))
add("negative_pad", lambda x: jax.lax.pad(x, 0.5, ((-1, 2, 0), (1, -2, 1))) * 2.0, f32(5, 6))
add("concatenated", lambda x, y: jnp.concatenate([x, -y, x * y], 1) + 1.0, f32(4, 6), f32(4, 6))
add("concatenated_transpose", lambda x, y: jnp.concatenate([x.T, y], 0) * 2.0, f32(5, 3), f32(2, 5))
add("reshape_merges", lambda x: (x + 1.0).reshape(-1, 5) * 2.0, f32(3, 4, 5))
add("reshape_splits_transposes", lambda x: x.reshape(4, 3, 6).swapaxes(0, 1) * 2.0, f32(12, 6))
add("rolled", lambda x: jnp.roll(x, 3, axis=1) - x, f32(4, 9))
add(
    "tiled_and_repeated", lambda x: jnp.tile(x, (2, 3)) + jnp.repeat(x, 2, 0)[:, [0] * 9], f32(2, 3)
)
add("iota_masks", lambda x: jnp.where(jnp.tri(*x.shape, dtype=bool), x, 0.0), f32(9, 7))
add("bits_of_constants", lambda x: jnp.sin(x) + jnp.nextafter(np.float32(1), np.inf), f32(31))
add("clamped_select", lambda x: jnp.where(x > 0, jnp.clip(x, 0.1, 0.9), -x), f32(31))
add("many_outputs", lambda x: (x + 1, x.T * 2, x.sum(), x.max(0), x), f32(6, 10))
add("same_output_twice", lambda x: (jnp.exp(x), jnp.exp(x), x), f32(8))
add("unused_and_passed_on", lambda x, y: (x, y * 2.0), f32(3), f32(4))
add("constant_output", lambda x: (jnp.arange(6.0), x + jnp.arange(6.0)), f32(6))
add(
    "dynamic_slice",
    lambda x, i: jax.lax.dynamic_slice(x, (i, jnp.int32(1)), (3, 4)) * 2,
    f32(9, 8),
    np.int32(7),
)


@program(f32(9, 8), f32(2, 3), np.int32(8))
def dynamic_update_slice(x, y, i):
    return jax.lax.dynamic_update_slice(x * 2.0, jnp.exp(y), (i, jnp.int32(2))) + 1.0


# --- dtypes ---------------------------------------------------------------------------------------

add("bf16_chain", lambda x, y: jax.nn.gelu(x * y + x), bf16(9, 16), bf16(9, 16))
add("f16_and_f32", lambda x, y: (x.astype(jnp.float32) * y).astype(x.dtype), f16(33), f32(33))
add("bf16_sum_in_f32", lambda x: jnp.sum(x, 1, dtype=jnp.float32), bf16(6, 77))
add("f64_norm", lambda x: x / jnp.sqrt(jnp.sum(x * x, -1, keepdims=True)), f64(5, 21))
add("f64_to_f32", lambda x: (x + 1e-9).astype(jnp.float32) + jnp.float32(1), f64(13))
add("integers", lambda x, y: (x // y, x % y, x << 2, x & y, -x), i32(15), i32(15, low=1, high=9))
add("unsigned_wraps", lambda x: (x * jnp.uint32(2654435761)) >> 16, i32(40).astype(np.uint32))
add("small_integers", lambda x: (x + x, x.astype(jnp.int32) + x), i32(20).astype(np.int8))
add(
    "booleans",
    lambda a, b: (a & ~b, a ^ b, jnp.any(a, 0), jnp.all(b, 1)),
    boolean(6, 9),
    boolean(6, 9),
)
add("counts", lambda x: jnp.sum(x > 0, axis=0), f32(12, 7))
add("float_to_int", lambda x: (jnp.round(x * 10).astype(jnp.int32), jnp.sign(x)), f32(25))
add(
    "nan_and_infinity",
    lambda x: (jnp.isnan(x), jnp.nan_to_num(x, posinf=9.0, neginf=-9.0), jnp.maximum(x, 0.0)),
    np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5], np.float32),
)
add(
    "bitcast",
    lambda x: jax.lax.bitcast_convert_type(x, jnp.int32) & 0xFFFF,
    i32(18).view(np.uint32),
)

# --- reductions -----------------------------------------------------------------------------------

for _name, _axes in {
    "first": (0,),
    "middle": (1,),
    "last": (2,),
    "first_and_last": (0, 2),
    "leading": (0, 1),
    "trailing": (1, 2),
    "all": (0, 1, 2),
}.items():
    add(f"reduce_{_name}", lambda x, axes=_axes: jnp.sum(x * x, axes), f32(5, 7, 37))
add("reduce_max_min_prod", lambda x: (x.max(1), x.min(0), jnp.prod(x, 1)), f32(6, 35))
add("reduce_long_row", lambda x: jnp.mean(jnp.exp(x), -1), f32(2, 5001))
add("reduce_tall_column", lambda x: jnp.sum(x, 0), f32(3001, 3))
add("reduce_of_transpose", lambda x: jnp.sum(x.T * 2.0, 1), f32(23, 40))
add("reduce_of_broadcast", lambda x: jnp.sum(jnp.exp(x)[:, None] * x[None, :], 0), f32(29))
add("two_reductions_apart", lambda x: (jnp.sum(x, 0), jnp.sum(x, 1), jnp.max(x)), f32(24, 31))
add("reduction_feeds_reduction", lambda x: jnp.max(jnp.sum(jnp.exp(x), 1) * 2.0), f32(12, 19))
add("variance_both_axes", lambda x: (x - x.mean(0)) / jnp.sqrt(x.var(1, keepdims=True)), f32(9, 14))
add("argmax_rows", lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0)), f32(8, 27))
add("cumulative_sum", lambda x: jnp.cumsum(x * 2.0, axis=1) + 1.0, f32(5, 17))
add(
    "max_pool",
    lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2), (1, 2), "VALID"),
    f32(4, 10),
)

# --- softmax and norms ----------------------------------------------------------------------------

for _rows, _columns in ((3, 1), (1, 7), (5, 127), (4, 128), (2, 1031), (6, 94)):
    add(f"softmax_{_rows}x{_columns}", lambda x: jax.nn.softmax(x, -1), f32(_rows, _columns))
add("softmax_first_axis", lambda x: jax.nn.softmax(x, 0), f32(33, 12))
add("softmax_bf16", lambda x: jax.nn.softmax(x.astype(jnp.float32)).astype(x.dtype), bf16(5, 65))
add("log_softmax_of_transpose", lambda x: jax.nn.log_softmax(x.T, -1), f32(30, 9))
add("logsumexp", lambda x: jax.nn.logsumexp(x, -1), f32(7, 51))


def layer_norm(x, gamma, beta):
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean((x - mean) ** 2, -1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * gamma + beta


def mean_square(fun):
    """The gradient of the mean square of `fun` with respect to all arguments."""

    def objective(*args):
        return jnp.mean(fun(*args) ** 2)

    return lambda *args: jax.grad(objective, tuple(range(len(args))))(*args)


add("layer_norm", layer_norm, f32(6, 50), f32(50), f32(50))
add("layer_norm_gradient", mean_square(layer_norm), f32(9, 40), f32(40), f32(40))
add(
    "rms_norm_gradient",
    mean_square(lambda x, g: x * jax.lax.rsqrt((x * x).mean(-1)[:, None]) * g),
    f32(8, 24),
    f32(24),
)
add(
    "batch_norm_gradient",
    mean_square(lambda x, g: jax.nn.relu((x - x.mean(0)) / x.std(0) * g)),
    f32(20, 6),
    f32(6),
)
add("softmax_gradient", mean_square(lambda x: jax.nn.softmax(x, -1)), f32(6, 23))

# --- dots and attention ---------------------------------------------------------------------------

for _left in ("bik", "bki"):
    for _right in ("bkj", "bjk"):
        for _out in ("bij", "bji"):
            _shape = {"b": 3, "i": 5, "j": 7, "k": 4}
            add(
                f"dot_{_left}_{_right}_{_out}",
                lambda x, y, spec=f"{_left},{_right}->{_out}": (
                    jnp.einsum(spec, jnp.exp(x), y) + 1.0
                ),
                f32(*(_shape[d] for d in _left)),
                f32(*(_shape[d] for d in _right)),
            )
add("gram_matrix", lambda x: jnp.exp(-(x @ x.T)), f32(13, 6))
add("covariance", lambda x: (x - x.mean(0)).T @ (x - x.mean(0)) / x.shape[0], f32(21, 5))
add("matrix_vector", lambda a, x: jax.nn.relu(a @ x) + 1.0, f32(12, 31), f32(31))
add("outer_contraction", lambda x, y: jnp.einsum("abc,dcb->ad", x, y), f32(3, 4, 5), f32(6, 5, 4))
add(
    "bf16_dot_f32",
    lambda x, y: jnp.matmul(x, y, preferred_element_type=jnp.float32) * 2.0,
    bf16(6, 8),
    bf16(8, 5),
)
add("integer_dot", lambda x, y: x @ y, i32(4, 6), i32(6, 3))


def attention(q, k, v, mask=None):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = jnp.where(mask, scores, -1e30)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)


_QKV = (f32(2, 9, 3, 4), f32(2, 11, 3, 4), f32(2, 11, 3, 4))
add("attention", attention, *_QKV)
add("attention_masked", attention, *_QKV, np.tri(9, 11, dtype=bool))
add("attention_gradient", mean_square(attention), *_QKV)
add("self_attention_shared", lambda x: attention(x, x, x), f32(2, 7, 2, 5))


@program(f32(3, 10, 4), f32(10, 10))
def figure_1(x, bias):
    scores = jnp.einsum("bid,bjd->bij", x, x) * 0.5 + bias
    exp = jnp.exp(scores - scores.max(-1, keepdims=True))
    total = exp.sum(-1, keepdims=True)
    out = jnp.einsum("bij,bjd->bid", exp, x) / jnp.maximum(total, 1e-6)
    return out, jnp.log(total[..., 0]), out * x, x - out


# --- user-chosen layouts --------------------------------------------------------------------------


def _column_major() -> Format:
    return Format(Layout((1, 0)), jax.sharding.SingleDeviceSharding(jax.devices()[0]))


add(
    "layout_constraint",
    lambda x: with_layout_constraint(jnp.exp(x), Layout((1, 0))) + 1.0,
    f32(6, 9),
)
add(
    "column_major_output",
    lambda x: jnp.exp(x) + 1.0,
    f32(6, 9),
    keywords=lambda: {"out_shardings": _column_major()},
)
add(
    "column_major_input",
    lambda x: jnp.exp(x) @ x.T,
    f32(6, 9),
    keywords=lambda: {"in_shardings": _column_major()},
)

# --- control flow ---------------------------------------------------------------------------------


@program(f32(12, 5), f32(5))
def scan_carries(xs, start):
    def body(carry, x):
        carry = jnp.tanh(carry + x)
        return carry, carry.sum()

    return jax.lax.scan(body, start, xs)


@program(f32(4, 8), f32(8, 8), f32(6, 4, 8))
def recurrent_scan(h, w, xs):
    return jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), h), h, xs)


@program(f32(5), f32(5, 5), f32(4, 5))
def recurrent_scan_gradient(h, w, xs):
    def loss(w):
        return jnp.sum(jax.lax.scan(lambda h, x: (jnp.tanh(w @ h + x), None), h, xs)[0] ** 2)

    return jax.value_and_grad(loss)(w)


@program(f32(16))
def while_halves(x):
    return jax.lax.while_loop(lambda v: jnp.max(jnp.abs(v)) > 0.01, lambda v: v * 0.5, x)


@program(f32(6, 6), np.int32(5))
def fori_with_traced_bound(x, n):
    return jax.lax.fori_loop(0, n, lambda i, v: v.at[i].multiply(2.0) + v.T * 0.1, x)


@program(f32(2, 4, 6))
def loop_whose_next_values_are_one_kernel_s(xs):
    def body(i, v):
        s = jax.nn.softmax(v)
        return s * (s * v).sum(0) * (i + 1)

    return jax.vmap(lambda x: jax.lax.fori_loop(0, 3, body, x))(xs)


@program(f32(9), np.bool_(True))
def branches(x, flag):
    return jax.lax.cond(flag, lambda v: jnp.exp(v) + 1.0, lambda v: v[::-1] * 2.0, x * 3.0)


@program(f32(9), np.int32(2))
def switch_of_three(x, i):
    return jax.lax.switch(i, [jnp.sin, jnp.cos, lambda v: v.sum() * v], x)


@program(f32(3, 5, 5))
def nested_loops(xs):
    def outer(carry, x):
        inner = jax.lax.fori_loop(0, 3, lambda _, v: jnp.tanh(v @ x), carry)
        return inner, inner.sum(0)

    return jax.lax.scan(outer, xs[0], xs)


@program(f32(7, 4), f32(4))
def mapped_and_checkpointed(xs, w):
    return jax.lax.map(jax.checkpoint(lambda x: jax.nn.softmax(x * w)), xs)


# --- donation -------------------------------------------------------------------------------------

add("donated_update", lambda p, g: p - 0.1 * g, f32(8, 9), f32(8, 9), donate=(0,))
add(
    "donated_stays_alive",
    lambda p: (p * 2.0, p.sum(0), p[::-1, 0] + p[:, 1]),
    f32(7, 6),
    donate=(0,),
)
add("donated_transposed", lambda p: p.T + 1.0, f32(9, 9), donate=(0,))
add("donated_swapped", lambda a, b: (b + 1.0, a * 2.0), f32(5, 4), f32(5, 4), donate=(0, 1))
add("donated_reversed", lambda p: p[::-1] + p, f32(33), donate=(0,))
add("donated_softmax", lambda p: jax.nn.softmax(p) + p.mean(), f32(6, 20), donate=(0,))
add("donated_passed_on", lambda p, x: (p, p + x), f32(10), f32(10), donate=(0,))


@program({"w": f32(6, 4), "m": f32(6, 4), "v": f32(6, 4) ** 2}, f32(6, 4), donate=(0,))
def donated_adam(state, g):
    m = 0.9 * state["m"] + 0.1 * g
    v = 0.999 * state["v"] + 0.001 * g * g
    return {"w": state["w"] - 0.01 * m / (jnp.sqrt(v) + 1e-8), "m": m, "v": v}


# --- ops left to XLA in the middle ----------------------------------------------------------------

add("sort_between", lambda x: jnp.exp(jnp.sort(x * 2.0, -1)) - 1.0, f32(5, 24))
add("top_k", lambda x: jax.lax.top_k(x * 2.0, 3), f32(4, 30))
add("fft_between", lambda x: jnp.abs(jnp.fft.rfft(jnp.sin(x))) ** 2 + 1.0, f32(3, 16))
add("convolution", lambda x, w: jax.nn.relu(jnp.convolve(x, w, mode="same")), f32(40), f32(5))


@program(f32(6, 6))
def cholesky_between(x):
    spd = x @ x.T + 6.0 * jnp.eye(6, dtype=x.dtype)
    return jnp.log(jnp.diagonal(jnp.linalg.cholesky(spd))).sum() * 2.0


@program(np.int32(5), f32(9, 32))
def prng_dropout(seed, x):
    kept = jax.random.bernoulli(jax.random.key(seed), np.float32(0.75), x.shape)
    return jnp.where(kept, x / 0.75, 0.0)


@program(np.int32(6))
def prng_normal(seed):
    return jax.random.normal(jax.random.key(seed), (3, 11), jnp.float32) * 2.0


@program(f32(12, 6), i32(9, high=12))
def embedding_gradient(table, tokens):
    return jax.grad(lambda t: jnp.sum(jnp.tanh(t[tokens]) ** 2))(table)


@program(f32(10, 4), i32(7, high=10), f32(7, 4))
def scatter_then_scale(x, rows, updates):
    return x.at[rows].add(updates) * 2.0


# --- places that the data decides -----------------------------------------------------------------

_FAR = np.array([[-100, -13, -1], [0, 7, 12], [13, 40, 1000]], np.int32)


@program(f32(5, 13), _FAR)
def take_in_every_mode(x, i):
    return tuple(jnp.take(x * 2.0, i, axis=1, mode=mode) for mode in ("fill", "clip", "wrap"))


@program(f32(3, 13), _FAR)
def take_along_in_every_mode(x, i):
    modes = ("fill", "clip", "promise_in_bounds")
    inside = jnp.clip(i, 0, 12)
    return tuple(
        jnp.take_along_axis(jnp.exp(x), inside if mode == modes[2] else i, 1, mode=mode)
        for mode in modes
    )


for _dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
    add(
        f"take_of_{_dtype}",
        lambda x, i: (x[i] * 2.0, jnp.take(x, i, 0) + 1.0),
        f64(13, 4),
        np.array([0, 3, 12, np.iinfo(_dtype).max, np.iinfo(_dtype).min, 100], _dtype),
    )


@program(f32(40, 24), f32(6, 24), f32(24), f32(24), i32(3, 6, high=40))
def embedding_norm(table, positions, g, b, tokens):
    return layer_norm(table[tokens] + positions, g, b)


@program(f32(4, 3, 9, 5), i32(4, 3, 2, low=-9, high=9))
def take_in_two_batch_dims(x, i):
    return jax.vmap(jax.vmap(lambda x, i: jnp.tanh(x[i]).sum(0)))(x, i)


@program(f32(9, 7), i32(9, low=-7, high=7))
def one_hot_loss(x, labels):
    hot = jax.nn.one_hot(labels, 7)
    return jax.value_and_grad(lambda x: -(hot * jax.nn.log_softmax(x)).sum(1).mean())(x)


def _label_loss(x, labels):
    log_p = jax.nn.log_softmax(x.astype(jnp.float32))
    return -jnp.mean(jnp.take_along_axis(log_p, labels[:, None], 1))


add("label_loss", jax.value_and_grad(_label_loss), f32(9, 130), i32(9, low=-130, high=130))
add("label_loss_bf16", jax.value_and_grad(_label_loss), bf16(5, 512), i32(5, high=512))
add("label_loss_outside", jax.grad(_label_loss), f32(9, 13), _FAR.ravel())


@program(f32(9, 13), i32(9, low=-13, high=13), f32(9))
def one_update_per_row(x, i, u):
    rows = jnp.arange(9)
    return (x * 2.0).at[rows, i].set(u), jnp.exp(x).at[rows, i].add(u), x.at[rows, i].max(u)


@program(f32(9, 13), i32(9, low=-13, high=13), f32(9), donate=(0,))
def rows_updated_in_place(x, i, u):
    return x.at[jnp.arange(9), i].set(jnp.tanh(u))


@program(f32(12, 6), i32(9, low=-12, high=12), f32(6, 4))
def rows_picked_for_a_dot(x, i, w):
    return jax.nn.relu(x[i] @ w)


@program(f32(20, 9), i32(9, low=-20, high=20))
def picked_from_a_reduction(x, i):
    return jax.nn.softmax(x)[i].sum(0), x.sum(1)[i] + 1.0


# --- training steps -------------------------------------------------------------------------------


def _mlp_loss(params, x, y):
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = params[-1]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x @ w + b), y[:, None], 1))


@program([(f32(12, 8), f32(8)), (f32(8, 5), f32(5))], f32(6, 12), i32(6, high=5), donate=(0,))
def mlp_step(params, x, y):
    loss, grads = jax.value_and_grad(_mlp_loss)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss


def _block(p, x):
    h = layer_norm(x, p["g"], p["b"])
    q, k, v = jnp.split((h @ p["qkv"]).reshape(*x.shape[:2], 2, -1), 3, -1)
    mask = jnp.tri(x.shape[1], dtype=bool)
    x = x + attention(q, k, v, mask).reshape(x.shape) @ p["out"]
    return x + jax.nn.gelu(layer_norm(x, p["g"], p["b"]) @ p["up"]) @ p["down"]


_BLOCK = {
    "g": np.ones(8, np.float32),
    "b": np.zeros(8, np.float32),
    "qkv": f32(8, 24) * np.float32(0.3),
    "out": f32(8, 8) * np.float32(0.3),
    "up": f32(8, 16) * np.float32(0.3),
    "down": f32(16, 8) * np.float32(0.3),
}
add("transformer_block", _block, _BLOCK, f32(2, 6, 8))


@program(_BLOCK, f32(2, 6, 8), donate=(0,))
def transformer_step(params, x):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean(_block(p, x) ** 2))(params)
    return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), loss


@program({"w": f32(9, 24), "b": f32(24)}, f32(4, 5, 3), donate=(0,))
def lstm_step(params, xs):
    def loss(p):
        c = h = jnp.zeros((4, 6), xs.dtype)
        for t in range(5):
            i, j, f, o = jnp.split(jnp.concatenate([xs[:, t], h], 1) @ p["w"] + p["b"], 4, 1)
            c = c * jax.nn.sigmoid(f + 1.0) + jax.nn.sigmoid(i) * jnp.tanh(j)
            h = jnp.tanh(c) * jax.nn.sigmoid(o)
        return jnp.sum(h**2)

    value, grads = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


add("vmapped_norm", jax.vmap(layer_norm, (0, None, None)), f32(3, 4, 12), f32(12), f32(12))
add("inner_jit", lambda x: jax.jit(jnp.tanh)(x) + jax.jit(lambda v: v.sum(0))(x), f32(5, 8))
