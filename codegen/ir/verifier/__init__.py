"""What must hold for every kernel before it is printed.

Each rule is a file: it walks the statements in the order of the program, and raises `Fault` at the
first one that breaks it. A fault is a defect of ours: the pattern goes to XLA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.printer import text
from fusionstitch.codegen.ir.verifier import (
    bounds,
    calls,
    clusters,
    counters,
    definitions,
    hazards,
    inputs,
    residency,
    uniform_barriers,
    vectors,
)
from fusionstitch.codegen.ir.verifier.fault import Fault
from fusionstitch.hlo.errors import PassError

#: Raises `Fault` for a kernel that breaks it.
Rule = Callable[[Lowered], None]
RULES: tuple[Rule, ...] = (
    definitions.check,
    vectors.check,
    bounds.check,
    calls.check,
    uniform_barriers.check,
    clusters.check,
    inputs.check,
    residency.check,
    hazards.check,
    counters.check,
)
#: Characters of a kernel that an error quotes.
_MOST = 2000


def verify(kernel: Lowered, rules: Sequence[Rule] = RULES) -> None:
    """Raises PassError where a rule is broken: it says which, where, and quotes the kernel."""
    for rule in rules:
        try:
            rule(kernel)
        except Fault as fault:
            where = text([fault.at]).partition("\n")[0] if fault.at else "the kernel"
            shown = text(kernel.body)[:_MOST]
            raise PassError(
                f"Defect in fusionstitch: {kernel.name} breaks a rule of kernels: {fault} at "
                f"`{where}`. Please report it with this text:\n{shown}"
            ) from fault
