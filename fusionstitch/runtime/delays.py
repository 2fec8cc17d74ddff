"""Delays around barriers (`codegen/cuda/delays.cuh`): compiler options for FUSIONSTITCH_DELAYS."""

from __future__ import annotations

from fusionstitch import env


def flags() -> tuple[str, ...]:
    """Compiler options for kernels; empty without the variable. They are part of every cache key of
    what they change."""
    return ("-DFUSIONSTITCH_DELAYS",) if env.DELAYS.get() else ()
