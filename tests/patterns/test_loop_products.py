"""Products that leave their loops: which do, and that programs give what they gave."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.graph import Module, Op
from fusionstitch.hlo.hoisting import hoist
from fusionstitch.hlo.importer import from_message
from fusionstitch.patterns.loop_products import loop_products
from tests.nearness import assert_near
from tests.patterns.edits import edited, module_of

STEPS, BATCH, WIDTH, HIDDEN = 5, 3, 4, 6
#: Where weights are slow to read, and launches cost nothing: every product that may leave does.
SLOW = dataclasses.replace(device("h100"), launch_us=0.0, l2_bytes_per_s=1.0)
draw = np.random.default_rng(0)


def array(*dims: int) -> np.ndarray:
    return draw.standard_normal(dims, np.float32) * np.float32(0.5)


W, U, XS = array(WIDTH, HIDDEN), array(HIDDEN, HIDDEN), array(STEPS, BATCH, WIDTH)
STATE = np.zeros((BATCH, HIDDEN), np.float32)


def hoisted(fun: Callable[..., Any], *args: Any) -> list[int]:
    """The stacked operands of the products that leave, after a look at what programs give."""
    module = module_of(fun, *args)
    found = loop_products(module, SLOW)
    after = edited(module, lambda module: hoist(module, found), *args)
    assert not loop_products(after, SLOW)
    return [product.side for one in found for product in one.products]


def scanned(product: Callable[[Any, Any], Any], **keywords: Any) -> Callable[..., Any]:
    """A recurrence over what `product` makes of a part of the inputs and of weights."""

    def run(w: Any, u: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> tuple[Any, Any]:
            h = jnp.tanh(product(x, w) + h @ u)
            return h, h

        return lax.scan(step, jnp.zeros((xs.shape[1], len(u))), xs, **keywords)[1]

    return run


def joined(order: Callable[[Any, Any], list[Any]], side: int = 0) -> Callable[..., Any]:
    """A cell that multiplies its input and its state, joined, with one matrix."""

    def run(w: Any, u: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> tuple[Any, Any]:
            both, weights = (jnp.concatenate(order(*two), 1) for two in ((x, h), (w.T, u.T)))
            made = both @ weights.T if side == 0 else jnp.einsum("hk,bk->hb", weights, both).T
            return jnp.tanh(made), h

        return lax.scan(step, jnp.asarray(STATE), xs)[1]

    return run


def half(x: Any) -> Any:
    return x.astype(jnp.bfloat16)


LEAVING: dict[str, tuple[Callable[..., Any], list[int]]] = {
    "forwards": (scanned(lambda x, w: x @ w), [0]),
    "backwards": (scanned(lambda x, w: x @ w, reverse=True), [0]),
    "on the right": (scanned(lambda x, w: jnp.einsum("kh,bk->hb", w, x).T), [1]),
    "weights made in the loop": (scanned(lambda x, w: x @ jnp.tanh(w[:, ::-1].T * 2).T), [0]),
    "converted": (scanned(lambda x, w: (half(x) @ half(w)).astype(np.float32)), [0]),
    "joined": (joined(lambda x, h: [x, h]), [0]),
    "joined behind": (joined(lambda x, h: [h, x]), [0]),
    "joined between": (joined(lambda x, h: [h[..., :2], x, h[..., :2]]), [0]),
    "joined on the right": (joined(lambda x, h: [x, h], side=1), [1]),
    "two": (scanned(lambda x, w: x @ w + jnp.sin(x @ w[:, ::-1])), [0, 0]),
}


@pytest.mark.parametrize("name", LEAVING)
def test_what_leaves_the_loop(name: str) -> None:
    fun, sides = LEAVING[name]
    assert hoisted(fun, W, U, XS) == sides


def test_precisions_go_with_their_operands() -> None:
    def product(x: Any, w: Any) -> Any:
        both = (lax.Precision.HIGHEST, lax.Precision.DEFAULT)
        return lax.dot_general(w, x, (((0,), (1,)), ((), ())), precision=both).T

    module = module_of(scanned(product), W, U, XS)
    hoist(module, loop_products(module, SLOW))
    [made] = [op for op in from_message(module.proto).entry if op.opcode == "dot"]
    assert made.dims == (STEPS, BATCH, HIDDEN)
    assert list(proto_of(module, made).precision_config.operand_precision) == [0, 2]


def proto_of(module: Module, op: Op) -> Any:
    instructions = (i for c in module.proto.computations for i in c.instructions)
    return next(i for i in instructions if i.id == op.origin)


def test_gradients_and_loops_in_loops() -> None:
    def loss(w: Any, xs: Any) -> Any:
        return jnp.sum(scanned(lambda x, w: x @ w)(w, U, xs) ** 2)

    def epochs(w: Any, many: Any) -> Any:
        return lax.scan(lambda w, xs: (w - 0.1 * jax.grad(loss)(w, xs), None), w, many)[0]

    assert hoisted(jax.grad(loss), W, XS) == [0]
    assert hoisted(epochs, W, array(2, STEPS, BATCH, WIDTH)) == [0]


def _of_the_state(w: Any, u: Any, xs: Any) -> Any:
    return lax.scan(lambda h, x: ((h + x) @ u[:WIDTH, :WIDTH], h), xs[0], xs)


def _of_other_weights(w: Any, u: Any, xs: Any) -> Any:
    """Those of an iteration are what the one before made of them."""
    step = lambda w, x: (w * jnp.float32(0.5), x @ w)  # noqa: E731
    return lax.scan(step, w, xs)


def _row_by_row(w: Any, u: Any, xs: Any) -> Any:
    """Each row has weights of its own."""
    step = lambda h, x: (h + jnp.einsum("bk,bkh->bh", x, jnp.stack([w] * BATCH)), None)  # noqa: E731
    return lax.scan(step, jnp.asarray(STATE), xs)[0]


def _of_some_parts(w: Any, u: Any, xs: Any) -> Any:
    """Fewer iterations than parts: the product of all of them would be more work."""
    step = lambda i, h: h + xs[i] @ w  # noqa: E731
    return lax.fori_loop(0, STEPS - 2, step, jnp.asarray(STATE))


def _until(w: Any, u: Any, xs: Any) -> Any:
    """How many parts are read, the data says."""
    step = lambda s: (s[0] + 1, s[1] + xs[s[0]] @ w)  # noqa: E731
    return lax.while_loop(lambda s: s[1][0, 0] < 1, step, (0, jnp.asarray(STATE)))


def _left(w: Any, u: Any, xs: Any) -> Any:
    return scanned(fs.leave(lambda x, w: x @ w))(w, u, xs)


def _of_integers(w: Any, u: Any, xs: Any) -> Any:
    return scanned(lambda x, w: (x.astype(int) @ w.astype(int)).astype(np.float32))(w, u, xs)


STAYING = [
    _of_the_state,
    _of_other_weights,
    _row_by_row,
    _of_some_parts,
    _until,
    _left,
    _of_integers,
]


@pytest.mark.parametrize("fun", STAYING, ids=lambda f: f.__name__)
def test_what_stays_in_its_loop(fun: Callable[..., Any]) -> None:
    assert hoisted(fun, W, U, XS) == []


@pytest.mark.parametrize(
    ("sizes", "pays"),
    [
        ((100, 128, 128, 128), True),
        ((20, 64, 64, 64), True),
        ((1000, 1, 64, 64), True),
        ((20, 64, 2, 2), False),  # a launch takes longer
        ((100, 4096, 2, 64), False),  # so does writing and reading it
        ((4000, 128, 64, 64), True),
        ((20000, 128, 64, 64), False),  # gigabytes
        ((4000, 128, 4, 64), False),  # many times the memory of what the loop streams
    ],
)
def test_what_pays(sizes: tuple[int, int, int, int], pays: bool) -> None:
    steps, batch, width, hidden = sizes
    shapes = [(width, 4 * hidden), (hidden, hidden), (steps, batch, width)]
    args = [jax.ShapeDtypeStruct(dims, np.float32) for dims in shapes]
    gated = scanned(lambda x, w: (x @ w).reshape(batch, 4, hidden).prod(1))
    last = lambda *args: gated(*args)[-1]  # noqa: E731
    assert bool(loop_products(module_of(last, *args), device("h100"))) == pays


def test_a_kernel_reads_what_the_product_gave(host_compiler: str) -> None:
    """A recurrence large enough that its product leaves, in the emulator."""
    args = array(64, 512), array(64, 64) / 8, array(64, 2, 64) / 8
    fun = scanned(lambda x, w: (x @ w).reshape(2, 8, 64).sum(1))
    ours = fs.jit(fun, options=fs.Options(backend="emulate", fallback="error"))
    assert_near(ours(*args), jax.jit(fun)(*args), 2e-6, rough=2e-6)
    [kernel] = [k for k in ours.lower(*args).compile().kernels if k.template.startswith("loop")]
    assert (64, 2, 512) in [shape.dims for shape in kernel.inputs]
