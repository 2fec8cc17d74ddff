"""HLO text, as `as_hlo_text()` prints it, to an HloModuleProto."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hlo import schema
from hlo.errors import ImportModuleError
from hlo.text_attributes import CALLED, READERS, read_frontend, unquoted
from hlo.text_lines import Block, Document, Line, closing, split_text, split_top
from hlo.text_values import integers, read_literal, read_shape

_ALIAS_KINDS = {"may-alias": 1, "must-alias": 2}
_FRAME_TABLES = {
    "FileNames": "file_names",
    "FunctionNames": "function_names",
    "FileLocations": "file_locations",
    "StackFrames": "stack_frames",
}
#: What a module says about its compilation, which its proto does not hold or need.
_IGNORED_IN_MODULE = frozenset(
    {
        *("allow_spmd_sharding_propagation_to_parameters", "replica_count", "num_partitions"),
        *("allow_spmd_sharding_propagation_to_output", "is_scheduled", "buffer_donor"),
    }
)


def text_to_proto(text: str) -> bytes:
    """The module as a serialized HloModuleProto.

    Reads the opcodes of the semantics table and control flow, gathers, scatters, sorts, windows,
    custom calls and collectives without attributes of their own.
    Raises ImportModuleError that names the line or the attribute it cannot read.
    """
    try:
        data: bytes = _Builder(split_text(text)).module.SerializeToString(deterministic=True)
    except (ValueError, LookupError, TypeError, ArithmeticError) as error:
        raise ImportModuleError(
            f"HLO text: the module contradicts itself ({type(error).__name__}: {error})."
        ) from None
    return data


class _Builder:
    def __init__(self, document: Document):
        self.module = schema.HloModule(name=document.name, id=1)
        self.computations = {block.name: n for n, block in enumerate(document.blocks, 1)}
        entries = [block.name for block in document.blocks if block.is_entry]
        if len(entries) != 1:
            raise ImportModuleError(f"HLO text has {len(entries)} ENTRY computations, not one.")
        self.module.entry_computation_name = entries[0]
        self.module.entry_computation_id = self.computations[entries[0]]
        for block in document.blocks:
            self.read_block(block)
        self.read_host_shape(document.attributes.get("entry_computation_layout"))
        for key, value in document.attributes.items():
            if key == "input_output_alias":
                self.read_alias(value)
            elif key == "frontend_attributes":
                read_frontend(self.module, value)
            elif key not in _IGNORED_IN_MODULE and key != "entry_computation_layout":
                raise ImportModuleError(f"HLO text: module attribute {key}={value} is not known.")
        self.read_frames(document.tables)

    def read_block(self, block: Block) -> None:
        number = self.computations[block.name]
        computation = self.module.computations.add(name=block.name, id=number)
        self.ids = {line.name: (number << 32) + n for n, line in enumerate(block.lines, 1)}
        for line in block.lines:
            instruction = computation.instructions.add(
                name=line.name, opcode=line.opcode, id=self.ids[line.name]
            )
            try:
                self.read_line(instruction, line)
            except (ValueError, LookupError, ArithmeticError) as error:
                raise ImportModuleError(f"HLO text: {line.name} cannot be read: {error}.") from None
            if line.is_root or line is block.lines[-1]:
                computation.root_id = computation.root_id or instruction.id
            if line.is_root:
                computation.root_id = instruction.id
        by_id = {i.id: i for i in computation.instructions}
        shape = computation.program_shape
        parameters = [i for i in computation.instructions if i.opcode == "parameter"]
        for parameter in sorted(parameters, key=lambda i: i.parameter_number):
            shape.parameters.append(parameter.shape)
            shape.parameter_names.append(parameter.name)
        shape.result.CopyFrom(by_id[computation.root_id].shape)

    def read_line(self, instruction: Any, line: Line) -> None:
        instruction.shape.CopyFrom(read_shape(line.shape))
        if line.opcode == "constant":
            read_literal(line.operands, instruction.shape, instruction.literal)
        elif line.opcode == "parameter":
            instruction.parameter_number = int(line.operands)
        else:
            # operands may be printed with their shapes in front
            names = [part.split()[-1].lstrip("%") for part in split_top(line.operands)]
            instruction.operand_ids.extend(self.id_of(name) for name in names)
        if line.opcode == "dot":
            instruction.precision_config.operand_precision.extend([0, 0])
        called: dict[str, list[int]] = {}
        for key, value in line.attributes.items():
            if key in CALLED:
                called[key] = [self.called(name) for name in split_top(value.strip("{}"))]
            elif key == "control-predecessors":
                before = split_top(value.strip("{}"))
                instruction.control_predecessor_ids.extend(
                    self.id_of(n.lstrip("%")) for n in before
                )
            elif key in READERS:
                READERS[key](instruction, value)
            else:
                raise ImportModuleError(
                    f"HLO text: {line.name} ({line.opcode}): attribute {key}={value} is not known; "
                    "pass the module as an HloModuleProto or StableHLO instead."
                )
        for key in CALLED:
            instruction.called_computation_ids.extend(called.get(key, ()))

    def id_of(self, name: str) -> int:
        if name not in self.ids:
            raise ValueError(f"{name} is not an instruction of its computation")
        return self.ids[name]

    def called(self, name: str) -> int:
        name = name.lstrip("%")
        if name not in self.computations:
            raise ValueError(f"computation {name} is missing")
        return self.computations[name]

    def read_host_shape(self, layout: str | None) -> None:
        host = self.module.host_program_shape
        entry = self.module.computations[self.module.entry_computation_id - 1]
        host.CopyFrom(entry.program_shape)
        if layout is not None:
            layout = layout[1:-1]
            end = closing(layout, 0)
            parts = split_top(layout[1:end])
            del host.parameters[:]
            host.parameters.extend(map(read_shape, parts))
            host.result.CopyFrom(read_shape(layout[end + 1 :].removeprefix("->")))

    def read_alias(self, text: str) -> None:
        for entry in split_top(text.strip()[1:-1]):
            output, _, rest = entry.partition(":")
            number, index, *kind = split_top(rest.strip()[1:-1])
            self.module.input_output_alias.entries.add(
                output_shape_index=integers(output.strip()),
                parameter_number=int(number),
                parameter_shape_index=integers(index),
                kind=_ALIAS_KINDS[kind[0]] if kind else 1,
            )

    def read_frames(self, tables: Mapping[str, tuple[str, ...]]) -> None:
        index = self.module.stack_frame_index
        for table, field in _FRAME_TABLES.items():
            for row in tables.get(table, ()):
                _, _, value = row.partition(" ")
                if value.startswith('"'):
                    getattr(index, field).append(unquoted(value))
                    continue
                numbers = dict(pair.split("=") for pair in value.strip("{}").split())
                frame = getattr(index, field).add()
                for key in frame.DESCRIPTOR.fields_by_name:
                    setattr(frame, key, int(numbers.get(key, 0)))
