"""The launchers that come with the package, compiled when it was built or installed.

A launcher fits the jaxlib whose FFI headers it was compiled with. So next to it there is a hash of
those headers, of its own sources and flags, and of the machine. It is used if all of these are
unchanged; otherwise it is compiled on first use. The build loads only this file (see setup.py),
with nothing installed, so it imports only the standard library.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).parent
#: The headers that generated code includes, including those of the emulator.
KERNEL_HEADERS = _HERE.parent / "codegen" / "cuda"
#: The folder of the compiled launchers.
FOLDER = _HERE / "launchers"
#: Flags for a shared object of C++.
SHARED = ("-std=c++17", "-fPIC", "-shared")
#: Flags for every launcher. The library follows the source that needs it.
_FLAGS = ("-O2", "-w", "-ldl")


@dataclass(frozen=True)
class Launcher:
    """A shared object of ours: its source, our headers that it includes, the compiler's flags."""

    name: str
    headers: tuple[Path, ...]
    flags: tuple[str, ...] = _FLAGS

    @property
    def source(self) -> Path:
        return _HERE / f"{self.name}.cc"

    @property
    def image(self) -> Path:
        """The compiled file; next to it are the hashes of what it was compiled from, and of
        itself."""
        return FOLDER / f"{self.name}.so"

    @property
    def seal(self) -> Path:
        return FOLDER / f"{self.name}.key"

    def folders(self, ffi: Path) -> tuple[Path, ...]:
        """The compiler's header folders; `ffi` is jaxlib's."""
        return (_HERE, KERNEL_HEADERS, ffi)

    def depends(self, ffi: Path) -> str:
        """A hash of all headers, including jaxlib's."""
        folder = ffi / "xla" / "ffi" / "api"
        return _hash(path.read_bytes() for path in (*self.headers, *sorted(folder.glob("*.h"))))

    def key(self, ffi: Path) -> str:
        """A hash of everything that decides the image, except for the compiler."""
        texts = (self.depends(ffi), sys.platform, platform.machine(), *SHARED, *self.flags)
        return _hash((self.source.read_bytes(), *map(str.encode, texts)))


def _runtime(*names: str) -> tuple[Path, ...]:
    return tuple(_HERE / name for name in names)


_CHECKS = ("emulator_checks.h", "emulator_counters.h", "emulator_order.h", "emulator_shadow.h")
CUDA = Launcher("launcher_cuda", _runtime("calls.h", "held.h"))
CPU = Launcher(
    "launcher_cpu",
    (
        *_runtime("calls.h", "held.h", "emulator.h", "emulator_sync.h", *_CHECKS, "fibers.h"),
        *sorted(path for path in KERNEL_HEADERS.glob("*") if path.suffix in (".h", ".cuh")),
    ),
)
LAUNCHERS = (CUDA, CPU)


def image(launcher: Launcher, ffi: Path) -> bytes | None:
    """The bytes of a launcher that was compiled for this environment; None if there is none.

    It is trusted like the Python files next to it.
    """
    try:
        key, _, digest = launcher.seal.read_text("ascii").strip().partition(" ")
        if key != launcher.key(ffi):
            return None
        found = launcher.image.read_bytes()
    except (OSError, ValueError):
        return None
    return found if _hash([found]) == digest else None


def command(
    launcher: Launcher, ffi: Path, compiler: Sequence[str], output: Path
) -> tuple[str, ...]:
    """The build's command to compile a launcher."""
    include = (f"-I{folder}" for folder in launcher.folders(ffi))
    return (*compiler, *SHARED, *include, str(launcher.source), *launcher.flags, "-o", str(output))


def seal(launcher: Launcher, ffi: Path, built: bytes) -> str:
    """The text stored next to an image."""
    return f"{launcher.key(ffi)} {_hash([built])}\n"


def _hash(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()
