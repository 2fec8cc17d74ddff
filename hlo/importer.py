"""HloModuleProto bytes to typed graphs."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from fusionstitch.hlo import foreign, schema
from fusionstitch.hlo.attributes import READERS, finish
from fusionstitch.hlo.calls import MAX_NESTING, callees_first
from fusionstitch.hlo.checks import check
from fusionstitch.hlo.errors import ImportModuleError
from fusionstitch.hlo.factorisations import routine
from fusionstitch.hlo.frames import Frames
from fusionstitch.hlo.graph import Graph, Module, Op, Shape, Source, topological
from fusionstitch.hlo.literals import to_numpy
from fusionstitch.hlo.marks import leave_called, mark_of
from fusionstitch.hlo.progressions import form_of
from fusionstitch.hlo.radix_sorts import library_sort
from fusionstitch.hlo.semantics import has_effect

#: What a shape may hold: NumPy's limit of dimensions, and elements whose bytes fit 64-bit integers.
MAX_RANK = 64
MAX_ELEMENTS = 1 << 58
_REEXPORT = "Export the module again, for example with Lowered.compiler_ir('hlo')."


def from_proto(data: bytes) -> Module:
    """The module as graphs, one per computation, callees before callers.

    Each graph holds what its root, ops with side effects and parameters need, in the order that
    `Graph` documents. A constant whose elements are not read (see `to_numpy`) and a bitcast between
    layouts or types get opcodes of their own ("opaque-constant", "layout-bitcast"), and are left to
    XLA.
    What the module says about itself in free text (names, scopes, files) is made fit to print.
    Raises ImportModuleError on bytes that are no HloModuleProto or contradict themselves.
    """
    return from_message(parse(data))


def parse(data: bytes) -> Any:
    """The bytes as an HloModule message; raises ImportModuleError if they are none."""
    proto = schema.HloModule()
    try:
        proto.ParseFromString(data)
    except (DecodeError, TypeError) as error:
        raise ImportModuleError(
            f"These bytes are no HloModuleProto ({error}). {_REEXPORT}"
        ) from None
    if not proto.computations:
        raise ImportModuleError(f"The HloModuleProto holds no computation. {_REEXPORT}")
    return proto


def from_message(proto: Any) -> Module:
    """As `from_proto`, for a message that is already parsed (kept as `Module.proto`)."""
    reader = _Reader(proto)
    for computation in callees_first(proto, MAX_NESTING):
        reader.graphs[computation.id] = reader.read(computation)
    entry = reader.graphs.get(proto.entry_computation_id)
    if entry is None:
        raise ImportModuleError(
            f"The entry computation {proto.entry_computation_id} is missing. {_REEXPORT}"
        )
    leave_called(reader.graphs.values())
    return Module(foreign.name(proto.name), tuple(reader.graphs.values()), entry, proto)


class _Reader:
    def __init__(self, proto: Any):
        self.frames = Frames(proto.stack_frame_index)
        self.graphs: dict[int, Graph] = {}
        self.row_major: set[int] = set()
        self.shapes: dict[tuple[int, tuple[int, ...]], Shape] = {}
        self.sources: dict[tuple[str, str, int], Source] = {}

    def read(self, computation: Any) -> Graph:
        ops: dict[int, Op] = {}
        for proto in computation.instructions:
            if proto.id in ops:
                raise ImportModuleError(
                    f"{proto.name}: its id {proto.id} is not unique. {_REEXPORT}"
                )
            try:
                if _row_major(proto.shape):
                    self.row_major.add(proto.id)
                ops[proto.id] = self.op(proto, ops)
            except (ValueError, IndexError) as error:
                raise ImportModuleError(
                    f"{proto.name} ({proto.opcode}): its attributes are malformed: {error}. "
                    f"{_REEXPORT}"
                ) from None
        root = ops.get(computation.root_id)
        if root is None:
            raise ImportModuleError(f"Computation {computation.name} has no root. {_REEXPORT}")
        ordered_first = {before for op in ops.values() for before in op.control}
        live = [
            op
            for ident, op in ops.items()
            if op.opcode == "parameter" or ident in ordered_first or has_effect(op)
        ]
        name = foreign.name(computation.name)
        graph = Graph(name, topological(root, live), root, computation.id)
        check(graph)
        return graph

    def op(self, proto: Any, ops: dict[int, Op]) -> Op:
        try:
            operands = tuple([ops[i] for i in proto.operand_ids])
        except KeyError as error:
            raise ImportModuleError(
                f"{proto.name}: operand {error} is missing or comes after it. {_REEXPORT}"
            ) from None
        called = tuple(self.graphs[i] for i in proto.called_computation_ids)
        reader = READERS.get(proto.opcode)
        op = Op(
            opcode=foreign.name(proto.opcode),
            shape=self.shape(proto.shape, proto.name),
            operands=operands,
            attrs=reader(proto) if reader else {},
            name=foreign.name(proto.name),
            origin=proto.id,
            # the proto lists a loop's body before its condition
            called=called[::-1] if proto.opcode == "while" else called,
            source=self.source(proto.metadata),
            control=tuple(proto.control_predecessor_ids),
        )
        if op.opcode == "constant":
            value = None if op.shape.is_tuple else to_numpy(proto.literal, op.shape)
            op.opcode = "opaque-constant" if value is None else "constant"
            op.attrs = {"value": value} if value is not None else self.opaque(proto, op.shape)
        elif op.opcode == "custom-call" and (
            known := routine(proto, op) or library_sort(proto, op)
        ):
            op.opcode, op.attrs = known
        elif op.opcode == "bitcast" and not (
            self.row_major.issuperset((proto.id, *proto.operand_ids))
            and all(x.shape.dtype == op.shape.dtype for x in operands)
        ):
            op.opcode = "layout-bitcast"
        else:
            finish(op)
        return op

    def opaque(self, proto: Any, shape: Shape) -> dict[str, Any]:
        """What is known of a literal that is not read."""
        form = None if shape.is_tuple else form_of(proto.literal, shape)
        return {} if form is None else {"form": form}

    def shape(self, proto: Any, name: str) -> Shape:
        if proto.tuple_shapes:
            if proto.element_type != schema.PRIMITIVE_NUMBERS["tuple"] or proto.dimensions:
                raise ImportModuleError(f"{name}: its shape is an array and a tuple. {_REEXPORT}")
            return Shape("tuple", (), tuple(self.shape(s, name) for s in proto.tuple_shapes))
        if True in proto.is_dynamic_dimension:
            raise ImportModuleError(
                f"{name}: dynamic dimensions are not supported; export with static shapes."
            )
        key = (proto.element_type, tuple(proto.dimensions))
        found = self.shapes.get(key)
        if found is None:
            dtype = schema.PRIMITIVE_TYPES.get(proto.element_type)
            if dtype is None:
                raise ImportModuleError(
                    f"{name}: unknown element type {proto.element_type}; a newer fusionstitch is "
                    "needed to read this module."
                )
            found = Shape(dtype, key[1])
            sizes = (found.rank, *found.dims, found.size)
            if min(sizes) < 0 or found.rank > MAX_RANK or max(sizes) > MAX_ELEMENTS:
                raise ImportModuleError(
                    f"{name}: no array has the shape {str(found)[:80]}: at most {MAX_RANK} "
                    f"dimensions and {MAX_ELEMENTS} elements can be read."
                )
            self.shapes[key] = found
        return found

    def source(self, metadata: Any) -> Source:
        file, line = self.frames.location(metadata.stack_frame_id)
        if not file:
            file, line = metadata.source_file, metadata.source_line
        key = (metadata.op_name, file, line)
        found = self.sources.get(key)
        if found is None:
            found = self.sources[key] = Source(
                foreign.line(key[0]), foreign.line(file), line, mark_of(key[0])
            )
        return found


def _row_major(shape: Any) -> bool:
    """Raises ValueError for a layout that does not fit the shape."""
    order = list(shape.layout.minor_to_major)
    if order and sorted(order) != list(range(len(shape.dimensions))):
        raise ValueError(f"its layout {order} is no order of {len(shape.dimensions)} dimensions")
    return order == sorted(order, reverse=True)
