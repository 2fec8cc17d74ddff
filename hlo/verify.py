"""Invariants: of protos between passes and of graphs after every rewrite."""

from __future__ import annotations

from hlo.errors import VerifyError
from hlo.importer import parse


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
