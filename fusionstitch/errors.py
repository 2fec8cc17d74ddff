"""The errors and the warning a user may want to catch, under one import."""

from __future__ import annotations

from hlo.errors import (
    CodegenError,
    FusionStitchError,
    ImportModuleError,
    OptionError,
    PlanError,
    StitchError,
    TemplateSyntaxError,
    ToolchainError,
    VerifyError,
)


class FusionStitchWarning(UserWarning):
    """Something was left to XLA although stitching it was asked for; the message says why."""


__all__ = [
    "CodegenError",
    "FusionStitchError",
    "FusionStitchWarning",
    "ImportModuleError",
    "OptionError",
    "PlanError",
    "StitchError",
    "TemplateSyntaxError",
    "ToolchainError",
    "VerifyError",
]
