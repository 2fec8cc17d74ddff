"""Reading an instruction's attributes into the typed form that `hlo/semantics.py` documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fusionstitch.hlo import foreign
from fusionstitch.hlo.factorisations import solve_attributes
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.literals import FLOAT_TYPES

_PRECISIONS = ("default", "high", "highest")
#: Names of the algorithms of dots, by XLA's numbers.
ALGORITHMS = (
    *("unset", "dot_any_f8_any_f8_f32", "dot_any_f8_any_f8_f32_fast_accum", "dot_f16_f16_f16"),
    *("dot_f16_f16_f32", "dot_bf16_bf16_bf16", "dot_bf16_bf16_f32", "dot_bf16_bf16_f32_x3"),
    *("dot_bf16_bf16_f32_x6", "dot_tf32_tf32_f32", "dot_tf32_tf32_f32_x3", "dot_f32_f32_f32"),
    *("dot_f64_f64_f64", "dot_bf16_bf16_f32_x9"),
)
#: The custom calls that tell partitioners the sharding of arrays.
_SHARDING_TARGETS = frozenset({"Sharding", "xla.sdy.FuncResultSharding"})
_EMPTY_MESH = "<@empty_mesh"

#: Bodies `(a, b) -> op(a, b)` that a reduce names instead of calling.
REDUCERS = frozenset({"add", "multiply", "maximum", "minimum", "and", "or", "xor"})
#: The body of a scatter that replaces the element by the update.
REPLACE = "replace"


def reducer_of(body: Graph) -> str | None:
    """The opcode of a body that only combines its two parameters, else None. XLA makes bodies of
    scans, which give a tuple, those of reductions, which give one of its members."""
    root = body.root
    while root.opcode == "get-tuple-element" and root.operands[0].opcode == "tuple":
        root = root.operands[0].operands[root.attrs["index"]]
    if root.opcode not in REDUCERS or len(body.parameters) != 2:
        return None
    return root.opcode if set(root.operands) == set(body.parameters) else None


def _update_of(body: Graph) -> str | None:
    """What a scatter's body does: a reducer's opcode, "replace" for `(a, b) -> b`, else None."""
    if body.root.opcode == "parameter" and body.root.attrs["index"] == 1:
        return REPLACE
    return reducer_of(body)


def _scanned_by(body: Graph) -> str | None:
    """The opcode by which a scan's body `(input, carry) -> (joined, joined)` joins, else None."""
    joined = set(body.root.operands)
    if body.root.opcode != "tuple" or len(body.root.operands) != 2 or len(joined) != 1:
        return None
    [op] = joined
    return op.opcode if op.opcode in REDUCERS and set(op.operands) == set(body.parameters) else None


def _dimensions(proto: Any) -> dict[str, Any]:
    return {"dimensions": tuple(proto.dimensions)}


def _dimension(proto: Any) -> dict[str, Any]:
    return {"dimension": proto.dimensions[0]}


def _slice(proto: Any) -> dict[str, Any]:
    dims = proto.slice_dimensions
    return {
        "start": tuple(d.start for d in dims),
        "limit": tuple(d.limit for d in dims),
        "stride": tuple(d.stride for d in dims),
    }


def _pad(proto: Any) -> dict[str, Any]:
    dims = proto.padding_config.dimensions
    return {
        "low": tuple(d.edge_padding_low for d in dims),
        "high": tuple(d.edge_padding_high for d in dims),
        "interior": tuple(d.interior_padding for d in dims),
    }


def _gather(proto: Any) -> dict[str, Any]:
    numbers = proto.gather_dimension_numbers
    return {
        "offset_dims": tuple(numbers.offset_dims),
        "collapsed_slice_dims": tuple(numbers.collapsed_slice_dims),
        "start_index_map": tuple(numbers.start_index_map),
        "index_vector_dim": numbers.index_vector_dim,
        "operand_batching_dims": tuple(numbers.operand_batching_dims),
        "start_indices_batching_dims": tuple(numbers.start_indices_batching_dims),
        "slice_sizes": tuple(proto.gather_slice_sizes),
    }


def _scatter(proto: Any) -> dict[str, Any]:
    numbers = proto.scatter_dimension_numbers
    return {
        "update_window_dims": tuple(numbers.update_window_dims),
        "inserted_window_dims": tuple(numbers.inserted_window_dims),
        "scatter_dims_to_operand_dims": tuple(numbers.scatter_dims_to_operand_dims),
        "index_vector_dim": numbers.index_vector_dim,
        "input_batching_dims": tuple(numbers.input_batching_dims),
        "scatter_indices_batching_dims": tuple(numbers.scatter_indices_batching_dims),
    }


def _window(proto: Any) -> dict[str, Any]:
    dims = proto.window.dimensions
    return {
        "size": tuple(d.size for d in dims),
        "stride": tuple(d.stride for d in dims),
        "low": tuple(d.padding_low for d in dims),
        "high": tuple(d.padding_high for d in dims),
        "base_dilation": tuple(d.base_dilation for d in dims),
        "window_dilation": tuple(d.window_dilation for d in dims),
    }


