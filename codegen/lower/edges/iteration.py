"""The number of an iteration: every thread counts for itself."""

from __future__ import annotations

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.lower.edges.edge import Edge, Here
from fusionstitch.codegen.lower.known import AtDepth
from fusionstitch.hlo.graph import Op


def _carries(here: Here, op: Op) -> bool:
    return annotations_of(op).counts is not None


def _read(here: Here, op: Op, index: Indices) -> AtDepth | None:
    return here.values.known.counted(op)


ITERATION = Edge("number of an iteration", "loop", _carries, _read)
