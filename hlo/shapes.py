"""Shape rules: opcode -> the shape its operands and attributes give."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fusionstitch.hlo.convolutions import result_shape
from fusionstitch.hlo.errors import VerifyError
from fusionstitch.hlo.graph import ITEM_BYTES, Op, Shape
from fusionstitch.hlo.literals import shape_of
from fusionstitch.hlo.semantics import SEMANTICS, Kind

_REAL = {"c64": "f32", "c128": "f64"}


def require(op: Op, holds: bool, expected: str) -> None:
    """Raises VerifyError that names the op and what was expected, unless it holds."""
    if not holds:
        raise VerifyError(f"{op!r}: expected {expected}. This is a defect of fusionstitch.")


def _permutation(op: Op, dims: tuple[int, ...], rank: int) -> None:
    require(op, sorted(dims) == list(range(rank)), f"a permutation of {rank} dimensions")


def _distinct(op: Op, dims: tuple[int, ...], rank: int) -> None:
    valid = len(set(dims)) == len(dims) and all(0 <= d < rank for d in dims)
    require(op, valid, f"distinct dimensions below {rank}, not {dims}")


def _same(op: Op) -> Shape:
    first = op.operands[0].shape
    require(op, all(o.shape == first for o in op.operands), "operands of one shape")
    return first


def _abs(op: Op) -> Shape:
    x = op.operands[0].shape
    return Shape(_REAL.get(x.dtype, x.dtype), x.dims)


def _complex(op: Op) -> Shape:
    real, imag = (operand.shape for operand in op.operands)
    require(op, real == imag and real.dtype in _REAL.values(), "two arrays of floats of one shape")
    return Shape(next(whole for whole, part in _REAL.items() if part == real.dtype), real.dims)


def _pred(op: Op) -> Shape:
    return Shape("pred", _same(op).dims)


def _convert(op: Op) -> Shape:
    return Shape(op.dtype, op.operands[0].dims)


#: Types of which several share a byte.
_NARROW_BITS = {"s1": 1, "u1": 1, "s2": 2, "u2": 2, "s4": 4, "u4": 4, "f4e2m1fn": 4}


def _item_bits(dtype: str) -> int:
    return _NARROW_BITS.get(dtype) or 8 * ITEM_BYTES.get(dtype, 1)


def _bitcast_convert(op: Op) -> Shape:
    x = op.operands[0].shape
    before, after = _item_bits(x.dtype), _item_bits(op.dtype)
    if after < before:
        return Shape(op.dtype, (*x.dims, before // after))
    if after > before:
        require(op, x.dims[-1:] == (after // before,), f"a last dimension of {after // before}")
        return Shape(op.dtype, x.dims[:-1])
    return Shape(op.dtype, x.dims)


def _select(op: Op) -> Shape:
    which, on_true, on_false = (o.shape for o in op.operands)
    require(op, which.dtype == "pred", "a pred to select by")
    require(op, which.dims in ((), on_true.dims), "a scalar pred or one of the result's shape")
    require(op, on_true == on_false, "two values of one shape")
    return on_true


def _clamp(op: Op) -> Shape:
    low, x, high = (o.shape for o in op.operands)
    for bound in (low, high):
        require(op, bound.dtype == x.dtype and bound.dims in ((), x.dims), "scalar or equal bounds")
    return x


def _constant(op: Op) -> Shape:
    return shape_of(op.attrs["value"])


def _iota(op: Op) -> Shape:
    require(op, 0 <= op.attrs["dimension"] < op.shape.rank, "a dimension of the result")
    return op.shape


def _broadcast(op: Op) -> Shape:
    dims, x = op.attrs["dimensions"], op.operands[0]
    require(op, len(dims) == x.shape.rank, "one result dimension for each of the operand's")
    _distinct(op, dims, op.shape.rank)
    fits = all(op.dims[d] == n for d, n in zip(dims, x.dims, strict=True))
    require(op, fits, "result dimensions of the operand's sizes")
    return Shape(x.dtype, op.dims)


def _reshape(op: Op) -> Shape:
    x = op.operands[0].shape
    require(op, x.size == op.shape.size, f"{x.size} elements")
    return Shape(x.dtype, op.dims)


def _transpose(op: Op) -> Shape:
    dims, x = op.attrs["dimensions"], op.operands[0].shape
    _permutation(op, dims, x.rank)
    return Shape(x.dtype, tuple(x.dims[d] for d in dims))


def _reverse(op: Op) -> Shape:
    _distinct(op, op.attrs["dimensions"], op.shape.rank)
    return op.operands[0].shape


def _slice(op: Op) -> Shape:
    x, sizes = op.operands[0].shape, []
    bounds = zip(op.attrs["start"], op.attrs["limit"], op.attrs["stride"], x.dims, strict=True)
    for start, limit, stride, size in bounds:
        require(op, 0 <= start <= limit <= size and stride > 0, f"bounds inside {size}")
        sizes.append(-(-(limit - start) // stride))
    return Shape(x.dtype, tuple(sizes))


def _pad(op: Op) -> Shape:
    x, value = (o.shape for o in op.operands)
    require(op, value == Shape(x.dtype), "a scalar of the operand's type to pad with")
    edges = zip(x.dims, op.attrs["low"], op.attrs["high"], op.attrs["interior"], strict=True)
    return Shape(
        x.dtype,
        tuple(max(0, n + max(0, n - 1) * inside + low + high) for n, low, high, inside in edges),
    )


def _concatenate(op: Op) -> Shape:
    axis, first = op.attrs["dimension"], op.operands[0].shape
    require(op, 0 <= axis < first.rank, "a dimension of the operands")
    rest = {(o.dtype, o.dims[:axis], o.dims[axis + 1 :]) for o in op.operands}
    require(op, len(rest) == 1, f"operands that differ in dimension {axis} only")
    total = sum(o.dims[axis] for o in op.operands)
    return Shape(first.dtype, (*first.dims[:axis], total, *first.dims[axis + 1 :]))


def _dynamic_slice(op: Op) -> Shape:
    x, sizes = op.operands[0].shape, op.attrs["sizes"]
    require(op, len(op.operands) == 1 + x.rank == 1 + len(sizes), "one start and size a dimension")
    require(op, all(s <= n for s, n in zip(sizes, x.dims, strict=True)), "sizes inside the operand")
    return Shape(x.dtype, sizes)


def _dynamic_update_slice(op: Op) -> Shape:
    x, update = op.operands[0].shape, op.operands[1].shape
    require(op, len(op.operands) == 2 + x.rank, "one start a dimension")
    fits = update.rank == x.rank and all(u <= n for u, n in zip(update.dims, x.dims, strict=True))
    require(op, fits and update.dtype == x.dtype, "an update that fits into the operand")
    return x


def _gather(op: Op) -> Shape:
    x, indices, attrs = op.operands[0].shape, op.operands[1].shape, op.attrs
    sizes, offset = attrs["slice_sizes"], attrs["offset_dims"]
    require(op, len(sizes) == x.rank, "one slice size a dimension")
    dropped = (*attrs["collapsed_slice_dims"], *attrs["operand_batching_dims"])
    window = [n for d, n in enumerate(sizes) if d not in dropped]
    batch = [n for d, n in enumerate(indices.dims) if d != attrs["index_vector_dim"]]
    require(op, len(window) == len(offset), "one offset dimension for each kept slice dimension")
    left = iter(batch)
    rank = len(window) + len(batch)
    of_window = dict(zip(offset, window, strict=True))
    return Shape(
        x.dtype, tuple(of_window[d] if d in of_window else next(left) for d in range(rank))
    )


def _reduce(op: Op) -> Shape:
    half = len(op.operands) // 2
    dims, first = op.attrs["dimensions"], op.operands[0].shape
    _distinct(op, dims, first.rank)
    kept_dims = tuple(n for d, n in enumerate(first.dims) if d not in dims)
    for x, init in zip(op.operands[:half], op.operands[half:], strict=True):
        require(op, x.dims == first.dims, "inputs of one shape")
        require(op, init.shape == Shape(x.dtype), "scalar inits of the inputs' types")
    results = tuple(Shape(x.dtype, kept_dims) for x in op.operands[:half])
    return results[0] if half == 1 else Shape("tuple", (), results)


def _reduce_window(op: Op) -> Shape:
    half, attrs = len(op.operands) // 2, op.attrs
    first = op.operands[0].shape
    dims = []
    for d, n in enumerate(first.dims):
        spread = n + max(0, n - 1) * (attrs["base_dilation"][d] - 1)
        padded = spread + attrs["low"][d] + attrs["high"][d]
        extent = (attrs["size"][d] - 1) * attrs["window_dilation"][d] + 1
        dims.append(max(0, (padded - extent) // attrs["stride"][d] + 1))
    for x, init in zip(op.operands[:half], op.operands[half:], strict=True):
        require(op, x.dims == first.dims, "inputs of one shape")
        require(op, init.shape == Shape(x.dtype), "scalar inits of the inputs' types")
    results = tuple(Shape(x.dtype, tuple(dims)) for x in op.operands[:half])
    return results[0] if half == 1 else Shape("tuple", (), results)


def _scan(op: Op) -> Shape:
    dim, count = op.attrs["dimension"], op.attrs["carries"]
    extent = op.operands[0].dims[dim]
    results = op.called[0].root.shape.elements
    require(op, 0 < count <= len(results), "a carry for each init")
    split = len(results) - count
    outputs = [Shape(r.dtype, (*r.dims[:dim], extent, *r.dims[dim:])) for r in results[:split]]
    return Shape("tuple", (), (*outputs, *results[split:]))


def _dot(op: Op) -> Shape:
    attrs, lhs, rhs = op.attrs, op.operands[0], op.operands[1]
    free: list[int] = []
    paired: list[list[int]] = []
    for x, side in ((lhs, "lhs"), (rhs, "rhs")):
        used = (*attrs[f"{side}_batch"], *attrs[f"{side}_contract"])
        _distinct(op, used, x.shape.rank)
        free += [n for d, n in enumerate(x.dims) if d not in used]
        paired.append([x.dims[d] for d in used])
    require(op, paired[0] == paired[1], "batch and contracted dimensions of equal sizes")
    batch = [lhs.dims[d] for d in attrs["lhs_batch"]]
    return Shape(op.dtype, (*batch, *free))


def _tuple(op: Op) -> Shape:
    return Shape("tuple", (), tuple(o.shape for o in op.operands))


def _get_tuple_element(op: Op) -> Shape:
    whole, index = op.operands[0].shape, op.attrs["index"]
    require(op, 0 <= index < len(whole.elements), "an index inside the tuple")
    return whole.elements[index]


def _while(op: Op) -> Shape:
    condition, body = op.called
    state = op.operands[0].shape
    for graph in (condition, body):
        require(op, [p.shape for p in graph.parameters] == [state], f"{graph.name} to take {state}")
    require(op, condition.root.shape == Shape("pred"), f"{condition.name} to return a pred")
    require(op, body.root.shape == state, f"{body.name} to return {state}")
    return state


def _conditional(op: Op) -> Shape:
    require(op, len(op.operands) == 1 + len(op.called), "one argument for each branch")
    for graph, arg in zip(op.called, op.operands[1:], strict=True):
        takes = [p.shape for p in graph.parameters]
        require(op, takes == [arg.shape], f"{graph.name} to take {arg.shape}")
        require(op, graph.root.shape == op.shape, f"{graph.name} to return {op.shape}")
    return op.shape


def _call(op: Op) -> Shape:
    [callee] = op.called
    takes = [p.shape for p in callee.parameters]
    require(op, takes == [o.shape for o in op.operands], f"the operands that {callee.name} takes")
    return callee.root.shape


#: opcode -> rule; an elementwise opcode not named here has operands and result of one shape.
_RULES: Mapping[str, Callable[[Op], Shape]] = {
    "abs": _abs,
    "real": _abs,
    "imag": _abs,
    "complex": _complex,
    "compare": _pred,
    "is-finite": _pred,
    "convert": _convert,
    "bitcast-convert": _bitcast_convert,
    "select": _select,
    "clamp": _clamp,
    "constant": _constant,
    "iota": _iota,
    "broadcast": _broadcast,
    "reshape": _reshape,
    "bitcast": _reshape,
    "transpose": _transpose,
    "reverse": _reverse,
    "slice": _slice,
    "pad": _pad,
    "concatenate": _concatenate,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "scan": _scan,
    "dot": _dot,
    "convolution": result_shape,
    "tuple": _tuple,
    "get-tuple-element": _get_tuple_element,
    "while": _while,
    "conditional": _conditional,
    "call": _call,
}
SHAPE_RULES: Mapping[str, Callable[[Op], Shape]] = {
    **{name: _same for name, spec in SEMANTICS.items() if spec.kind is Kind.ELEMENTWISE},
    **_RULES,
}
