"""The host compiler: C++ text in, the bytes of a shared object out."""

from __future__ import annotations

import functools
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from hlo.errors import ToolchainError

#: Compilers that are looked for when the environment variable CXX is not set.
COMPILERS = ("g++", "c++", "clang++")

_BASE_FLAGS = ("-std=c++17", "-fPIC", "-shared")
_SHOWN_LINES = 30


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
    wanted = shlex.split(os.environ.get("CXX", ""))
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
    run = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    return run.stdout


def compile_shared(
    source: str,
    *,
    flags: Sequence[str] = (),
    include: Sequence[Path] = (),
    depends: str = "",
    store: Store | None = None,
) -> bytes:
    """Compiles `source` (C++17) into a shared object and returns its bytes.

    `include` lists header folders; `depends` stands for their content in the cache key, together
    with the source, the flags and the compiler's version. Raises ToolchainError with the
    compiler's first messages when it refuses.
    """
    command = compiler()
    all_flags = (*_BASE_FLAGS, *flags)
    parts = (source, depends, _version(command), *command, *all_flags)
    key = "host-" + hashlib.sha256("\0".join(parts).encode()).hexdigest()
    cached = store.get(key) if store is not None else None
    if cached is not None:
        return cached
    with tempfile.TemporaryDirectory(prefix="fusionstitch-") as folder:
        path = Path(folder) / "source.cc"
        path.write_text(source)
        output = Path(folder) / "image.so"
        folders = [f"-I{f}" for f in include]
        # The libraries in `flags` must follow the source that needs them.
        line = [*command, *folders, str(path), *all_flags, "-o", str(output)]
        run = subprocess.run(line, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            shown = "\n".join(run.stderr.splitlines()[:_SHOWN_LINES])
            raise ToolchainError(
                f"The host compiler {command[0]} refused generated code. This is a defect in "
                f"fusionstitch or a compiler without C++17; its first messages:\n{shown}"
            )
        image = output.read_bytes()
    if store is not None:
        store.put(key, image)
    return image
