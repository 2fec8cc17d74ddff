"""Some ops of a module as a module of their own: what XLA would make of them alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusionstitch.hlo import schema
from fusionstitch.hlo.edit import (
    FreshIds,
    FreshNames,
    drop_uncalled,
    fill_shape,
    shape_proto,
    sort_instructions,
)
from fusionstitch.hlo.errors import VerifyError
from fusionstitch.hlo.graph import Graph, Module, Op, Shape


def extract(
    module: Module, graph: Graph, inputs: Sequence[Op], outputs: Sequence[Op], name: str
) -> bytes:
    """HloModuleProto bytes of the instructions that lead from `inputs` to `outputs`.

    The instructions are those of the proto, as they were before our own simplification. The new
    entry has one parameter per input and returns the tuple of the outputs, all row-major. Raises
    VerifyError if the outputs need more than the inputs, or a border op has no instruction.
    """
    proto = schema.HloModule()
    proto.CopyFrom(module.proto)
    for field in ("schedule", "input_output_alias", "host_program_shape"):
        proto.ClearField(field)
    computation = next(c for c in proto.computations if c.id == graph.proto_id)
    by_id = {i.id: i for i in computation.instructions}
    fresh, names = FreshIds(proto, computation), FreshNames(proto)
    border = {instruction_of(op, graph.aliases): number for number, op in enumerate(inputs)}
    needed = _between(by_id, border, [instruction_of(op, graph.aliases) for op in outputs], graph)
    own = [by_id[ident] for ident in needed]
    for instruction in own:
        del instruction.control_predecessor_ids[:]
        instruction.ClearField("sharding")

    instead: dict[int, int] = {}
    parameters = []
    for number, op in enumerate(inputs):
        parameter = _add(computation, names(f"input_{number}"), "parameter", fresh(), op.shape)
        parameter.parameter_number = number
        parameters.append(parameter)
        instead[instruction_of(op, graph.aliases)] = parameter.id
    root = computation.instructions.add(name=names("outputs"), opcode="tuple", id=fresh())
    fill_shape(root.shape, _tuple(outputs))
    root.operand_ids.extend(instruction_of(op, graph.aliases) for op in outputs)
    for instruction in (*own, root):
        operands = [_resolved(i, graph.aliases) for i in instruction.operand_ids]
        instruction.operand_ids[:] = [instead.get(i, i) for i in operands]
    stays = {i.id for i in (*own, *parameters, root)}
    for index in reversed(range(len(computation.instructions))):
        if computation.instructions[index].id not in stays:
            del computation.instructions[index]
    sort_instructions(computation)
    _make_entry(proto, computation, root.id, inputs, outputs, name)
    return bytes(proto.SerializeToString(deterministic=True))


def instruction_of(op: Op, aliases: Mapping[int, int]) -> int:
    """The id of the instruction that gives `op`, where `aliases` are its graph's. Extracting keeps
    it, except for inputs. Raises VerifyError for an op without one."""
    if op.origin is None:
        raise VerifyError(f"{op!r} stands for no instruction, so its pattern cannot be taken out.")
    return _resolved(op.origin, aliases)


def _resolved(ident: int, aliases: Mapping[int, int]) -> int:
    while ident in aliases:
        ident = aliases[ident]
    return ident


def _between(
    by_id: Mapping[int, Any], border: Mapping[int, int], outputs: Sequence[int], graph: Graph
) -> list[int]:
    """Ids of the instructions that `outputs` need, up to the `border`."""
    found: dict[int, None] = {}
    stack = [ident for ident in outputs if ident not in border]
    while stack:
        ident = stack.pop()
        if ident in found:
            continue
        found[ident] = None
        if by_id[ident].opcode == "parameter":
            raise VerifyError(f"{by_id[ident].name} is needed but is no input of the pattern.")
        operands = (_resolved(i, graph.aliases) for i in by_id[ident].operand_ids)
        stack += [i for i in operands if i not in border and i not in found]
    return list(found)


def _add(computation: Any, name: str, opcode: str, ident: int, shape: Shape) -> Any:
    added = computation.instructions.add(name=name, opcode=opcode, id=ident)
    fill_shape(added.shape, shape)
    return added


def _tuple(outputs: Sequence[Op]) -> Shape:
    return Shape("tuple", (), tuple(op.shape for op in outputs))


def _make_entry(
    proto: Any, computation: Any, root: int, inputs: Sequence[Op], outputs: Sequence[Op], name: str
) -> None:
    """Makes `computation` the entry, and drops what it does not call."""
    computation.root_id = root
    computation.ClearField("program_shape")
    program = computation.program_shape
    program.parameters.extend(shape_proto(op.shape) for op in inputs)
    program.parameter_names.extend(f"input_{number}" for number in range(len(inputs)))
    program.result.CopyFrom(shape_proto(_tuple(outputs)))
    proto.host_program_shape.CopyFrom(program)
    proto.name = name
    proto.entry_computation_id = computation.id
    proto.entry_computation_name = computation.name
    drop_uncalled(proto)
