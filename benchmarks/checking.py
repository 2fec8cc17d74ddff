"""Are the results right? Errors of every output against a float64 run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fusionstitch import accuracy

#: Of the integers that a program rounds to, the part that may be others than in float64: in f32 so
#: many values below 128 are so close to the middle between two integers.
FLIPS = 1e-5


def wanted_by(
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    module: bytes | None,
    xla: Sequence[np.ndarray],
) -> tuple[Sequence[np.ndarray], str]:
    """What the outputs should be, and where that is from.

    It is the function itself in float64; for programs that draw random bits the lowered `module`
    interpreted in float64, if it is given; and where both are out of reach, XLA's result.
    """
    import jax

    wanted, reference = accuracy.rerun(fun, args, {}), "float64"
    if wanted is None and module is not None:
        wanted = accuracy.reference(module, jax.tree.leaves(args))
        reference = "float64 interpreter"
    if wanted is None or [w.shape for w in wanted] != [v.shape for v in xla]:
        return xla, "XLA"
    return wanted, reference


def check(
    ours: Sequence[np.ndarray], xla: Sequence[np.ndarray], wanted: Sequence[np.ndarray], source: str
) -> dict[str, Any]:
    """The largest relative L2 errors of our and XLA's outputs, and which exceed the limit.

    `wanted` and its `source` are from `wanted_by`. The limit is `accuracy.limit`: twice XLA's own
    error or the usual one of the type.
    """
    errors, errors_xla, wrong = [], [], []
    for number, (mine, theirs, value) in enumerate(zip(ours, xla, wanted, strict=True)):
        error = accuracy.relative_error(mine, value)
        error_xla = accuracy.relative_error(theirs, value)
        allowed = accuracy.limit(mine.dtype, error_xla)
        if source == "XLA":  # which has an error of its own
            allowed *= 2
        errors.append(error)
        errors_xla.append(error_xla)
        if not error <= allowed:
            found = {"error": error, "xla": error_xla, "allowed": allowed}
            wrong.append({"output": number, "elements": mine.size, **found})
    return {
        "reference": source,
        "outputs": len(ours),
        "error": max(errors, default=0.0),
        "error_xla": max(errors_xla, default=0.0) if source != "XLA" else None,
        "wrong": wrong,
    }


def check_rounded(
    ours: Sequence[np.ndarray], xla: Sequence[np.ndarray], wanted: Sequence[np.ndarray], source: str
) -> dict[str, Any]:
    """As `check`, but for integers that a program rounds to, which are equal on no two machines:
    where XLA's differ from those of the float64 run, twice as many of ours may, or `FLIPS` of all.
    """
    found = check(ours, xla, wanted, source)

    def rounded(wrong: dict[str, Any]) -> bool:
        mine, theirs, right = (side[wrong["output"]] for side in (ours, xla, wanted))
        off, off_xla = ((side != right).sum() for side in (mine, theirs))
        few = max(accuracy.XLA_FACTOR * off_xla, FLIPS * mine.size)
        return bool(mine.dtype.kind in "biu" and off_xla and off <= few)

    return {**found, "wrong": [one for one in found["wrong"] if not rounded(one)]}
