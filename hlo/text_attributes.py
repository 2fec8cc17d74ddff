"""Attributes of instructions in HLO text: one writer into the proto for each name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from fusionstitch.hlo.attributes import ALGORITHMS
from fusionstitch.hlo.text_lines import attributes_of, split_top
from fusionstitch.hlo.text_values import integers, read_shape

_API_VERSIONS = (
    "API_VERSION_UNSPECIFIED",
    "API_VERSION_ORIGINAL",
    "API_VERSION_STATUS_RETURNING",
    "API_VERSION_STATUS_RETURNING_UNIFIED",
    "API_VERSION_TYPED_FFI",
)
_MAX_RANK = 64
_PRECISIONS = ("default", "high", "highest")
_RNG_ALGORITHMS = ("rng_default", "rng_three_fry", "rng_philox")
_RNG_DISTRIBUTIONS = ("rng_invalid", "rng_uniform", "rng_normal")
_TRANSPOSES = ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")
_MAXIMAL = re.compile(r"\{maximal device=(\d+)\}")
_WINDOW_FIELDS = {
    "stride": "stride",
    "lhs_dilate": "base_dilation",
    "rhs_dilate": "window_dilation",
}
#: Attributes that name computations, in the order of an instruction's called computations.
CALLED = (
    *("to_apply", "calls", "select", "scatter", "body", "condition"),
    *("true_computation", "false_computation", "branch_computations", "called_computations"),
)


def unquoted(text: str) -> str:
    """The text inside quotes, escapes resolved."""
    return re.sub(r"\\(.)", r"\1", text.strip()[1:-1])


def read_string(text: str) -> str:
    """The text of a string; ValueError for what is none."""
    if not text.startswith('"'):
        raise ValueError(f"{text[:80]!r} is no string")
    return unquoted(text)


def _flag(field: str) -> Callable[[Any, str], None]:
    return lambda proto, text: setattr(proto, field, text == "true")


def _number(field: str) -> Callable[[Any, str], None]:
    return lambda proto, text: setattr(proto, field, int(text))


def _word(field: str) -> Callable[[Any, str], None]:
    return lambda proto, text: setattr(proto, field, text.strip('"'))


def _numbers(field: str, message: str = "") -> Callable[[Any, str], None]:
    def read(proto: Any, text: str) -> None:
        getattr(getattr(proto, message) if message else proto, field).extend(integers(text))

    return read


def _index_vector_dim(proto: Any, text: str) -> None:
    numbers = "gather" if proto.opcode == "gather" else "scatter"
    getattr(proto, f"{numbers}_dimension_numbers").index_vector_dim = int(text)


def _slice(proto: Any, text: str) -> None:
    for part in split_top(text.strip("{}")):
        start, limit, *stride = (int(n) for n in part.strip("[]").split(":"))
        stride = stride or [1]
        proto.slice_dimensions.add(start=start, limit=limit, stride=stride[0])


def _padding(proto: Any, text: str) -> None:
    for part in text.split("x"):
        low, high, *interior = (int(n) for n in part.split("_"))
        proto.padding_config.dimensions.add(
            edge_padding_low=low,
            edge_padding_high=high,
            interior_padding=interior[0] if interior else 0,
        )


def _window(proto: Any, text: str) -> None:
    fields = dict(part.split("=") for part in text.strip("{}").split())
    sizes = fields.pop("size", "")
    rank = len(sizes.split("x")) if sizes else 0
    if rank > _MAX_RANK:
        raise ValueError(f"a window of {rank} dimensions")
    ones = "x".join("1" * rank)
    pads = fields.pop("pad", "x".join(["0_0"] * rank)).split("x")
    columns = {"size": sizes}
    for key, field in _WINDOW_FIELDS.items():
        columns[field] = fields.pop(key, ones)
    reversed_ = fields.pop("rhs_reversal", "x".join("0" * rank)).split("x")
    if fields:
        raise ValueError(f"window fields {sorted(fields)} are not known")
    for d in range(rank):
        low, high = (int(n) for n in pads[d].split("_"))
        proto.window.dimensions.add(
            padding_low=low,
            padding_high=high,
            window_reversal=reversed_[d] == "1",
            **{field: int(column.split("x")[d]) for field, column in columns.items()},
        )


def _compare_order(proto: Any, text: str) -> None:
    # old XLA reads the one field, new XLA the other
    if text in ("TOTAL", "TOTALORDER"):
        proto.comparison_type, proto.comparison_order = "TOTALORDER", "TOTAL"


def _algorithm(proto: Any, text: str) -> None:
    if proto.opcode == "rng-bit-generator":
        proto.rng_algorithm = _RNG_ALGORITHMS.index(text)
    else:
        proto.precision_config.algorithm = ALGORITHMS.index(text)


def _dim_labels(proto: Any, text: str) -> None:
    """Such as `b01f_01io->b01f`: which dim of input, kernel and output is what."""
    given, output = text.split("->")
    sides = zip(("input", "kernel", "output"), (*given.split("_"), output), strict=True)
    for side, labels in sides:
        named = ("input_feature", "output_feature") if side == "kernel" else ("batch", "feature")
        for name in named:
            field = f"{side}_{name}_dimension"
            setattr(proto.convolution_dimension_numbers, field, labels.index(name[0]))
        spatial = [labels.index(str(n)) for n in range(len(labels) - len(named))]
        getattr(proto.convolution_dimension_numbers, f"{side}_spatial_dimensions").extend(spatial)


def _result_accuracy(proto: Any, text: str) -> None:
    proto.result_accuracy.mode = ("{mode=default}", "{mode=highest}").index(text)


def _precision(proto: Any, text: str) -> None:
    words = split_top(text.strip("{}"))
    proto.precision_config.operand_precision[:] = [_PRECISIONS.index(word) for word in words]


def _solving(field: str) -> Callable[[Any, str], None]:
    return lambda proto, text: setattr(proto.triangular_solve_options, field, text == "true")


def _lower(proto: Any, text: str) -> None:
    solves = proto.opcode == "triangular-solve"
    options = proto.triangular_solve_options if solves else proto.cholesky_options
    options.lower = text == "true"


def read_frontend(proto: Any, text: str) -> None:
    """Frontend attributes of an instruction or a module."""
    for key, value in attributes_of(text.strip()[1:-1]).items():
        value = unquoted(value) if value.startswith('"') else value
        proto.frontend_attributes.map.add(key=key, value=value)


def _backend_config(proto: Any, text: str) -> None:
    proto.backend_config = (unquoted(text) if text.startswith('"') else text).encode()


def _layouts(proto: Any, text: str) -> None:
    proto.constrain_layout = True
    for part in split_top(text.strip()[1:-1]):
        proto.operand_shapes_with_layout.append(read_shape(part))


def _output_aliasing(proto: Any, text: str) -> None:
    for entry in split_top(text.strip()[1:-1]):
        output, _, rest = entry.partition(":")
        operand, index = split_top(rest.strip()[1:-1])
        proto.output_operand_aliasing.add(
            output_shape_index=integers(output.strip()),
            operand_index=int(operand),
            operand_shape_index=integers(index),
        )


def _metadata(proto: Any, text: str) -> None:
    pairs = re.findall(r'(?<!\w)(\w+)=("(?:[^"\\]|\\.)*"|\S+)', text.strip()[1:-1])
    for key, value in pairs:
        if key in ("op_type", "op_name", "source_file"):
            setattr(proto.metadata, key, unquoted(value))
        elif key in ("source_line", "stack_frame_id"):
            setattr(proto.metadata, key, int(value))


def _sharding(proto: Any, text: str) -> None:
    if text == "{replicated}":
        proto.sharding.SetInParent()
    elif (device := _MAXIMAL.fullmatch(text)) is not None:
        proto.sharding.type = 1
        proto.sharding.tile_assignment_devices.append(int(device[1]))
    else:
        raise ValueError(f"sharding {text} is not known")


_GATHER, _SCATTER, _DOT = (
    "gather_dimension_numbers",
    "scatter_dimension_numbers",
    "dot_dimension_numbers",
)
#: attribute name -> writer of its text into an instruction.
READERS: Mapping[str, Callable[[Any, str], None]] = {
    "dimensions": _numbers("dimensions"),
    "iota_dimension": _numbers("dimensions"),
    "index": _number("tuple_index"),
    "slice": _slice,
    "padding": _padding,
    "window": _window,
    "dynamic_slice_sizes": _numbers("dynamic_slice_sizes"),
    "slice_sizes": _numbers("gather_slice_sizes"),
    "direction": _word("comparison_direction"),
    "type": _compare_order,
    "order": _compare_order,
    "is_reverse": _flag("is_reverse"),
    "num_carries": _number("num_carries"),
    "is_associative": lambda proto, text: setattr(proto, "is_associative", int(text == "true")),
    "exponent_bits": _number("exponent_bits"),
    "mantissa_bits": _number("mantissa_bits"),
    "is_stable": _flag("is_stable"),
    "indices_are_sorted": _flag("indices_are_sorted"),
    "unique_indices": _flag("unique_indices"),
    "custom_call_has_side_effect": _flag("custom_call_has_side_effect"),
    "lower": _lower,
    "left_side": _solving("left_side"),
    "unit_diagonal": _solving("unit_diagonal"),
    "transpose_a": lambda proto, text: setattr(
        proto.triangular_solve_options, "transpose_a", _TRANSPOSES.index(text)
    ),
    "dim_labels": _dim_labels,
    "feature_group_count": _number("feature_group_count"),
    "batch_group_count": _number("batch_group_count"),
    "k": _number("k"),
    "largest": _flag("largest"),
    "distribution": lambda proto, text: setattr(
        proto, "distribution", _RNG_DISTRIBUTIONS.index(text)
    ),
    "result_accuracy": _result_accuracy,
    "fft_type": lambda proto, text: setattr(
        proto, "fft_type", ("FFT", "IFFT", "RFFT", "IRFFT").index(text)
    ),
    "fft_length": _numbers("fft_length"),
    "kind": _word("fusion_kind"),
    "channel_id": _number("channel_id"),
    "custom_call_target": _word("custom_call_target"),
    "api_version": lambda proto, text: setattr(
        proto, "custom_call_api_version", _API_VERSIONS.index(text)
    ),
    "algorithm": _algorithm,
    "operand_precision": _precision,
    "operand_layout_constraints": _layouts,
    "output_to_operand_aliasing": _output_aliasing,
    "backend_config": _backend_config,
    "frontend_attributes": read_frontend,
    "metadata": _metadata,
    "sharding": _sharding,
    "index_vector_dim": _index_vector_dim,
    **{f"{side}_batch_dims": _numbers(f"{side}_batch_dimensions", _DOT) for side in ("lhs", "rhs")},
    **{
        f"{side}_contracting_dims": _numbers(f"{side}_contracting_dimensions", _DOT)
        for side in ("lhs", "rhs")
    },
    **{
        name: _numbers(name, _GATHER)
        for name in (
            *("offset_dims", "collapsed_slice_dims", "start_index_map"),
            *("operand_batching_dims", "start_indices_batching_dims"),
        )
    },
    **{
        name: _numbers(name, _SCATTER)
        for name in (
            *("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims"),
            *("input_batching_dims", "scatter_indices_batching_dims"),
        )
    },
}
