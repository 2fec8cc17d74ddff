"""A process of its own in odd surroundings: what fs.jit computes in it, and what jax.jit does.

    python -m tests.behaviour.surroundings WHAT FILE

writes to FILE, as JSON, one line per function that ran: its name and whether it was right.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

#: Modules that keep something for the process: handlers, what is loaded, who listens.
STATEFUL = (
    *(
        "",
        ".api",
        ".execution.emulated",
        ".compiler.builders",
        ".runtime.emulator",
        ".runtime.handlers",
    ),
    *(
        ".runtime.xla_pass",
        ".runtime.cache",
        ".runtime.cuda",
        ".execution.cuda",
        ".execution.deferred",
    ),
)

#: Where kernels run: the test on a GPU says cuda.
BACKEND = os.environ.get("FUSIONSTITCH_BACKEND", "emulate")

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 8)


def program(seed: float) -> Callable[[Any], Any]:
    """A function of several kernels' worth of ops, and a kernel of its own for each seed."""

    def mixed(x: Any) -> Any:
        s = x - x.sum(1, keepdims=True) * seed
        return s * (s * x).sum(0)

    return mixed


def run(out: Path, name: str, seed: float) -> None:
    import jax

    import fusionstitch as fs

    asked = fs.Options(backend=BACKEND, scorer="paper", fallback="error")
    for kind, jit in (("jax", jax.jit), ("fs", lambda f: fs.jit(f, options=asked))):
        try:
            value = np.asarray(jit(program(seed))(X))
            line: list[Any] = [f"{name} {kind}", bool(np.allclose(value, program(seed)(X), 1e-5))]
        except BaseException as error:
            line = [f"{name} {kind}", f"{type(error).__name__}: {error}"]
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")


def closed(out: Path) -> None:
    """Without standard input, output and error, as a daemon may be."""
    run(out, "closed", 1.25)


def nowhere(out: Path) -> None:
    """The folder it was started in is gone."""
    place = tempfile.mkdtemp()
    os.chdir(place)
    os.rmdir(place)
    run(out, "nowhere", 1.5)
    import fusionstitch as fs

    options = fs.Options(backend=BACKEND, scorer="paper")
    compiled = fs.jit(program(1.5), options=options).lower(X).compile()
    assert compiled.kernels
    assert "pattern 0" in compiled.explain()
    str(compiled.report())


def ending(out: Path) -> None:
    """First calls while the interpreter ends: in a thread that is waited for, and at exit."""
    import jax

    import fusionstitch  # noqa: F401

    jax.devices()

    def late() -> None:
        threading.main_thread().join()
        run(out, "thread", 1.75)

    atexit.register(run, out, "exit", 1.875)
    threading.Thread(target=late).start()


def reloaded(out: Path) -> None:
    """Modules are read again while their functions are in use, as notebooks do."""
    import fusionstitch as fs

    run(out, "before", 2.25)
    before = fs.jit(program(2.25), options=fs.Options(backend=BACKEND, scorer="paper"))
    before(X)
    for name in STATEFUL:
        importlib.reload(importlib.import_module(f"fusionstitch{name}"))
        assert np.allclose(np.asarray(before(X)), program(2.25)(X), 1e-5), name
        run(out, "reloaded" + name, 2.25)
    for name in [name for name in sys.modules if name.partition(".")[0] == "fusionstitch"]:
        del sys.modules[name]
    run(out, "after", 2.5)
    assert np.allclose(np.asarray(before(X)), program(2.25)(X), 1e-5)


def warm(out: Path) -> None:
    """What the cache holds needs no compiler."""
    run(out, "cold", 2.75)
    os.environ["PATH"] = str(out.parent)
    os.environ.pop("CXX", None)
    os.execv(sys.executable, [sys.executable, "-m", __spec__.name, "bare", str(out)])


def bare(out: Path) -> None:
    from fusionstitch.runtime import nvrtc, toolchain

    def refuse(*_: Any) -> bytes:
        raise AssertionError("something was compiled")

    nvrtc._binding = lambda: None  # it lies beside Python's packages
    toolchain._compiled = refuse
    run(out, "warm", 2.75)


def killed(out: Path) -> None:
    """Dies while its compiler works."""
    threading.Thread(target=run, args=(out, "killed", 3.25), daemon=True).start()
    while not (out.parent / "works").exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


def following(out: Path) -> None:
    """Has something to compile."""
    run(out, "following", 3.5)


if __name__ == "__main__":
    parts = (closed, nowhere, ending, reloaded, warm, bare, killed, following)
    {part.__name__: part for part in parts}[sys.argv[1]](Path(sys.argv[2]))
