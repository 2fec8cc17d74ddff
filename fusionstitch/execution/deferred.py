"""Warnings and errors of compiles inside XLA, deferred until the caller can see them.

XLA calls the pass during a compile, where nothing may be raised. A warning is issued by the next
call of any function, since it names the function it is about. An error is raised only by the
function that was compiled, on the thread that compiled it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakSet, WeakValueDictionary

from fusionstitch.errors import StitchError
from fusionstitch.execution.path import warn
from fusionstitch.runtime.apart import caller
from fusionstitch.runtime.xla_pass import spelt


@dataclass(frozen=True)
class MarkedFunction:
    """A marked function, as the name of its module identifies it. Names are in JAX's spelling."""

    name: str
    token: str


class Listener(Protocol):
    """What may have functions called without `deliver`."""

    def deliver(self) -> None:
        """The next calls have to."""


_listeners: WeakSet[Listener] = WeakSet()
#: Deferred warnings: the arguments of `warn`.
reasons: deque[tuple[str, ...]] = deque()
#: The newest error of each function and thread.
errors: dict[tuple[MarkedFunction, int], StitchError] = {}
#: The functions that are alive: whoever raises the errors of one holds it.
_alive: WeakValueDictionary[tuple[str, str], MarkedFunction] = WeakValueDictionary()
_lock = threading.Lock()


def marked(name: str, token: str) -> MarkedFunction:
    """The function whose errors are stored under a name and a mark. Callers hold it as long as
    those may be raised."""
    key = spelt(name), token
    with _lock:
        if (marked_function := _alive.get(key)) is None:
            marked_function = _alive[key] = MarkedFunction(*key)
        return marked_function


def defer_warning(*reason: str) -> None:
    """Makes the next call of any function issue a warning."""
    reasons.append(reason)
    _tell()


def defer_error(name: str, token: str, error: StitchError) -> None:
    """Makes the function that is being compiled raise an error."""
    errors[MarkedFunction(spelt(name), token), caller()] = error
    _tell()


def listen(listener: Listener) -> None:
    """Tells a listener of everything that is deferred, for as long as it lives."""
    with _lock:
        _listeners.add(listener)


def _tell() -> None:
    with _lock:
        listeners = list(_listeners)
    for listener in listeners:
        listener.deliver()


def is_quiet() -> bool:
    """Whether nothing is deferred."""
    return not reasons and not errors


def deliver(marked_function: MarkedFunction, warn_user: Callable[..., None] = warn) -> None:
    """Issues all deferred warnings, and raises the error of `marked_function`.

    While the thread that caused an error runs, only that thread gets it. After that, whoever calls
    the function does. The error of a function that no longer exists becomes a warning.
    """
    for gone in [key for key in list(errors) if (key[0].name, key[0].token) not in _alive]:
        if (error := errors.pop(gone, None)) is not None:
            defer_warning(gone[0].name, str(error))
    while reasons:
        try:
            reason = reasons.popleft()
        except IndexError:  # another thread took it
            break
        warn_user(*reason)
    if errors and (found := _own(marked_function)) is not None:
        raise found


def _own(marked_function: MarkedFunction) -> StitchError | None:
    here = threading.get_ident()
    running = {thread.ident for thread in threading.enumerate()} - {here}
    for left in list(errors):
        if left[0] == marked_function and left[1] not in running:
            return errors.pop(left, None)
    return None
