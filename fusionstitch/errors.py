"""The errors and the warning that a user may want to catch, in one module."""

from __future__ import annotations

from fusionstitch.hlo import foreign
from fusionstitch.hlo.errors import (
    CodegenError,
    FusionStitchError,
    ImportModuleError,
    MeasureError,
    OptionError,
    PassError,
    PlanError,
    StitchError,
    TemplateSyntaxError,
    ToolchainError,
    VerifyError,
)
from fusionstitch.supported import missing


class TargetError(FusionStitchError):
    """A command's target cannot be found, or is not a valid target."""


class FusionStitchWarning(UserWarning):
    """A program, or part of one, was left to XLA although stitching it was asked for. The message
    says why. The results are correct."""


def reason(error: BaseException) -> str:
    """An error as a reason: its message if it is our own error, else its type and what to do."""
    if isinstance(error, FusionStitchError):
        return str(error)
    if lacking := missing(error):
        return lacking
    what = foreign.lines(f"{type(error).__name__}: {error}").rstrip(".")
    return f"Defect in fusionstitch: {what}. Please report it; FUSIONSTITCH_LOG=debug shows where."


#: The two ways in which a stitched program can fail.
REFUSED, NOT_RUN = "XLA refused the stitched program", "Its kernels could not be run"


def why_failed(what: str, error: BaseException) -> str:
    """A sentence that says what failed, with the first line of the error."""
    line = foreign.line(next(iter(str(error).strip().splitlines()), type(error).__name__))
    return f"{what}: {line}" if line.endswith(".") else f"{what}: {line}."


__all__ = [
    "NOT_RUN",
    "REFUSED",
    "CodegenError",
    "FusionStitchError",
    "FusionStitchWarning",
    "ImportModuleError",
    "MeasureError",
    "OptionError",
    "PassError",
    "PlanError",
    "StitchError",
    "TargetError",
    "TemplateSyntaxError",
    "ToolchainError",
    "VerifyError",
    "reason",
    "why_failed",
]