def _dot(proto: Any) -> dict[str, Any]:
    numbers = proto.dot_dimension_numbers
    return {
        "lhs_batch": tuple(numbers.lhs_batch_dimensions),
        "rhs_batch": tuple(numbers.rhs_batch_dimensions),
        "lhs_contract": tuple(numbers.lhs_contracting_dimensions),
        "rhs_contract": tuple(numbers.rhs_contracting_dimensions),
        **_products(proto),
    }


def _products(proto: Any) -> dict[str, Any]:
    """How products are to be computed."""
    precision = _PRECISIONS[min(max(proto.precision_config.operand_precision, default=0), 2)]
    number = proto.precision_config.algorithm
    algorithm = ALGORITHMS[number] if number < len(ALGORITHMS) else f"number {number}"
    if algorithm == "dot_f32_f32_f32":
        precision = "highest"
    return {"precision": precision, "algorithm": algorithm}


def _convolution(proto: Any) -> dict[str, Any]:
    return {**_convolved(proto), **_products(proto)}


def _convolved(proto: Any) -> dict[str, Any]:
    """What an instruction, or the custom call of a library, says of a convolution."""
    numbers = proto.convolution_dimension_numbers
    return {
        **_window(proto),
        "reversal": tuple(d.window_reversal for d in proto.window.dimensions),
        "input": (
            numbers.input_batch_dimension,
            numbers.input_feature_dimension,
            *numbers.input_spatial_dimensions,
        ),
        "kernel": (
            numbers.kernel_input_feature_dimension,
            numbers.kernel_output_feature_dimension,
            *numbers.kernel_spatial_dimensions,
        ),
        "output": (
            numbers.output_batch_dimension,
            numbers.output_feature_dimension,
            *numbers.output_spatial_dimensions,
        ),
        "groups": max(1, proto.feature_group_count),
        "batch_groups": max(1, proto.batch_group_count),
    }


#: Of the types of transforms, those that are inverse.
_INVERSE = (1, 3)


def _transform(proto: Any) -> dict[str, Any]:
    return {"length": tuple(proto.fft_length), "inverse": proto.fft_type in _INVERSE}


def _compare(proto: Any) -> dict[str, Any]:
    return {
        "direction": proto.comparison_direction,
        # XLA moved the order from one field to the other
        "total_order": proto.comparison_order == "TOTAL" or proto.comparison_type == "TOTALORDER",
    }


def _custom_call(proto: Any) -> dict[str, Any]:
    sharding = proto.sharding
    replicated = (
        proto.custom_call_target in _SHARDING_TARGETS
        and sharding.type == 0
        and not sharding.tile_assignment_dimensions
        and all(_EMPTY_MESH in entry.value for entry in proto.frontend_attributes.map)
    )
    windows = _convolved(proto) if proto.window.dimensions else {}
    return {
        **windows,
        "target": foreign.line(proto.custom_call_target),
        "side_effect": proto.custom_call_has_side_effect,
        "replicated": replicated,
    }


#: opcode -> reader of its attributes; opcodes not named have none that matter here.
READERS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "parameter": lambda proto: {"index": proto.parameter_number},
    "iota": _dimension,
    "concatenate": _dimension,
    "sort": _dimension,
    "topk": lambda proto: {"k": proto.k, "largest": proto.largest},
    "scan": lambda proto: {
        "dimension": proto.dimensions[0],
        "reverse": proto.is_reverse,
        "carries": proto.num_carries,
    },
    "broadcast": _dimensions,
    "transpose": _dimensions,
    "reverse": _dimensions,
    "reduce": _dimensions,
    "slice": _slice,
    "pad": _pad,
    "dynamic-slice": lambda proto: {"sizes": tuple(proto.dynamic_slice_sizes)},
    "gather": _gather,
    "scatter": _scatter,
    "reduce-window": _window,
    "dot": _dot,
    "convolution": _convolution,
    "fft": _transform,
    "compare": _compare,
    "reduce-precision": lambda proto: {
        "exponent_bits": proto.exponent_bits,
        "mantissa_bits": proto.mantissa_bits,
    },
    "get-tuple-element": lambda proto: {"index": proto.tuple_index},
    "triangular-solve": solve_attributes,
    "custom-call": _custom_call,
}


def finish(op: Op) -> None:
    """Completes attributes by what the instruction alone does not say.

    A reduce (of windows too) and a scatter get their `reducer`; only floats have another order than
    the total one; and a topk goes along the last dim.
    """
    if op.opcode == "compare" and op.operands[0].dtype not in FLOAT_TYPES:
        op.attrs = {**op.attrs, "total_order": False}
    elif op.opcode == "scatter":
        op.attrs = {**op.attrs, "reducer": None if op.shape.is_tuple else _update_of(op.called[0])}
    elif op.opcode == "topk":
        op.attrs = {**op.attrs, "dimension": op.operands[0].shape.rank - 1}
    elif op.opcode == "scan":
        op.attrs = {**op.attrs, "reducer": _scanned_by(op.called[0])}
    elif op.opcode in ("reduce", "reduce-window"):
        single = not op.shape.is_tuple
        op.attrs = {**op.attrs, "reducer": reducer_of(op.called[0]) if single else None}
