"""How deep the text of a region would be nested, known before anything of it is computed."""

from __future__ import annotations

from fusionstitch.codegen.rewrite.extents import needs_stage
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph

#: Most nested reads of an index from an array at an index that is read itself.
MOST_NESTED = 48
#: Ops that read one of several operands, each in a block of its own in the one before. Compilers
#: take 256 blocks in each other, and loops need some.
MOST_BRANCHES = 200
_BRANCHES = frozenset({"pad", "concatenate", "dynamic-update-slice"})
#: Operands after which those of an op that say where it reads or writes begin.
_FIRST_INDEX = {"gather": 1, "dynamic-slice": 1, "dynamic-update-slice": 2}


def check_nesting(graph: Graph) -> None:
    """Raises CodegenError if indices or blocks of the text would be nested too deeply."""
    depths: dict[int, int] = {}
    branches: dict[int, int] = {}
    for op in graph.ops[:-1]:
        first_index = _FIRST_INDEX.get(op.opcode, len(op.operands))
        fresh = not op.operands or needs_stage(op)
        depths[op.id] = (
            0
            if fresh
            else max(depths[o.id] + (number >= first_index) for number, o in enumerate(op.operands))
        )
        own = op.opcode in _BRANCHES
        branches[op.id] = 0 if fresh else own + max(branches[o.id] for o in op.operands)
        if depths[op.id] > MOST_NESTED:
            raise CodegenError(
                f"{op.name} reads where values say that are read so themselves, and so on more than"
                f" {MOST_NESTED} times: split it."
            )
        if branches[op.id] > MOST_BRANCHES:
            raise CodegenError(
                f"{op.name} reads one of several values, one of which reads one of several, and so "
                f"on more than {MOST_BRANCHES} times: split it."
            )
