"""Faults of execution inside XLA, without a GPU: the test calls the pass, and XLA is the CPU's."""

from __future__ import annotations

import ctypes
import dataclasses
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.compiler import builders
from fusionstitch.errors import FusionStitchWarning, OptionError, StitchError, ToolchainError
from fusionstitch.execution import cuda as execution_cuda
from fusionstitch.execution import deferred, recall
from fusionstitch.hlo.verdict import allow, forbid
from fusionstitch.runtime import cuda, nvrtc, xla_pass
from fusionstitch.runtime.cache import Store
from tests.faults.sandbox import Sandbox, no_hang

X = np.random.default_rng(0).standard_normal((256, 384), np.float32)
REGISTER = cuda.register_launcher


def mixed(x: jax.Array) -> jax.Array:
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)


EXPECTED = np.asarray(jax.jit(mixed)(X))


@pytest.fixture
def sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Sandbox]:
    store = Store(tmp_path / "cache")
    monkeypatch.setenv("FUSIONSTITCH_SCORER", "model")  # no GPU here can be asked
    monkeypatch.setattr(builders, "gpu", lambda: allow("faked", kind="NVIDIA H200"))
    monkeypatch.setattr(builders, "store", lambda: store)
    monkeypatch.setattr(cuda, "register_launcher", lambda store: allow())
    monkeypatch.setattr(xla_pass, "register", lambda callback: allow())
    deferred.reasons.clear()
    deferred.errors.clear()
    yield Sandbox(monkeypatch, tmp_path / "cache", tmp_path)
    deferred.reasons.clear()
    deferred.errors.clear()


def called(**options: Any) -> tuple[bytes | None, np.ndarray, Any]:
    """What XLA would get from the pass, the results of a call, and the function."""
    jitted = fs.jit(mixed, options=fs.Options(**options))
    execution = jitted._fusionstitch.execution
    stitched = None
    if isinstance(execution, execution_cuda.Cuda):
        ir = execution.jitted.lower(jax.ShapeDtypeStruct(X.shape, jnp.float32)).compiler_ir("hlo")
        module = ir.as_serialized_hlo_module_proto()
        stitched = xla_pass._stitch(module, execution_cuda._inside_xla, "mixed", execution.token)
    return stitched, np.asarray(jitted(X)), jitted


def _compiled(**changes: Any) -> Callable[[Sandbox], None]:
    """NVRTC gives something else than it should."""

    def inject(sandbox: Sandbox) -> None:
        plain = nvrtc.compile
        sandbox.patch.setattr(
            nvrtc, "compile", lambda *args: dataclasses.replace(plain(*args), **changes)
        )

    return inject


def _binding(**functions: Any) -> Callable[[Sandbox], None]:
    """CuPy's NVRTC module, with functions that do not work."""
    plain = nvrtc._binding()
    broken = SimpleNamespace(
        **{name: getattr(plain, name) for name in dir(plain) if not name.startswith("__")}
        | functions
    )
    return lambda sandbox: sandbox.patch.setattr(nvrtc, "_binding", lambda: broken)


