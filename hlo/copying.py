"""Computations of a module's proto once more, with what runs in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusionstitch.hlo.calls import callees_first
from fusionstitch.hlo.edit import Editor, put

#: Whose computations no other instruction may run.
_RUNS = frozenset({"while", "conditional", "call"})


def add_computation(module: Any, name: str) -> Any:
    """An empty computation, with an id and a name that no other has."""
    taken, number = {c.name for c in module.computations}, 0
    while f"{name}.{number}" in taken:
        number += 1
    ident = 1 + max(c.id for c in module.computations)
    return module.computations.add(name=f"{name}.{number}", id=ident)


def copied(editor: Editor, computation: Any) -> tuple[Any, Mapping[int, int]]:
    """A copy of a computation beside the one that is edited, in which loops and branches have
    copies of what they run; and the ids in it by those that they are copies of."""
    module = editor.module
    made = add_computation(module, computation.name)
    copies = editor.beside(made)
    ids: dict[int, int] = {}
    by_id = {c.id: c for c in module.computations}
    for instruction in computation.instructions:
        new = copies.copy(instruction, [ids[i] for i in instruction.operand_ids])
        ids[instruction.id] = new.id
        put(new.control_predecessor_ids, [ids[i] for i in instruction.control_predecessor_ids])
        if new.opcode in _RUNS:
            called = [copied(editor, by_id[i])[0].id for i in new.called_computation_ids]
            put(new.called_computation_ids, called)
    made.root_id = ids[computation.root_id]
    made.program_shape.CopyFrom(computation.program_shape)
    made.execution_thread = computation.execution_thread
    return made, ids


def sort_computations(module: Any) -> None:
    """Moves computations after those that they call."""
    position = {c.id: number for number, c in enumerate(callees_first(module))}
    module.computations.sort(key=lambda c: position[c.id])
