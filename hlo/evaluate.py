"""A NumPy interpreter of graphs: the reference that kernels, rules and error bounds rest on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fusionstitch.hlo import indexing
from fusionstitch.hlo.convolutions import convolve
from fusionstitch.hlo.errors import ImportModuleError
from fusionstitch.hlo.factorisations import REFERENCES
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.literals import FLOAT_TYPES, NUMPY_DTYPES
from fusionstitch.hlo.numeric import COMPARISONS, ELEMENTWISE, convert, total_order_key
from fusionstitch.hlo.radix_sorts import sort_rows

Array = np.ndarray
#: What an op evaluates to: an array, or a tuple of values (a token is an empty tuple).
Value = Any
Target = Callable[[Op, Sequence[Array]], Value]

_NARROW = frozenset(NUMPY_DTYPES[name] for name in FLOAT_TYPES if name not in ("f32", "f64"))
_ONE_BYTE = frozenset(dtype for dtype in _NARROW if dtype.itemsize == 1)
_REDUCE_UFUNCS = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def evaluate(
    graph: Graph,
    args: Sequence[Any],
    float64: bool = False,
    targets: Mapping[str, Target] | None = None,
) -> list[Array]:
    """The leaves of the root's value for `args`, one per parameter (tuples nest).

    With `float64` every float is computed and returned in float64, which gives the yardstick for
    error bounds. Results are rounded to no narrower type then, but to floats of one byte: those
    are part of what a program means (docs/numerics.md). `targets` are references of custom
    calls by target name: functions of the op and its operands' arrays.
    Raises ImportModuleError for an opcode without a reference.
    """
    interpreter = _Interpreter(float64, targets or {})
    with np.errstate(all="ignore"):
        values = [
            interpreter.cast(np.asarray(arg), op.dtype) if isinstance(arg, np.ndarray) else arg
            for arg, op in zip(args, graph.parameters, strict=True)
        ]
        return _leaves(interpreter.run(graph, values))


def evaluate_op(op: Op, values: Sequence[Array]) -> Value:
    """The value of one op for its operands' values."""
    with np.errstate(all="ignore"):
        return _Interpreter(False, {}).op(op, values)


def _leaves(value: Value) -> list[Array]:
    if isinstance(value, tuple):
        return [leaf for element in value for leaf in _leaves(element)]
    return [value]


class _Interpreter:
    def __init__(self, float64: bool, targets: Mapping[str, Target]):
        self.float64 = float64
        self.targets = targets

    def dtype(self, name: str) -> np.dtype[Any]:
        """The numpy type that values of an HLO type are held in."""
        if self.float64 and name in FLOAT_TYPES:
            return np.dtype(np.float64)
        if self.float64 and name == "c64":
            return np.dtype(np.complex128)
        if name not in NUMPY_DTYPES:
            raise ImportModuleError(f"NumPy holds no values of type {name}.")
        return NUMPY_DTYPES[name]

    def cast(self, value: Array, name: str) -> Array:
        value = np.asarray(value)
        if self.float64 and NUMPY_DTYPES.get(name) in _ONE_BYTE:
            value = value.astype(NUMPY_DTYPES[name])
        return value.astype(self.dtype(name), copy=False)

    def run(self, graph: Graph, args: Sequence[Value]) -> Value:
        values: list[Value] = [None] * len(graph)
        for op in graph:
            if op.opcode == "parameter":
                values[op.id] = args[op.attrs["index"]]
            else:
                values[op.id] = self.op(op, [values[o.id] for o in op.operands])
        return values[graph.root.id]

    def op(self, op: Op, values: Sequence[Value]) -> Value:
        function = _TABLE.get(op.opcode)
        if function is None:
            if op.opcode not in ELEMENTWISE:
                raise ImportModuleError(
                    f"{op!r}: {op.opcode} has no NumPy reference; evaluate a graph without it."
                )
            function = _elementwise
        result = function(self, op, values)
        return result if isinstance(result, tuple) else self.cast(result, op.dtype)

    def body(self, graph: Graph) -> indexing.Body:
        """A scalar computation as a function of arrays of any one shape."""

        def call(*args: Array) -> tuple[Array, ...]:
            value = self.run(graph, args)
            return value if isinstance(value, tuple) else (value,)

        return call


def _wide(value: Array) -> Array:
    return value.astype(np.float32) if value.dtype in _NARROW else value


def _elementwise(_: _Interpreter, op: Op, values: Sequence[Array]) -> Array:
    return ELEMENTWISE[op.opcode](*map(_wide, values))


def _compare(_: _Interpreter, op: Op, values: Sequence[Array]) -> Array:
    x, y = values
    if op.attrs["total_order"]:
        x, y = total_order_key(x), total_order_key(y)
    return COMPARISONS[op.attrs["direction"]](x, y)


def _convert(ev: _Interpreter, op: Op, values: Sequence[Array]) -> Array:
    return convert(values[0], ev.dtype(op.dtype))


