"""Faults of every kind are survived: the right result, one warning, an intact cache, no hang."""

from __future__ import annotations

import functools
import logging
import os
import shutil
import stat
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.errors import FusionStitchWarning, StitchError
from fusionstitch.runtime import toolchain
from fusionstitch.runtime.cache import Database, Store
from tests.faults.sandbox import Sandbox, no_hang
from tests.faults.table import TABLE, Fault

FAULTS = {f"{area}: {fault.name}": fault for area, faults in TABLE.items() for fault in faults}
X = np.random.default_rng(0).standard_normal((6, 8), np.float32)


def program() -> Callable[[Any], Any]:
    """A new function each time, so that it is traced anew."""

    def normalised(x: jax.Array) -> jax.Array:
        s = x - x.sum(1, keepdims=True)
        return s * (s * x).sum(0)

    return normalised


COMPILE = toolchain._compiled
EXPECTED = np.asarray(jax.jit(program())(X))


def stitched(**options: Any) -> Any:
    return fs.jit(program(), options=fs.Options(backend="emulate", scorer="paper", **options))


@pytest.fixture(scope="module")
def filled(host_compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with all that the program needs."""
    folder = tmp_path_factory.mktemp("filled") / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FUSIONSTITCH_CACHE_DIR", str(folder))
        sandbox = Sandbox(patch, folder, folder.parent)
        sandbox.forget()
        stitched()(X)
        sandbox.forget()
    return folder


@functools.cache
def compiled_once(source: str, *rest: Any) -> bytes:
    return COMPILE(source, *rest)


@pytest.fixture
def sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, filled: Path) -> Iterator[Sandbox]:
    found = Sandbox(monkeypatch, tmp_path / "cache", tmp_path)
    monkeypatch.setenv("FUSIONSTITCH_CACHE_DIR", str(found.folder))
    found.forget()
    with found.after:
        yield found
    found.forget()


def _key(argument: Any) -> Any:
    return tuple(argument) if isinstance(argument, list) else argument


def heard(caplog: pytest.LogCaptureFixture, said: list[warnings.WarningMessage]) -> list[str]:
    log = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    return log + [str(w.message) for w in said if issubclass(w.category, FusionStitchWarning)]


def test_there_are_enough_faults() -> None:
    assert sum(map(len, TABLE.values())) == len(FAULTS) >= 100


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str, sandbox: Sandbox, filled: Path, caplog: pytest.LogCaptureFixture) -> None:
    fault: Fault = FAULTS[name]
    if fault.start == "filled":
        shutil.copytree(filled, sandbox.folder, copy_function=shutil.copy)
        sandbox.folder.chmod(0o700)
    else:
        sandbox.folder.mkdir(mode=0o700)
    with sandbox.patch.context() as patch, no_hang():
        faulty = Sandbox(patch, sandbox.folder, sandbox.tmp, sandbox.after)
        compiler = os.environ.get("CXX")
        fault.inject(faulty)
        if os.environ.get("CXX") == compiler:  # the same one: a build of its is as good as another
            patch.setattr(toolchain, "_compiled", lambda *args: compiled_once(*map(_key, args)))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            jitted = stitched()
            results = [np.asarray(jitted(X)) for _ in range(2)]
        for result in results:
            np.testing.assert_allclose(result, EXPECTED, rtol=1e-6, atol=1e-6)
        assert len(heard(caplog, said)) == fault.heard, heard(caplog, said)
        if fault.left:
            with pytest.raises(StitchError):
                stitched(fallback="error")(X)
        else:
            assert np.array_equal(np.asarray(stitched(fallback="error")(X)), results[0])
    sandbox.after.close()
    assert_sound(sandbox, filled)


def assert_sound(sandbox: Sandbox, filled: Path) -> None:
    """Without the fault the same cache serves the program again, without a word."""
    sandbox.forget()
    mend(sandbox)
    shutil.copytree(filled, sandbox.folder, dirs_exist_ok=True)  # spares compiling
    with no_hang():
        store, database = Store(sandbox.folder), Database(sandbox.folder)
        assert store.persistent
        assert store.corrupt() == []
        database.put_timing("p", "h200", 1.5, {})
        found = database.get_timing("p", "h200")
        assert found is not None
        assert found.us == 1.5
        assert database.persistent
        database.close()
        compiled = stitched(fallback="error").lower(X).compile()
        np.testing.assert_allclose(np.asarray(compiled(X)), EXPECTED, rtol=1e-6, atol=1e-6)
        assert len(compiled.kernels) == 1


def mend(sandbox: Sandbox) -> None:
    """Puts right what no program can: other users' files, and what stands in the place of ours."""
    if sandbox.folder.is_symlink() or not sandbox.folder.is_dir():
        sandbox.folder.unlink(missing_ok=True)
        sandbox.folder.mkdir(mode=0o700)
    for path in sorted(sandbox.folder.rglob("*"), reverse=True):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            path.unlink()
        elif path.is_dir() and path.name != "objects" and len(path.name) != 2:
            path.rmdir()
        elif path.is_file() and path.name == "objects":
            path.unlink()
    for path in (sandbox.folder, *sandbox.folder.rglob("*")):
        os.chown(path, os.getuid(), os.getgid())
        path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o022)
