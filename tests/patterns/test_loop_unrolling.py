"""Short loops become straight code: which do, and that programs give what they gave, bit for
bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import fusionstitch as fs
from fusionstitch.compiler.core import stitch
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import Module, inside
from fusionstitch.hlo.importer import from_message
from fusionstitch.hlo.unrolling import unroll
from fusionstitch.hlo.verify import verify_module
from fusionstitch.patterns.loop_unrolling import MOST_ITERATIONS, short_loops
from tests.patterns.edits import module_of

draw = np.random.default_rng(0)
TABLE = np.sort(draw.standard_normal(15).astype(np.float32))
TABLES = np.sort(draw.standard_normal((3, 15)).astype(np.float32))
QUERIES = np.concatenate([draw.standard_normal(75), TABLE[:4], [np.nan, 0.0, -0.0, 9]])
QUERIES = QUERIES.astype(np.float32)
X = draw.uniform(0.5, 2, 40).astype(np.float32)
OPTIONS = fs.Options(backend="emulate", fallback="error", numerics="strict")


def loops(module: Module) -> list[str]:
    return [op.name for graph in module.graphs for op in graph if op.opcode == "while"]


def unrolled(fun: Callable[..., Any], *args: Any) -> Module:
    """The module of a program with its short loops as straight code; it gives the same bits."""
    module = module_of(fun, *args)
    leaves = jax.tree.leaves(args)
    before = evaluate(module.entry, leaves)
    if unroll(module, short_loops(module)):
        module = from_message(module.proto)
        verify_module(module.proto.SerializeToString())
    ids = [i.id for c in module.proto.computations for i in c.instructions]
    names = [i.name for c in module.proto.computations for i in c.instructions]
    assert len(set(ids)) == len(ids)
    assert len(set(names)) == len(names)
    for one, other in zip(before, evaluate(module.entry, leaves), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    return module


def newton(x: Any) -> Any:
    return lax.fori_loop(0, 4, lambda _, y: y * (1.5 - 0.5 * x * y * y), 1 / (1 + x))


def numbered(x: Any) -> Any:
    """What an iteration does is by its number, which is returned, too."""

    def step(s: Any) -> Any:
        n, m, x = s
        return n + 2, m - 3, jnp.where(n > 5, x * m.astype(x.dtype), x + n.astype(x.dtype))

    return lax.while_loop(lambda s: s[0] < 10, step, (jnp.int32(1), jnp.int32(7), x))


def swapped(x: Any) -> Any:
    """Iterations hand arrays to each other, of which each reads a part."""

    def step(n: Any, s: Any) -> Any:
        x, a, b = s
        return x * a[1] + b[0], b, a

    return lax.fori_loop(0, 5, step, (x, x[:3], x[5:8] - 1))


def mixed(x: Any) -> Any:
    """Rounds of a random number generator."""

    def step(_: Any, v: Any) -> Any:
        v ^= v << 13
        v ^= v >> 17
        return v ^ v << 5

    return lax.fori_loop(0, 6, step, x.view(jnp.uint32))


def looked_up(stack: Any, x: Any) -> Any:
    """A scan over parts of a stack."""
    return lax.scan(lambda x, row: (x * row + row[0], None), x, stack)[0]


SHORT: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "left": (jnp.searchsorted, (TABLE, QUERIES)),
    "right": (lambda t, q: jnp.searchsorted(t, q, side="right"), (TABLE, QUERIES)),
    "interp": (jnp.interp, (QUERIES, TABLE, TABLE * 2)),
    "digitize": (jnp.digitize, (QUERIES, TABLE)),
    "rows": (jax.vmap(jnp.searchsorted), (TABLES, QUERIES[:75].reshape(3, 25))),
    "newton": (newton, (X,)),
    "numbered": (numbered, (X,)),
    "swapped": (swapped, (X,)),
    "mixed": (mixed, (X,)),
    "stack": (looked_up, (X.reshape(4, 10), X[:10])),
    "scalar": (newton, (X[0],)),
    "gradient": (
        jax.grad(lambda y, t, q: jnp.sum(jnp.sin(jnp.interp(q, t, y))), 0),
        (TABLE * 2, TABLE, QUERIES[:75]),
    ),
    "table's gradient": (
        jax.grad(lambda t, y, q: jnp.sum(jnp.sin(jnp.interp(q, t, y))), 0),
        (TABLE, TABLE * 2, QUERIES[:75]),
    ),
}


@pytest.mark.parametrize("name", SHORT)
def test_short_loops_become_straight_code(name: str) -> None:
    fun, args = SHORT[name]
    assert loops(module_of(fun, *args))
    assert not loops(unrolled(fun, *args))


@pytest.mark.parametrize("name", [*SHORT, "histogram"])
def test_kernels_give_what_jax_gives(host_compiler: str, name: str) -> None:
    histogram = lambda q, t: jnp.histogram(q, t)[0], (QUERIES[:79], TABLE)
    fun, args = SHORT.get(name, histogram)
    exact = name in ("left", "right", "digitize", "rows", "mixed", "histogram")
    ours, theirs = fs.jit(fun, options=OPTIONS)(*args), jax.jit(fun)(*args)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        # XLA joins products and sums, and adds up in its own order
        np.testing.assert_allclose(one, other, rtol=0 if exact else 1e-5, atol=0 if exact else 1e-5)


def dots(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda _, y: y @ x.reshape(5, 8)[:, :5], jnp.ones(5))


def inner(x: Any) -> Any:
    """A loop of which each iteration has a short one and a sum."""
    return lax.fori_loop(0, 3, lambda _, y: newton(y) * jnp.sum(y), x)


def last(fun: Callable[[Any], Any], trips: int = 3) -> Callable[[Any], Any]:
    return lambda x: lax.fori_loop(0, trips, lambda _, y: fun(y), x)


def many(x: Any) -> Any:
    for n in range(7):
        x = x * (0.5 + n) + n
    return x


def told(x: Any) -> Any:
    """A loop whose numbers the host is told."""

    def step(n: Any, x: Any) -> Any:
        jax.debug.callback(lambda n: None, n)
        return x * 0.5

    return lax.fori_loop(0, 3, step, x)


def gradient(x: Any) -> Any:
    """The second of two loops, of which the first stays since it stacks outputs."""
    return jax.grad(lambda x: jnp.sum(newton(x)))(x)


KEPT: dict[str, Callable[[Any], Any]] = {
    "products": dots,
    "sums": last(lambda x: x / jnp.sum(x)),
    "sorts": last(lambda x: jnp.sort(x) * 0.5),
    "windows": last(lambda x: lax.cumsum(x) * 0.1),
    "neighbors": last(lambda x: x + jnp.roll(x, 1)),
    "reversed": last(lambda x: x + x[::-1]),
    "gathers of the state": last(lambda x: x + x[(x * 10).astype(jnp.int32)]),
    "one element for all": last(lambda x: x * x[0]),
    "few elements for many": last(
        lambda x: x + jnp.broadcast_to((x[:1] * 2)[:, None], (1, 40)).reshape(40)
    ),
    "scatters": last(lambda x: x.at[3].add(1.0)),
    "outputs": lambda x: lax.scan(lambda c, _: (c * 0.5, c + 1), x, None, length=3)[1],
    "many iterations": last(lambda x: x * 0.5 + 1, MOST_ITERATIONS + 1),
    "many ops": last(many, 20),
    "until the data ends it": lambda x: lax.while_loop(
        lambda x: jnp.max(x) > 0.1, lambda x: x * 0.5, x
    ),
    "complex": lambda x: last(lambda z: z * z + x[0])(x + 1j * x).real,
    "effects": told,
    "what a loop stacked": gradient,
    "branches": last(lambda x: lax.cond(x[0] > 1, jnp.sin, jnp.cos, x)),
}


@pytest.mark.parametrize("name", KEPT)
def test_other_loops_stay(name: str) -> None:
    module = module_of(KEPT[name], X)
    assert loops(module)
    assert not short_loops(module)


def test_what_waits_for_a_loop_keeps_it() -> None:
    for awaited in (True, False):
        module = module_of(lambda x: jnp.sin(newton(x)), X)
        [loop] = (op for op in module.entry if op.opcode == "while")
        by_id = {i.id: i for c in module.proto.computations for i in c.instructions}
        waits, on = (module.entry.root, loop) if awaited else (loop, module.entry.parameters[0])
        by_id[waits.origin].control_predecessor_ids.append(on.origin)
        assert not short_loops(from_message(module.proto))


def test_a_short_loop_in_another_one() -> None:
    module = unrolled(inner, X)
    [loop] = (op for graph in module.graphs for op in graph if op.opcode == "while")
    assert not any(op.opcode == "while" for op in inside(loop))


def test_the_lines_of_the_user_stay() -> None:
    module = unrolled(newton, X)
    products = [op for op in module.entry if op.opcode == "multiply"]
    assert len(products) > 8
    assert all(op.source.line and "while/body" in op.source.op_name for op in products)


def quantized(table: Any, x: Any) -> Any:
    rows = x.reshape(-1, 64)
    scale = jnp.max(jnp.abs(rows), 1, keepdims=True)
    return jnp.searchsorted(table, rows / scale * 2).astype(jnp.uint8), scale


@pytest.mark.parametrize("fun", [quantized, lambda t, x: t[jnp.searchsorted(t, x * 2) % 15] * 0.5])
def test_one_kernel_for_a_search_and_what_is_around_it(fun: Callable[..., Any]) -> None:
    shapes = jax.ShapeDtypeStruct((15,), "float32"), jax.ShapeDtypeStruct((1 << 20,), "float32")
    lowered: Any = jax.jit(fun).lower(*shapes).compiler_ir("hlo")
    data = lowered.as_serialized_hlo_module_proto()
    found = stitch(data, fs.Options(), device("h200"), None)
    [plan] = found.plans
    assert len(found.stitches) == len(plan.chosen) == 1
    # XLA runs the loop, not what it became
    assert plan.xla_us > 3 * plan.modelled_us
    kept = stitch(data, fs.Options(scope="grid"), device("h200"), None)
    assert any(op.opcode == "while" for plan in kept.plans for op in plan.graph)


#: From three values of the state to one.
MAKES: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda a, b, n: a * b + 1,
    lambda a, b, n: jnp.where(a > b, a * 0.5, b),
    lambda a, b, n: jnp.sin(a) - b,
    lambda a, b, n: a + n.astype(np.float32),
    lambda a, b, n: jnp.asarray(TABLE)[(jnp.abs(b) * 10).astype(np.int32)],
    lambda a, b, n: jnp.asarray(TABLE)[n] * a,
    lambda a, b, n: jnp.clip(a, -1, jnp.abs(b)),
    lambda a, b, n: lax.iota(np.float32, 8) + a,
    lambda a, b, n: b,
)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 12),
    st.integers(2, 3),
    st.lists(
        st.tuples(st.sampled_from(MAKES), st.integers(0, 99), st.integers(0, 99)),
        min_size=1,
        max_size=6,
    ),
    st.lists(st.integers(0, 99), min_size=3, max_size=3),
)
def test_grown_loops_give_the_same_bits(
    trips: int, carries: int, makes: list[tuple[Any, int, int]], kept: list[int]
) -> None:
    def run(x: Any) -> Any:
        def step(n: Any, state: Any) -> Any:
            values = list(state)
            for make, a, b in makes:
                values.append(make(values[a % len(values)], values[b % len(values)], n))
            return tuple(values[i % len(values)] for i in kept[:carries])

        return lax.fori_loop(0, trips, step, tuple(x[8 * i : 8 * i + 8] for i in range(carries)))

    module = unrolled(run, X)
    assert trips == 1 or not loops(module)
