"""Memory of arrays: made on first use, given back after the last element that uses it."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from fusionstitch.dag.backends.backend import Backend
from fusionstitch.dag.element import Storage

#: So many arrays that may be given back are looked at each time, in turns.
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
        return storage.device

    def collect(self, wait: bool = False) -> None:
        """Gives back what was dropped and is not used any more; `wait` waits for what is."""
        while self.dropped:
            storage = self.dropped.popleft()
            if storage.device is None:  # JAX, which alone uses this memory, has an order of its own
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
