"""The protobuf messages of an HLO module, built at import from a table of the fields in use.

Field numbers are those of XLA's `xla/service/hlo.proto` and `xla/xla_data.proto`. What the table
leaves out stays in a message as unknown fields and is written back untouched. Enums are declared
as int32, which has the same wire format; `PRIMITIVE_TYPES` names the one that matters. A literal's
field `detached` is ours (`hlo/detached.py`): no module that leaves has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "fusionstitch.xla"

#: message -> "field number type" entries; `*` marks a repeated field.
_MESSAGES: Mapping[str, str] = {
    "Tile": "dimensions 1 int64*",
    "Layout": "minor_to_major 1 int64*, tiles 6 Tile*, element_size_in_bits 7 int64, "
    "memory_space 8 int64, tail_padding_alignment_in_elements 16 int64",
    "Shape": "element_type 2 int32, dimensions 3 int64*, is_dynamic_dimension 6 bool*, "
    "tuple_shapes 4 Shape*, layout 5 Layout",
    "ProgramShape": "parameters 1 Shape*, result 2 Shape, parameter_names 3 string*",
    "OpMetadata": "op_type 1 string, op_name 2 string, source_file 3 string, source_line 4 int32, "
    "stack_frame_id 15 int32",
    "Literal": "shape 1 Shape, preds 2 bool*, u8s 3 bytes, s32s 4 int32*, s64s 5 int64*, "
    "u32s 6 uint32*, u64s 7 uint64*, f32s 8 float*, f64s 9 double*, tuple_literals 10 Literal*, "
    "f16s 11 bytes, c64s 12 float*, bf16s 13 bytes, s8s 15 bytes, u16s 16 bytes, s16s 17 bytes, "
    "c128s 18 double*, f8e5m2s 19 bytes, f8e4m3fns 20 bytes, f8e4m3b11fnuzs 23 bytes, "
    "f8e5m2fnuzs 24 bytes, f8e4m3fnuzs 25 bytes, f8e4m3s 28 bytes, f8e3m4s 29 bytes, "
    "f8e8m0fnus 33 bytes, detached 1000 int64",
    "WindowDimension": "size 1 int64, stride 2 int64, padding_low 3 int64, padding_high 4 int64, "
    "window_dilation 5 int64, base_dilation 6 int64, window_reversal 7 bool",
    "Window": "dimensions 1 WindowDimension*",
    "ConvolutionDimensionNumbers": "kernel_input_feature_dimension 3 int64, "
    "kernel_output_feature_dimension 4 int64, kernel_spatial_dimensions 6 int64*, "
    "input_batch_dimension 7 int64, input_feature_dimension 8 int64, "
    "output_batch_dimension 9 int64, output_feature_dimension 10 int64, "
    "input_spatial_dimensions 11 int64*, output_spatial_dimensions 12 int64*",
    "GatherDimensionNumbers": "offset_dims 1 int64*, collapsed_slice_dims 2 int64*, "
    "start_index_map 3 int64*, index_vector_dim 4 int64, operand_batching_dims 5 int64*, "
    "start_indices_batching_dims 6 int64*",
    "ScatterDimensionNumbers": "update_window_dims 1 int64*, inserted_window_dims 2 int64*, "
    "scatter_dims_to_operand_dims 3 int64*, index_vector_dim 4 int64, "
    "input_batching_dims 5 int64*, scatter_indices_batching_dims 6 int64*",
    "DotDimensionNumbers": "lhs_contracting_dimensions 1 int64*, "
    "rhs_contracting_dimensions 2 int64*, lhs_batch_dimensions 3 int64*, "
    "rhs_batch_dimensions 4 int64*",
    "PrecisionConfig": "operand_precision 1 int32*, algorithm 2 int32",
    "ResultAccuracy": "mode 1 int32",
    "PaddingConfigDimension": "edge_padding_low 1 int64, edge_padding_high 2 int64, "
    "interior_padding 3 int64",
    "PaddingConfig": "dimensions 1 PaddingConfigDimension*",
    "OutputOperandAliasing": "output_shape_index 1 int64*, operand_index 2 int64, "
    "operand_shape_index 3 int64*",
    "FrontendAttribute": "key 1 string, value 2 string",
    "FrontendAttributes": "map 1 FrontendAttribute*",
    "OpSharding": "type 1 int32, tile_assignment_dimensions 3 int64*, "
    "tile_assignment_devices 4 int64*, tuple_shardings 5 OpSharding*",
    "TriangularSolveOptions": "left_side 1 bool, lower 2 bool, unit_diagonal 3 bool, "
    "transpose_a 4 int32",
    "CholeskyOptions": "lower 1 bool",
    "SliceDimensions": "start 1 int64, limit 2 int64, stride 3 int64",
    "Instruction": "name 1 string, opcode 2 string, shape 3 Shape, metadata 7 OpMetadata, "
    "literal 8 Literal, parameter_number 9 int64, fusion_kind 11 string, tuple_index 13 int64, "
    "dimensions 14 int64*, window 15 Window, "
    "convolution_dimension_numbers 16 ConvolutionDimensionNumbers, "
    "slice_dimensions 17 SliceDimensions*, exponent_bits 18 int32, mantissa_bits 19 int32, "
    "dynamic_slice_sizes 20 int64*, padding_config 21 PaddingConfig, distribution 23 int32, "
    "channel_id 26 int64, "
    "custom_call_target 28 string, dot_dimension_numbers 30 DotDimensionNumbers, "
    "fft_type 31 int32, fft_length 32 int64*, gather_dimension_numbers 33 GatherDimensionNumbers, "
    "gather_slice_sizes 34 int64*, id 35 int64, operand_ids 36 int64*, "
    "control_predecessor_ids 37 int64*, called_computation_ids 38 int64*, sharding 40 OpSharding, "
    "backend_config 43 bytes, scatter_dimension_numbers 48 ScatterDimensionNumbers, "
    "feature_group_count 50 int64, precision_config 51 PrecisionConfig, constrain_layout 56 bool, "
    "operand_shapes_with_layout 57 Shape*, batch_group_count 58 int64, "
    "triangular_solve_options 59 TriangularSolveOptions, is_stable 60 bool, "
    "cholesky_options 62 CholeskyOptions, comparison_direction 63 string, "
    "custom_call_has_side_effect 65 bool, indices_are_sorted 67 bool, "
    "frontend_attributes 68 FrontendAttributes, unique_indices 69 bool, rng_algorithm 70 int32, "
    "comparison_type 72 string, output_operand_aliasing 74 OutputOperandAliasing*, "
    "custom_call_api_version 77 int32, async_execution_thread 79 string, k 81 int64, "
    "largest 85 bool, is_composite 89 bool, result_accuracy 91 ResultAccuracy, "
    "is_reverse 94 bool, num_carries 95 int64, is_associative 96 int32, "
    "comparison_order 102 string",
    "Computation": "name 1 string, instructions 2 Instruction*, program_shape 4 ProgramShape, "
    "id 5 int64, root_id 6 int64, is_fusion_computation 7 bool, execution_thread 8 string",
    "AliasEntry": "output_shape_index 1 int64*, parameter_number 2 int64, "
    "parameter_shape_index 3 int64*, kind 4 int32",
    "HloInputOutputAlias": "entries 1 AliasEntry*",
    "Schedule": "sequences 1 bytes*",
    "FileLocation": "file_name_id 1 int32, function_name_id 2 int32, line 3 int32, column 4 int32, "
    "end_line 5 int32, end_column 6 int32",
    "StackFrame": "file_location_id 1 int32, parent_frame_id 2 int32",
    "StackFrameIndex": "file_names 1 string*, function_names 2 string*, "
    "file_locations 3 FileLocation*, stack_frames 4 StackFrame*",
    "HloModule": "name 1 string, entry_computation_name 2 string, computations 3 Computation*, "
    "host_program_shape 4 ProgramShape, id 5 int64, entry_computation_id 6 int64, "
    "schedule 7 Schedule, input_output_alias 8 HloInputOutputAlias, "
    "stack_frame_index 17 StackFrameIndex, frontend_attributes 19 FrontendAttributes",
    "Hlo": "hlo_module 1 HloModule",
    # as much of a module as is needed to distinguish it from others and to find its literals, which
    # stay bytes
    "OutlineInstruction": "name 1 string, opcode 2 string, metadata 7 OpMetadata, literal 8 bytes",
    "OutlineComputation": "name 1 string, instructions 2 OutlineInstruction*",
    "Outline": "name 1 string, entry_computation_name 2 string, "
    "computations 3 OutlineComputation*, id 5 int64, stack_frame_index 17 bytes",
}

#: Names of XLA's PrimitiveType enum as they are written in HLO text.
PRIMITIVE_TYPES: Mapping[int, str] = {
    1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64",
    10: "f16", 11: "f32", 12: "f64", 13: "tuple", 14: "opaque", 15: "c64", 16: "bf16",
    17: "token", 18: "c128", 19: "f8e5m2", 20: "f8e4m3fn", 21: "s4", 22: "u4",
    23: "f8e4m3b11fnuz", 24: "f8e5m2fnuz", 25: "f8e4m3fnuz", 26: "s2", 27: "u2", 28: "f8e4m3",
    29: "f8e3m4", 30: "s1", 31: "u1", 32: "f4e2m1fn", 33: "f8e8m0fnu", 34: "buffer",
    35: "f6e3m2fn", 36: "f6e2m3fn",
}  # fmt: skip
PRIMITIVE_NUMBERS: Mapping[str, int] = {name: number for number, name in PRIMITIVE_TYPES.items()}

_FieldProto = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    name: getattr(_FieldProto, f"TYPE_{name.upper()}")
    for name in ("int32", "int64", "uint32", "uint64", "bool", "float", "double", "string", "bytes")
}


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="fusionstitch/xla.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for entry in fields.split(", "):
            field, number, kind = entry.split()
            base = kind.removesuffix("*")
            label = _FieldProto.LABEL_OPTIONAL if base == kind else _FieldProto.LABEL_REPEATED
            added = message.field.add(name=field, number=int(number), label=label)
            if base in _SCALARS:
                added.type = _SCALARS[base]
            else:
                added.type = _FieldProto.TYPE_MESSAGE
                added.type_name = f".{_PACKAGE}.{base}"
    return file


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _MESSAGES
    }


_CLASSES = _classes()
HloModule: Any = _CLASSES["HloModule"]
#: The message around a module in XLA's dumps.
Hlo: Any = _CLASSES["Hlo"]
#: A module whose literals are bytes.
Outline: Any = _CLASSES["Outline"]
Computation: Any = _CLASSES["Computation"]
Instruction: Any = _CLASSES["Instruction"]
Shape: Any = _CLASSES["Shape"]
Literal: Any = _CLASSES["Literal"]
OpMetadata: Any = _CLASSES["OpMetadata"]
