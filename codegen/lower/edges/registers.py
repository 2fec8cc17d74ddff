"""Values of the nest's own loops: registers, joined by shuffles where several threads share a row.
A nest has them under names where it stands (`lower/sweeps.py`, `lower/tile_levels.py`); an
elementwise one is computed again at any other index.
"""

from __future__ import annotations

from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.lower.edges.edge import Edge, Here, in_group
from fusionstitch.codegen.lower.known import AtDepth
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Op


def _carries(here: Here, op: Op) -> bool:
    stage = in_group(here, op)
    return stage is not None and (stage in here.nest.level or stage not in here.memory.shared)


def _read(here: Here, op: Op, index: Indices) -> AtDepth | None:
    if here.whole[op.id].is_reduction:
        raise CodegenError(f"{op.name} is read in its own loop at another index.")
    return None


REGISTERS = Edge("registers", "warp", _carries, _read)
