"""Programs by what they do with JAX, not by their ops: control flow, derivatives, types, trees.

`CASES` maps a name to a `Case`. A case is made for a `jit`, so that a program may use it inside.
Arguments are made anew for each use, since they may be donated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Fun = Callable[..., Any]
Jit = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """`make(jit)` is the program, called with `args()` under jit with `keywords`.

    `smooth`: its first argument is a float array, and its results can be differentiated in it.
    `mapped`: it may be mapped over a new first axis of all its arguments.
    `stitched`: the emulator makes kernels of it. `x64`: it runs with 64-bit types.
    """

    name: str
    make: Callable[[Jit], Fun]
    args: Callable[[], tuple[Any, ...]]
    keywords: Mapping[str, Any] = field(default_factory=dict)
    smooth: bool = True
    mapped: bool = True
    stitched: bool = True
    x64: bool = False


CASES: dict[str, Case] = {}


def f32(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


def case(*args: Any, uses_jit: bool = False, **fields: Any) -> Callable[[Fun], Fun]:
    """Puts the decorated program, or with `uses_jit` what it returns for a jit, into the table.

    Arguments that are callable are made at each use.
    """

    def fresh() -> tuple[Any, ...]:
        return tuple(a() if callable(a) else jax.tree.map(_copy, a) for a in args)

    def enter(fun: Fun) -> Fun:
        assert fun.__name__ not in CASES
        make = fun if uses_jit else lambda jit: fun
        CASES[fun.__name__] = Case(fun.__name__, make, fresh, **fields)
        return fun

    return enter


def _copy(leaf: Any) -> Any:
    return jnp.array(leaf) if isinstance(leaf, np.ndarray) else leaf


def mixed(x: jax.Array) -> jax.Array:
    """A row softmax scaled by column sums: XLA needs several kernels, stitching one."""
    s = jax.nn.softmax(x, -1)
    return s * (s * x).sum(0)


# --- control flow ---------------------------------------------------------------------------------


@case(f32(4, 6), smooth=False)
def while_loop(x):
    def small(carry):
        return (jnp.abs(carry[0]).max() > 0.05) & (carry[1] < 40)

    # the counter is weakly typed
    return jax.lax.while_loop(small, lambda c: (mixed(c[0]) * 0.5, c[1] + 1), (x, 0))


@case(f32(4, 6))
def cond_of_trees(x):
    def one(x):
        return {"y": mixed(x), "z": (x.sum(0), 1)}

    def other(x):
        return {"y": jnp.tanh(x) * 2.0, "z": (x.max(0), 2)}

    found = jax.lax.cond(x[0, 0] > 0, one, other, x)
    return found["y"] + found["z"][0] * found["z"][1]


@case(f32(4, 6), lambda: jnp.int32(2))
def switch(x, i):
    return jax.lax.switch(i, [jnp.sin, mixed, lambda x: x.sum(0) * x], x)


@case(f32(5, 4, 6))
def scan_carry_and_results(xs):
    def body(carry, x):
        total, count = carry
        total = jnp.tanh(total + mixed(x))
        return (total, count + 1), (total.sum(0), count)

    return jax.lax.scan(body, (jnp.zeros_like(xs[0]), 0), xs)


@case(f32(5, 4, 6))
def scan_reversed_and_unrolled(xs):
    body = lambda c, x: (mixed(c + x), c * x)  # noqa: E731
    back = jax.lax.scan(body, xs[0], xs, reverse=True)
    return back, jax.lax.scan(body, xs[0], xs, unroll=2)


@case(f32(4, 6))
def scan_without_inputs(x):
    return jax.lax.scan(lambda c, _: (mixed(c) + x, None), x, None, length=3)


@case(f32(4, 6))
def fori_loop(x):
    return jax.lax.fori_loop(0, 3, lambda i, v: mixed(v) * (i + 1), x)


@case(f32(8, 5))
def associative_scan(x):
    def combine(a, b):
        return a[0] * b[0], a[1] * b[0] + b[1]

    return jax.lax.associative_scan(combine, (jax.nn.sigmoid(x), x), reverse=True)


@case(f32(6, 4, 6))
def map_in_batches(xs):
    return jax.lax.map(mixed, xs, batch_size=4)


@case(f32(4, 6))
def nested_loops_and_branches(x):
    def outer(c, i):
        inner = jax.lax.fori_loop(0, 2, lambda _, v: jnp.sin(v) + x, c)
        return jax.lax.cond(i > 1, mixed, lambda v: v * 0.5, inner), inner.sum()

    return jax.lax.scan(outer, x, jnp.arange(3))


@case(f32(4, 6))
def platform_dependent(x):
    return jax.lax.platform_dependent(x, cpu=mixed, default=lambda x: mixed(x) * 1.0)


# --- derivatives of the user ----------------------------------------------------------------------


@jax.custom_jvp
def _log1pexp(x):
    return jnp.log1p(jnp.exp(x))


@_log1pexp.defjvp
def _(primals, tangents):
    return _log1pexp(*primals), tangents[0] * jax.nn.sigmoid(primals[0])


@case(f32(4, 6))
def custom_jvp(x):
    return mixed(_log1pexp(x))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _clipped(x, bound):
    return mixed(x)


_clipped.defvjp(
    lambda x, bound: (mixed(x), x),
    lambda bound, x, g: (jnp.clip(g, -bound, bound) * jnp.cos(x),),
)


@case(f32(4, 6))
def custom_vjp(x):
    return _clipped(x, 0.25) * 3.0


@case(f32(4, 6), f32(6, 6))
def rematerialised(x, w):
    policy = jax.checkpoint_policies.dots_saveable
    layer = jax.checkpoint(lambda x: jnp.tanh(mixed(x) @ w), policy=policy)
    return layer(layer(x))


@case(f32(4, 6), mapped=False)
def gradient_inside(x):
    return jax.value_and_grad(lambda x: (mixed(x) ** 2).sum())(x)


@case(f32(4, 6))
def stopped_gradient_and_barrier(x):
    y = jax.lax.optimization_barrier(mixed(x))
    return y * jax.lax.stop_gradient(jnp.exp(y))


@case(f32(3, 3))
def custom_linear_solve(x):
    a = x @ x.T + 3.0 * jnp.eye(3)
    solved = jax.lax.custom_linear_solve(
        lambda v: a @ v, x[0], lambda mv, b: jnp.linalg.solve(a, b), symmetric=True
    )
    return jnp.tanh(solved) * 2.0


# --- jits inside jits -----------------------------------------------------------------------------


@case(f32(4, 6))
def nested_jit(x):
    inner = jax.jit(mixed, inline=True)
    return jax.jit(lambda x: inner(x) + 1.0)(x) * inner(x + 1.0)


@case(f32(4, 6), uses_jit=True)
def nested_ours(jit):
    inner = jit(mixed)

    def middle(x, n):
        return inner(x) * n

    def beside(x):
        return inner(x) * 3.0

    return lambda x: jit(middle, static_argnums=1)(x, 2) + jax.jit(beside)(x)


@case(f32(4, 4, 6), uses_jit=True)
def ours_in_a_scan(jit):
    inner = jit(mixed)
    return lambda xs: jax.lax.scan(lambda c, x: (inner(c + x), inner(c)), xs[0], xs)


@case(f32(4, 6), uses_jit=True)
def ours_over_a_tracer(jit):
    return lambda x: jit(lambda: mixed(x))() + 1.0


# --- constants, arguments and results -------------------------------------------------------------

_LARGE = np.linspace(-1.0, 1.0, 1 << 16, dtype=np.float32).reshape(64, 1024)


@case(f32(4, 6))
def large_constants(x):
    return mixed(x) + jnp.asarray(_LARGE)[:6, :6].sum(0) * (jnp.asarray(_LARGE) ** 2).sum()


class Pair(NamedTuple):
    left: Any
    right: Any


@jax.tree_util.register_pytree_node_class
class Scaled:
    """A node of the user's, with data that is no array."""

    def __init__(self, value: Any, name: str):
        self.value, self.name = value, name

    def __eq__(self, other):
        return isinstance(other, Scaled) and (self.value, self.name) == (other.value, other.name)

    def tree_flatten(self):
        return (self.value,), self.name

    @classmethod
    def tree_unflatten(cls, name, children):
        return cls(*children, name)


