"""The host's accesses to arrays: each waits for the elements that it depends on."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from fusionstitch.dag.element import Element, Site, Storage, Work
from fusionstitch.dag.engine import Engine
from fusionstitch.dag.errors import ArrayError

#: Up to this many bytes, JAX copies its results to the host. For more, pinned memory is faster.
_READ_BY_JAX = 1 << 18
#: The stream number of the host's reads in timelines.
HOST_STREAM = -1


class Export(Work):
    """Gives arrays to other libraries; launches nothing."""

    name = "export"

    def begin(self, element: Element, stream: Any) -> None:
        pass


class Access:
    """Reads, writes and exports for the arrays of one scheduler."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._backend = engine.backend
        self.dropped = engine.memory.dropped
        self._stream: Any = None
        self._export = Export()
        #: set while a sequence is recorded: why the host cannot access arrays now
        self.closed = ""

    def read(self, storage: Storage, key: Any) -> Any:
        """A copy of `storage[key]`, by NumPy's indexing rules.

        Raises KernelError if work failed, ArrayError for an array that was given away, and
        IndexError.
        """
        self._check(storage)
        there = storage.on_host or self._is_read_by_jax(storage)
        if not there and _is_part(key, storage) and self._has_come(storage):
            return self._part(storage, key)
        return self._host(storage)[key].copy()

    def write(self, storage: Storage, key: Any, value: Any) -> None:
        """Writes on the host, after everything that uses the array. Raises like `read`."""
        self._before_writing(storage)
        if _is_all(key, storage):
            host = self._engine.memory.on_host(storage)
        else:
            host = self._host(storage)
        host[key] = value
        self._written(storage)

    def writable(self, storage: Storage, overwrite: bool) -> np.ndarray:
        """The host's copy, for writing. Raises like `write`."""
        self._before_writing(storage)
        host = self._engine.memory.on_host(storage) if overwrite else self._host(storage)
        self._written(storage)
        return host

    def export(self, storage: Storage, stream: Any, options: dict[str, Any]) -> Any:
        """A DLPack capsule of the device's copy, which `stream` may use after the work launched so
        far."""
        self._check(storage)
        element = Element(self._export, (), {storage: True}, caller())
        self._engine.submit(element)
        if element.finished or self._engine.guarded(
            None, self._backend.joins, stream, element.done
        ):
            return self._backend.capsule(storage.device, options)
        self._engine.wait(element)
        return self._backend.capsule(storage.device, options)

    def dlpack_device(self) -> tuple[int, int]:
        return self._backend.dlpack_device()

    def check_open(self) -> None:
        """Raises ArrayError while a sequence is recorded."""
        if self.closed:
            raise ArrayError(self.closed)

    def _check(self, storage: Storage) -> None:
        self.check_open()
        if storage.given_away:
            raise ArrayError(f"{storage.label} cannot be used: {storage.readonly}.")
        self._engine.check()
        self._engine.collect()

    def _before_writing(self, storage: Storage) -> None:
        self._check(storage)
        if storage.readonly:
            raise ArrayError(f"{storage.label} cannot be written: {storage.readonly}.")
        for element in storage.users():
            self._engine.wait(element)

    def _wait_for_writer(self, storage: Storage) -> None:
        if storage.writer is not None:
            self._engine.wait(storage.writer)

    def _is_read_by_jax(self, storage: Storage) -> bool:
        """Whether only JAX has the array, and copies it to the host faster than we could."""
        alone = storage.lent is not None and not storage.on_device and not storage.on_host
        return alone and self._engine.clock is None and storage.nbytes <= _READ_BY_JAX

    def _written(self, storage: Storage) -> None:
        storage.on_host, storage.on_device, storage.lent = True, False, None

    def _has_come(self, storage: Storage) -> bool:
        """Whether the device's copy is up to date; the last writer has been waited for."""
        self._wait_for_writer(storage)
        if storage.lent is not None and not storage.on_device:
            self._engine.memory.take(storage, self._own_stream())
        return storage.on_device

    def _host(self, storage: Storage) -> np.ndarray:
        """The host's copy, valid."""
        host = self._engine.memory.on_host(storage)
        if storage.on_host:
            return host
        if self._is_read_by_jax(storage):
            self._wait_for_writer(storage)
            host[...] = storage.lent
        elif self._has_come(storage):
            self._download(storage, host)
        else:
            host[...] = 0
        storage.on_host = True
        return host

    def _download(self, storage: Storage, host: np.ndarray) -> None:
        """Copies to the host on a separate stream, so that work launched after the writer does not
        delay it."""
        engine, stream = self._engine, self._own_stream()
        begun = engine.recorded(stream) if engine.clock is not None else None
        self._backend.download(host, storage.device, stream)
        arrived = engine.recorded(stream)
        engine.until(arrived, None)
        if engine.clock is not None:
            engine.clock.transferred(storage, "to host", HOST_STREAM, begun, arrived)
            engine.give_back(begun)
        engine.give_back(arrived)

    def _part(self, storage: Storage, key: Any) -> Any:
        stream = self._own_stream()
        found = self._engine.guarded(None, self._backend.part, storage.device, key, stream)
        return found[()] if found.ndim == 0 else found

    def _own_stream(self) -> Any:
        if self._stream is None:
            self._stream = self._backend.stream(0)
        return self._stream


def _is_part(key: Any, storage: Storage) -> bool:
    """Whether a key consists of indices and ranges, and selects some of the elements. Raises
    IndexError here, which would be too late on a device."""
    if _is_all(key, storage):
        return False
    keys = key if isinstance(key, tuple) else (key,)
    if not all(isinstance(k, int | slice | type(...)) for k in keys):
        return False
    np.broadcast_to(np.empty((), storage.dtype), storage.shape)[key]
    return True


def _is_all(key: Any, storage: Storage) -> bool:
    """Whether a key certainly selects every element."""
    if key is Ellipsis or (isinstance(key, slice) and key == slice(None)):
        return True
    keys = key if isinstance(key, tuple) else (key,)
    # for a single element, any valid index
    return all(size == 1 for size in storage.shape) and all(
        isinstance(k, int) and k in (0, -1) for k in keys
    )


def caller() -> Site:
    """The innermost call from outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


_PACKAGE = __name__.rpartition(".")[0] + "."
