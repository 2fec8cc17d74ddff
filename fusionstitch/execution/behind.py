"""What compiles inside XLA leave behind for the caller: warnings, and errors that are asked for.

XLA calls the pass in the middle of a compile, where nothing may be raised. A reason to warn of is
told by the next call of any function, since it says whose it is. An error is raised by the function
that was compiled alone, on the thread that compiled it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from fusionstitch.errors import StitchError
from fusionstitch.execution.path import warn
from fusionstitch.runtime.apart import caller
from fusionstitch.runtime.xla_pass import spelt


@dataclass(frozen=True)
class Whose:
    """A marked function, as the name of its module tells: names are spelt as JAX spells them."""

    name: str
    token: str


#: What to warn of: the arguments of `warn`.
reasons: deque[tuple[str, ...]] = deque()
#: The newest error of each function and thread.
errors: dict[tuple[Whose, int], StitchError] = {}
#: Functions that there are, each held by those who raise its errors.
_known: WeakValueDictionary[tuple[str, str], Whose] = WeakValueDictionary()
_knowing = threading.Lock()


def known(name: str, token: str) -> Whose:
    """Whose errors are left under a name and a mark; to be held while they may be raised."""
    key = spelt(name), token
    with _knowing:
        if (whose := _known.get(key)) is None:
            whose = _known[key] = Whose(*key)
        return whose


def leave_reason(*told: str) -> None:
    """Has the next call of any function warn of a reason."""
    reasons.append(told)


def leave_error(name: str, token: str, error: StitchError) -> None:
    """Has the function that is being compiled raise an error."""
    errors[Whose(spelt(name), token), caller()] = error


def settle(whose: Whose, tell: Callable[..., None] = warn) -> None:
    """Tells the reasons left behind, whosever they are, and raises the error of `whose`.

    An error that was left on another thread waits for that one while it runs, and for whoever calls
    the function after that. One of a function that is gone is told as a reason.
    """
    for gone in [key for key in list(errors) if (key[0].name, key[0].token) not in _known]:
        if (error := errors.pop(gone, None)) is not None:
            leave_reason(gone[0].name, str(error))
    while reasons:
        try:
            told = reasons.popleft()
        except IndexError:  # another thread was faster
            break
        tell(*told)
    if errors and (found := _own(whose)) is not None:
        raise found


def _own(whose: Whose) -> StitchError | None:
    here = threading.get_ident()
    running = {thread.ident for thread in threading.enumerate()} - {here}
    for left in list(errors):
        if left[0] == whose and left[1] not in running:
            return errors.pop(left, None)
    return None