@case(f32(4, 6), {"b": f32(6), "a": None, "n": Pair(f32(4, 1), [f32(4, 6), ()])}, mapped=False)
def trees(x, tree):
    left, (right, empty) = tree["n"]
    return Scaled(mixed(x) + left, "kept"), Pair(right * tree["b"], {"none": None, "e": empty})


@case(lambda: Scaled(jnp.asarray(f32(4, 6)), "x"), smooth=False)
def nodes_of_the_user(node):
    return Scaled(mixed(node.value), node.name + "!")


@case(
    *(f32(4, 6), 3, "twice"),
    keywords={"static_argnums": (1, 2)},
    smooth=False,
    mapped=False,
)
def static_arguments(x, n, mode="once"):
    return tuple(mixed(x) * (i + 1) for i in range(n)) * (2 if mode == "twice" else 1)


@case(f32(4, 6), 2, 0.5, True, smooth=False, mapped=False)
def weak_types(x, n, scale, flag):
    return mixed(x) * scale, n + 1, scale * n, flag, jnp.where(flag, x.astype(jnp.bfloat16), n)


@case(lambda: jnp.asarray(f32(4, 6), jnp.bfloat16), 2.0, smooth=False, mapped=False)
def weak_scalars_keep_narrow_types(x, scale):
    return mixed(x * scale), (x + 1).sum(0), x.astype(jnp.float16) * scale


