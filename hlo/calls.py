"""Who calls whom among a module's computations: callees first, within bounds."""

from __future__ import annotations

from typing import Any

from fusionstitch.hlo.errors import ImportModuleError

#: Loops, branches and calls inside each other; deeper programs are left to XLA.
MAX_NESTING = 100
#: Instructions of all computations once every call has a copy of its callee, as XLA compiles them:
#: a few hundred bytes can ask for 2^40.
MAX_EXPANDED = 1_000_000


def callees_first(module: Any, max_nesting: int | None = None) -> list[Any]:
    """The module's computations, each after those it calls, else in their own order.

    Raises ImportModuleError where ids are not unique, a callee is missing, computations call each
    other in a circle or more than `max_nesting` deep, or calls expand to more than MAX_EXPANDED
    instructions.
    """
    computations = {c.id: c for c in module.computations}
    if len(computations) != len(module.computations):
        raise ImportModuleError("Two computations have one id; export the module again.")
    calls = {
        ident: [n for i in c.instructions for n in i.called_computation_ids]
        for ident, c in computations.items()
    }
    order: list[Any] = []
    depths: dict[int, int] = {}
    sizes: dict[int, int] = {}
    total = 0
    for start in computations:
        stack = [(start, iter(calls[start]))]
        open_: set[int] = {start}
        while stack and start not in sizes:
            ident, left = stack[-1]
            name = computations[ident].name
            callee = next((n for n in left if n not in sizes), None)
            if callee is None:
                stack.pop()
                open_.discard(ident)
                order.append(computations[ident])
                depths[ident] = 1 + max((depths[n] for n in calls[ident]), default=0)
                sizes[ident] = len(computations[ident].instructions)
                sizes[ident] += sum(sizes[n] for n in calls[ident])
                total += sizes[ident]
                _bound(name, depths[ident], total, max_nesting)
            elif callee not in computations:
                raise ImportModuleError(
                    f"Computation {callee} is called but missing in the module; export it again."
                )
            elif callee in open_:
                raise ImportModuleError(
                    f"Computation {computations[callee].name} calls itself; export the module "
                    "again."
                )
            else:
                stack.append((callee, iter(calls[callee])))
                open_.add(callee)
    return order


def _bound(name: str, depth: int, size: int, max_nesting: int | None) -> None:
    if max_nesting is not None and depth > max_nesting:
        raise ImportModuleError(
            f"Computations are nested more than {max_nesting} deep below {name}: too deep to "
            "stitch, so the program is left to XLA."
        )
    if size > MAX_EXPANDED:
        raise ImportModuleError(
            f"The calls of {name} expand to more than {MAX_EXPANDED} instructions: too many to "
            "stitch, so the program is left to XLA."
        )
