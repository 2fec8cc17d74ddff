"""What builders return, in a file that loads nothing of the compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from fusionstitch.hlo.brief import brief, count
from fusionstitch.hlo.errors import ToolchainError

if TYPE_CHECKING:
    from fusionstitch.codegen.kernel import Kernel
    from fusionstitch.runtime.artifact import Artifact


@dataclass(frozen=True)
class Built:
    """A kernel's artifact, with registers per thread and the log if the compiler reports them."""

    artifact: Artifact
    registers: int | None = None
    log: str = ""

    def __repr__(self) -> str:
        registers = "" if self.registers is None else f", {count(self.registers, 'register')}"
        return brief(f"Built {self.artifact!r}{registers}")


#: Builds kernels, in order; a kernel that the toolchain rejects yields its error.
Builder: TypeAlias = "Callable[[Sequence[Kernel]], Sequence[Built | ToolchainError]]"
