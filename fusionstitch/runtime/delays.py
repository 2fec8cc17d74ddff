"""Delays around barriers (`codegen/cuda/delays.cuh`): what FUSIONSTITCH_DELAYS has compilers do."""

from __future__ import annotations

from fusionstitch import env


def flags() -> tuple[str, ...]:
    """Options for compilers of kernels; none without the switch. They are part of each key under
    which something is kept that the switch changes."""
    return ("-DFUSIONSTITCH_DELAYS",) if env.DELAYS.get() else ()
