"""Are the results right? Ours against XLA's, and what rounding alone does to XLA's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fusionstitch.accuracy import relative_error

#: Relative L2 error that is always allowed, and how many times the spread is.
FLOOR, SPREADS = 1e-6, 2.0


def moved(leaf: Any) -> np.ndarray:
    """An input with every floating-point number moved by one unit in its last place."""
    value = np.asarray(leaf)
    if value.dtype == np.float32:
        return np.nextafter(value, np.float32(np.inf))
    if value.dtype.name in ("bfloat16", "float16"):  # the next larger size has the next bits
        return np.where(np.isfinite(value), value.view(np.uint16) + 1, 0).view(value.dtype)
    return value


def check(
    ours: Sequence[np.ndarray], xla: Sequence[np.ndarray], spread: Sequence[np.ndarray]
) -> dict[str, Any]:
    """The largest error of ours against XLA's, and which outputs exceed what is allowed.

    Allowed is twice what XLA's own result does when its inputs move by one ulp, which `spread` is
    the result of. Integers are equal, unless they change in `spread`, too: then the program's own
    branches hang on rounding, and only their share counts.
    """
    errors, wrong = [], []
    for number, (mine, theirs, other) in enumerate(zip(ours, xla, spread, strict=True)):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            wrong.append({"output": number, "reason": f"{mine.dtype}{list(mine.shape)}"})
            continue
        error, own = _distance(mine, theirs), _distance(other, theirs)
        allowed = max(FLOOR if mine.dtype.kind not in "biu" else 0.0, SPREADS * own)
        errors.append({"error": error, "spread": own})
        if not error <= allowed:
            wrong.append({"output": number, "error": error, "allowed": allowed})
    return {"outputs": errors, "wrong": wrong}


def _distance(value: np.ndarray, wanted: np.ndarray) -> float:
    """Relative L2 error; of integers and truths, the share that differs."""
    if wanted.dtype.kind in "biu":
        return float(np.mean(value != wanted)) if wanted.size else 0.0
    return relative_error(value, wanted)
