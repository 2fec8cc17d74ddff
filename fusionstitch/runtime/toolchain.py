"""The host compiler: C++ text in, the bytes of a shared object out."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Protocol

from fusionstitch.runtime import images
from fusionstitch.runtime.apart import check
from hlo.errors import ToolchainError

#: Compilers that are looked for when the environment variable CXX is not set.
COMPILERS = ("g++", "c++", "clang++")

_BASE_FLAGS = ("-std=c++17", "-fPIC", "-shared")
_SHOWN_LINES, _SHOWN_BYTES = 30, 1 << 20
_ANOTHER = "Name another one in the environment variable CXX."
#: Seconds a compiler may take: a unit of many kernels needs a minute on a slow machine.
_LIMIT_SECONDS = 600.0
_VERSION_SECONDS = 30.0
#: How often it is looked whether anybody still waits for the compiler.
_LOOK_SECONDS = 0.1
#: Compilers that did not come to an end: this process does not wait for them again.
_hung: set[str] = set()


class Store(Protocol):
    """A content-addressed store of built images."""

    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, value: bytes) -> None: ...


class MemoryStore:
    """The store of a process that keeps nothing on disk."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self._values.get(key)

    def put(self, key: str, value: bytes) -> None:
        self._values[key] = value


def compiler() -> tuple[str, ...]:
    """The host compiler as a command: CXX (which may hold flags), else the first one found.

    Raises ToolchainError when there is none.
    """
    try:
        wanted = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        raise ToolchainError(
            f"The environment variable CXX={os.environ['CXX']!r} is no command ({error}). Correct "
            "CXX, or unset it to use the system's compiler."
        ) from None
    for command in [wanted] if wanted else [[name] for name in COMPILERS]:
        path = shutil.which(command[0])
        if path is not None:
            return (path, *command[1:])
    if wanted:
        raise ToolchainError(
            f"The C++ compiler {wanted[0]!r} named by the environment variable CXX was not found. "
            "Correct CXX, or unset it to use the system's compiler."
        )
    raise ToolchainError(
        f"No C++ compiler was found (looked for {', '.join(COMPILERS)}). Install one, for example "
        "with `apt-get install g++`, or name one in the environment variable CXX."
    )


@functools.cache
def _version(command: tuple[str, ...]) -> str:
    return _run([*command, "--version"], _VERSION_SECONDS).stdout


def _run(command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Runs the compiler, within a time. Raises ToolchainError where it cannot run or hangs."""
    if command[0] in _hung:
        raise ToolchainError(f"The host compiler {command[0]} hung before. {_ANOTHER}")
    try:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            code = _waited(command, seconds, out, err)
            texts = []
            for stream in (out, err):
                stream.seek(0)
                texts.append(stream.read(_SHOWN_BYTES).decode(errors="replace"))
    except OSError as error:
        raise ToolchainError(
            f"The host compiler {command[0]} cannot be run: {error}. {_ANOTHER}"
        ) from None
    return subprocess.CompletedProcess(list(command), code, *texts)


def _waited(command: Sequence[str], seconds: float, out: IO[bytes], err: IO[bytes]) -> int:
    """The exit status. In a session of its own, so that what it started can be ended with it."""
    running = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
    )
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            check()
            with contextlib.suppress(subprocess.TimeoutExpired):
                return running.wait(min(seconds, _LOOK_SECONDS))
    except BaseException:
        _end(running)
        raise
    _end(running)
    _hung.add(command[0])
    raise ToolchainError(
        f"The host compiler {command[0]} did not come to an end within {seconds:.0f} seconds. "
        f"{_ANOTHER}"
    )


def _end(running: subprocess.Popen[bytes]) -> None:
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()


def compile_shared(
    source: str,
    *,
    flags: Sequence[str] = (),
    include: Sequence[Path] = (),
    depends: str = "",
    store: Store | None = None,
    accept: Callable[[bytes], None] | None = None,
) -> bytes:
    """Compiles `source` (C++17) into a shared object and returns its bytes.

    `include` lists header folders; `depends` stands for their content in the cache key, together
    with the source, the flags, the compiler's version and the machine. `accept` raises
    ToolchainError for an image that is of no use here: it is not kept, and a kept one is built
    again. Raises ToolchainError with the compiler's first messages when it refuses.
    """
    command = compiler()
    all_flags = (*_BASE_FLAGS, *flags)
    parts = (source, depends, platform.machine(), _version(command), *command, *all_flags)
    key = "host-" + hashlib.sha256("\0".join(parts).encode()).hexdigest()
    cached = store.get(key) if store is not None else None
    if cached is not None and _accepted(cached, accept):
        return cached
    try:
        image = _compiled(source, command, all_flags, include)
    except OSError as error:  # no room for temporary files, say
        raise ToolchainError(
            f"The host compiler could not be used: {error}. Set TMPDIR to a folder with room."
        ) from None
    if not images.is_whole(image):
        raise ToolchainError(
            f"The host compiler {command[0]} wrote {len(image)} bytes that are no shared object. "
            f"{_ANOTHER}"
        )
    if accept is not None:
        accept(image)
    if store is not None:
        store.put(key, image)
    return image


def _accepted(image: bytes, accept: Callable[[bytes], None] | None) -> bool:
    if not images.is_whole(image):
        return False
    try:
        if accept is not None:
            accept(image)
    except ToolchainError:  # built elsewhere, for another C library
        return False
    return True


def _compiled(
    source: str, command: Sequence[str], flags: Sequence[str], include: Sequence[Path]
) -> bytes:
    with tempfile.TemporaryDirectory(prefix="fusionstitch-") as folder:
        path = Path(folder) / "source.cc"
        path.write_text(source, "utf-8")
        output = Path(folder) / "image.so"
        folders = [f"-I{f}" for f in include]
        # The libraries in `flags` must follow the source that needs them.
        run = _run([*command, *folders, str(path), *flags, "-o", str(output)], _LIMIT_SECONDS)
        if run.returncode != 0:
            shown = "\n".join(run.stderr.splitlines()[:_SHOWN_LINES])
            raise ToolchainError(
                f"The host compiler {command[0]} refused generated code. This is a defect in "
                f"fusionstitch or a compiler without C++17; its first messages:\n{shown}"
            )
        return output.read_bytes() if output.is_file() else b""
