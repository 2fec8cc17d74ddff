"""Device memory that a compiled program needs, by XLA's buffer assignment."""

from __future__ import annotations

from typing import Any

#: What two programs may differ by and need as much: buffers are rounded up, one by one.
TOLERANCE_BYTES = 64 << 10


def temporary_bytes(compiled: Any) -> int:
    """Bytes of what lives during a call alone: XLA's temporaries, our kernels' scratch."""
    found: int = compiled.memory_analysis().temp_size_in_bytes
    return found


def needed_bytes(compiled: Any) -> int:
    """Bytes of a call at its peak: arguments, results that are none of them, temporaries."""
    found = compiled.memory_analysis()
    arguments, results = found.argument_size_in_bytes, found.output_size_in_bytes
    total: int = arguments + results - found.alias_size_in_bytes + found.temp_size_in_bytes
    return total
