"""Memory of arrays: made on first use, given back after the last element that uses it."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import numpy as np

from fusionstitch.dag.backends.backend import Backend
from fusionstitch.dag.element import Storage
from fusionstitch.dag.errors import ArrayError

#: So many arrays that may be given back are looked at each time, the next ones the next time.
_LOOKED_AT = 4


class Memory:
    """The arrays of a scheduler on both sides.

    What nobody names any more is put on `dropped`, at whatever moment Python finds it; its memory
    is given back once no element that uses it can still run.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.dropped: deque[Storage] = deque()
        self._retired: deque[Storage] = deque()
        self._known: weakref.WeakSet[Storage] = weakref.WeakSet()

    def on_host(self, storage: Storage) -> np.ndarray:
        """The host's copy, valid or not."""
        if storage.host is None:
            storage.host = self._backend.host_array(storage.shape, storage.dtype)
        return storage.host

    def on_device(self, storage: Storage) -> Any:
        """The device's copy, valid or not."""
        if storage.device is None:
            self.collect()
            try:
                storage.device = self._backend.device_array(storage.shape, storage.dtype)
            except MemoryError:  # what is still in use may be enough
                if not self._retired:
                    raise
                self.collect(wait=True)
                storage.device = self._backend.device_array(storage.shape, storage.dtype)
            self._known.add(storage)
        return storage.device

    def take(self, storage: Storage, stream: Any) -> None:
        """Has the device's copy of what JAX has; the stream waits for it."""
        storage.device = self._backend.take(storage.lent, stream)
        storage.on_device = True
        self._known.add(storage)

    def adopt(self, storage: Storage, device: Any) -> None:
        """Gives an array the memory of somebody else.

        Raises ArrayError where another array has it, too, and one of them may be written: what uses
        the one would not wait for what uses the other.
        """
        start = self._backend.address(device)
        for other in self._known:
            if other.device is None or (other.readonly and storage.readonly):
                continue
            where = self._backend.address(other.device)
            if not (where < start + storage.nbytes and start < where + other.nbytes):
                continue
            self.collect(wait=True)  # nobody may name the other one any more
            if other.device is not None:
                raise ArrayError(
                    f"This array shares memory that {other.label} has, too: work on the one would "
                    f"not wait for work on the other. Use {other.label}, or a copy."
                )
        storage.device = device
        self._known.add(storage)

    def collect(self, wait: bool = False) -> None:
        """Gives back what was dropped and is not used any more; `wait` waits for what is."""
        while self.dropped:
            storage = self.dropped.popleft()
            if storage.device is None and not storage.held:
                # of what JAX alone uses it knows the order itself
                storage.host = storage.lent = None
            else:
                self._retired.append(storage)
        count = len(self._retired)
        for _ in range(count if wait else min(count, _LOOKED_AT)):
            storage = self._retired.popleft()
            if not self._given_back(storage, wait):
                self._retired.append(storage)

    def _given_back(self, storage: Storage, wait: bool) -> bool:
        if storage.held:
            return False
        for element in storage.users():
            if wait:
                self._backend.synchronize(element.done)
            elif not self._backend.done(element.done):
                return False
        storage.host = storage.device = storage.lent = None
        return True
