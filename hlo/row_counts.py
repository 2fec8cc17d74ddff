"""What rows of a loop count, in a module's proto."""

from __future__ import annotations

from typing import Any

from fusionstitch.hlo.copying import add_computation
from fusionstitch.hlo.edit import Editor, put
from fusionstitch.hlo.graph import Shape
from fusionstitch.hlo.loop_editor import LoopEditor

#: Of what counts iterations.
COUNT = "s32"


def operand_in_body(loop: LoopEditor, ends: int) -> Any:
    """The mask that the condition's instruction `ends` joins, recomputed in the body."""
    condition, (inside, parameter) = loop.condition, loop.parameters
    brought: dict[int, Any] = {parameter.id: inside}
    operand = condition.by_id[ends].operand_ids[0]
    for one in needed(condition, operand):
        if one.id not in brought:
            operands = [brought[i].id for i in one.operand_ids]
            brought[one.id] = loop.inner.bring(one, operands)
    return brought[operand]


def needed(editor: Editor, *idents: int) -> list[Any]:
    """The instructions that others are made of, and these themselves, in their order."""
    found, stack = set[int](), [*idents]
    while stack:
        ident = stack.pop()
        if ident not in found:
            found.add(ident)
            stack += editor.by_id[ident].operand_ids
    return [one for one in editor.computation.instructions if one.id in found]


def spread(editor: Editor, scalar: Any, shape: Shape) -> Any:
    """A scalar as each element."""
    return editor.add("broadcast", shape, [scalar.id], scalar)


def largest(editor: Editor, values: Any, shape: Shape) -> Any:
    """The largest of counts."""
    larger = add_computation(editor.module, "larger")
    maker, scalar = editor.beside(larger), Shape(COUNT, ())
    pair = [maker.add("parameter", scalar, (), values) for _ in range(2)]
    for number, one in enumerate(pair):
        one.parameter_number = number
    larger.root_id = maker.add("maximum", scalar, [one.id for one in pair], values).id
    signature = larger.program_shape
    signature.parameters.extend(one.shape for one in pair)
    signature.parameter_names.extend(one.name for one in pair)
    signature.result.CopyFrom(pair[0].shape)
    zero = editor.zero(COUNT, values)
    made = editor.add("reduce", scalar, [values.id, zero.id], values)
    put(made.dimensions, range(len(shape.dims)))
    made.called_computation_ids.append(larger.id)
    return made
