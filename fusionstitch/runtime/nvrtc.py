"""CUDA-C to a cubin through CuPy's binding of NVRTC; needs neither a GPU nor the CUDA toolkit."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import os
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any

from fusionstitch.hlo.errors import ToolchainError
from fusionstitch.hlo.verdict import Verdict, allow, forbid
from fusionstitch.runtime.apart import apart
from fusionstitch.runtime.outcome import Failed
from fusionstitch.runtime.threads import start
from fusionstitch.runtime.toolchain import Store

#: Options for every kernel. Fused multiply-add and fast math have NVRTC's defaults (on and off).
#: The resource report is parsed into `Resources`.
BASE_OPTIONS = ("-std=c++17", "--ptxas-options=-v")
NO_FMA = "--fmad=false"


@dataclass(frozen=True)
class Resources:
    """What ptxas allocated for one kernel. Bytes are per thread, except static `shared_bytes`, per
    block."""

    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    barriers: int

    @property
    def spills(self) -> bool:
        """Whether any register was spilled to local memory."""
        return self.spill_store_bytes > 0 or self.spill_load_bytes > 0


@dataclass(frozen=True)
class Compiled:
    """One translation unit: its cubin, the compiler's log and (entry, resources) pairs by name."""

    image: bytes
    log: str
    resources: tuple[tuple[str, Resources], ...]


@functools.cache
def _binding() -> Any:
    """CuPy's NVRTC module, or None if CuPy or the NVRTC library is missing."""

    def load() -> Any:
        binding = importlib.import_module("cupy.cuda").nvrtc
        binding.getVersion()
        return binding

    found = apart(load)
    # a broken CUDA install may raise anything
    return None if isinstance(found, Failed) else found


@functools.cache
def prepare() -> threading.Thread:
    """Loads NVRTC on another thread, once per process, so that planning need not wait for it."""
    thread = threading.Thread(target=lambda: _binding() and _uncached(), name="nvrtc")
    start(thread)  # if no thread can be started, it is loaded on demand
    return thread


def available() -> Verdict:
    """Whether NVRTC can be called, with its version."""
    if _binding() is None:
        return forbid(
            "NVRTC cannot be loaded: install CuPy for your CUDA version, for example "
            "`pip install cupy-cuda13x nvidia-cuda-nvrtc`."
        )
    return allow("NVRTC is there", version=version())


#: NVRTC's version, once known to this process.
_found_version: list[str] = []


def version() -> str:
    """NVRTC's version as "major.minor". Raises ToolchainError if NVRTC is missing."""
    found = ".".join(str(part) for part in _require().getVersion())
    _found_version[:] = [found]
    return found


def architectures() -> tuple[str, ...]:
    """The targets that this NVRTC compiles for, such as "sm_90", ascending."""
    return tuple(f"sm_{arch}" for arch in sorted(_require().getSupportedArchs()))


@functools.cache
def _uncached() -> tuple[str, ...]:
    """The option that disables NVRTC's own cache, since a hit omits the resource report from the
    log. Releases before that cache do not know the option."""
    nvrtc = _require()
    option = "--no-cache"
    program = nvrtc.createProgram("", "probe.cu", [], [])
    try:
        nvrtc.compileProgram(program, [option])
    except nvrtc.NVRTCError:
        return ()
    finally:
        nvrtc.destroyProgram(program)
    return (option,)


@functools.cache
def headers() -> tuple[tuple[str, str], ...]:
    """(name, text) of every device header that generated code may include, sorted by name."""
    folder = resources.files("fusionstitch.codegen") / "cuda"
    found = sorted(folder.iterdir(), key=lambda entry: entry.name) if folder.is_dir() else []
    return tuple((h.name, h.read_text("utf-8")) for h in found if h.name.endswith(".cuh"))


#: The packages that provide NVRTC, and other search paths: a stored version depends on these.
_BRINGS = (
    *("cupy", "cupy-cuda12x", "cupy-cuda13x"),
    *("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc-cu13"),
)
_SEARCH_PATHS = ("CUDA_PATH", "CUDA_HOME", "LD_LIBRARY_PATH")


def remembered(store: Store | None) -> str | None:
    """NVRTC's version as an earlier process found it with the installed packages, so that CuPy need
    not be loaded to look into the store. None if it is unknown."""
    if _found_version:
        return _found_version[-1]
    stored = store.get(_origin()) if store is not None else None
    return None if stored is None else stored.decode("ascii", "replace")


def remember(store: Store | None) -> None:
    """Stores NVRTC's version for later processes."""
    now = version().encode()
    if store is not None and store.get(_origin()) != now:
        store.put(_origin(), now)


