"""Bytes as text."""

_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "KB"))


def size(value: int) -> str:
    """Bytes in the unit that fits."""
    for least, unit in _UNITS:
        if value >= least:
            return f"{value / least:.1f} {unit}"
    return f"{value} B"
