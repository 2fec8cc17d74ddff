"""Blocks wait for each other only where all of them run at once: in a cooperative launch."""

from __future__ import annotations

from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import Barrier, Wait
from fusionstitch.codegen.ir.verifier.fault import Fault
from fusionstitch.codegen.ir.walk import statements


def check(kernel: Lowered) -> None:
    """Raises Fault for a wait for blocks that may not run yet."""
    if kernel.cooperative:
        return
    for body in kernel.bodies:
        for one in statements(body):
            barrier = isinstance(one, Barrier) and one.scope is Scope.GRID
            if barrier or isinstance(one, Wait):
                raise Fault("a block waits for others, which need not run at once", one)
