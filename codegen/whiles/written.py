"""What a form of loops becomes: statements, and what is printed beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.whiles.pieces import Slot
from fusionstitch.hlo.graph import Graph, Shape


@dataclass(frozen=True)
class Written:
    """A kernel's statements, the graphs that it computes, in their order, and the shapes of buffers
    of its own; all blocks may `meet` at barriers."""

    lowered: Lowered
    graphs: Sequence[Graph]
    #: of the buffers that slots of memory are (`pieces.py`)
    names: Mapping[Slot, str] = field(kw_only=True, default_factory=dict)
    scratch: Sequence[Shape] = ()
    meet: bool = False
    #: (output, input) pairs that may share memory
    in_place: tuple[tuple[int, int], ...] = ()
