"""What all that is lowered of one kernel shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.ir.builder import Writer
from fusionstitch.codegen.ir.expressions import BLOCK, Expr
from fusionstitch.codegen.ir.types import IndexType
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.memory.exchange_scratch import ExchangeBuffer
from fusionstitch.codegen.memory.shared import Allocation
from fusionstitch.codegen.schedule.schedule import KernelPlan
from fusionstitch.codegen.text.source import comment
from fusionstitch.hlo.graph import Op


@dataclass(frozen=True)
class Part:
    """A part of the array in `buffer`, of `dims`, that begins at `starts`."""

    buffer: str
    dims: tuple[int, ...]
    starts: Indices


@dataclass
class Locations:
    """Where values live: C names of inputs, outputs and scratch by op id; shared offsets, and the
    buffers in which the threads of a nest exchange values; tables of constants by op id."""

    inputs: Mapping[int, str]
    outputs: Mapping[int, Sequence[str]]
    scratch: Mapping[int, str]
    shared: Mapping[Stage, int]
    exchanges: Mapping[ExchangeBuffer, Allocation]
    tables: dict[int, str]
    #: by op id, the parts of arrays that a value is: buffer, dims, where the part begins
    parts: Mapping[int, Sequence[Part]] = field(default_factory=dict)
    #: by name, how many blocks of a cluster have such a buffer: what one writes goes to all of them
    copies: Mapping[str, int] = field(default_factory=dict)
    #: the ids of what may be overwritten where it is read (`memory/inplace.py`)
    owned: frozenset[int] = frozenset()

    def written(self, op: Op) -> list[str]:
        """The buffers that a value computed here is written to."""
        scratch = self.scratch.get(op.id)
        return [*self.outputs.get(op.id, ()), *([] if scratch is None else [scratch])]

    def buffer(self, op: Op) -> str:
        """The buffer that an input, or a value of another group, is read from."""
        return self.inputs[op.id] if op.opcode == "parameter" else self.written(op)[0]


@dataclass(frozen=True)
class Context:
    """The kernel's plan, where its values live, its numerics, the type of its indices, and what its
    statements are written to. In a shared function, which is `anonymous`, values have no names of
    the user's: it computes those of several groups."""

    plan: KernelPlan
    memory: Locations
    numerics: str
    int_: IndexType
    writer: Writer
    anonymous: bool = False
    #: the number of the block among those that share the tiles
    worker: Expr = BLOCK
    #: what values at indices read, as far as pads needed it
    inlined: dict[tuple[int, Indices], int] = field(default_factory=dict)

    def label(self, op: Op) -> str:
        """What a value is called."""
        return op.opcode if self.anonymous else op.name or op.opcode

    def comment(self, op: Op) -> str:
        """What a loop says about an op it computes."""
        return comment(op.opcode if self.anonymous else describe(op))


def describe(op: Op) -> str:
    """One line about an op for a comment: its name, type, and line in the user's program."""
    where = op.source.op_name
    if op.source.file:
        where = f"{where} ({op.source.file.rsplit('/', 1)[-1]}:{op.source.line})".strip()
    return f"{op.name or op.opcode}: {op.shape} {op.opcode}" + (f"  {where}" if where else "")
