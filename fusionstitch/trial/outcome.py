"""The outcome of a trial, and where it is stored."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from typing import Any

from fusionstitch.compiler import builders
from fusionstitch.hlo.brief import brief
from fusionstitch.runtime import xla_pass
from fusionstitch.trial.sides import Times
from fusionstitch.version import code

logger = logging.getLogger(__name__)

#: What may serve a program: XLA's own executable, or the stitched one of an attempt. Each has its
#: own mark, so that no loser is stored in XLA's persistent cache under a winner's key.
XLA = "xla"
ATTEMPTS = ("c0", "c1", "c2")
#: Stitched as the guard judges patterns, if there can be no trial.
DIRECT = "direct"
#: Why an attempt leaves a pattern of the plan to XLA.
LEFT = "The program was no faster with it than XLA's, and its own gain was proven least."


@dataclass(frozen=True)
class Outcome:
    """What serves a program, and why.

    Attributes:
        serves: `XLA`, or one of `ATTEMPTS`: the whole plan, or what was left of it
        reason: a sentence for people
        times: times of each attempt and XLA's executable, in order
        program: key of the plan; "" if nothing was stitched
        program_us: span of XLA's executable alone, in microseconds; None if it was not measured
    """

    serves: str
    reason: str
    times: tuple[Times, ...] = ()
    program: str = ""
    program_us: float | None = None

    @classmethod
    def of(
        cls, serves: str, times: tuple[Times, ...], program: str, program_us: float | None = None
    ) -> Outcome:
        """The outcome of attempts with these times: the last one won, or all have lost."""
        if serves == XLA:
            reason = f"The stitched program is no faster: {times[0]}."
        else:
            reason = f"The stitched program is faster: {times[-1]}."
        return cls(serves, reason, times, program, program_us)

    def __repr__(self) -> str:
        return brief(f"Outcome: {self.serves} serves. {self.reason}")

    def to_json(self) -> bytes:
        fields = {
            "serves": self.serves,
            "reason": self.reason,
            "times": [one.to_dict() for one in self.times],
            "program": self.program,
            "program_us": self.program_us,
        }
        return json.dumps(fields, sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Outcome:
        """Raises ValueError, KeyError or TypeError for invalid data."""
        fields: dict[str, Any] = json.loads(data)
        if fields["serves"] not in (XLA, *ATTEMPTS):
            raise ValueError(f"unknown executable {fields['serves']!r}")
        times = tuple(Times.from_dict(one) for one in fields["times"])
        us = fields["program_us"]
        return cls(
            fields["serves"],
            str(fields["reason"]),
            times,
            str(fields["program"]),
            None if us is None else float(us),
        )


def key_of(lowered: str, token: str, where: str) -> str:
    """The key of an outcome: the program as JAX lowers it, without source lines; what its mark
    covers; our code; and `where`, the devices and options it is compiled for."""
    import jax

    given = (lowered, token, where, code(), jax.__version__, xla_pass.flags())
    return hashlib.sha256("\0".join(given).encode()).hexdigest()


#: The outcomes known to this process, by `key_of`.
_known: dict[str, Outcome] = {}


def plan_key(program: str) -> str:
    """The key of a stored plan."""
    return f"program-{program}"


def known(key: str) -> Outcome | None:
    """The outcome of this program, from this process or an earlier one; else None. An earlier
    outcome does not count if the plan that won is lost, since another plan may lose."""
    if (found := _known.get(key)) is not None:
        return found
    store = builders.store()
    data = store.get(f"trial-{key}")
    if data is None:
        return None
    try:
        found = Outcome.from_json(data)
    except (ValueError, KeyError, TypeError) as error:  # another version's, or damaged
        logger.debug("a stored outcome cannot be read: %s", error)
        return None
    if found.serves != XLA and found.program and store.get(plan_key(found.program)) is None:
        return None
    _known[key] = found
    return found


def remember(key: str, outcome: Outcome) -> None:
    """Stores an outcome; for later processes as well if there was a trial."""
    _known[key] = outcome
    if outcome.serves != DIRECT:
        builders.store().put(f"trial-{key}", outcome.to_json())
