"""The emulator's library: comes with the package or is built on first use; loaded, and known to
XLA."""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import threading
from importlib import resources
from pathlib import Path
from typing import Any

from fusionstitch.hlo.errors import ToolchainError
from fusionstitch.runtime import cache, handlers, prebuilt, toolchain
from fusionstitch.runtime.toolchain import MemoryStore, Store

#: The store for callers that name none: nothing outlives the process.
process_store = MemoryStore()

_lock = threading.Lock()
_loaded: list[ctypes.CDLL] = []
#: Why the build cannot be loaded here: building takes too long to retry for every kernel.
_failed: list[ToolchainError] = []


def library(store: Store | None = None) -> Any:
    """The emulator as a ctypes library, registered with XLA for the platform "cpu".

    Loaded once per process. `store` stores the build, by default in the user's cache folder. Raises
    ToolchainError without a host compiler.
    """
    with _lock:
        if _failed:
            raise _failed[0]
        if not _loaded:
            built = _build(store or cache.Store())
            handlers.register(built, "cpu")
            _loaded.append(built)
        return _loaded[0]


def image_count() -> int:
    """The number of kernel images that programs of this process hold on the emulator."""
    return int(library().fs_image_count())


@functools.cache
def header_folder() -> Path:
    """The folder of the headers that generated code includes."""
    return Path(str(resources.files("fusionstitch.codegen") / "cuda"))


@functools.cache
def header_digest() -> str:
    """A content hash of those headers."""
    paths = sorted(p for p in header_folder().iterdir() if p.suffix in (".h", ".cuh"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()


def _build(store: Store) -> ctypes.CDLL:
    loaded: list[ctypes.CDLL] = []

    def accept(image: bytes) -> None:
        _failed.clear()
        try:
            loaded.append(_load(image))
        except ToolchainError as error:
            _failed.append(error)
            raise

    toolchain.launcher(prebuilt.CPU, store, accept)
    return loaded[-1]


def _load(image: bytes) -> ctypes.CDLL:
    try:
        low = os.memfd_create("fusionstitch-launcher")
        # if standard error is closed, its number is the next free one, and XLA writes there
        file = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3)
        os.close(low)
        with os.fdopen(file, "wb", closefd=False) as stream:
            stream.write(image)
        # The file stays open: the path must keep naming this library as long as it is loaded.
        loaded = ctypes.CDLL(f"/proc/self/fd/{file}")
    except OSError as error:
        raise ToolchainError(
            f"The emulator that the host compiler built cannot be loaded: {error}."
        ) from None
    text = (ctypes.c_char_p, ctypes.c_size_t)
    loaded.fs_emulate_set_order.argtypes = (ctypes.c_int, ctypes.c_uint64)
    loaded.fs_emulate_set_order.restype = None
    held = ctypes.POINTER(ctypes.c_void_p)
    loaded.fs_emulate_hold.argtypes = (ctypes.c_char_p, *text, held, *text)
    loaded.fs_emulate_release.argtypes = (ctypes.c_void_p,)
    loaded.fs_emulate_release.restype = None
    loaded.fs_image_count.restype = ctypes.c_size_t
    loaded.fs_emulate_launch.argtypes = (
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_size_t,
        *(ctypes.c_int64,) * 3,
        ctypes.c_int,
        ctypes.c_char_p,
        *text,
        *text,
        *text,
    )
    return loaded