def _bitcast_convert(ev: _Interpreter, op: Op, values: Sequence[Array]) -> Array:
    # float64 mode holds other bits than the declared types have
    stored = values[0].astype(NUMPY_DTYPES[op.operands[0].dtype], copy=False)
    target = NUMPY_DTYPES[op.dtype]
    if target.itemsize < stored.dtype.itemsize:
        stored = stored[..., None]
    viewed = np.asarray(stored, order="C").view(target)  # ascontiguousarray makes scalars vectors
    return viewed[..., 0] if target.itemsize > stored.dtype.itemsize else viewed


def _reduce_precision(ev: _Interpreter, op: Op, values: Sequence[Array]) -> Array:
    if ev.float64:
        return values[0]
    exponent, mantissa = op.attrs["exponent_bits"], op.attrs["mantissa_bits"]
    wide = values[0].astype(np.float64)
    fraction, power = np.frexp(wide)
    limit = 1 << (exponent - 1)
    rounded = np.ldexp(np.rint(np.ldexp(fraction, mantissa + 1)), power - mantissa - 1)
    if mantissa == 0:  # the last bit that is kept is the exponent's: a half goes to an even one
        down = (np.abs(fraction) == 0.75) & (power % 2 == 0)
        rounded = np.where(down, np.ldexp(np.copysign(0.5, wide), power), rounded)
    # numbers below the smallest normal one become zero, those that round too far infinity
    rounded = np.where(np.abs(rounded) < np.ldexp(1.0, 2 - limit), np.copysign(0.0, wide), rounded)
    rounded = np.where(np.abs(rounded) >= np.ldexp(1.0, limit), np.copysign(np.inf, wide), rounded)
    return np.where(np.isfinite(wide), rounded, wide)


def _iota(ev: _Interpreter, op: Op, _: Sequence[Array]) -> Array:
    dim = op.attrs["dimension"]
    return indexing.broadcast(np.arange(op.dims[dim]), op.dims, (dim,))


def _slice(_: _Interpreter, op: Op, values: Sequence[Array]) -> Array:
    bounds = zip(op.attrs["start"], op.attrs["limit"], op.attrs["stride"], strict=True)
    return values[0][tuple(slice(*bound) for bound in bounds)]


def _reduce(ev: _Interpreter, op: Op, values: Sequence[Array]) -> Value:
    dims, reducer = op.attrs["dimensions"], op.attrs["reducer"]
    half = len(values) // 2
    if reducer is None:
        results = indexing.fold(values[:half], values[half:], dims, ev.body(op.called[0]))
        return results if op.shape.is_tuple else results[0]
    x, init = map(_wide, values)
    ufunc: Any = _REDUCE_UFUNCS[reducer]
    if x.dtype == np.bool_:  # numpy would count the elements of a bool sum
        ufunc = {"add": np.logical_or, "multiply": np.logical_and}.get(reducer, ufunc)
    if not x.size:
        return np.broadcast_to(init, op.dims)
    reduced = ufunc.reduce(x, axis=dims, dtype=x.dtype)
    if x.dtype.kind == "f" and reducer in ("maximum", "minimum"):
        reduced = _signed_zeros(reduced, x, dims, reducer)
    return ELEMENTWISE[reducer](reduced, init)


def _signed_zeros(reduced: Array, x: Array, dims: tuple[int, ...], reducer: str) -> Array:
    """Extrema whose zeros have the right sign: numpy takes zeros of either sign as equal."""
    zero = 0.0 if reducer == "maximum" else -0.0
    found = ((x == 0) & (np.signbit(x) == np.signbit(zero))).any(axis=dims)
    return np.where(reduced == 0, np.where(found, zero, -zero).astype(x.dtype), reduced)


def _dot(ev: _Interpreter, op: Op, values: Sequence[Array]) -> Array:
    """Both sides as [batch, free, contracted] matrices, multiplied in the result's type."""
    attrs = op.attrs
    sides = []
    for value, side in zip(values, ("lhs", "rhs"), strict=True):
        batch, contract = attrs[f"{side}_batch"], attrs[f"{side}_contract"]
        free = [d for d in range(value.ndim) if d not in (*batch, *contract)]
        sizes = [int(np.prod([value.shape[d] for d in dims])) for dims in (batch, free, contract)]
        moved = _wide(value).transpose([*batch, *free, *contract]).reshape(sizes)
        sides.append(moved.astype(_wide(np.empty(0, ev.dtype(op.dtype))).dtype, copy=False))
    return np.matmul(sides[0], sides[1].swapaxes(1, 2)).reshape(op.dims)


def _convolution(ev: _Interpreter, op: Op, values: Sequence[Array]) -> Array:
    wide = _wide(np.empty(0, ev.dtype(op.dtype))).dtype
    return convolve(op, *(_wide(value).astype(wide, copy=False) for value in values))


def _combine(reducer: str) -> indexing.Body:
    return lambda old, new: (ELEMENTWISE[reducer](_wide(old), _wide(new)),)


#: What a scatter's `reducer` makes of an element and its update.
_UPDATES: Mapping[str | None, indexing.Body] = {
    "replace": lambda old, new: (new,),
    **{name: _combine(name) for name in _REDUCE_UFUNCS},
}


