"""A product is recognized wherever a program computes it, and has one precision everywhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from fusionstitch.compiler import core
from fusionstitch.compiler.precision import with_repeated_exact
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.equal_products import REPEATED, products
from fusionstitch.hlo.graph import inside
from fusionstitch.hlo.importer import from_proto, parse
from fusionstitch.hlo.inline import inline_calls
from tests.behaviour.test_effects import fake

X, Y = (np.full((64, 8), value, np.float32) for value in (1, 2))


def lowered(fun, *args):
    ir = jax.jit(fun, keep_unused=True).lower(*args).compiler_ir("hlo")
    return inline_calls(ir.as_serialized_hlo_module_proto())


def repeated(body):
    return lambda x, y: lax.fori_loop(0, 5, body, (x, y, jnp.zeros((64, 64))))


#: (number of dots, number of different products) of programs
PROGRAMS = {
    "twice": (lambda x, y: (x @ y.T, x @ y.T), (2, 1)),
    "transposed": (lambda x, y: (x @ y.T, jnp.sin((y @ x.T).T)), (2, 1)),
    "by other dims": (lambda x, y: (x.T @ y, jnp.tensordot(y, x, (0, 0))), (2, 1)),
    "of other operands": (lambda x, y: (x @ y.T, x @ x.T, y @ y.T), (3, 3)),
    "over other dims": (lambda x, y: (x[:8] @ y[:8].T, x[:8] @ y[:8]), (2, 2)),
    "of some rows": (lambda x, y: (x @ y.T, x[8:16] @ y.T, y[3:].T.T @ x.T), (3, 1)),
    "of a part of each sum": (lambda x, y: (x @ y.T, x[:, :4] @ y[:, :4].T), (2, 2)),
    "of rows one by one": (lambda x, y: (x @ y.T, lax.map(lambda row: y @ row, x)), (2, 1)),
    "of other shapes": (
        lambda x, y: (
            x @ y.T,
            jnp.einsum("abk,mk->abm", x.reshape(4, 16, 8), y),
            jnp.einsum("nk,nk->n", x, y),
            x.reshape(32, 16) @ y.reshape(32, 16).T,
        ),
        (4, 2),
    ),
    "of widened operands": (
        lambda x, y: (
            lambda b: (b.astype(jnp.float32) @ y.T, y @ b.T.astype(jnp.float32), x @ y.T)
        )(x.astype(jnp.bfloat16)),
        (3, 2),
    ),
    "of repeated rows": (
        lambda x, y: (
            x @ y.T,
            jnp.einsum("bnk,bmk->bnm", jnp.broadcast_to(x, (3, 64, 8)), jnp.stack([y, y, y])),
            jnp.einsum("bnk,mk->bnm", jnp.broadcast_to(x, (3, 64, 8)), y),
        ),
        (3, 2),
    ),
    "in a loop": (
        lambda x, y: (x @ y.T, repeated(lambda i, c: (c[0], c[1], c[2] + c[0] @ c[1].T))(x, y)),
        (2, 1),
    ),
    "behind a loop": (
        lambda x, y: (lambda c: c[0] @ c[1].T + x @ y.T)(
            repeated(lambda i, c: (c[0], c[1], c[2] + 1))(x, y)
        ),
        (2, 1),
    ),
    "in a loop that changes an operand": (
        lambda x, y: (x @ y.T, repeated(lambda i, c: (c[0] + 1, c[1], c[2] + c[0] @ c[1].T))(x, y)),
        (2, 2),
    ),
    "of what is computed again": (
        lambda x, y: (
            jnp.exp(x / x.sum()) @ y.T,
            repeated(lambda i, c: (c[0], c[1], c[2] + c[1] @ jnp.exp(c[0] / c[0].sum()).T))(x, y),
        ),
        (2, 1),
    ),
    "in a branch": (
        lambda x, y: (
            x @ y.T,
            lax.cond(x[0, 0] > 0, lambda a, b: b @ a.T, lambda a, b: a @ a.T, x, y),
        ),
        (3, 2),
    ),
    "computed again": (
        jax.grad(
            lambda x, y: jnp.sin(jax.checkpoint(lambda x, y: jnp.sin(x @ y.T))(x, y)).sum(),
            argnums=(0, 1),
        ),
        (4, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_products_are_known_again(name):
    fun, counts = PROGRAMS[name]
    found = products(from_proto(lowered(fun, X, Y)))
    assert (len(found), len(set(found.values()))) == counts


def sinkhorn(x, y):
    """A loop that makes a product again, which XLA makes before it."""

    def step(f, _):
        return f + jax.nn.logsumexp(f[:, None] - x @ y.T / 0.1, axis=1), None

    f, _ = lax.scan(step, jnp.zeros(64), length=20)
    return fs.leave(lambda x, y: (x @ y.T, jnp.sin(y @ x.T), x @ x.T))(x, y), f


def dots(module):
    """The precisions that dots ask for."""
    parsed = parse(module)
    found = [i for c in parsed.computations for i in c.instructions if i.opcode == "dot"]
    return sorted(max(i.precision_config.operand_precision, default=0) for i in found)


def test_what_xla_is_left_with_agrees_with_kernels():
    """Both of its dots that a kernel has, too, are asked for all bits; another one is not."""
    data, target = lowered(sinkhorn, X, Y), device("h200")
    assert dots(data) == [0, 0, 0, 0]
    result = core.stitch(data, fs.Options(scorer="paper"), target, fake)
    assert result.fallbacks == ()
    assert dots(result.module) == [0, 2, 2]


def test_kernels_round_no_product_that_a_loop_has():
    """A loop's kernel keeps all bits of it; another product is rounded everywhere."""
    module = from_proto(lowered(sinkhorn, X, Y))
    found = with_repeated_exact(module, device("h200"))
    precisions = [
        op.attrs["precision"] for graph in found.graphs for op in graph if op.opcode == "dot"
    ]
    assert sorted(precisions) == ["default", REPEATED, REPEATED, REPEATED]
    assert found.proto is module.proto
    assert with_repeated_exact(module, device("emulated")) is module
    alone = from_proto(lowered(PROGRAMS["twice"][0], X, Y))
    assert with_repeated_exact(alone, device("h200")) is alone


