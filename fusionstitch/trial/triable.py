"""Which programs get a trial: those that may run more often than they are called."""

from __future__ import annotations

import re
from typing import Any

from fusionstitch.compiler import builders
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.verdict import Verdict, allow, forbid
from fusionstitch.options import Options
from fusionstitch.trial.runs import arrays_of

#: The scorers that ask for measurements; plans of other scorers are used unchanged.
SCORERS = ("guarded", "measured")
#: JAX settings under which a run must not be repeated, for example because it used up a key, or
#: under which the host inspects each run.
_CHECKS = ("jax_debug_key_reuse", "jax_debug_nans", "jax_debug_infs")
_SIDE_EFFECT = re.compile(r"has_side_effect = true")


def in_this_process(options: Options, device: Device) -> Verdict:
    """Whether programs with these options get trials at all."""
    import jax

    if options.trial == "off":
        return forbid("Options.trial is 'off'.")
    if options.scorer not in SCORERS:
        return forbid(f"The scorer {options.scorer!r} uses no trial.")
    if device != builders.profile(options.replace(device=None)):
        return forbid("It is planned for another GPU than the one in use.")
    if jax.process_count() > 1:
        return forbid("Programs of several processes must be the same in each.")
    return allow()


def here(arguments: Any) -> bool:
    """Whether a call with these arguments runs on the platform of the process. It may get arrays on
    the host although there is a GPU, or run under another default device."""
    import jax

    default: Any = jax.config.jax_default_device  # type: ignore[attr-defined]
    arrays = [one for one in arrays_of(arguments) if one.committed or not default]
    found = {device.platform for one in arrays for device in one.devices()}
    if default and not found:
        found = {default if isinstance(default, str) else default.platform}
    return not found or jax.default_backend() in found


def program(effects: Any, lowered: str) -> Verdict:
    """Whether a program may run without being called, by its JAX effects and its text."""
    if effects:
        return forbid("It has side effects, so it runs only when it is called.")
    if _SIDE_EFFECT.search(lowered):
        return forbid("A custom call in it has side effects, so it runs only when it is called.")
    return allow()


def now() -> Verdict:
    """Whether a program may be run again at this moment, and times are meaningful."""
    import jax

    if any(getattr(jax.config, name, False) for name in _CHECKS):
        return forbid("A JAX setting checks the arguments and results of every run.")
    if jax.profiler.TraceAnnotation.is_enabled():
        return forbid("A profiler is recording, and then XLA uses no CUDA graphs.")
    return allow()


def calls_back(lowered: str) -> bool:
    """Whether a program calls Python functions while it runs."""
    return "callback" in lowered
