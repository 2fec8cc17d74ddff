"""Tuples that loops begin with and give, made for each loop alone in a module's proto.

XLA's simplifiers merge equal tuples, so that two loops begin with one, and hand a loop's result on
as it is: to another loop, to a branch, to who calls the computation. Made anew of its elements,
what a loop begins with is read by nothing else, and what it gives is read element by element.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from fusionstitch.hlo.edit import Editor, FreshNames, forget_order, put, sort_instructions
from fusionstitch.hlo.graph import Module


def separate(module: Module) -> bool:
    """Edits the module's proto, which is to be read again where this is true."""
    names = FreshNames(module.proto)
    changed = False
    for computation in module.proto.computations:
        loops = [i for i in computation.instructions if i.opcode == "while" and _is_plain(i)]
        if loops:
            changed |= _Separation(Editor(module.proto, computation, names)).run(loops)
    if changed:
        forget_order(module.proto)
    return changed


def _is_plain(loop: Any) -> bool:
    """Whether a loop carries a tuple of arrays, and no elements need shardings."""
    elements = loop.shape.tuple_shapes
    return bool(elements) and not (
        loop.HasField("sharding") or any(element.tuple_shapes for element in elements)
    )


class _Separation:
    """The edit of one computation."""

    def __init__(self, editor: Editor):
        self.editor = editor
        self.changed = False

    def run(self, loops: list[Any]) -> bool:
        self.separate_results({loop.id: loop for loop in loops})
        self.begin(loops)
        if self.changed:
            sort_instructions(self.editor.computation)
        return self.changed

    def separate_results(self, loops: dict[int, Any]) -> None:
        """Who reads the whole result of a loop reads a tuple of its elements."""
        computation = self.editor.computation
        others = [i for i in computation.instructions if i.opcode != "get-tuple-element"]
        whole = {computation.root_id, *(ident for i in others for ident in i.operand_ids)}
        instead = {ident: self.made_anew(loops[ident]).id for ident in loops if ident in whole}
        for reader in others if instead else ():
            put(reader.operand_ids, [instead.get(i, i) for i in reader.operand_ids])
        computation.root_id = instead.get(computation.root_id, computation.root_id)

    def begin(self, loops: list[Any]) -> None:
        """Loops begin with tuples that nothing else reads."""
        computation = self.editor.computation
        reads = Counter(ident for i in computation.instructions for ident in i.operand_ids)
        reads[computation.root_id] += 1
        for loop in loops:
            given = self.editor.by_id[loop.operand_ids[0]]
            if given.opcode != "tuple":
                loop.operand_ids[0] = self.made_anew(given).id
            elif reads[given.id] > 1:
                reads[given.id] -= 1
                loop.operand_ids[0] = self.editor.bring(given, given.operand_ids).id
                self.changed = True

    def made_anew(self, whole: Any) -> Any:
        """A tuple of the elements of another one."""
        self.changed = True
        parts = []
        for index, shape in enumerate(whole.shape.tuple_shapes):
            part = self.editor.add("get-tuple-element", shape, [whole.id], whole)
            part.tuple_index = index
            parts.append(part.id)
        return self.editor.add("tuple", whole.shape, parts, whole)