def whole(x, y):
    return x @ y.T


#: What XLA computes of the product of a kernel.
PARTS = {
    "rows of one": lambda x, y: x[:32] @ y.T,
    "rows of both": lambda x, y: x[:32] @ y[32:].T,
    "rows, block by block": lambda x, y: lax.map(lambda rows: rows @ y.T, x.reshape(8, 8, 8)),
    "rows at some place": lambda x, y: lax.dynamic_slice_in_dim(x, jnp.int32(x[0, 0]), 8) @ y.T,
    "one by one": lambda x, y: jax.vmap(lambda a: jax.vmap(lambda b: a @ b)(y))(x),
    "the diagonal": lambda x, y: jnp.einsum("nk,nk->n", x, y),
    "reshaped": lambda x, y: jnp.einsum("abk,mk->abm", x.reshape(8, 8, 8), y),
    "transposed": lambda x, y: y @ x.T,
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("left", ["part", "whole"])
def test_a_part_of_a_product_agrees_with_the_whole(name, left):
    """Whichever of the two a kernel has, in a loop that magnifies the difference."""
    given = (whole, PARTS[name]) if left == "part" else (PARTS[name], whole)

    ours, theirs = given
    is_small = jax.eval_shape(ours, X, Y).size < 64 * 64

    def program(x, y):
        def step(f, _):
            return f + jax.nn.logsumexp(f[:, None] - ours(x, y).reshape(64, -1) / 0.1, axis=1), None

        def summed(f, _):
            return jnp.tanh(f + ours(x, y).sum()), None

        f, _ = lax.scan(summed if is_small else step, jnp.ones(64), length=20)
        return fs.leave(theirs)(x, y), f

    data = lowered(program, X, Y)
    assert dots(data) == [0, 0]
    result = core.stitch(data, fs.Options(scorer="paper"), device("h200"), fake)
    assert result.fallbacks == ()
    assert any(map(has_dot, result.stitches))
    assert dots(result.module) == [2]


def has_dot(stitch):
    ops = [op for top in stitch.chosen.pattern.ops for op in (top, *inside(top))]
    return any(op.opcode == "dot" for op in ops)


def test_a_precision_that_is_asked_for_stays():
    with jax.default_matmul_precision("high"):
        data = lowered(sinkhorn, X, Y)
    assert dots(data) == [1, 1, 1, 1]
    result = core.stitch(data, fs.Options(scorer="paper"), device("h200"), fake)
    assert dots(result.module) == [1, 1, 1]


def test_values_stay():
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((64, 8), np.float32) for _ in range(2))
    ours = fs.jit(sinkhorn, options=fs.Options(backend="emulate", scorer="paper"))(x, y)
    theirs = jax.jit(sinkhorn)(x, y)
    for got, expected in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
