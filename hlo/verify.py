"""Invariants: of protos between passes and of graphs after every rewrite."""

from __future__ import annotations

from fusionstitch.hlo.errors import VerifyError
from fusionstitch.hlo.graph import Graph
from fusionstitch.hlo.importer import parse
from fusionstitch.hlo.shapes import SHAPE_RULES, require


def verify(graph: Graph) -> None:
    """Checks order, parameters, and shapes and attributes by the rule of each opcode.

    Called graphs are looked at only from outside. Raises VerifyError naming the op and what was
    expected.
    """
    ops = graph.ops
    for position, op in enumerate(ops):
        require(op, op.id == position, f"id {position}, not {op.id} (an op belongs to one graph)")
        for operand in op.operands:
            inside = operand.id < position and ops[operand.id] is operand
            require(op, inside, f"operand {operand.name or operand.id} to come before it")
        rule = SHAPE_RULES.get(op.opcode)
        if rule is not None:
            try:
                shape = rule(op)
            except (KeyError, ValueError, IndexError, AttributeError) as error:
                raise VerifyError(
                    f"{op!r}: its operands or attributes are malformed ({error!r}). This is a "
                    "defect of fusionstitch."
                ) from None
            require(op, shape == op.shape, f"a result of shape {shape}")
    if not (0 <= graph.root.id < len(ops) and ops[graph.root.id] is graph.root):
        raise VerifyError(f"{graph.name}: its root {graph.root!r} is not in the graph.")
    indices = [p.attrs["index"] for p in graph.parameters]
    if indices != list(range(len(indices))):
        raise VerifyError(f"{graph.name}: its parameters are numbered {indices}.")


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
    for computation in module.computations:
        placed: set[int] = set()
        for instruction in computation.instructions:
            what = f"{computation.name}/{instruction.name}"
            if instruction.id in ids:
                raise VerifyError(f"{what}: its id {instruction.id} is not unique in the module.")
            if instruction.name in names:
                raise VerifyError(f"{what}: its name is not unique in the module.")
            for needed in (*instruction.operand_ids, *instruction.control_predecessor_ids):
                if needed not in placed:
                    raise VerifyError(f"{what}: needs {needed}, which does not come before it.")
            for called in instruction.called_computation_ids:
                if called not in computations:
                    raise VerifyError(f"{what}: calls {called}, which is missing.")
            placed.add(instruction.id)
            ids.add(instruction.id)
            names.add(instruction.name)
        if computation.root_id not in placed:
            raise VerifyError(f"{computation.name}: its root {computation.root_id} is missing.")
