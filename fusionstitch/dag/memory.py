"""Memory of arrays: allocated on first use, freed after the last element that uses it."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import numpy as np

from fusionstitch.dag.backends.backend import Backend
from fusionstitch.dag.element import Storage
from fusionstitch.dag.errors import ArrayError

#: The number of freeable arrays checked each time; the next call checks the next ones.
_LOOKED_AT = 4


class Memory:
    """The arrays of a scheduler on host and device.

    Arrays that are no longer referenced go into `dropped`, whenever Python notices. Their memory is
    freed once no element that uses it can still run.
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
            except MemoryError:  # memory still in use may suffice once freed
                if not self._retired:
                    raise
                self.collect(wait=True)
                storage.device = self._backend.device_array(storage.shape, storage.dtype)
            self._known.add(storage)
        return storage.device

    def take(self, storage: Storage, stream: Any) -> None:
        """Gets the device's copy of a JAX array; the stream waits for it."""
        storage.device = self._backend.take(storage.lent, stream)
        storage.on_device = True
        self._known.add(storage)

    def adopt(self, storage: Storage, device: Any) -> None:
        """Gives an array memory that belongs to someone else.

        Raises ArrayError if another array has the same memory and one of them may be written: work
        on one would not wait for work on the other.
        """
        start = self._backend.address(device)
        for other in self._known:
            if other.device is None or (other.readonly and storage.readonly):
                continue
            where = self._backend.address(other.device)
            if not (where < start + storage.nbytes and start < where + other.nbytes):
                continue
            self.collect(wait=True)  # the other one may no longer be referenced
            if other.device is not None:
                raise ArrayError(
                    f"This array shares memory that {other.label} has, too: work on the one would "
                    f"not wait for work on the other. Use {other.label}, or a copy."
                )
        storage.device = device
        self._known.add(storage)

    def collect(self, wait: bool = False) -> None:
        """Frees dropped arrays that are not in use; with `wait`, waits for those that are."""
        while self.dropped:
            storage = self.dropped.popleft()
            if storage.device is None and not storage.recordings:
                # JAX orders the work on arrays that only it uses
                storage.host = storage.lent = None
            else:
                self._retired.append(storage)
        count = len(self._retired)
        for _ in range(count if wait else min(count, _LOOKED_AT)):
            storage = self._retired.popleft()
            if not self._given_back(storage, wait):
                self._retired.append(storage)

    def _given_back(self, storage: Storage, wait: bool) -> bool:
        if storage.recordings:
            return False
        for element in storage.users():
            if wait:
                self._backend.synchronize(element.done)
            elif not self._backend.done(element.done):
                return False
        storage.host = storage.device = storage.lent = None
        return True
