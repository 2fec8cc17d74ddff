"""The options of a scheduler: GrCUDA's policies as one value."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

from fusionstitch.hlo.errors import OptionError

#: "async": work is ordered by the arrays it uses. "sync": the host waits for each piece of work.
Execution = Literal["async", "sync"]
#: Where work goes that takes over no stream: to a new stream, or to an idle one.
NewStream = Literal["always-new", "reuse"]
#: Which stream work with parents takes: that of the first parent whose stream no other child has
#: taken over, or that of its first parent.
ParentStream = Literal["disjoint", "same-as-parent"]

_CHOICES = {
    "policy": get_args(Execution),
    "streams": get_args(NewStream),
    "parent": get_args(ParentStream),
}


@dataclass(frozen=True)
class Policies:
    """The options of a `Scheduler`; see there. Raises OptionError for a value that is not
    allowed."""

    policy: Execution = "async"
    streams: NewStream = "always-new"
    parent: ParentStream = "disjoint"
    const: bool = True
    prefetch: bool = True
    timing: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            allowed = _CHOICES.get(field.name, (True, False))
            if value not in allowed or (allowed == (True, False) and not isinstance(value, bool)):
                raise OptionError(
                    f"{field.name}={value!r} is not allowed: it is one of "
                    f"{', '.join(map(repr, allowed))}."
                )
