"""What templates call the ops of a region."""

from __future__ import annotations

from collections import Counter

from fusionstitch.codegen.schedule.template import IDENTIFIER
from fusionstitch.hlo.graph import Graph


def labels(graph: Graph) -> dict[int, str]:
    """A name for each op that computes something, by its id: the op's own, or what it does; of
    several ops of one name the later ones have a number after it."""
    met: Counter[str] = Counter()
    found: dict[int, str] = {}
    for op in graph.ops[:-1]:
        if op.opcode == "parameter":
            continue
        name = op.name if IDENTIFIER.fullmatch(op.name) and "#" not in op.name else op.opcode
        met[name] += 1
        found[op.id] = name if met[name] == 1 else f"{name}#{met[name]}"
    return found
