"""From a lowered kernel to one that can be verified and printed: the passes, in their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.passes.barriers import place_barriers


@dataclass(frozen=True)
class KernelPass:
    """One pass: a word or two, what it does, and the function that does it."""

    name: str
    about: str
    run: Callable[[Lowered], Lowered]


PASSES = (
    KernelPass(
        "barriers",
        "where threads would come too early to what others write or read, they wait",
        place_barriers,
    ),
)
