"""The interface of measuring: by a GPU, or by a stub in tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.runtime.artifact import Artifact


def timing_key(artifact: Artifact) -> str:
    """The key of a measured time: the content of the kernel, and how it is launched."""
    a = artifact
    return f"kernel-{a.key}-{a.entry}-{a.grid}x{a.block}-{a.shared_bytes}"


class Meter(Protocol):
    """Times in microseconds, as if each kernel ran among others inside a CUDA graph.

    All methods raise `MeasureError` for what cannot be run.
    """

    name: str

    def kernel_us(self, kernel: Kernel, artifact: Artifact, rounds: int) -> float:
        """One launch of a stitched kernel; the median of `rounds` replays."""

    def differences(
        self, one: tuple[Kernel, Artifact], other: tuple[Kernel, Artifact]
    ) -> Sequence[float]:
        """Relative L2 difference of two kernels' results, per output, on equal inputs."""

    def xla_us(self, module: bytes) -> float:
        """One run of XLA's compile of `module` (HloModuleProto bytes)."""
