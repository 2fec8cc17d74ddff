"""What templates call the ops of a region."""

from __future__ import annotations

from collections import Counter

from fusionstitch.codegen.schedule.template import IDENTIFIER, NUMBERED
from fusionstitch.hlo.graph import Graph


def labels(graph: Graph) -> dict[int, str]:
    """A name for each op that computes something, by its id: the op's own, or what it does; of
    several ops of one name the later ones have a number after it."""
    met: Counter[str] = Counter()
    found: dict[int, str] = {}
    for op in graph.ops[:-1]:
        if op.opcode == "parameter":
            continue
        own = IDENTIFIER.fullmatch(op.name) and not {"#", NUMBERED} & set(op.name)
        name = op.name if own else op.opcode
        met[name] += 1
        found[op.id] = name if met[name] == 1 else f"{name}#{met[name]}"
    return found


def numbered_labels(graph: Graph) -> dict[int, str]:
    """The same for any names of the program: what each op does, and which of those it is."""
    met: Counter[str] = Counter()
    found: dict[int, str] = {}
    for op in graph.ops[:-1]:
        if op.opcode != "parameter":
            met[op.opcode] += 1
            found[op.id] = f"{op.opcode}{NUMBERED}{met[op.opcode]}"
    return found
