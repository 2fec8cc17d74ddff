"""Builds graphs for tests: one method per common opcode, shapes worked out from the operands.

b = Builder()
x = b.parameter((8, 128))
y = b.add(b.exp(x), x)
graph = b.graph(y)              # several roots make a tuple
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fusionstitch.hlo.graph import Graph, Op, Shape


class Builder:
    """Collects ops in the order they are made; every op gets its own `origin`."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.parameters = 0

    def op(
        self,
        opcode: str,
        shape: Shape | Sequence[int],
        *operands: Op,
        dtype: str | None = None,
        control: tuple[int, ...] = (),
        called: tuple[Graph, ...] = (),
        **attrs: Any,
    ) -> Op:
        """Any op: `shape` is a Shape, or dims of the first operand's dtype (or of `dtype`)."""
        if not isinstance(shape, Shape):
            shape = Shape(dtype or operands[0].dtype, tuple(shape))
        number = len(self.ops)
        made = Op(
            opcode,
            shape,
            tuple(operands),
            attrs,
            name=f"{opcode}.{number}",
            origin=number + 1,
            called=called,
            control=control,
        )
        self.ops.append(made)
        return made

    def parameter(self, dims: Sequence[int] = (), dtype: str = "f32") -> Op:
        self.parameters += 1
        return self.op("parameter", dims, dtype=dtype, index=self.parameters - 1)

    def constant(self, value: Any, dtype: str = "f32") -> Op:
        array = np.asarray(value, dtype={"pred": "bool", "s32": "int32"}.get(dtype, "float32"))
        return self.op("constant", array.shape, dtype=dtype, value=array)

    def unary(self, opcode: str, x: Op) -> Op:
        return self.op(opcode, x.shape, x)

    def binary(self, opcode: str, x: Op, y: Op) -> Op:
        return self.op(opcode, x.shape, x, y)

    def add(self, x: Op, y: Op) -> Op:
        return self.binary("add", x, y)

    def sub(self, x: Op, y: Op) -> Op:
        return self.binary("subtract", x, y)

    def mul(self, x: Op, y: Op) -> Op:
        return self.binary("multiply", x, y)

    def div(self, x: Op, y: Op) -> Op:
        return self.binary("divide", x, y)

    def exp(self, x: Op) -> Op:
        return self.unary("exponential", x)

    def tanh(self, x: Op) -> Op:
        return self.unary("tanh", x)

    def broadcast(self, x: Op, dims: Sequence[int], dimensions: Sequence[int] = ()) -> Op:
        return self.op("broadcast", dims, x, dimensions=tuple(dimensions))

    def splat(self, value: float, dims: Sequence[int], dtype: str = "f32") -> Op:
        """A scalar constant broadcast to `dims`."""
        return self.broadcast(self.constant(value, dtype), dims)

    def like(self, reduced: Op, x: Op, dimensions: Sequence[int]) -> Op:
        """Broadcasts `reduced`, which lost `dimensions` of x, back to the shape of x."""
        kept = [d for d in range(x.shape.rank) if d not in dimensions]
        return self.broadcast(reduced, x.dims, kept)

    def transpose(self, x: Op, dimensions: Sequence[int]) -> Op:
        dims = [x.dims[d] for d in dimensions]
        return self.op("transpose", dims, x, dimensions=tuple(dimensions))

    def reshape(self, x: Op, dims: Sequence[int]) -> Op:
        return self.op("reshape", dims, x)

    def slice(
        self, x: Op, start: Sequence[int], limit: Sequence[int], stride: Sequence[int] = ()
    ) -> Op:
        steps = tuple(stride) or (1,) * len(start)
        dims = [-(-(b - a) // s) for a, b, s in zip(start, limit, steps, strict=True)]
        return self.op("slice", dims, x, start=tuple(start), limit=tuple(limit), stride=steps)

    def concatenate(self, xs: Sequence[Op], dimension: int = 0) -> Op:
        dims = list(xs[0].dims)
        dims[dimension] = sum(x.dims[dimension] for x in xs)
        return self.op("concatenate", dims, *xs, dimension=dimension)

    def reduce(self, x: Op, dimensions: Sequence[int], reducer: str = "add") -> Op:
        init = self.constant(float("-inf") if reducer == "maximum" else 0.0, x.dtype)
        dims = [n for d, n in enumerate(x.dims) if d not in dimensions]
        return self.op("reduce", dims, x, init, dimensions=tuple(dimensions), reducer=reducer)

    def rows(self, x: Op, i: Op) -> Op:
        """x[i] of x [n, ...] and integers i [m]."""
        last = tuple(range(1, x.shape.rank))
        return self.op(
            "gather",
            (*i.dims, *x.dims[1:]),
            x,
            i,
            offset_dims=last,
            collapsed_slice_dims=(0,),
            start_index_map=(0,),
            index_vector_dim=1,
            operand_batching_dims=(),
            start_indices_batching_dims=(),
            slice_sizes=(1, *x.dims[1:]),
        )

    def put_in_rows(self, x: Op, i: Op, update: Op, reducer: str = "add") -> Op:
        """x [rows, columns] with update [rows] joined to x[r, i[r]]."""
        position = self.op("iota", (*i.dims, 1), dtype=i.dtype, dimension=0)
        indices = self.concatenate([position, self.reshape(i, (*i.dims, 1))], 1)
        return self.op(
            "scatter",
            x.dims,
            x,
            indices,
            update,
            update_window_dims=(),
            inserted_window_dims=(0, 1),
            scatter_dims_to_operand_dims=(0, 1),
            index_vector_dim=1,
            input_batching_dims=(),
            scatter_indices_batching_dims=(),
            reducer=reducer,
        )

    def add_to_rows(self, x: Op, i: Op, update: Op) -> Op:
        """x [n, columns] with update [m, columns] added to the rows i [m], which may be equal."""
        return self.op(
            "scatter",
            x.dims,
            x,
            i,
            update,
            update_window_dims=(1,),
            inserted_window_dims=(0,),
            scatter_dims_to_operand_dims=(0,),
            index_vector_dim=1,
            input_batching_dims=(),
            scatter_indices_batching_dims=(),
            reducer="add",
        )

    def dot(self, x: Op, y: Op, batch: int = 0, precision: str = "default") -> Op:
        """x [*batch, m, k] times y [*batch, k, n]."""
        leading = tuple(range(batch))
        return self.op(
            "dot",
            (*x.dims[: batch + 1], y.dims[batch + 1]),
            x,
            y,
            lhs_batch=leading,
            rhs_batch=leading,
            lhs_contract=(batch + 1,),
            rhs_contract=(batch,),
            precision=precision,
        )

    def kept(self, x: Op) -> Op:
        """An op that is always left to XLA."""
        return self.op("collective-permute", x.shape, x)

    def graph(self, *roots: Op, name: str = "main") -> Graph:
        """The graph of everything made so far; one root is the result, several make a tuple."""
        root = roots[0]
        if len(roots) > 1:
            root = self.op("tuple", Shape("tuple", (), tuple(r.shape for r in roots)), *roots)
        return Graph(name, self.ops, root)


def softmax(b: Builder, x: Op) -> Op:
    """Softmax of the last dim of x."""
    last = (x.shape.rank - 1,)
    e = b.exp(b.sub(x, b.like(b.reduce(x, last, "maximum"), x, last)))
    return b.div(e, b.like(b.reduce(e, last), x, last))


def layernorm(b: Builder, x: Op, scale: Op, bias: Op) -> Op:
    """Layer normalisation of the last dim of x [rows, columns], as JAX writes it."""
    rows, columns = x.dims
    share = b.splat(1 / columns, (rows,), x.dtype)
    mean = b.mul(b.reduce(x, (1,)), share)
    centred = b.sub(x, b.like(mean, x, (1,)))
    variance = b.mul(b.reduce(b.mul(centred, centred), (1,)), share)
    inverse = b.unary("rsqrt", b.add(variance, b.splat(1e-6, (rows,), x.dtype)))
    normal = b.mul(centred, b.like(inverse, x, (1,)))
    return b.add(b.mul(normal, b.like(scale, x, (0,))), b.like(bias, x, (0,)))


def layernorm_backward(b: Builder, x: Op, scale: Op, g: Op) -> tuple[Op, Op, Op]:
    """Gradients of layer normalisation with respect to x, scale and bias; x, g [rows, columns]."""
    rows, columns = x.dims
    share = b.splat(1 / columns, (rows,), x.dtype)
    mean = b.mul(b.reduce(x, (1,)), share)
    centred = b.sub(x, b.like(mean, x, (1,)))
    variance = b.mul(b.reduce(b.mul(centred, centred), (1,)), share)
    inverse = b.unary("rsqrt", b.add(variance, b.splat(1e-6, (rows,), x.dtype)))
    normal = b.mul(centred, b.like(inverse, x, (1,)))
    dscale = b.reduce(b.mul(g, normal), (0,))
    dbias = b.reduce(g, (0,))
    h = b.mul(g, b.like(scale, x, (0,)))
    mean_h = b.mul(b.reduce(h, (1,)), share)
    mean_hn = b.mul(b.reduce(b.mul(h, normal), (1,)), share)
    inner = b.sub(
        b.sub(h, b.like(mean_h, x, (1,))),
        b.mul(normal, b.like(mean_hn, x, (1,))),
    )
    return b.mul(inner, b.like(inverse, x, (1,))), dscale, dbias


def adam(b: Builder, p: Op, m: Op, v: Op, g: Op) -> tuple[Op, Op, Op]:
    """One Adam step of one tensor: the new parameter and both moments."""

    def splat(value: float) -> Op:
        return b.splat(value, p.dims, p.dtype)

    m = b.add(b.mul(m, splat(0.9)), b.mul(g, splat(0.1)))
    v = b.add(b.mul(v, splat(0.999)), b.mul(b.mul(g, g), splat(0.001)))
    step = b.div(m, b.add(b.unary("sqrt", v), splat(1e-8)))
    return b.sub(p, b.mul(step, splat(1e-3))), m, v


@st.composite
def random_graphs(draw: st.DrawFn, max_ops: int = 24) -> Graph:
    """Graphs of rows [4, 8]: elementwise ops, row, column and scalar reductions broadcast back,
    transposes, square dots, and sorts that nothing can fuse; one to three results."""
    b = Builder()
    values = [b.parameter((4, 8)) for _ in range(draw(st.integers(1, 3)))]

    def value() -> Op:
        # recent values more often, so that graphs are deep and not only wide
        back = min(draw(st.integers(0, 9)), draw(st.integers(0, 9)))
        return values[-1 - back % len(values)]

    for _ in range(draw(st.integers(1, max_ops))):
        x = value()
        match draw(st.integers(0, 9)):
            case 0:
                made = b.kept(x)
            case 1:
                made = b.like(b.reduce(x, (1,)), x, (1,))
            case 2:
                made = b.like(b.reduce(x, (0,)), x, (0,))
            case 3:
                made = b.like(b.reduce(x, (0, 1)), x, (0, 1))
            case 4:
                made = b.dot(x, b.dot(b.transpose(x, (1, 0)), value()))
            case 5 | 6:
                made = b.exp(x)
            case _:
                made = b.add(x, value())
        values.append(made)
    roots = [v for v in values if not any(v in op.operands for op in b.ops)]
    return b.graph(*roots)
