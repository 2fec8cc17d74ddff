"""The passes from a lowered kernel to one that can be verified and printed, in their order.

A pass gives a kernel that does the same, or the very kernel it got where it has nothing to do.
`PASSES` alone decides their order, and the kernels that they run on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.names import Names
from fusionstitch.codegen.ir.passes.barriers import place_barriers
from fusionstitch.codegen.ir.passes.hoisted_loads import hold_loads
from fusionstitch.codegen.ir.passes.overlap import load_early, store_late
from fusionstitch.codegen.ir.passes.rolling import roll_terms
from fusionstitch.codegen.ir.passes.sharing import share_functions
from fusionstitch.codegen.ir.passes.staged_stores import stage_stores
from fusionstitch.codegen.ir.passes.vectors import gather_vectors
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.verifier import RULES, Rule, hazards, verify
from fusionstitch.hlo.errors import PassError


@dataclass(frozen=True)
class KernelPass:
    """One pass: a word or two, what it does, and the function that does it, which is given the
    identifiers in use.

    `together`: it runs in kernels whose threads of these scopes go through iterations together;
    None: in all. `establishes`: the rules that hold from this pass on, and not before it.
    """

    name: str
    about: str
    run: Callable[[Lowered, Names], Lowered]
    together: frozenset[Scope] | None = None
    establishes: tuple[Rule, ...] = ()

    def applies(self, kernel: Lowered) -> bool:
        """Whether it runs in a kernel."""
        if self.together is None:
            return True
        return kernel.iterations is not None and kernel.iterations.scope in self.together


#: What a kernel is called before all passes, and passes that have names elsewhere.
LOWERED, EARLY, VECTORS = "lowered", "early loads", "vectors"
PASSES: tuple[KernelPass, ...] = (
    KernelPass(
        "shared functions",
        "functions that do the same to other tensors become one, others the statements they are",
        share_functions,
    ),
    KernelPass(
        "rolled sums",
        "many terms of a sum that differ in what they read alone become a loop over that",
        roll_terms,
    ),
    KernelPass(
        "hoisted loads",
        "what every iteration loads is loaded before them, if threads have registers for it",
        hold_loads,
        together=frozenset(Scope),
    ),
    KernelPass(
        EARLY,
        "what iterations load of inputs is on its way while threads wait for each other",
        load_early,
        together=frozenset({Scope.BLOCK, Scope.CLUSTER}),
    ),
    KernelPass(
        "late stores",
        "what iterations store to outputs is stored after their last barrier",
        store_late,
        together=frozenset({Scope.CLUSTER}),
    ),
    KernelPass(
        "staged stores",
        "records that threads store go through shared memory, from where warps store neighbors",
        stage_stores,
    ),
    KernelPass(
        VECTORS,
        "neighbouring elements that a thread moves one by one are moved at once",
        gather_vectors,
    ),
    KernelPass(
        "barriers",
        "where threads would come too early to what others write or read, they wait",
        lambda kernel, _: place_barriers(kernel),
        establishes=(hazards.check,),
    ),
)


def checked(kernel: Lowered, name: str) -> None:
    """Raises PassError for a kernel that breaks a rule which holds from the pass of that name on;
    "lowered" is before all of them."""
    after = [one.name for one in PASSES].index(name) + 1 if name != LOWERED else 0
    later = {rule for one in PASSES[after:] for rule in one.establishes}
    try:
        verify(kernel, [rule for rule in RULES if rule not in later])
    except PassError as error:
        raise PassError(f'After "{name}": {error}') from error
