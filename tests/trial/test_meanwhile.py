"""What is loaded while XLA compiles."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from typing import Any

import jax.numpy as jnp
import pytest

import fusionstitch as fs
from fusionstitch.execution import meanwhile, programs
from fusionstitch.runtime import nvrtc
from tests.trial.conftest import Stage, options


def test_the_planner_is_there_once_xla_has_compiled() -> None:
    program = """
        import sys, threading
        from fusionstitch.execution import meanwhile

        def loaded():
            return [name in sys.modules for name in meanwhile.PLANNER]

        print(any(loaded()))
        with meanwhile.loaded_meanwhile():
            pass
        print(all(loaded()), threading.active_count())
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout == "False\nTrue 1\n"


@pytest.mark.parametrize("is_over", [True, False])
def test_nvrtc_is_loaded_as_long_as_xla_compiles(
    is_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def prepare() -> threading.Thread:
        asked.append(True)
        return threading.current_thread()

    monkeypatch.setattr(nvrtc, "prepare", prepare)
    event = threading.Event()
    if is_over:
        event.set()
    meanwhile._load(event)
    assert bool(asked) is not is_over


def test_a_trial_loads_while_xla_compiles(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    compile = programs.Program.__init__

    class Meanwhile:
        def __enter__(self) -> None:
            seen.append("load")

        def __exit__(self, *raised: Any) -> None:
            seen.append("timed")

    monkeypatch.setattr(programs, "loaded_meanwhile", Meanwhile)

    def init(self: Any, *args: Any, **keywords: Any) -> None:
        compile(self, *args, **keywords)
        given = self.compile

        def compiled(kind: str) -> Any:
            seen.append(kind)
            return given(kind)

        self.compile = compiled

    monkeypatch.setattr(programs.Program, "__init__", init)
    fs.jit(lambda x: jnp.exp(x).sum(), options=options())(jnp.ones(8))
    assert seen[:4] == ["load", "xla", "timed", "c0"]
