"""The host compiler: from C++ text to the bytes of a shared object."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
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

from fusionstitch.hlo.errors import ToolchainError
from fusionstitch.runtime import cpu, images, prebuilt, temporary
from fusionstitch.runtime.apart import check
from fusionstitch.runtime.prebuilt import Launcher

logger = logging.getLogger(__name__)

#: Compilers tried if the environment variable CXX is not set.
COMPILERS = ("g++", "c++", "clang++")

_SHOWN_LINES, _SHOWN_BYTES = 30, 1 << 20
_ANOTHER = "Name another one in the environment variable CXX."
#: The most seconds for a compiler: a unit of many kernels needs a minute on a slow machine.
_LIMIT_SECONDS = 600.0
_VERSION_SECONDS = 30.0
#: Interval in seconds to check whether the result is still wanted.
_LOOK_SECONDS = 0.1
#: Compilers that hung: this process does not run them again.
_hung: set[str] = set()


class Store(Protocol):
    """A content-addressed store of built images."""

    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, value: bytes) -> None: ...


class MemoryStore:
    """A store that writes nothing to disk."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self._values.get(key)

    def put(self, key: str, value: bytes) -> None:
        self._values[key] = value


def compiler() -> tuple[str, ...]:
    """The host compiler as a command: CXX (which may contain flags), else the first one found.

    Raises ToolchainError if there is none.
    """
    try:
        wanted = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        raise ToolchainError(
            f"The environment variable CXX={os.environ['CXX']!r} is not a command ({error}). "
            "Correct CXX, or unset it to use the system's compiler."
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


def _run(
    command: Sequence[str], seconds: float, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the compiler with a time limit and `folder` for its temporary files. Raises
    ToolchainError if it cannot run or hangs."""
    if command[0] in _hung:
        raise ToolchainError(f"The host compiler {command[0]} hung before. {_ANOTHER}")
    try:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            code = _waited(command, seconds, out, err, folder)
            texts = []
            for stream in (out, err):
                stream.seek(0)
                texts.append(stream.read(_SHOWN_BYTES).decode(errors="replace"))
    except OSError as error:
        raise ToolchainError(
            f"The host compiler {command[0]} cannot be run: {error}. {_ANOTHER}"
        ) from None
    if code in _NOT_RUN:
        raise ToolchainError(
            f"The host compiler {command[0]} cannot be run: {texts[1].strip()}. {_ANOTHER}"
        )
    return subprocess.CompletedProcess(list(command), code, *texts)


#: Runs a command, and kills it and all its children when the requesting process is gone. Standard
#: input is a pipe that this process holds open and never writes to.
_WATCHED = """
exec 3<&0 </dev/null
{ read -r _ <&3; kill -KILL 0; } &
"$@" 3<&-
code=$?
{ kill -KILL $!; wait $!; } 2>/dev/null
exit $code
"""
#: Exit statuses of a shell for a command that it could not run.
_NOT_RUN = (126, 127)


def _waited(
    command: Sequence[str], seconds: float, out: IO[bytes], err: IO[bytes], folder: Path | None
) -> int:
    """The exit status. The command has its own session, so that its children can be killed with
    it."""
    extra = {} if folder is None else {"TMPDIR": str(folder)}
    reads, writes = os.pipe()
    try:
        running = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHED, "sh", *command],
            stdin=reads,
            stdout=out,
            stderr=err,
            start_new_session=True,
            umask=0o077,
            # its messages are parsed, so they must be English; leftover files are deleted with the
            # folder
            env={**os.environ, "LC_ALL": "C", **extra},
        )
        if (code := _ended(running, seconds)) is not None:
            return code
    finally:
        os.close(reads)
        os.close(writes)
    _hung.add(command[0])
    raise ToolchainError(
        f"The host compiler {command[0]} did not come to an end within {seconds:.0f} seconds. "
        f"{_ANOTHER}"
    )


def _ended(running: subprocess.Popen[bytes], seconds: float) -> int | None:
    """The exit status; None if it took too long or nobody waits for it any more, and was killed."""
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
    return None


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

    `include` lists header folders; `depends` represents their content in the cache key, together
    with the source, the flags, the compiler's version and the machine. `accept` raises
    ToolchainError for an image that is unusable here. Such an image is not stored, and a stored one
    is built again. If no compiler can build it, one built by any compiler for this machine is used.
    Raises ToolchainError with the compiler's first messages if it fails.
    """
    all_flags = (*prebuilt.SHARED, *flags)
    content = (source, depends, platform.machine(), *all_flags)
    by_any = _key("by-any-", *content, cpu.model())
    try:
        command = compiler()
        version = _version(command)
        own = cpu.model() if cpu.is_named_by((*command, *all_flags)) else ""
        key = _key("host-", *content, version, *command, own)
        if (stored := _stored(store, key, accept)) is not None:
            return stored
        start = time.monotonic()
        image = build(source, command, all_flags, include)
        seconds = time.monotonic() - start
        logger.info("%s compiled %d lines in %.1f s", command[0], source.count("\n"), seconds)
        if accept is not None:
            accept(image)
    except ToolchainError:
        if (stored := _stored(store, _built_as(store, by_any), accept)) is not None:
            return stored
        raise
    if store is not None:
        store.put(key, image)
        store.put(by_any, key.encode())
    return image


def launcher(
    which: Launcher,
    store: Store | None = None,
    accept: Callable[[bytes], None] | None = None,
) -> bytes:
    """A launcher for the installed jaxlib: the package's own if it fits, else compiled and stored
    as by `compile_shared`, with the same `accept`.

    Raises ToolchainError if a host compiler is needed and missing.
    """
    import jax.ffi

    ffi = Path(jax.ffi.include_dir())
    if (image := prebuilt.image(which, ffi)) is not None:
        try:
            if accept is not None:
                accept(image)
            return image
        except ToolchainError as error:  # built for another C library
            logger.info("The package's %s is compiled again: %s", which.name, error)
    return compile_shared(
        which.source.read_text("utf-8"),
        flags=which.flags,
        include=which.folders(ffi),
        depends=which.depends(ffi),
        store=store,
        accept=accept,
    )


def build(
    source: str, command: Sequence[str], flags: Sequence[str], include: Sequence[Path]
) -> bytes:
    """The complete image; raises ToolchainError."""
    try:
        image = _compiled(source, command, flags, include)
    except OSError as error:  # for example no space for temporary files
        raise ToolchainError(
            f"The host compiler could not be used: {error}. Set TMPDIR to a folder with room."
        ) from None
    if not images.is_whole(image):
        raise ToolchainError(
            f"The host compiler {command[0]} wrote {len(image)} bytes that are not a shared "
            f"object. {_ANOTHER}"
        )
    return image


def _key(kind: str, *parts: str) -> str:
    return kind + hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _built_as(store: Store | None, by_any: str) -> str:
    """The key of the newest build of some content, by any compiler."""
    found = store.get(by_any) if store is not None else None
    return "" if found is None else found.decode("ascii", "replace")


def _stored(store: Store | None, key: str, accept: Callable[[bytes], None] | None) -> bytes | None:
    """The image under `key`, if it is usable."""
    image = store.get(key) if store is not None else None
    if image is None or not images.is_whole(image):
        return None
    try:
        if accept is not None:
            accept(image)
    except ToolchainError:  # built elsewhere, for another C library
        return None
    return image


def _compiled(
    source: str, command: Sequence[str], flags: Sequence[str], include: Sequence[Path]
) -> bytes:
    with temporary.folder() as folder:
        path, output = folder / "source.cc", folder / "image.so"
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(handle, 0o600)  # whatever the umask
            file.write(source)
        folders = [f"-I{f}" for f in include]
        # The libraries in `flags` must follow the source that needs them.
        whole = [*command, *folders, str(path), *flags, "-o", str(output)]
        run = _run(whole, _LIMIT_SECONDS, folder)
        if run.returncode != 0:
            raise _complaint(command[0], run.stderr, folder.parent)
        return output.read_bytes() if output.is_file() else b""


#: Messages of compilers about lacking resources, and which resource that is.
_EXHAUSTED = {
    "No space left on device": "disk space",
    "Disk quota exceeded": "disk space",
    "File too large": "disk space",
    "Read-only file system": "disk space",
    "out of memory": "memory",
    "virtual memory exhausted": "memory",
    "Cannot allocate memory": "memory",
    "Killed signal terminated program": "memory",
}
#: Messages about a missing part of the compiler: the assembler, the linker, a header, a library.
_INCOMPLETE = (
    *("cannot find '", "cannot execute", "error trying to exec", "unable to execute command"),
    *("No such file or directory", "file not found", "invalid linker name"),
    *("cannot find -l", "cannot find crt", "unable to find library"),
)


def _complaint(compiler: str, said: str, folder: Path) -> ToolchainError:
    """An error that says why a compiler failed, and what to do."""
    shown = "\n".join(said.splitlines()[:_SHOWN_LINES])
    for words, lacking in _EXHAUSTED.items():
        if words in said:
            cure = f"Set TMPDIR, now {folder}, to a folder with room. " * (lacking != "memory")
            return ToolchainError(
                f"The host compiler {compiler} ran out of {lacking}. {cure}It said:\n{shown}"
            )
    if any(words in said for words in _INCOMPLETE):
        return ToolchainError(
            f"The host compiler {compiler} is incomplete: it does not find its assembler, linker, "
            "headers or libraries. Install them, or add the folder of its programs to PATH. It "
            f"said:\n{shown}"
        )
    return ToolchainError(
        f"The host compiler {compiler} refused generated code. This is a defect in "
        f"fusionstitch or a compiler without C++17; its first messages:\n{shown}",
        said=shown,
    )
