"""Helpers to edit an HloModuleProto in place: fresh ids and names, shapes, instruction order."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fusionstitch.hlo import schema
from fusionstitch.hlo.errors import ImportModuleError, VerifyError
from fusionstitch.hlo.graph import Shape
from fusionstitch.hlo.literals import NUMPY_DTYPES, fill_literal

#: XLA packs the computation's id into the upper half of an instruction's id.
_LOCAL_BITS = 32


class FreshIds:
    """New instruction ids for one computation, by the convention its present ids follow.

    Current XLA numbers instructions (computation id << 32 | local id); older modules number them
    through the whole module.
    """

    def __init__(self, module: Any, computation: Any):
        packed = computation.id << _LOCAL_BITS
        present = [i.id for i in computation.instructions]
        #: whether they are unique in the module whatever other computations get
        self.own = computation.id > 0 and all(i >> _LOCAL_BITS == computation.id for i in present)
        if self.own:
            self._next = max(present, default=packed) + 1
        else:
            self._next = 1 + max(i.id for c in module.computations for i in c.instructions)

    def __call__(self) -> int:
        self._next += 1
        return self._next - 1


class FreshNames:
    """Instruction names that no instruction of the module has yet."""

    def __init__(self, module: Any):
        self._taken = {i.name for c in module.computations for i in c.instructions}
        self._counts: dict[str, int] = {}

    def __call__(self, wish: str) -> str:
        name = wish
        while name in self._taken:
            count = self._counts[wish] = self._counts.get(wish, 0) + 1
            name = f"{wish}.{count}"
        self._taken.add(name)
        return name


class Editor:
    """New instructions of one computation, whose `names` are new in the module."""

    def __init__(self, module: Any, computation: Any, names: FreshNames):
        self.module, self.computation, self.names = module, computation, names
        self.fresh = FreshIds(module, computation)
        self.by_id = {i.id: i for i in computation.instructions}

    def beside(self, computation: Any) -> Editor:
        """The same for another computation of the module."""
        other = Editor(self.module, computation, self.names)
        if not (self.fresh.own and other.fresh.own):
            other.fresh = self.fresh
        return other

    def add(self, opcode: str, shape: Shape | Any, operands: Sequence[int], source: Any) -> Any:
        """One that stands for what `source` did; `shape` may be a ShapeProto, layouts included."""
        made = self.computation.instructions.add(
            name=self.names(opcode), opcode=opcode, id=self.fresh(), operand_ids=operands
        )
        made.metadata.CopyFrom(source.metadata)
        if isinstance(shape, Shape):
            fill_shape(made.shape, shape)
        else:
            made.shape.CopyFrom(shape)
        self.by_id[made.id] = made
        return made

    def copy(self, source: Any, operands: Sequence[int]) -> Any:
        """One like `source` that reads other operands."""
        made = self.computation.instructions.add()
        made.CopyFrom(source)
        made.name, made.id = self.names(source.name), self.fresh()
        put(made.operand_ids, operands)
        self.by_id[made.id] = made
        return made

    def bring(self, source: Any, operands: Sequence[int]) -> Any:
        """A copy of what may be of another computation, as what it has to wait for is."""
        made = self.copy(source, operands)
        put(made.control_predecessor_ids, [])
        return made

    def zero(self, dtype: str, source: Any) -> Any:
        """A scalar zero."""
        return self.constant(dtype, 0, source)

    def constant(self, dtype: str, value: int, source: Any) -> Any:
        """A scalar."""
        made = self.add("constant", Shape(dtype, ()), (), source)
        fill_literal(made.literal, np.asarray(value, NUMPY_DTYPES[dtype]), made.shape)
        return made

    def resolved(self, number: int) -> Any:
        """What an instruction is, where tuples of the same computation lie between."""
        one = self.by_id[number]
        while one.opcode == "get-tuple-element":
            given = self.by_id[one.operand_ids[0]]
            if given.opcode != "tuple":
                break
            one = self.by_id[given.operand_ids[one.tuple_index]]
        return one

    def replace(self, olds: Collection[int], new: Any) -> None:
        """Has who reads an instruction that is among `olds` read another one."""
        self.replace_each(dict.fromkeys(olds, new))

    def replace_each(self, news: Mapping[int, Any]) -> None:
        """Has who reads one of these instructions, given by their numbers, read the new one."""
        for reader in self.computation.instructions:
            read = list(reader.operand_ids)
            if not news.keys().isdisjoint(read):
                put(reader.operand_ids, [news[i].id if i in news else i for i in read])


def forget_order(module: Any) -> None:
    """To be called after an edit: an order fixed before it no longer lists the instructions there
    are."""
    module.ClearField("schedule")


def put(repeated: Any, values: Sequence[int]) -> None:
    """Has a repeated field hold these values."""
    del repeated[:]
    repeated.extend(values)


def fill_shape(proto: Any, shape: Shape) -> None:
    """Writes `shape` with row-major layouts into an empty ShapeProto."""
    proto.element_type = schema.PRIMITIVE_NUMBERS[shape.dtype]
    if shape.is_tuple:
        for element in shape.elements:
            fill_shape(proto.tuple_shapes.add(), element)
        return
    proto.dimensions.extend(shape.dims)
    proto.is_dynamic_dimension.extend([False] * shape.rank)
    if shape.dtype not in ("token", "opaque"):
        proto.layout.minor_to_major.extend(range(shape.rank - 1, -1, -1))
        proto.layout.tail_padding_alignment_in_elements = 1


def shape_proto(shape: Shape) -> Any:
    """A new ShapeProto with row-major layouts."""
    proto = schema.Shape()
    fill_shape(proto, shape)
    return proto


def is_row_major(proto: Any) -> bool:
    """Whether every array in a ShapeProto has the row-major layout, or none at all."""
    if proto.tuple_shapes:
        return all(is_row_major(element) for element in proto.tuple_shapes)
    order = list(proto.layout.minor_to_major)
    return not order or order == list(range(len(proto.dimensions) - 1, -1, -1))


def entry_of(module: Any) -> Any:
    """The entry computation; raises ImportModuleError when the module does not hold it."""
    for computation in module.computations:
        if computation.id == module.entry_computation_id:
            return computation
    raise ImportModuleError(
        f"Module {module.name} has no entry computation {module.entry_computation_id}; "
        "export the module again."
    )


def sort_instructions(computation: Any) -> None:
    """Moves instructions after what they need, keeping the present order where it can stay.

    Raises VerifyError when they need each other in a circle.
    """
    needs = {i.id: (*i.operand_ids, *i.control_predecessor_ids) for i in computation.instructions}
    position: dict[int, int] = {}
    for ident in _after_needs(needs):
        position.setdefault(ident, len(position))
    for instruction in computation.instructions:
        own = position[instruction.id]
        if any(position[n] >= own for n in needs[instruction.id]):
            raise VerifyError(
                f"{computation.name}: {instruction.name} needs its own result. This is a defect of "
                "fusionstitch: a pattern was not convex."
            )
    computation.instructions.sort(key=lambda i: position[i.id])


def _after_needs(needs: dict[int, tuple[int, ...]]) -> Iterator[int]:
    opened: set[int] = set()
    closed: set[int] = set()
    for start in needs:
        stack = [start]
        while stack:
            ident = stack[-1]
            if ident in closed:
                stack.pop()
            elif ident in opened:
                closed.add(stack.pop())
                yield ident
            else:
                opened.add(ident)
                stack.extend(n for n in reversed(needs[ident]) if n not in opened)


def drop_uncalled(module: Any) -> None:
    """Deletes the computations that the entry does not reach by calls."""
    computations = {c.id: c for c in module.computations}
    reached = {module.entry_computation_id}
    stack = [module.entry_computation_id]
    while stack:
        for instruction in computations[stack.pop()].instructions:
            for called in instruction.called_computation_ids:
                if called not in reached:
                    reached.add(called)
                    stack.append(called)
    for index in reversed(range(len(module.computations))):
        if module.computations[index].id not in reached:
            del module.computations[index]
