"""Computational elements, the arrays that they use, and the streams that they are on."""

from __future__ import annotations

import math
from collections import deque
from types import CodeType
from typing import Any

import numpy as np

#: A code object and the offset of an instruction in it.
Site = tuple[CodeType, int]


class Work:
    """What an element launches: a kernel with its sizes, a library, a function, a sequence.

    Attributes:
        name: name in graphs and messages
        priority: priority of its streams; lower numbers are more urgent
    """

    name: str
    priority: int = 0
    #: whether it takes JAX arrays instead of device arrays
    of_jax = False

    @property
    def kernel(self) -> Any:
        """The object that users know, whose history has its times."""
        return self

    def begin(self, element: Element, stream: Any) -> None:
        """Puts one element of it on a stream; its arrays are on the device by then."""
        raise NotImplementedError


class Lane:
    """A scheduler's stream, on one of the backend's.

    `pending` are its elements not known to be finished, in launch order.
    """

    __slots__ = ("handle", "number", "pending", "priority")

    def __init__(self, number: int, handle: Any, priority: int) -> None:
        self.number = number
        self.handle = handle
        self.priority = priority
        self.pending: deque[Element] = deque()


class Element:
    """One launch of a kernel, a recorded sequence, or a call of a library or of a jitted function.

    Attributes:
        number: index among the elements of a scheduler
        work: what is launched
        arguments: its arguments, with arrays as storages; dropped after the launch
        uses: the arrays it uses; True for those it only reads
        site: code and instruction of the call, from which `location` finds the line
        lane: its stream
        parents: the elements it waits for; empty once it is finished
        edges: (number of a parent, names of the arrays) for the graph
        passed_on: whether a child has taken over its stream
        finished: whether the host has waited for it, or for a later element
        begun, done: the events around its work; the first one only if it is timed
        sent: (array, event before or None, event after) of each transfer for it
        span: (start, stop) in milliseconds since the scheduler was made, if it was timed
    """

    __slots__ = (
        "arguments",
        "begun",
        "done",
        "edges",
        "finished",
        "lane",
        "number",
        "parents",
        "passed_on",
        "sent",
        "site",
        "span",
        "uses",
        "work",
    )
    lane: Lane

    def __init__(
        self,
        work: Work,
        arguments: Any,
        uses: dict[Storage, bool],
        site: Site,
    ) -> None:
        self.number = -1
        self.work = work
        self.arguments = arguments
        self.uses = uses
        self.site = site
        self.parents: tuple[Element, ...] = ()
        self.edges: tuple[tuple[int, tuple[str, ...]], ...] = ()
        self.passed_on = self.finished = False
        self.begun: Any = None
        self.done: Any = None
        self.sent: tuple[tuple[Storage, Any, Any], ...] = ()
        self.span: tuple[float, float] | None = None

    @property
    def in_frontier(self) -> bool:
        """Whether a later element may depend on it."""
        return any(s.writer is self or self in s.readers for s in self.uses)

    def __str__(self) -> str:
        return f"{self.work.name} (called at {location(self.site)})"


def location(site: Site) -> str:
    """File and line. Looked up here, since otherwise every launch would pay for it."""
    code, instruction = site
    lines = (line for start, stop, line in code.co_lines() if start <= instruction < stop)
    return f"{code.co_filename}:{next(lines, None) or code.co_firstlineno}"


class Storage:
    """The memory of an array: on the host, on the device, as a JAX array, or several of these.

    Attributes:
        host, on_host: the host's copy, and whether it is valid
        device, on_device: the device's copy, and whether it is valid. If no copy is valid, the
            array is all zeros
        lent: the JAX array, or None if there is none or it is not valid. It shares the device's
            memory, which JAX may own
        writer: the last element that writes it
        readers: elements that only read it since; later work depends on these and the writer only
        sender, sent: the element on whose stream the device's copy was made without a kernel that
            writes it, and the event after that
        readonly: why it cannot be written
        given_away: whether it cannot be used at all, for that reason
        recordings: the number of recorded sequences that use it
    """

    __slots__ = (
        "__weakref__",
        "device",
        "dtype",
        "given_away",
        "host",
        "kind",
        "label",
        "lent",
        "on_device",
        "on_host",
        "readers",
        "readonly",
        "recordings",
        "sender",
        "sent",
        "shape",
        "writer",
    )

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], label: str) -> None:
        self.shape = shape
        self.dtype = dtype
        self.kind = dtype.type  # compared with parameter types
        self.label = label
        self.host: np.ndarray | None = None
        self.device: Any = None
        self.lent: Any = None
        self.on_host = self.on_device = False
        self.readonly = ""
        self.given_away = False
        self.recordings = 0
        self.writer: Element | None = None
        self.readers: list[Element] = []
        self.sender: Element | None = None
        self.sent: Any = None

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def users(self) -> list[Element]:
        """The elements after which no launched work uses this array."""
        found = [element for element in self.readers if not element.finished]
        if not found and self.writer is not None and not self.writer.finished:
            found.append(self.writer)
        return found
