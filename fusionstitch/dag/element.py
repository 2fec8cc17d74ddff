"""Computational elements, the arrays that they use, and the streams that they are on."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np


class Lane:
    """A stream as the scheduler counts them, on one of the backend's.

    `pending` are its elements that are not known to be finished, in the order of their launches.
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
        number: counts the elements of a scheduler
        kernel: what was launched, with a `name`
        site: (code object's file, line) of the call
        uses: the arrays it uses; True for those it only reads
        parents: the elements it waits for; empty once it is finished
        edges: (number of a parent, names of the arrays) for the graph
        active: in how many of its arrays a later element may still depend on it
        passed_on: whether a child has taken over its stream
        finished: whether the host has waited for it, or for one after it
        span: (start, stop) in milliseconds after the scheduler was made, if it was timed
        begun, done: the events around its work, the first one only where it is timed
        events: others that are free once it is finished
        transfers: (array, event before, event after) of what was sent for it, where it is timed
    """

    __slots__ = (
        "active",
        "begun",
        "done",
        "edges",
        "events",
        "finished",
        "kernel",
        "lane",
        "lane_number",
        "number",
        "parents",
        "passed_on",
        "site",
        "span",
        "transfers",
        "uses",
    )

    def __init__(
        self, number: int, kernel: Any, site: tuple[str, int], uses: dict[Storage, bool]
    ) -> None:
        self.number = number
        self.kernel = kernel
        self.site = site
        self.uses = uses
        self.parents: tuple[Element, ...] = ()
        self.edges: tuple[tuple[int, tuple[str, ...]], ...] = ()
        self.active = len(uses)
        self.passed_on = False
        self.finished = False
        self.lane: Lane | None = None
        self.lane_number = -1
        self.begun: Any = None
        self.done: Any = None
        self.events: tuple[Any, ...] = ()
        self.transfers: tuple[tuple[Storage, Any, Any], ...] = ()
        self.span: tuple[float, float] | None = None

    @property
    def name(self) -> str:
        return str(self.kernel.name)

    def __str__(self) -> str:
        return f"{self.name} (called at {self.site[0]}:{self.site[1]})"


class Storage:
    """The memory of an array, on the host, on the device, or both.

    Where neither copy is valid the array is all zeros. `writer` is the last element that writes it,
    `readers` those that only read it since; only they matter to later work. `uploader` is the
    element on whose stream the host's copy was last sent. `readonly` says why it cannot be written,
    and where it is `given_away` why it cannot be used at all. It is `held` by so many recorded
    sequences.
    """

    __slots__ = (
        "device",
        "dtype",
        "given_away",
        "held",
        "host",
        "kind",
        "label",
        "on_device",
        "on_host",
        "readers",
        "readonly",
        "shape",
        "uploaded",
        "uploader",
        "writer",
    )

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], label: str) -> None:
        self.shape = shape
        self.dtype = dtype
        self.kind = dtype.type  # what parameters are compared with
        self.label = label
        self.host: np.ndarray | None = None
        self.device: Any = None
        self.on_host = self.on_device = False
        self.readonly = ""
        self.given_away = False
        self.held = 0
        self.writer: Element | None = None
        self.readers: list[Element] = []
        self.uploader: Element | None = None
        self.uploaded: Any = None

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def users(self) -> list[Element]:
        """The elements after which nothing of what was launched uses this array."""
        found = [element for element in self.readers if not element.finished]
        if not found and self.writer is not None and not self.writer.finished:
            found.append(self.writer)
        return found
