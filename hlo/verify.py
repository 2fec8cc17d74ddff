"""Invariants: of protos between passes and of graphs after every rewrite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fusionstitch.hlo.errors import VerifyError
from fusionstitch.hlo.graph import Graph, Op, Shape
from fusionstitch.hlo.importer import parse
from fusionstitch.hlo.shapes import SHAPE_RULES, require

#: opcode -> the shape that an op of it has, by its operands and attributes.
ShapeRules = Mapping[str, Callable[[Op], Shape]]


def verify(graph: Graph, rules: ShapeRules = SHAPE_RULES, sound: Graph | None = None) -> None:
    """Checks order, parameters, and shapes and attributes by the rule of each opcode.

    Called graphs are looked at only from outside, and copies of ops of a `sound` graph, which
    `graph` was made of, not again. Raises VerifyError naming the op and what was expected.
    """
    ops = graph.ops
    known = {id(op.attrs): op for op in sound.ops} if sound else {}
    for position, op in enumerate(ops):
        if op.id != position:
            require(op, False, f"id {position}, not {op.id} (an op belongs to one graph)")
        for operand in op.operands:
            if not (operand.id < position and ops[operand.id] is operand):
                require(op, False, f"operand {operand.name or operand.id} to come before it")
        rule = rules.get(op.opcode)
        if rule is None or _alike(op, known.get(id(op.attrs))):
            continue
        try:
            shape = rule(op)
        except (KeyError, ValueError, IndexError, AttributeError) as error:
            raise VerifyError(
                f"{op!r}: its operands or attributes are malformed ({error!r}). This is a "
                "defect of fusionstitch."
            ) from None
        if shape != op.shape:
            require(op, False, f"a result of shape {shape}")
    if not (0 <= graph.root.id < len(ops) and ops[graph.root.id] is graph.root):
        raise VerifyError(f"{graph.name}: its root {graph.root!r} is not in the graph.")
    indices = [p.attrs["index"] for p in graph.parameters]
    if indices != list(range(len(indices))):
        raise VerifyError(f"{graph.name}: its parameters are numbered {indices}.")


def _alike(op: Op, other: Op | None) -> bool:
    """Whether a rule would say of two ops of the same attributes what it says of one."""
    if other is None or other.opcode != op.opcode:
        return False
    # lists find at once that two elements are one object, as the shapes of copies are
    return [op.shape, *[o.shape for o in op.operands]] == [
        other.shape,
        *[o.shape for o in other.operands],
    ]


def verify_module(data: bytes) -> None:
    """Checks that ids and names are unique and that all that is named exists and comes first.

    Raises VerifyError naming the instruction and what was expected, ImportModuleError when the
    bytes are no HloModuleProto.
    """
    module = parse(data)
    computations = {c.id for c in module.computations}
    if len(computations) != len(module.computations):
        raise VerifyError("Computation ids are not unique.")
    if module.entry_computation_id not in computations:
        raise VerifyError(f"The entry computation {module.entry_computation_id} is missing.")
    names: set[str] = set()
    ids: set[int] = set()
    roots = {c.id: i for c in module.computations for i in c.instructions if i.id == c.root_id}
    for computation in module.computations:
        seen: set[int] = set()
        _verify_tuples(computation, roots)
        for instruction in computation.instructions:
            what = f"{computation.name}/{instruction.name}"
            if instruction.id in ids:
                raise VerifyError(f"{what}: its id {instruction.id} is not unique in the module.")
            if instruction.name in names:
                raise VerifyError(f"{what}: its name is not unique in the module.")
            for needed in (*instruction.operand_ids, *instruction.control_predecessor_ids):
                if needed not in seen:
                    raise VerifyError(f"{what}: needs {needed}, which does not come before it.")
            for called in instruction.called_computation_ids:
                if called not in computations:
                    raise VerifyError(f"{what}: calls {called}, which is missing.")
            seen.add(instruction.id)
            ids.add(instruction.id)
            names.add(instruction.name)
        if computation.root_id not in seen:
            raise VerifyError(f"{computation.name}: its root {computation.root_id} is missing.")


def _verify_tuples(computation: Any, roots: Mapping[int, Any]) -> None:
    """Raises VerifyError for tuples of other shapes than their elements, and for loops that carry
    others than their bodies: XLA refuses them, also where nothing reads them."""
    by_id = {one.id: one for one in computation.instructions}
    for one in computation.instructions:
        given = [by_id[i].shape for i in one.operand_ids if i in by_id]
        expected: list[Any] = []
        if one.opcode == "tuple":
            expected, found = given, list(one.shape.tuple_shapes)
        elif one.opcode == "get-tuple-element":
            expected, found = [given[0].tuple_shapes[one.tuple_index]], [one.shape]
        elif one.opcode == "while":
            body = roots.get(one.called_computation_ids[0])
            expected, found = [one.shape] * 2, [given[0], body.shape if body else one.shape]
        if expected and list(map(_plain, expected)) != list(map(_plain, found)):
            raise VerifyError(f"{computation.name}/{one.name}: its elements have other shapes.")


def _plain(shape: Any) -> tuple[Any, ...]:
    """A shape without its layout."""
    return shape.element_type, *shape.dimensions, *map(_plain, shape.tuple_shapes)