def _scatter(ev: _Interpreter, op: Op, values: Sequence[Array]) -> Value:
    count = len(values) // 2
    body = _UPDATES.get(op.attrs["reducer"]) or ev.body(op.called[0])
    results = indexing.scatter(values[:count], values[count], values[count + 1 :], op.attrs, body)
    return results if op.shape.is_tuple else results[0]


def _reduce_window(ev: _Interpreter, op: Op, values: Sequence[Array]) -> Value:
    half = len(values) // 2
    body = ev.body(op.called[0])
    results = indexing.reduce_window(values[:half], values[half:], op.attrs, body)
    return results if op.shape.is_tuple else results[0]


def _scan(ev: _Interpreter, op: Op, values: Sequence[Array]) -> Value:
    dim, count = op.attrs["dimension"], op.attrs["carries"]
    inputs = [np.moveaxis(x, dim, 0) for x in values[:-count]]
    carries, outputs = tuple(values[-count:]), []
    steps = range(len(inputs[0]))
    for step in reversed(steps) if op.attrs["reverse"] else steps:
        results = ev.run(op.called[0], [*(x[step] for x in inputs), *carries])
        outputs.append(results[:-count])
        carries = results[-count:]
    if op.attrs["reverse"]:
        outputs.reverse()
    return (*(np.stack(parts, dim) for parts in zip(*outputs, strict=True)), *carries)


def _sort(ev: _Interpreter, op: Op, values: Sequence[Array]) -> Value:
    results = indexing.sort(values, op.attrs["dimension"], ev.body(op.called[0]))
    return results if op.shape.is_tuple else results[0]


def _topk(_: _Interpreter, op: Op, values: Sequence[Array]) -> Value:
    return indexing.topk(values[0], op.attrs["k"], op.attrs["largest"])


def _while(ev: _Interpreter, op: Op, values: Sequence[Value]) -> Value:
    condition, body = op.called
    state = values[0]
    while ev.run(condition, [state]):
        state = ev.run(body, [state])
    return state


def _conditional(ev: _Interpreter, op: Op, values: Sequence[Value]) -> Value:
    index, *args = values
    if op.operands[0].dtype == "pred":
        branch = 0 if index else 1
    else:
        last = len(op.called) - 1
        branch = int(index) if 0 <= index <= last else last
    return ev.run(op.called[branch], [args[branch]])


def _custom_call(ev: _Interpreter, op: Op, values: Sequence[Value]) -> Value:
    if op.attrs["replicated"]:
        return values[0]
    target = ev.targets.get(op.attrs["target"])
    if target is None:
        raise ImportModuleError(
            f"{op!r}: custom call {op.attrs['target']!r} has no NumPy reference; pass one in "
            "`targets`."
        )
    return target(op, values)


def _factorised(_: _Interpreter, op: Op, values: Sequence[Value]) -> Value:
    found: Value = REFERENCES[op.opcode](op, *values)
    return found


_TABLE: Mapping[str, Callable[[_Interpreter, Op, Sequence[Value]], Value]] = {
    "opt-barrier": lambda ev, op, values: values[0],
    "constant": lambda _, op, __: op.attrs["value"],
    "iota": _iota,
    "compare": _compare,
    "convert": _convert,
    "bitcast-convert": _bitcast_convert,
    "reduce-precision": _reduce_precision,
    "broadcast": lambda _, op, v: indexing.broadcast(v[0], op.dims, op.attrs["dimensions"]),
    "reshape": lambda _, op, v: v[0].reshape(op.dims),
    "bitcast": lambda _, op, v: v[0].reshape(op.dims),
    "transpose": lambda _, op, v: v[0].transpose(op.attrs["dimensions"]),
    "slice": _slice,
    "pad": lambda _, op, v: indexing.pad(v[0], v[1], op.attrs),
    "concatenate": lambda _, op, v: np.concatenate(v, op.attrs["dimension"]),
    "reverse": lambda _, op, v: np.flip(v[0], op.attrs["dimensions"]),
    "dynamic-slice": lambda _, op, v: indexing.dynamic_slice(v[0], v[1:], op.attrs["sizes"]),
    "dynamic-update-slice": lambda _, op, v: indexing.dynamic_update_slice(v[0], v[1], v[2:]),
    "gather": lambda _, op, v: indexing.gather(v[0], v[1], op.attrs),
    "scatter": _scatter,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "scan": _scan,
    "dot": _dot,
    "convolution": _convolution,
    "sort": _sort,
    "topk": _topk,
    "radix-sort": lambda _, op, v: sort_rows(op, *v),
    "map": lambda ev, op, v: ev.body(op.called[0])(*v)[0],
    "tuple": lambda _, op, v: tuple(v),
    "get-tuple-element": lambda _, op, v: v[0][op.attrs["index"]],
    "after-all": lambda _, op, v: (),
    "while": _while,
    "conditional": _conditional,
    "call": lambda ev, op, v: ev.run(op.called[0], v),
    "custom-call": _custom_call,
    **dict.fromkeys(REFERENCES, _factorised),
}