@case(f32(4, 6))
def passed_on_and_repeated(x):
    y = mixed(x)
    return x, y, y, x, jnp.arange(6.0), 3, None


@case(smooth=False, mapped=False)
def no_arguments():
    return mixed(jnp.arange(24.0).reshape(4, 6)), 1


@case(f32(4, 6), smooth=False, stitched=False)
def no_results(x):
    return None, ()


@case(f32(4, 6), f32(3), stitched=True)
def unused_arguments(x, y):
    return mixed(x)


@case(f32(4, 6), f32(4, 6), keywords={"donate_argnums": (0,), "keep_unused": True})
def donated(p, g):
    return p - 0.1 * mixed(g) * p


@case(f32(4, 6), {"m": f32(4, 6), "v": f32(6)}, keywords={"donate_argnames": ("state",)})
def donated_tree(x, state):
    m = 0.9 * state["m"] + 0.1 * mixed(x)
    return {"m": m, "v": state["v"] + m.sum(0)}, m * x


# --- types ----------------------------------------------------------------------------------------


@case(lambda: np.arange(24.0).reshape(4, 6) / 7.0, 3, x64=True, mapped=False)
def wide_types(x, n):
    return mixed(x), x.astype(jnp.int64) * n + 2**40, x.astype(jnp.float32) * n


@case(lambda: jnp.arange(24).reshape(4, 6), smooth=False)
def integers(x):
    return x.sum(0) * x, x % 5 == 2, jax.lax.population_count(x), (x << 3).astype(jnp.uint8)


@case(f32(4, 6), smooth=False)
def complex_numbers(x):
    z = jnp.exp(1j * mixed(x))
    return z, jnp.abs(z), (z * z.conj()).real.sum(0)


@case(lambda: jax.random.key(3), f32(4, 6), smooth=False, mapped=False)
def typed_keys(key, x):
    key, *use = jax.random.split(key, 3)
    noise = jax.random.normal(use[0], x.shape) + jax.random.uniform(use[1], x.shape)
    return key, mixed(x + noise), jax.random.fold_in(key, 7), jax.random.key_data(key)


@case(lambda: jax.random.split(jax.random.key(0, impl="rbg"), 3), smooth=False, mapped=False)
def arrays_of_keys(keys):
    return jax.vmap(lambda k: jax.random.bernoulli(k, 0.5, (5,)))(keys), keys[1]


@case(lambda: jax.random.PRNGKey(1), f32(4, 6), smooth=False, mapped=False)
def raw_keys(key, x):
    return jax.random.split(key), mixed(x) + jax.random.normal(key, x.shape)


# --- scopes ---------------------------------------------------------------------------------------


@case(f32(4, 6))
def named_scopes(x):
    with jax.named_scope("outer"):
        y = mixed(x)
        with jax.named_scope("inner"):
            return jax.named_call(mixed, name="called")(y) + y
