"""Errors of a scheduler, for users to catch."""

from __future__ import annotations

from fusionstitch.hlo.errors import FusionStitchError


class SignatureError(FusionStitchError):
    """The signature of a kernel cannot be parsed; the message shows which part."""


class LaunchError(FusionStitchError):
    """A launch was rejected before it reached the device: arguments or sizes do not fit."""


class KernelError(FusionStitchError):
    """Work failed on the device: the message names it and the line that called it."""


class ArrayError(FusionStitchError):
    """An array cannot be made, or not be used in this way: the message says why, and what to do."""
