"""What this machine has, as `fusionstitch doctor` prints it."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Iterator

from fusionstitch import builders, env
from fusionstitch.errors import FusionStitchError, reason
from fusionstitch.options import Options
from fusionstitch.runtime import nvrtc, toolchain
from fusionstitch.runtime.cache import Store

_PACKAGES = ("jax", "jaxlib", "numpy", "highspy", "cupy-cuda13x", "cupy-cuda12x")


def examine() -> str:
    """Versions, compilers, GPU, cache and environment variables; what is missing says so."""
    sections: dict[str, Callable[[], Iterator[tuple[str, str]]]] = {
        "versions": _versions,
        "backends": _backends,
        "cache": _cache,
        "environment": _environment,
    }
    lines = []
    for title, section in sections.items():
        lines.append(title)
        try:
            lines += [f"  {name:<26} {value}" for name, value in section()]
        except FusionStitchError as error:
            lines.append(f"  {error}")
    return "\n".join(lines)


def _versions() -> Iterator[tuple[str, str]]:
    from fusionstitch import __version__

    yield "fusionstitch", __version__
    yield "python", platform.python_version()
    for package in _PACKAGES:
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            yield package, "not installed"


def _backends() -> Iterator[tuple[str, str]]:
    gpu = builders.gpu()
    yield "GPU", str(dict(gpu.facts)["kind"]) if gpu else gpu.reason
    yield "device profile", _said(lambda: builders.profile(Options(backend="auto")).name)
    found = nvrtc.available()
    yield "NVRTC (cuda)", f"{nvrtc.version()}" if found else found.reason
    yield "C++ (emulate, launcher)", _said(lambda: " ".join(toolchain.compiler()))


def _cache() -> Iterator[tuple[str, str]]:
    store = Store()
    entries, size = store.usage()
    yield "folder", str(store.folder)
    yield "objects", f"{entries}, {size / 1e6:.1f} MB"
    yield "persistent", "yes" if store.persistent else "no: kernels are kept in memory only"


def _environment() -> Iterator[tuple[str, str]]:
    for variable in env.VARIABLES:
        text = variable.text
        try:
            variable.get()
            value = f"{variable.doc}" if text is None else f"= {text}  ({variable.doc})"
        except FusionStitchError as error:
            value = str(error)
        yield variable.name, value
    for name in env.unknown():
        yield name, "is set but unknown: misspelt?"


def _said(what: Callable[[], str]) -> str:
    try:
        return what()
    except FusionStitchError as error:
        return reason(error)