def _fails(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def _raises(target: str, error: BaseException) -> Callable[[Sandbox], None]:
    return lambda sandbox: sandbox.raises(f"fusionstitch.{target}", error)


def _returns(target: str, value: Any) -> Callable[[Sandbox], None]:
    return lambda sandbox: sandbox.returns(f"fusionstitch.{target}", value)


def _no_launcher(script: str) -> Callable[[Sandbox], None]:
    """The launcher is to be built by a compiler that does not do it."""

    def inject(sandbox: Sandbox) -> None:
        sandbox.patch.setattr(cuda, "register_launcher", REGISTER)
        sandbox.patch.setattr(cuda, "_registered", None)
        sandbox.returns("fusionstitch.runtime.prebuilt.image", None)
        plain = ctypes.CDLL
        sandbox.patch.setattr(
            ctypes, "CDLL", lambda name: None if name == "libcuda.so.1" else plain(name)
        )
        sandbox.compiler(script)

    return inject


def _no_thread(sandbox: Sandbox) -> None:
    """NVRTC is not loaded yet, and cannot be loaded ahead."""
    sandbox.patch.setattr(nvrtc, "_found_version", [])
    sandbox.raises("fusionstitch.runtime.nvrtc.prepare", RuntimeError("can't start new thread"))


#: Faults that leave the program, or its only pattern, to XLA.
LEFT: dict[str, Callable[[Sandbox], Any]] = {
    "NVRTC is missing": _returns("runtime.nvrtc._binding", None),
    "NVRTC refuses": _raises("runtime.nvrtc.compile", ToolchainError("NVRTC refused a kernel.")),
    "NVRTC raises": _raises("runtime.nvrtc.compile", RuntimeError("internal error")),
    "NVRTC is out of memory": _raises("runtime.nvrtc.compile", MemoryError()),
    "NVRTC makes no program": _binding(createProgram=_fails(RuntimeError("OUT_OF_MEMORY"))),
    "NVRTC gives no cubin": _binding(getCUBIN=_fails(nvrtc._binding().NVRTCError(6)))
    if nvrtc._binding()
    else _returns("runtime.nvrtc._binding", None),
    "NVRTC gives an empty cubin": _compiled(image=b""),
    "NVRTC gives garbage": _compiled(image=b"\x7fELF garbage" * 99),
    "NVRTC names no kernel": _returns("runtime.nvrtc.parse_resources", ()),
    "NVRTC tells no version": _raises("runtime.nvrtc.version", ToolchainError("no version")),
    "a kernel does not fit": _returns("runtime.cuda.launchable", forbid("It does not fit")),
    "the builder raises": _returns("compiler.builders.cuda", _fails(KeyError("lost"))),
    "the core raises": _raises("compiler.core.stitch", SystemError("broken")),
    "the progress line raises": _raises("compiler.progress.line", ValueError("closed file")),
    "measuring raises": _raises("guard.live.judge_for", RuntimeError("no device")),
    "publishing raises": _raises("runtime.xla_pass.publish", AttributeError("local")),
    "the thread for NVRTC cannot start": _no_thread,
    "the launcher is refused": lambda p: p.returns(
        "fusionstitch.runtime.cuda.register_launcher", forbid("There is no compiler.")
    ),
    "the launcher raises": _raises("runtime.cuda.register_launcher", OSError("no such file")),
    "the launcher cannot be built": _no_launcher("exit 1"),
    "the launcher is garbage": _no_launcher('echo garbage > "$out"'),
    "the launcher takes for ever": _no_launcher('[ "$1" = --version ] || sleep 60'),
    "the launcher lacks its handlers": _no_launcher(
        '[ -n "$out" ] && echo "int x;" | g++ -shared -fPIC -x c++ - -o "$out"'
    ),
    "the pass cannot be registered": _raises("runtime.xla_pass.register", RuntimeError("no door")),
    "the pass is not there": lambda p: p.returns(
        "fusionstitch.runtime.xla_pass.register", forbid("This JAX has no compiler passes.")
    ),
    "the GPU has no profile": lambda p: p.patch.setattr(
        builders, "gpu", lambda: allow("faked", kind="NVIDIA B999")
    ),
    "tuned results raise": _raises("tuning.tuned.load", LookupError("no such table")),
}
#: Faults that cost nothing but what is remembered.
STITCHED: dict[str, Callable[[Sandbox], Any]] = {
    "nothing is wrong": lambda sandbox: None,
    "the program cannot be kept": _raises("execution.recall.remember", OSError("disk full")),
    "the kept program cannot be packed": _raises("execution.recall.zlib.compress", MemoryError()),
    "the store forgets": _returns("runtime.cache.Store.get", None),
    "the store holds another form": _returns("runtime.cache.Store.get", b'{"lag": 1}\nimage'),
    "the store holds no JSON": _returns("runtime.cache.Store.get", b"\xff\xfe"),
    "the store holds a number": _returns("runtime.cache.Store.get", b"7\n"),
    "the store holds half an image": _returns(
        "runtime.cache.Store.get", b'{"log": ""}\n\x7fELF\x02\x01'
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_fails_is_left_to_xla(name: str, sandbox: Sandbox, nvrtc: ModuleType) -> None:
    with sandbox.patch.context() as patch, no_hang():
        LEFT[name](Sandbox(patch, sandbox.folder, sandbox.tmp))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            stitched, result, jitted = called()
            again = np.asarray(jitted(X))
        assert stitched is None
        np.testing.assert_allclose(result, EXPECTED, rtol=1e-6)
        np.testing.assert_allclose(again, EXPECTED, rtol=1e-6)
        [warning] = [w for w in said if issubclass(w.category, FusionStitchWarning)]
        assert "mixed runs as under jax.jit" in str(warning.message)
        with pytest.raises((StitchError, OptionError)):
            called(fallback="error")
    deferred.reasons.clear()
    deferred.errors.clear()
    assert called(fallback="error")[0] is not None


@pytest.mark.parametrize("name", STITCHED)
def test_what_only_helps_may_fail(name: str, sandbox: Sandbox, nvrtc: ModuleType) -> None:
    with sandbox.patch.context() as patch, no_hang():
        STITCHED[name](Sandbox(patch, sandbox.folder, sandbox.tmp))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            stitched, result, _ = called(fallback="error")
        assert stitched is not None
        assert b"fusionstitch_launch" in stitched
        np.testing.assert_allclose(result, EXPECTED, rtol=1e-6)


# ---- programs out of XLA's persistent cache, whose plans are looked for -------------------------

KEY = "a" * 64
TEXT = f'custom_call_target="fusionstitch_launch", {{key = "{KEY}"}}'
HEAD = b'{"options": {}, "profile": {}}\n'
KEPT = {
    "nothing": b"",
    "no JSON": b"{half\n",
    "no text": b"\xff\xfe\n",
    "a list": b"[]\n",
    "options of another version": b'{"options": {"colour": "red"}, "profile": {}}\n',
    "a profile of another version": HEAD + zlib.compress(b"module"),
    "nothing packed": HEAD,
    "half of what was packed": HEAD + zlib.compress(bytes(999))[:10],
}


@pytest.mark.parametrize("name", KEPT)
def test_a_plan_that_is_lost_is_none(name: str, sandbox: Sandbox) -> None:
    store = builders.store()
    assert recall.find(TEXT, []) is None
    store.put(f"programs-{KEY}", b"program")
    assert recall.find(TEXT, []) is None
    store.put("program-program", KEPT[name])
    assert recall.find(TEXT, []) is None
    store.put(f"programs-{KEY}", b"\xff\xfe \x00")
    assert recall.find(TEXT, []) is None
