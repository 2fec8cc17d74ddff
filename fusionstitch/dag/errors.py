"""What goes wrong in a scheduler, for users to catch."""

from __future__ import annotations

from fusionstitch.hlo.errors import FusionStitchError


class SignatureError(FusionStitchError):
    """The signature of a kernel cannot be read; the message shows the part that is meant."""


class LaunchError(FusionStitchError):
    """A launch was refused before it reached the device: arguments or sizes do not fit."""


class KernelError(FusionStitchError):
    """Work failed on the device: the message names it and the line that called it."""


class ArrayError(FusionStitchError):
    """An array cannot be made, or be used this way: the message says why, and what can be done."""
