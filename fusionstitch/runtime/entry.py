"""How XLA calls into Python without losing what the user's signal handlers raise there.

A handler runs at the first step that the main thread takes in Python. While XLA compiles, that is
the first step of what XLA calls; an exception out of there would be turned into a failed compile
and be lost, or be swallowed. It has to come out where it would without us: where XLA returns.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

#: Calls of XLA's that may begin at the same time.
_CALLS = 64

_raise_in = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)


class Entry(deque[Any]):
    """What XLA is given to call: `work`, which gets and gives bytes, and raises nothing of ours but
    `fails`, by which XLA is to fail.

    It holds calls that wait to be made, the `send` of generators. So no step in Python comes before
    that of the generator, which is inside its `try`, as the first one of a function is not.
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
        """Makes up for the calls taken, interrupted ones included, which did not come here."""
        while len(self) < _CALLS:
            call = _call(self)
            next(call)
            self.append(call.send)


def _call(entry: Entry) -> Generator[bytes | None, bytes, None]:
    """One call: is sent a module, yields the reply.

    What is raised meanwhile is raised again in this thread as soon as it is out of here, which is
    when XLA returns. From the first `yield` to the second no step is a call outside the `try`: only
    calls, and jumps backwards, let handlers run.
    """

    class Again(BaseException):
        """Stands for the user's exception: only a class can be raised in a thread."""

        error: BaseException | None = None

        def __new__(cls) -> Any:
            error, cls.error = cls.error, None
            return error

    # lazy: the thread is the one that takes the step
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
        if error.__traceback__ is not None:  # as if it had not come by here
            error.__traceback__ = error.__traceback__.tb_next
        [_] = again
        yield None
    else:
        yield reply
