"""The launchers that come with the package: used if their key matches, else compiled."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import jax
import pytest

from fusionstitch.hlo.errors import ToolchainError
from fusionstitch.runtime import prebuilt, toolchain
from fusionstitch.runtime.toolchain import MemoryStore

FFI = Path(jax.ffi.include_dir())
IMAGE = b"an image"


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> prebuilt.Launcher:
    """A launcher that the package brings, compiled for the jaxlib that is here."""
    monkeypatch.setattr(prebuilt, "FOLDER", tmp_path)
    prebuilt.CUDA.image.write_bytes(IMAGE)
    prebuilt.CUDA.seal.write_text(prebuilt.seal(prebuilt.CUDA, FFI, IMAGE))
    return prebuilt.CUDA


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the host compiler is asked to compile instead."""
    asked: list[str] = []

    def compile_shared(source: str, **_: object) -> bytes:
        asked.append(source)
        return b"compiled"

    monkeypatch.setattr(toolchain, "compile_shared", compile_shared)
    return asked


def test_one_that_fits_is_taken(brought: prebuilt.Launcher, compiled: list[str]) -> None:
    accepted: list[bytes] = []
    assert toolchain.launcher(brought, MemoryStore(), accepted.append) == IMAGE
    assert accepted == [IMAGE]
    assert not compiled


def test_for_other_headers_of_jaxlib_it_is_compiled(
    brought: prebuilt.Launcher,
    compiled: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = tmp_path / "include"
    shutil.copytree(FFI / "xla" / "ffi" / "api", other / "xla" / "ffi" / "api")
    assert prebuilt.image(brought, other) == IMAGE  # by their text, not by their place
    with (other / "xla" / "ffi" / "api" / "ffi.h").open("a") as header:
        header.write("// another version\n")
    monkeypatch.setattr(jax.ffi, "include_dir", lambda: str(other))
    assert toolchain.launcher(brought) == b"compiled"
    assert compiled == [brought.source.read_text()]


@pytest.mark.parametrize("fault", ["no seal", "no image", "a damaged image", "a seal of nonsense"])
def test_what_is_not_whole_is_compiled(
    brought: prebuilt.Launcher, compiled: list[str], fault: str
) -> None:
    if fault == "no seal":
        brought.seal.unlink()
    elif fault == "no image":
        brought.image.unlink()
    elif fault == "a damaged image":
        brought.image.write_bytes(IMAGE[:-1])
    else:
        brought.seal.write_bytes(b"\xff")
    assert toolchain.launcher(brought) == b"compiled"


def test_one_that_cannot_be_loaded_is_compiled(
    brought: prebuilt.Launcher, compiled: list[str]
) -> None:
    def accept(image: bytes) -> None:
        raise ToolchainError("it wants another C library")

    assert toolchain.launcher(brought, accept=accept) == b"compiled"


def test_the_key_covers_sources_headers_flags_and_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [launcher.key(FFI) for launcher in prebuilt.LAUNCHERS]
    keys.append(dataclasses.replace(prebuilt.CUDA, flags=("-O3",)).key(FFI))
    header = tmp_path / "calls.h"
    header.write_text("// another\n")
    keys.append(dataclasses.replace(prebuilt.CUDA, headers=(header,)).key(FFI))
    monkeypatch.setattr(prebuilt.platform, "machine", lambda: "another")
    keys.append(prebuilt.CUDA.key(FFI))
    assert len(set(keys)) == len(keys)
