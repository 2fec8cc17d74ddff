"""Results that kernels give one by one, read one by one in a module's proto.

    ROOT s = (f32[8], s32[8]) sort(x, i)    ->    ROOT t = tuple(s[0], s[1])

XLA's simplifiers drop a tuple of all elements of a tuple, so a function that ends with a sort
returns the sort.
"""

from __future__ import annotations

from typing import Any

from fusionstitch.hlo.edit import Editor, FreshNames, forget_order, sort_instructions
from fusionstitch.hlo.factorisations import ROUTINES
from fusionstitch.hlo.radix_sorts import is_target
from fusionstitch.hlo.semantics import GIVE_PARTS


def part_results(proto: Any) -> bool:
    """Edits a module, which is to be read again where this is true: no computation returns an op as
    a whole whose results are kernels' one by one."""
    names, parted = FreshNames(proto), False
    for computation in proto.computations:
        [root] = [i for i in computation.instructions if i.id == computation.root_id]
        if not _gives_parts(root) or root.HasField("sharding"):
            continue
        editor = Editor(proto, computation, names)
        parts = []
        for index, shape in enumerate(root.shape.tuple_shapes):
            part = editor.add("get-tuple-element", shape, [root.id], root)
            part.tuple_index = index
            parts.append(part.id)
        computation.root_id = editor.add("tuple", root.shape, parts, root).id
        sort_instructions(computation)
        parted = True
    if parted:
        forget_order(proto)
    return parted


def _gives_parts(instruction: Any) -> bool:
    if not instruction.shape.tuple_shapes:
        return False
    if instruction.opcode == "custom-call":
        target = instruction.custom_call_target
        return target in ROUTINES or is_target(target)
    return instruction.opcode in GIVE_PARTS
