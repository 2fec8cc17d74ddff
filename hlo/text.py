"""HLO text, as `as_hlo_text()` prints it, to an HloModuleProto."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusionstitch.hlo import schema
from fusionstitch.hlo.errors import ImportModuleError
from fusionstitch.hlo.text_attributes import CALLED, READERS, read_frontend, read_string
from fusionstitch.hlo.text_lines import Block, Document, Line, closing, fault, split_text, split_top
from fusionstitch.hlo.text_values import integers, read_literal, read_shape

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
#: Characters from which on a constant of a compiled module is not read.
_LONG_CONSTANT = 4096
#: What reading a malformed part raises.
_MALFORMED = (ValueError, LookupError, TypeError, ArithmeticError)


def text_to_proto(text: str, compiled: bool = False) -> bytes:
    """The module as a serialized HloModuleProto.

    Of one that was `compiled`, to be looked at and not to be run, attributes and constants that
    cannot be read, and the elements of long ones, are passed over.

    Reads the opcodes of the semantics table and control flow, gathers, scatters, sorts, windows,
    convolutions, solvers, random bits, custom calls and collectives without attributes of their
    own. Names may be used again in
    another computation, and the last computation is the entry where none is marked, as for XLA.
    Raises ImportModuleError that names the line and what on it cannot be read.
    """
    try:
        module = _Builder(split_text(text), compiled).module
        data: bytes = module.SerializeToString(deterministic=True)
    except _MALFORMED as error:
        raise ImportModuleError(
            f"HLO text: the module contradicts itself ({type(error).__name__}: {error})."
        ) from None
    return data


def _once(what: str, named: Sequence[Line | Block]) -> None:
    seen: set[str] = set()
    for one in named:
        if one.name in seen:
            raise fault(one.number, f"there is {what} {one.name} already")
        seen.add(one.name)


def _unique_names(document: Document, entry: Block) -> dict[tuple[str, str], str]:
    """A name in the module for each name of an instruction in its computation.

    A text may use a name in several computations. The entry's are kept, then whichever comes
    first; others get a number that makes a name not written anywhere.
    """
    written = {line.name for block in document.blocks for line in block.lines}
    found: dict[tuple[str, str], str] = {}
    taken: set[str] = set()
    numbers: dict[str, int] = {}
    for block in sorted(document.blocks, key=lambda block: block is not entry):
        for line in block.lines:
            name = line.name
            while name in taken or (name != line.name and name in written):
                numbers[line.name] = numbers.get(line.name, 0) + 1
                name = f"{line.name}.{numbers[line.name]}"
            taken.add(name)
            found[block.name, line.name] = name
    return found


def _is_long(constant: str) -> bool:
    """Whether the elements of a constant are left out, or too many to be looked at."""
    return len(constant) > _LONG_CONSTANT or "..." in constant


class _Builder:
    def __init__(self, document: Document, compiled: bool):
        self.compiled = compiled
        self.module = schema.HloModule(name=document.name, id=1)
        self.computations = {block.name: n for n, block in enumerate(document.blocks, 1)}
        _once("a computation", document.blocks)
        entry = self.entry(document)
        self.names = _unique_names(document, entry)
        self.module.entry_computation_name = entry.name
        self.module.entry_computation_id = self.computations[entry.name]
        for block in document.blocks:
            self.read_block(block)
        program = self.module.computations[self.module.entry_computation_id - 1].program_shape
        self.module.host_program_shape.CopyFrom(program)
        for key, value in document.attributes.items():
            try:
                self.read_attribute(key, value)
            except _MALFORMED as error:
                raise fault(document.number, f"module attribute {key}={value}: {error}") from None
        self.read_frames(document.tables)

    def entry(self, document: Document) -> Block:
        if not document.blocks:
            raise fault(document.number, "the module holds no computation")
        marked = [block for block in document.blocks if block.is_entry]
        if len(marked) > 1:
            raise fault(marked[1].number, f"{marked[1].name} is a second ENTRY computation")
        return marked[0] if marked else document.blocks[-1]

    def read_attribute(self, key: str, value: str) -> None:
        if key == "entry_computation_layout":
            self.read_host_shape(value)
        elif key == "input_output_alias":
            self.read_alias(value)
        elif key == "frontend_attributes":
            read_frontend(self.module, value)
        elif key not in _IGNORED_IN_MODULE and not self.compiled:
            raise ValueError("it is not known")

    def read_block(self, block: Block) -> None:
        number = self.computations[block.name]
        computation = self.module.computations.add(name=block.name, id=number)
        _once("an instruction", block.lines)
        roots = [line for line in block.lines if line.is_root]
        if len(roots) > 1:
            raise fault(roots[1].number, f"{roots[1].name} is a second ROOT of {block.name}")
        self.ids: dict[str, int] = {}
        for line_number, line in enumerate(block.lines, 1):
            instruction = computation.instructions.add(
                name=self.names[block.name, line.name],
                opcode=line.opcode,
                id=(number << 32) + line_number,
            )
            try:
                self.read_line(instruction, line)
            except _MALFORMED as error:
                raise fault(
                    line.number, f"{line.name} ({line.opcode}) cannot be read: {error}"
                ) from None
            self.ids[line.name] = instruction.id
        computation.root_id = self.ids[(roots or block.lines)[-1].name]
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
            self.read_constant(instruction, line)
        elif line.opcode == "parameter":
            instruction.parameter_number = int(line.operands)
        else:
            instruction.operand_ids.extend(map(self.operand, split_top(line.operands)))
        if line.opcode in ("dot", "convolution"):
            instruction.precision_config.operand_precision.extend([0, 0])
        if line.opcode == "convolution":
            instruction.feature_group_count = instruction.batch_group_count = 1
        called: dict[str, list[int]] = {}
        for key, value in line.attributes.items():
            if key in CALLED:
                called[key] = [self.called(name) for name in split_top(value.strip("{}"))]
            elif key == "control-predecessors":
                before = split_top(value.strip("{}"))
                instruction.control_predecessor_ids.extend(
                    self.id_of(n.lstrip("%")) for n in before
                )
            else:
                self.read_other(instruction, key, value)
        for key in CALLED:
            instruction.called_computation_ids.extend(called.get(key, ()))

    def read_constant(self, instruction: Any, line: Line) -> None:
        try:
            if self.compiled and _is_long(line.operands):
                raise ValueError("a long constant")
            read_literal(line.operands, instruction.shape, instruction.literal)
        except _MALFORMED:
            if not self.compiled:
                raise
            instruction.literal.detached = 1

    def read_other(self, instruction: Any, key: str, value: str) -> None:
        """An attribute that names no other instruction or computation."""
        try:
            if key not in READERS:
                raise ValueError(
                    f"attribute {key}={value} is not known; pass the module as an HloModuleProto "
                    "or StableHLO instead"
                )
            READERS[key](instruction, value)
        except _MALFORMED:
            if not self.compiled:
                raise

    def operand(self, text: str) -> int:
        """An operand's id; its shape may be printed in front of its name."""
        *shape, name = text.split()
        if shape and not shape[-1].endswith(("]", "}", ")")):
            raise ValueError(f"{text[:80]!r} is no operand")
        return self.id_of(name.lstrip("%"))

    def id_of(self, name: str) -> int:
        if name not in self.ids:
            raise ValueError(f"{name} is not an instruction above it in its computation")
        return self.ids[name]

    def called(self, name: str) -> int:
        name = name.lstrip("%")
        if name not in self.computations:
            raise ValueError(f"computation {name} is missing")
        return self.computations[name]

    def read_host_shape(self, layout: str) -> None:
        host = self.module.host_program_shape
        layout = layout[1:-1]
        end = closing(layout, 0)
        del host.parameters[:]
        host.parameters.extend(map(read_shape, split_top(layout[1:end])))
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

    def read_frames(self, tables: Mapping[str, tuple[tuple[int, str], ...]]) -> None:
        for table, field in _FRAME_TABLES.items():
            rows = getattr(self.module.stack_frame_index, field)
            for number, row in tables.get(table, ()):
                try:
                    if field.endswith("names"):
                        rows.append(read_string(row))
                    else:
                        self.read_frame(rows, row)
                except _MALFORMED:
                    raise fault(number, f"{row[:80]!r} is no row of {table}") from None

    def read_frame(self, rows: Any, row: str) -> None:
        numbers = dict(pair.split("=") for pair in row.strip("{}").replace(",", " ").split())
        frame = rows.add()
        for key in frame.DESCRIPTOR.fields_by_name:
            value = int(numbers.get(key, 0))
            if key == "parent_frame_id":  # in text, a frame without a caller says 1
                value = max(value - 1, 0)
            setattr(frame, key, value)
