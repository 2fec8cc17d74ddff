"""Lets XLA call Python without losing exceptions of the user's signal handlers.

A handler runs at the main thread's first step in Python. While XLA compiles, that is the first step
of a function that XLA calls. An exception from there would become a failed compile and be lost, or
be swallowed. It must be raised where it would be without us: when XLA returns.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

#: The most calls of XLA that may start at the same time.
_CALLS = 64

_raise_in = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)


class Entry(deque[Any]):
    """The callable for XLA: `work` takes and returns bytes, and raises nothing of ours except
    `fails`, which make XLA fail.

    It is a deque of calls that are ready, each the `send` of a generator. So the first Python step
    is the generator's, which is already inside its `try`; the first step of a function is not.
    """

    def __init__(
        self, work: Callable[[bytes], bytes | None], fails: tuple[type[Exception], ...] = ()
    ):
        super().__init__()
        self.work, self.fails = work, fails
        self.refill()

    __call__ = property(deque.pop)
    __hash__ = object.__hash__  # type: ignore[assignment]

    def refill(self) -> None:
        """Replaces the calls that were used, including interrupted ones, which did not get here."""
        while len(self) < _CALLS:
            call = _call(self)
            next(call)
            self.append(call.send)


def _call(entry: Entry) -> Generator[bytes | None, bytes, None]:
    """One call: receives a module, yields the reply.

    Exceptions raised meanwhile are raised again in this thread once it has left this function, that
    is, when XLA returns. From the first `yield` to the second, no step outside the `try` is a call:
    only calls and backward jumps run handlers.
    """

    class Again(BaseException):
        """A class that stands for the user's exception: only a class can be raised in a thread."""

        error: BaseException | None = None

        def __new__(cls) -> Any:
            error, cls.error = cls.error, None
            return error

    # lazy: the thread that takes the step
    again = map(_raise_in, iter(threading.get_ident, None), (Again,))
    try:
        module = yield None
        entry.refill()
        reply = entry.work(module)
    except GeneratorExit:  # never called
        return
    except entry.fails:
        raise
    except BaseException as error:
        Again.error = error
        if error.__traceback__ is not None:  # hides this frame
            error.__traceback__ = error.__traceback__.tb_next
        [_] = again
        yield None
    else:
        yield reply
