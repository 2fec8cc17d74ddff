"""Whether two runs of one program agree, or how the float64 runs explain that they do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from tests.strangers.programs import Program
from tests.strangers.values import Value, numpy_dtype

#: How many times the spread of the float64 runs, which are few, a difference may be.
SPREAD = 16


@dataclass(frozen=True)
class Disagreement:
    result: int
    value: Value
    elements: int
    example: str

    def __str__(self) -> str:
        return f"%{self.result} {self.value}: {self.elements} elements, {self.example}"


def disagreements(
    program: Program,
    ours: Sequence[np.ndarray],
    theirs: Sequence[np.ndarray],
    wide: Sequence[Sequence[np.ndarray]],
) -> list[Disagreement]:
    """What differs between two runs and is no rounding; `wide` as of `wide_runs`.

    Ours may be right alone: XLA on GPUs joins parts of a reduction in any order.
    """
    found = []
    for k, index in enumerate(program.results):
        value = program.values[index]
        mine, other = np.asarray(ours[k]), np.asarray(theirs[k])
        if (mine.dtype, mine.shape) != (other.dtype, other.shape):
            found.append(Disagreement(index, value, 0, f"{mine.dtype}{mine.shape}"))
            continue
        bad = _differing(value, mine, other, [run[k] for run in wide])
        if bad.any():
            at = tuple(int(i[0]) for i in np.nonzero(bad)) if bad.ndim else ()
            text = f"at {at}: {mine[at]!r} for {other[at]!r}, in float64 {wide[0][k][at]!r}"
            found.append(Disagreement(index, value, int(bad.sum()), text))
    return found


def _differing(
    value: Value, mine: np.ndarray, other: np.ndarray, wide: Sequence[np.ndarray]
) -> np.ndarray:
    if not value.floating:
        return (mine != other) & (mine != wide[0])
    a, b = mine.astype(np.float64), other.astype(np.float64)
    same = (a == b) & (np.signbit(a) == np.signbit(b)) | (np.isnan(a) & np.isnan(b))
    runs = np.stack(wide)
    exact, moved = runs[0], runs[1:]
    if value.exact:
        alone = (a == exact) & (np.signbit(a) == np.signbit(exact))
        return ~(same | alone | (np.isnan(a) & np.isnan(exact)))
    same |= a == b
    info = ml_dtypes.finfo(numpy_dtype(value.dtype))
    with np.errstate(all="ignore"):
        spread = np.max(np.abs(moved - exact), axis=0)
        allowed = SPREAD * spread + 8 * float(info.eps) * np.abs(exact) + float(info.tiny)
        close = np.isfinite(exact) & (np.abs(a - exact) <= allowed)
        # where float64 itself is not sure that a value is finite, either is right
        kinds = np.stack([np.isfinite(run) for run in runs])
        unsure = kinds.any(axis=0) & ~kinds.all(axis=0) | ~np.isfinite(spread) & kinds[0]
        beyond = np.isinf(a) & (np.abs(exact) + allowed >= float(info.max))
        twice = np.abs(a - exact) <= 2 * np.abs(b - exact)
    as_wide = np.isnan(a) & np.isnan(exact) | (a == exact)
    return ~(same | close | unsure | beyond | twice | as_wide)
