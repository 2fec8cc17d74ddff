"""Writing replacements back: the same HloModuleProto, only the replaced instructions changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from fusionstitch.hlo import schema
from fusionstitch.hlo.edit import (
    FreshIds,
    FreshNames,
    drop_uncalled,
    entry_of,
    fill_shape,
    forget_order,
    is_row_major,
    sort_instructions,
)
from fusionstitch.hlo.errors import VerifyError
from fusionstitch.hlo.graph import Graph, Module, Op, Shape
from fusionstitch.hlo.semantics import EFFECTS

_TYPED_FFI = 4
#: A result of no elements, which kernels do not see.
_NOTHING = Shape("u8", (0,))


@dataclass(frozen=True, eq=False)
class Replacement:
    """A pattern of `graph` and the custom call that replaces it.

    The call reads `inputs` and writes `outputs` and then `scratch`; all of them row-major. A last
    result without elements, where the module needs one, is not for the kernel.
    `removed` holds all ops of the pattern. `config` is the call's backend_config: the typed FFI
    attributes as the text of an MLIR dictionary. `aliasing` pairs (output index, input index)
    that share a buffer: VerifyError where XLA would refuse one, for unequal shapes.
    """

    graph: Graph
    outputs: tuple[Op, ...]
    inputs: tuple[Op, ...]
    removed: tuple[Op, ...]
    name: str
    target: str
    config: bytes = b""
    scratch: tuple[Shape, ...] = ()
    aliasing: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        for output, operand in self.aliasing:
            written, read = self.outputs[output].shape, self.inputs[operand].shape
            if written != read:
                raise VerifyError(
                    f"{self.name} writes its output {output}, {written}, over its input {operand}, "
                    f"{read}; please report this as a defect of fusionstitch."
                )


@dataclass(frozen=True)
class Preparation:
    """A custom call for its effects alone: the entry has it, without operands or results."""

    name: str
    target: str
    config: bytes


def export(
    module: Module, replacements: Sequence[Replacement], preparation: Preparation | None = None
) -> bytes:
    """The module's proto with each replacement's pattern as one custom call.

    Readers of a replaced output read the call (through get-tuple-element when it has several
    results) and instructions nothing needs any more are deleted; parameters and side effects
    stay. In graphs with replacements, readers of an instruction in `Graph.aliases` read what
    stands for it. Entry layouts are kept (see `keep_entry_layouts`). `preparation` is added.
    Raises VerifyError when a replacement's border has an op without an instruction.
    """
    proto = schema.HloModule()
    proto.CopyFrom(module.proto)
    by_graph: dict[int | None, list[Replacement]] = {}
    for replacement in replacements:
        by_graph.setdefault(replacement.graph.proto_id, []).append(replacement)
    names = FreshNames(proto)
    if by_graph:
        for computation in proto.computations:
            if computation.id in by_graph:
                _Editor(proto, computation, names).apply(by_graph[computation.id])
        drop_uncalled(proto)
    if preparation is not None:
        _add_preparation(proto, preparation, names)
    if by_graph or preparation is not None:
        forget_order(proto)
    keep_entry_layouts(proto)
    return proto.SerializeToString(deterministic=True)


def _add_preparation(proto: Any, preparation: Preparation, names: FreshNames) -> None:
    entry = entry_of(proto)
    call = entry.instructions.add(
        name=names(preparation.name), opcode="custom-call", id=FreshIds(proto, entry)()
    )
    _fill_call(call, preparation.target, preparation.config)
    call.custom_call_has_side_effect = True
    fill_shape(call.shape, _NOTHING)
    sort_instructions(entry)


def _scope(replacement: Replacement, last: str) -> str:
    """What profilers show of the call besides its name: the scopes that all of its ops have in
    common, and the kernel in them. An op alone keeps its own."""
    names = {op.source.op_name for op in replacement.removed} - {""}
    if len(names) < 2:
        return last
    scopes = [name.split("/")[:-1] for name in sorted(names)]
    common = takewhile(lambda parts: len(set(parts)) == 1, zip(*scopes, strict=False))
    return "/".join([*(parts[0] for parts in common), replacement.name])


def _fill_call(call: Any, target: str, config: bytes) -> None:
    call.custom_call_target = target
    call.custom_call_api_version = _TYPED_FFI
    call.backend_config = config
    call.constrain_layout = True


def keep_entry_layouts(proto: Any) -> None:
    """Gives entry parameters and root the shapes, layouts included, of host_program_shape.

    XLA rebuilds a module from what a pass returns and takes the entry layouts from the entry
    computation's own instructions; without this, arrays come out in the wrong layout.
    """
    if not proto.HasField("host_program_shape"):
        return
    host, entry = proto.host_program_shape, entry_of(proto)
    for instruction in entry.instructions:
        if instruction.opcode == "parameter":
            instruction.shape.CopyFrom(host.parameters[instruction.parameter_number])
        if instruction.id == entry.root_id:
            root = instruction
    bound = root.opcode in ("custom-call", "get-tuple-element")
    if bound and not host.result.tuple_shapes and not is_row_major(host.result):
        # a custom call's results are bound to their layouts, so the root's is made by a copy
        ident = FreshIds(proto, entry)()
        copy = entry.instructions.add(
            name=FreshNames(proto)("copy"), opcode="copy", id=ident, operand_ids=[root.id]
        )
        copy.metadata.CopyFrom(root.metadata)
        entry.root_id, root = ident, copy
    root.shape.CopyFrom(host.result)


class _Editor:
    """Applies the replacements of one computation."""

    def __init__(self, module: Any, computation: Any, names: FreshNames):
        self.computation = computation
        self.names = names
        self.is_entry = computation.id == module.entry_computation_id
        self.fresh = FreshIds(module, computation)
        self.by_id = {i.id: i for i in computation.instructions}
        #: instruction id -> the id its readers read instead
        self.instead: dict[int, int] = {}
        #: removed instruction id -> the custom call that took it in
        self.home: dict[int, int] = {}
        #: deleted instruction id -> its control predecessors
        self.gone: dict[int, tuple[int, ...]] = {}

    def apply(self, replacements: Sequence[Replacement]) -> None:
        """Edits the computation."""
        for replacement in replacements:
            self.instead.update(replacement.graph.aliases)
        calls = [self.add_call(r) for r in replacements]
        for call, replacement in zip(calls, replacements, strict=True):
            call.operand_ids.extend(self.resolve(_origin(op)) for op in replacement.inputs)
        self.rewire()
        self.delete_unneeded()
        self.move_control()
        sort_instructions(self.computation)

    def add_call(self, replacement: Replacement) -> Any:
        outputs = [self.by_id[_origin(op)] for op in replacement.outputs]
        shapes = [*(op.shape for op in replacement.outputs), *replacement.scratch]
        if not replacement.scratch and self.may_be_root(outputs):
            shapes.append(_NOTHING)
        alone = len(shapes) == 1
        call = self.add(replacement.name, "custom-call", outputs[-1])
        call.metadata.op_name = _scope(replacement, call.metadata.op_name)
        fill_shape(call.shape, shapes[0] if alone else Shape("tuple", (), tuple(shapes)))
        _fill_call(call, replacement.target, replacement.config)
        for op in replacement.inputs:
            fill_shape(call.operand_shapes_with_layout.add(), op.shape)
        for output, operand in replacement.aliasing:
            call.output_operand_aliasing.add(
                output_shape_index=() if alone else (output,), operand_index=operand
            )
        for index, (op, old) in enumerate(zip(replacement.outputs, outputs, strict=True)):
            new = call
            if not alone:
                new = self.add(f"{replacement.name}.{index}", "get-tuple-element", old)
                fill_shape(new.shape, op.shape)
                new.operand_ids.append(call.id)
                new.tuple_index = index
            self.instead[old.id] = new.id
        self.home.update(
            (op.origin, call.id) for op in replacement.removed if op.origin is not None
        )
        return call

    def may_be_root(self, outputs: Sequence[Any]) -> bool:
        """Whether the call's results may come to be all that the root is a tuple of.

        XLA would make the call itself the root, and then take the operands of a loop body's root
        for the values of the next iteration, whatever op the root is. It drops from the root what
        no iteration reads or changes, and what the entry computes may be called from a loop.
        """
        if len(outputs) < 2:
            return False
        if not self.is_entry:
            return True
        root = self.by_id[self.computation.root_id]
        if root.opcode != "tuple":
            return False
        rest = iter([self.resolve(i) for i in root.operand_ids])
        return all(op.id in rest for op in outputs)

    def add(self, name: str, opcode: str, source: Any) -> Any:
        """A new instruction that carries the metadata of `source`."""
        new = self.computation.instructions.add(
            name=self.names(name), opcode=opcode, id=self.fresh()
        )
        if source.HasField("metadata"):
            new.metadata.CopyFrom(source.metadata)
        self.by_id[new.id] = new
        return new

    def resolve(self, ident: int) -> int:
        while ident in self.instead:
            ident = self.instead[ident]
        return ident

    def rewire(self) -> None:
        for instruction in self.computation.instructions:
            for index, operand in enumerate(instruction.operand_ids):
                if operand in self.instead:
                    instruction.operand_ids[index] = self.resolve(operand)
        self.computation.root_id = self.resolve(self.computation.root_id)

    def delete_unneeded(self) -> None:
        """Deletes the pattern instructions nothing reads any more, and what only they read."""
        readers: dict[int, int] = {self.computation.root_id: 1}
        for instruction in self.computation.instructions:
            for operand in instruction.operand_ids:
                readers[operand] = readers.get(operand, 0) + 1
        stack = [i for i in (*self.home, *self.instead) if not readers.get(i)]
        while stack:
            ident = stack.pop()
            instruction = self.by_id[ident]
            if ident in self.gone or not (ident in self.home or _deletable(instruction)):
                continue
            self.gone[ident] = tuple(instruction.control_predecessor_ids)
            for operand in instruction.operand_ids:
                readers[operand] -= 1
                if not readers[operand]:
                    stack.append(operand)
        for index in reversed(range(len(self.computation.instructions))):
            if self.computation.instructions[index].id in self.gone:
                del self.computation.instructions[index]

    def move_control(self) -> None:
        """Lets control dependences from and to deleted instructions hold for their custom calls."""
        inherited: dict[int, list[int]] = {}
        for ident, before in self.gone.items():
            if ident in self.home:
                inherited.setdefault(self.home[ident], []).extend(before)
        for instruction in self.computation.instructions:
            named = [*instruction.control_predecessor_ids, *inherited.get(instruction.id, ())]
            if named:
                moved = dict.fromkeys(m for i in named for m in self.moved(i))
                moved.pop(instruction.id, None)
                del instruction.control_predecessor_ids[:]
                instruction.control_predecessor_ids.extend(moved)

    def moved(self, ident: int) -> list[int]:
        """What stands for a control predecessor: itself, its custom call, or its predecessors."""
        if ident not in self.gone:
            return [ident]
        if ident in self.home:
            return [self.home[ident]]
        return [m for before in self.gone[ident] for m in self.moved(before)]


def _origin(op: Op) -> int:
    if op.origin is None:
        raise VerifyError(
            f"{op!r} is at the border of a pattern but stands for no instruction of the module; "
            "please report this as a defect of fusionstitch."
        )
    return op.origin


def _deletable(instruction: Any) -> bool:
    return not (
        instruction.opcode == "parameter"
        or instruction.opcode in EFFECTS
        or instruction.custom_call_has_side_effect
        or instruction.opcode in ("while", "conditional", "call")
    )
