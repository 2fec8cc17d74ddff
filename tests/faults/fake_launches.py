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
from collections.abc import Callable
from typing import Any

INSTANTIATE, INITIALIZE, EXECUTE = 0, 2, 3
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
        self.library = library
        self.handlers = {
            INSTANTIATE: library.fs_hold,
            INITIALIZE: library.fs_load,
            EXECUTE: library.fs_launch,
        }

    def load(
        self,
        key: str,
        image: bytes = IMAGE,
        shared: int = 64,
        other: str = "",
        state: ctypes.c_void_p | None = None,
        stage: int = INITIALIZE,
    ) -> str:
        """The error of loading an image under one key or two, or ''."""
        bundle = f"{key} {other} {shared}".encode()
        return self.call(stage, key, bundle, other.encode() or None, image, shared, state=state)

    def held(self, *keys: str) -> ctypes.c_void_p:
        """The state of an executable with images under one key or two."""
        state = ctypes.c_void_p()
        error = self.load(keys[0], other="".join(keys[1:]), state=state, stage=INSTANTIATE)
        assert not error, error
        return state

    def destroy(self, state: ctypes.c_void_p) -> list[str]:
        """Ends an executable; what was waited for and unloaded then."""
        self.written()
        self.host.host_destroy(self.library.fs_state_info, state)
        return self.written()

    def written(self) -> list[str]:
        text = ctypes.create_string_buffer(4096)
        self.driver.fake_written(text, ctypes.c_size_t(4096))
        return text.value.decode().split("\n")[:-1]

    def images(self) -> int:
        return int(self.library.fs_image_count())

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
        state: ctypes.c_void_p | None = None,
    ) -> str:
        text = ctypes.create_string_buffer(4096)
        buffers = (ctypes.c_void_p * 3)(*BUFFERS)
        failed = self.host.host_call(
            self.handlers[stage], stage, key.encode(), bundle, other, image,
            ctypes.c_size_t(len(image)), entry.encode(), ctypes.c_int64(shared),
            ctypes.c_int64(cooperative), buffers, ctypes.c_int64(2), ctypes.c_int64(1),
            None if state is None else ctypes.byref(state), text, ctypes.c_size_t(4096),
        )  # fmt: skip
        return text.value.decode() if failed else ""

    def fail(self, name: str, status: int) -> None:
        self.driver.fake_fail(name.encode(), status)

    def count(self, name: str) -> int:
        return int(self.driver.fake_count(name.encode()))

    def run_loading(self, capturing: bool) -> list[Any]:
        """The error of executing the call that loads, and how many nodes that made."""
        self.driver.fake_capturing(int(capturing))
        before = self.count("cuGraphAddEmptyNode")
        launch, self.handlers[EXECUTE] = self.handlers[EXECUTE], self.library.fs_nothing
        error = self.load("fine", stage=EXECUTE)
        self.handlers[EXECUTE] = launch
        self.driver.fake_capturing(0)
        return [error, self.count("cuGraphAddEmptyNode") - before]

    def launched(self) -> list[int | None]:
        """The addresses that the last launched kernel got."""
        found = (ctypes.c_void_p * 8)()
        return list(found[: self.driver.fake_launched(found, 8)])

    def both(self, key: str) -> list[str]:
        return [self.load(key), self.launch(key)]


def unloading(launcher: Launcher) -> dict[str, Any]:
    """What becomes of images when the executables that hold them go."""
    found: dict[str, Any] = {}
    before = launcher.images()

    def ran(state: ctypes.c_void_p, key: str, other: str = "") -> list[str]:
        return [launcher.load(key, other=other, state=state), launcher.launch(key)]

    def loaded() -> int:
        return launcher.count("cuLibraryLoadData")

    start = loaded()
    first, second = launcher.held("a"), launcher.held("a", "b")
    found["two ran"] = [*ran(first, "a"), *ran(second, "a", "b"), loaded() - start]
    found["one went"] = [launcher.destroy(first), launcher.launch("a"), launcher.images() - before]
    numbers = list(range(start + 1, loaded() + 1))
    found["both went"] = [launcher.destroy(second), numbers, launcher.launch("a")]
    third = launcher.held("a")
    found["again"] = [*ran(third, "a"), loaded() - start]
    launcher.driver.fake_context(5)
    found["again"] += ran(third, "a")
    launcher.driver.fake_context(4)
    found["two contexts"] = launcher.destroy(third)
    found["never ran"] = launcher.destroy(launcher.held("a"))

    busy, other = launcher.held("a"), launcher.held("b")
    found["busy"] = [*ran(busy, "a"), *ran(other, "b")]
    launcher.fail("cuCtxSynchronize", 700)
    found["busy"].append(launcher.destroy(busy))
    launcher.fail("", 0)
    found["idle then"] = launcher.destroy(other)

    stubborn = launcher.held("a")
    found["stubborn"] = ran(stubborn, "a")
    launcher.fail("cuLibraryUnload", 1)
    launcher.destroy(stubborn)
    launcher.fail("", 0)
    fourth = launcher.held("a")
    found["stubborn"] += ran(fourth, "a")
    launcher.destroy(fourth)

    errors: list[str] = []
    loads, unloads = loaded(), launcher.count("cuLibraryUnload")

    def churn() -> None:
        for _ in range(50):
            state = launcher.held("a", "b")
            errors.extend(ran(state, "a", "b"))
            launcher.host.host_destroy(launcher.library.fs_state_info, state)

    in_threads(8, churn)
    unloaded = launcher.count("cuLibraryUnload") - unloads
    found["churn"] = [sorted(set(errors)), loaded() - loads == unloaded]
    found["left"] = launcher.images() - before
    return found


def in_threads(count: int, work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main(*libraries: str) -> dict[str, Any]:
    launcher = Launcher(*libraries)
    found: dict[str, Any] = {"fine": launcher.both("fine")}
    if any(found["fine"]):
        return found
    found["launched"] = [launcher.launched()]
    found["fine"].append(launcher.launch("fine", cooperative=False))
    found["launched"].append(launcher.launched())
    found["loading runs"] = [launcher.run_loading(False), launcher.run_loading(True)]
    for name in ("cuStreamGetCaptureInfo", "cuGraphAddEmptyNode"):
        launcher.fail(name, 1)
        found["loading runs"].append(launcher.run_loading(True)[0])
        launcher.fail("", 0)
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
    in_threads(16, lambda: errors.extend(launcher.both("shared")))
    found["threads"] = [sorted(set(errors)), launcher.count("cuLibraryLoadData") - loads]
    found["unloading"] = unloading(launcher)
    found["balanced"] = launcher.count("cuCtxPushCurrent") - launcher.count("cuCtxPopCurrent")
    return found


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
