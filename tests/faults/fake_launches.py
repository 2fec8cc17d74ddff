"""The CUDA launcher on a driver that does nothing: runs in a process of its own, prints JSON.

Usage: python -m tests.faults.fake_launches DRIVER HOST LAUNCHER, three shared objects. The driver
has libcuda's name inside, so that the launcher finds it where it looks for libcuda.
"""

from __future__ import annotations

import ctypes
import json
import struct
import sys
import threading
from typing import Any

INITIALIZE, EXECUTE = 2, 3
SETUP = (
    *("cuStreamGetCtx", "cuLibraryLoadData", "cuLibraryGetKernel", "cuCtxPushCurrent"),
    *("cuCtxGetDevice", "cuKernelSetAttribute", "cuKernelGetFunction", "cuFuncLoad"),
)
SETUP_STATUSES = (2, 200, 209, 500, 12345)
LAUNCH_STATUSES = (1, 2, 700, 701, 720, 12345)


#: The smallest code that is all there: an ELF header and one section, which is empty.
IMAGE = struct.pack(
    "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, 190, 1, 0, 0, 64, 0, 64, 0, 0, 64, 1, 0
) + bytes(64)
#: The addresses of two arguments and a result.
BUFFERS = (16, 32, 48)


class Launcher:
    def __init__(self, driver: str, host: str, launcher: str):
        self.driver = ctypes.CDLL(driver)
        self.host = ctypes.CDLL(host)
        library = ctypes.CDLL(launcher)
        self.handlers = {INITIALIZE: library.fs_load, EXECUTE: library.fs_launch}

    def load(self, key: str, image: bytes = IMAGE, shared: int = 64, other: str = "") -> str:
        """The error of loading an image under one key or two, or ''."""
        bundle = f"{key} {other} {shared}".encode()
        return self.call(INITIALIZE, key, bundle, other.encode() or None, image, shared=shared)

    def launch(self, key: str, entry: str = "fs_add", cooperative: bool = True) -> str:
        """The error of launching a kernel, or ''."""
        return self.call(EXECUTE, key, entry=entry, cooperative=cooperative)

    def call(
        self,
        stage: int,
        key: str,
        bundle: bytes | None = None,
        other: bytes | None = None,
        image: bytes = b"",
        shared: int = 64,
        entry: str = "fs_add",
        cooperative: bool = True,
    ) -> str:
        text = ctypes.create_string_buffer(4096)
        buffers = (ctypes.c_void_p * 3)(*BUFFERS)
        failed = self.host.host_call(
            self.handlers[stage], stage, key.encode(), bundle, other, image,
            ctypes.c_size_t(len(image)), entry.encode(), ctypes.c_int64(shared),
            ctypes.c_int64(cooperative), buffers, ctypes.c_int64(2), ctypes.c_int64(1), text,
            ctypes.c_size_t(4096),
        )  # fmt: skip
        return text.value.decode() if failed else ""

    def fail(self, name: str, status: int) -> None:
        self.driver.fake_fail(name.encode(), status)

    def count(self, name: str) -> int:
        return int(self.driver.fake_count(name.encode()))

    def launched(self) -> list[int | None]:
        """The addresses that the last launched kernel got."""
        found = (ctypes.c_void_p * 8)()
        return list(found[: self.driver.fake_launched(found, 8)])

    def both(self, key: str) -> list[str]:
        return [self.load(key), self.launch(key)]


def main(*libraries: str) -> dict[str, Any]:
    launcher = Launcher(*libraries)
    found: dict[str, Any] = {"fine": launcher.both("fine")}
    if any(found["fine"]):
        return found
    found["launched"] = [launcher.launched()]
    found["fine"].append(launcher.launch("fine", cooperative=False))
    found["launched"].append(launcher.launched())
    found["setup"] = {}
    for name in SETUP:
        for status in SETUP_STATUSES:
            key = f"{name}-{status}"
            launcher.fail(name, status)
            failed = launcher.load(key)
            launcher.fail(name, 0)
            found["setup"][key] = [failed, *launcher.both(key)]
    found["launch"] = {}
    for status in LAUNCH_STATUSES:
        launcher.fail("cuLaunchKernelEx", status)
        failed = launcher.both("fine")
        launcher.fail("", 0)
        found["launch"][str(status)] = [*failed, *launcher.both("fine")]
    found["balanced"] = launcher.count("cuCtxPushCurrent") - launcher.count("cuCtxPopCurrent")
    found["another kernel"] = launcher.launch("fine", entry="fs_other")
    found["cut short"] = launcher.load("cut", IMAGE[:-1])
    found["not loaded"] = launcher.launch("late")
    found["loaded then"] = [launcher.load("early", other="late"), launcher.launch("late")]

    def made() -> tuple[int, int]:
        return launcher.count("cuKernelSetAttribute"), launcher.count("cuLibraryLoadData")

    before = made()
    for shared in (64, 32, 128, 128):  # as the bundles of four programs
        launcher.load("fine", shared=shared)
    found["known images"] = [b - a for a, b in zip(before, made(), strict=True)]
    loads = launcher.count("cuLibraryLoadData")
    errors: list[str] = []
    threads = [
        threading.Thread(target=lambda: errors.extend(launcher.both("shared"))) for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found["threads"] = [sorted(set(errors)), launcher.count("cuLibraryLoadData") - loads]
    return found


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
