"""From a lowered kernel to one that can be verified and printed: the passes, in their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.passes.barriers import place_barriers
from fusionstitch.codegen.ir.passes.vectors import gather_vectors


@dataclass(frozen=True)
class KernelPass:
    """One pass: a word or two, what it does, and the function that does it."""

    name: str
    about: str
    run: Callable[[Lowered], Lowered]


VECTORS = "vectors"
PASSES = (
    KernelPass(
        VECTORS,
        "elements behind each other that a thread moves one by one are moved at once",
        gather_vectors,
    ),
    KernelPass(
        "barriers",
        "where threads would come too early to what others write or read, they wait",
        place_barriers,
    ),
)