@functools.cache
def _origin() -> str:
    """The key of the stored version."""
    parts = [f"{name}={os.environ.get(name)}" for name in _SEARCH_PATHS]
    for name in _BRINGS:
        try:
            parts.append(f"{name}={importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return "nvrtc-version-" + hashlib.sha256("\0".join([sys.prefix, *parts]).encode()).hexdigest()


#: The version in the key of builds by any version.
ANY = "any"


def key(source: str, arch: str, options: tuple[str, ...] = (), by: str | None = None) -> str:
    """The content hash, in hex, of everything that decides the cubin of `source`, including NVRTC's
    version: by default the loaded one."""
    digest = hashlib.sha256()
    by = version() if by is None else by
    parts = ("cuda", by, arch, *BASE_OPTIONS, *options, source, *sum(headers(), ()))
    for part in parts:
        data = part.encode()
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()


def compile(source: str, arch: str = "sm_90", options: tuple[str, ...] = ()) -> Compiled:
    """Compiles one translation unit, which may include the headers of codegen/cuda, to a cubin.

    Other threads run meanwhile (the binding releases the GIL), so kernels compile in parallel.
    Raises ToolchainError with the log and the offending lines if NVRTC rejects it.
    """
    image, log = _compiled(source, arch, options, _cubin)
    return Compiled(image, log, parse_resources(log))


def ptx(source: str, arch: str = "sm_90", options: tuple[str, ...] = ()) -> str:
    """The PTX of a translation unit, for people. Raises ToolchainError as `compile` does."""
    virtual = arch.replace("sm_", "compute_")
    return _compiled(source, virtual, options, _ptx)[0].decode("utf-8", "replace")


def _cubin(nvrtc: Any, program: Any) -> bytes:
    return bytes(nvrtc.getCUBIN(program)) + b"\0"  # CuPy omits the last byte


def _ptx(nvrtc: Any, program: Any) -> bytes:
    found = nvrtc.getPTX(program)
    return found.encode() if isinstance(found, str) else bytes(found)


def _compiled(
    source: str, arch: str, options: tuple[str, ...], result: Callable[[Any, Any], bytes]
) -> tuple[bytes, str]:
    """What `result` reads from a compiled translation unit, and the log."""
    nvrtc = _require()
    names, texts = ([pair[i].encode() for pair in headers()] for i in (0, 1))
    program = nvrtc.createProgram(source, "kernel.cu", texts, names)
    try:
        nvrtc.compileProgram(program, [f"-arch={arch}", *BASE_OPTIONS, *_uncached(), *options])
        return result(nvrtc, program), nvrtc.getProgramLog(program)
    except nvrtc.NVRTCError as error:
        log = nvrtc.getProgramLog(program) or str(error)
        said = _quoted(source, log)
        raise ToolchainError(
            f"NVRTC {version()} refused a kernel for {arch}. Leave its pattern to XLA "
            f'(fallback="xla") and report the log below.\n{said}',
            said,
        ) from None
    finally:
        nvrtc.destroyProgram(program)


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FUNCTION = re.compile(r"Function properties for (\S+)")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_BARRIERS = re.compile(r"used (\d+) barriers")
_SHARED = re.compile(r"(\d+) bytes smem")


def parse_resources(log: str) -> tuple[tuple[str, Resources], ...]:
    """(entry, Resources) of each kernel in a ptxas log, sorted by name.

    ptxas reports stack and spills per function, and the rest per entry. A device function that was
    not inlined counts towards the entry it is listed under.
    """
    found: dict[str, Resources] = {}
    entry, frames = "", [0, 0, 0]
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry, frames = match[1], [0, 0, 0]
        elif match := _FRAME.search(line):
            frames = [total + int(part) for total, part in zip(frames, match.groups(), strict=True)]
        elif (match := _USED.search(line)) and entry:
            barriers, shared = _BARRIERS.search(line), _SHARED.search(line)
            found[entry] = Resources(
                registers=int(match[1]),
                shared_bytes=int(shared[1]) if shared else 0,
                stack_bytes=frames[0],
                spill_store_bytes=frames[1],
                spill_load_bytes=frames[2],
                barriers=int(barriers[1]) if barriers else 0,
            )
    return tuple(sorted(found.items()))


_LOCATED = re.compile(r"^kernel\.cu\((\d+)\): (?:error|catastrophic error)", re.MULTILINE)


def _quoted(source: str, log: str) -> str:
    """The log of a failed compile, followed by each line that an error refers to, numbered."""
    lines = source.splitlines()
    numbers = sorted({int(n) for n in _LOCATED.findall(log) if 0 < int(n) <= len(lines)})
    quoted = "\n".join(f"{number:6d} | {lines[number - 1]}" for number in numbers)
    return f"{log.strip()}\n{quoted}".rstrip()


def _require() -> Any:
    if (binding := _binding()) is None:
        raise ToolchainError(available().reason)
    return binding
