"""Rows of a loop dealt to blocks, or to clusters of them: each runs all iterations of its own rows.

A region whose loops never mix elements along an axis is made into that of one block: `rows` of the
axis, read from the inputs from the block's first row on. What it gives is that part of the outputs.
A cluster has rows as a block has.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fusionstitch.codegen.annotations import annotated, like
from fusionstitch.codegen.index_maps.index import Index, variable
from fusionstitch.codegen.invariants import check_ops
from fusionstitch.codegen.ir.expressions import BLOCK
from fusionstitch.codegen.rewrite.region import rebuilt, with_root
from fusionstitch.codegen.while_loops.flat import Flat
from fusionstitch.codegen.while_loops.rows import Axes, Rows
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Op, Shape

#: Blocks per multiprocessor at most.
MOST_BLOCKS = 2


@dataclass(frozen=True, eq=False)
class Dealt:
    """The region of one of `blocks`, or of as many clusters, by output its whole shape and where
    the block's part of it begins, and the `rows` that each block has."""

    flat: Flat
    blocks: int
    shapes: tuple[Shape, ...]
    starts: tuple[tuple[Index, ...], ...]
    rows: int


def deal(flat: Flat, device: Device, cluster: int = 1) -> Dealt:
    """The region of a block, or of a `cluster` of as many, that has some rows of the longest axis
    that survives. Raises CodegenError where there is none, or an output does not have it."""
    axes = Axes(flat)
    most = MOST_BLOCKS * device.sm_count if cluster == 1 else clusters_at_once(device, cluster)
    for axis, extent in sorted(axes.surviving(flat), key=lambda found: -found[1]):
        parts = (n for n in range(1, extent) if extent % n == 0 and extent // n <= most)
        if (rows := next(parts, 0)) == 0:
            continue
        chosen = Rows(axes.named, ((axis, extent),), axes.before)
        return _Dealer(flat, chosen, axes.cut, rows, extent // rows, cluster).dealt()
    raise CodegenError("No axis survives the loop.")


def clusters_at_once(device: Device, blocks: int) -> int:
    """Clusters of so many blocks, one to a multiprocessor, that run at once: multiprocessors come
    in groups that no cluster reaches across, of which some have more than whole clusters fill."""
    group = min(device.cluster_limit, device.sm_count)
    return device.sm_count // group * (group // blocks)


class _Dealer:
    def __init__(
        self, flat: Flat, chosen: Rows, cut: Set[int], rows: int, blocks: int, cluster: int
    ):
        self.flat, self.chosen, self.cut, self.rows, self.blocks = flat, chosen, cut, rows, blocks
        self.first = variable(BLOCK.name, blocks * cluster) // cluster * rows
        index = {"index": len(flat.graph.parameters)}
        number = Op("parameter", Shape("s32"), attrs=index, name="first_row")
        self.number = annotated(number, counts=self.first)
        self.zero = Op("constant", Shape("s32"), attrs={"value": np.asarray(0, np.int32)})
        self.ops: list[Op] = [self.number, self.zero]
        self.copies: dict[int, Op] = {}
        #: what is there for all blocks, by op id
        self.wholes: dict[int, Op] = {}

    def dealt(self) -> Dealt:
        flat = self.flat
        for op in flat.graph.ops[:-1]:
            self.copies[op.id] = self.copied(op)
        roots = [self.copies[o.id] for o in flat.graph.root.operands]
        outputs = flat.graph.root.operands[: flat.outputs]
        if not all(any(self.chosen.dealt(op)) for op in outputs):
            raise CodegenError("An output has no rows: no block has a part of it.")
        starts = [
            tuple(self.first if d else Index() for d in self.chosen.dealt(op)) for op in outputs
        ]
        shapes = [op.shape for op in outputs]
        for loop in flat.every:
            condition = roots[loop.condition]
            if (
                condition.shape.rank
            ):  # each row has its own condition: the block goes on while one holds
                roots[loop.condition] = self.any_of(condition)
        graph = with_root(flat.graph.name, self.ops, roots)
        check_ops(graph)
        own = Flat(graph, flat.inputs, flat.outputs, flat.loops)
        return Dealt(own, self.blocks, tuple(shapes), tuple(starts), self.rows)

    def any_of(self, own: Op) -> Op:
        no = self.made("constant", Shape("pred"), value=np.asarray(False))
        attrs = {"dimensions": tuple(range(own.shape.rank)), "reducer": "or"}
        return self.made("reduce", Shape("pred"), own, no, **attrs)

    def made(self, opcode: str, shape: Shape, *operands: Op, **attrs: Any) -> Op:
        self.ops.append(Op(opcode, shape, operands, attrs, name=opcode))
        return self.ops[-1]

    def copied(self, op: Op) -> Op:
        """What a block has of an op."""
        dealt = self.chosen.dealt(op)
        shape = replace_dims(op.shape, dealt, self.rows)
        is_input = op.opcode == "parameter" and op.attrs["index"] < self.flat.inputs
        constant = op.opcode == "constant" and any(dealt)
        if is_input or constant or self.reads_of_others(op):
            whole = self.whole(op)
            return self.part(whole, shape, dealt) if any(dealt) else whole
        operands = tuple(self.copies[o.id] for o in op.operands)
        attrs = dict(op.attrs)
        if any(dealt):
            if op.opcode == "iota":
                return self.counted(op, shape, dealt)
            self.shorten(op, attrs, dealt)
        fields = op.opcode, shape, operands, attrs, op.name, op.origin, op.called, op.source
        new = like(Op(*fields), op)
        self.ops.append(new)
        return new

    def reads_of_others(self, op: Op) -> bool:
        """Whether what is made before the loops is made of rows that other blocks have."""
        return op.id in self.cut and any(any(self.chosen.dealt(o)) for o in (op, *op.operands))

    def whole(self, op: Op) -> Op:
        """An op before the loops with the rows of all blocks."""
        if op.id not in self.wholes:
            new = rebuilt(op, tuple(map(self.whole, op.operands)))
            self.ops.append(new)
            self.wholes[op.id] = new
        return self.wholes[op.id]

    def part(self, whole: Op, shape: Shape, dealt: tuple[bool, ...]) -> Op:
        """The block's rows of an array that is there as a whole."""
        starts = [self.number if d else self.zero for d in dealt]
        new = self.made("dynamic-slice", shape, whole, *starts, sizes=shape.dims)
        new.name, new.source = whole.name, whole.source
        return new

    def counted(self, op: Op, shape: Shape, dealt: tuple[bool, ...]) -> Op:
        """The block's part of an iota."""
        own = self.made("iota", shape, dimension=op.attrs["dimension"])
        if not dealt[op.attrs["dimension"]]:
            return own
        first = self.number
        if op.dtype != "s32":
            first = self.made("convert", Shape(op.dtype), first)
        spread = self.made("broadcast", shape, first, dimensions=())
        return self.made("add", shape, own, spread)

    def shorten(self, op: Op, attrs: dict[str, Any], dealt: tuple[bool, ...]) -> None:
        """Makes attributes say the rows of a block where they say those of all."""
        if op.opcode == "slice":
            limits = zip(attrs["limit"], dealt, strict=True)
            attrs["limit"] = tuple(self.rows if d else n for n, d in limits)
        elif op.opcode == "dynamic-slice":
            sizes = zip(attrs["sizes"], dealt, strict=True)
            attrs["sizes"] = tuple(self.rows if d else n for n, d in sizes)
        elif op.opcode == "gather":
            of = self.chosen.dealt(op.operands[0])
            sizes = zip(attrs["slice_sizes"], of, strict=True)
            attrs["slice_sizes"] = tuple(self.rows if d and n > 1 else n for n, d in sizes)


def replace_dims(shape: Shape, dealt: tuple[bool, ...], rows: int) -> Shape:
    """A shape with so many rows where they are dealt."""
    return replace(
        shape, dims=tuple(rows if d else n for n, d in zip(shape.dims, dealt, strict=True))
    )
