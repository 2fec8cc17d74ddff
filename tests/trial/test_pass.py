"""What the pass does for programs with outcomes, with XLA offering modules on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.costmodel import devices
from fusionstitch.execution import cuda, programs
from fusionstitch.runtime import xla_pass
from fusionstitch.runtime.artifact import TARGET
from fusionstitch.trial import outcome
from tests.trial.conftest import Stage, kinds, options

#: As it is before a stage replaces it.
REGISTER = xla_pass.register
X = jnp.asarray(np.random.default_rng(0).standard_normal((8, 12), np.float32))


def mixed(x: jax.Array) -> jax.Array:
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], list[str]]]:
    """Has the pass stitch what it is offered, or nothing; gives the marks of what it is."""
    monkeypatch.setattr(xla_pass, "_state", xla_pass._State())
    marks: list[str] = []
    stitches = True

    def callback(module: bytes, mark: str) -> bytes | None:
        marks.append(mark)
        name, _ = xla_pass.read_mark(module) or ("", "")
        return cuda._compiled(module if stitches else None, mark, name)

    def stitching(value: bool) -> list[str]:
        nonlocal stitches
        stitches = value
        return marks

    assert REGISTER(callback, "cpu")
    yield stitching
    xla_pass.unregister()


def test_an_attempt_without_a_kernel_is_given_up(
    stage: Stage, offered: Callable[[bool], list[str]]
) -> None:
    stage.patterns = 0
    marks = offered(False)
    jitted = fs.jit(mixed, options=options())
    with xla_pass.collect() as events:
        assert (jitted(X) == jax.jit(mixed)(X)).all()
    assert [event.given_up for event in events] == [True]
    assert len(marks) == 1
    assert kinds(jitted) == {"xla"}
    found = jitted.lower(X[:4]).compile()(X[:4])
    assert (found == jax.jit(mixed)(X[:4])).all()


def test_what_the_pass_has_not_seen_is_not_stored(
    stage: Stage, offered: Callable[[bool], list[str]]
) -> None:
    """As where a program runs on the CPU beside a GPU: its text may be the same there."""
    stage.patterns = 0
    xla_pass.unregister()
    assert (fs.jit(mixed, options=options())(X) == jax.jit(mixed)(X)).all()
    assert not outcome._known


def test_that_nothing_is_stitched_is_stored(
    stage: Stage, offered: Callable[[bool], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.patterns = 0
    planned = Stitched("mixed", b"", devices.device("h200"), program="abc")
    compiled = cuda._compiled

    def seen(module: bytes | None, mark: str, name: str) -> bytes | None:
        xla_pass.publish(planned)
        return compiled(module, mark, name)

    monkeypatch.setattr(cuda, "_compiled", seen)
    offered(False)
    fs.jit(mixed, options=options())(X)
    [found] = outcome._known.values()
    assert (found.serves, found.program) == ("xla", "abc")


A, B = "0" * 64, "1" * 64


class Text:
    """A compiled program with these kernels."""

    def __init__(self, *keys: str):
        calls = (f' custom_call_target="{TARGET}", key = "{key}"' for key in keys)
        self.text = "\n".join(calls)

    def as_text(self) -> str:
        return self.text


def program(compile: Callable[[str], Any]) -> programs.Program:
    def refuse(why: str, error: BaseException) -> None:
        raise AssertionError(why)

    device = devices.device("h200")
    return programs.Program(
        "<mine>", "ab", device, compile, lambda kind, one: one, lambda: None, refuse, ""
    )


def event(name: str, *keys: str, token: str = "abc0", gone: str = "") -> xla_pass.Event:
    planned = Stitched(name + token, b"", devices.device("h200"), program=f"{name} {keys}")
    error = xla_pass.GivenUp(gone) if gone else None
    return xla_pass.Event(name, token, keys, planned, error)


@pytest.mark.parametrize("other", ["_other_", "_mine_"])
def test_what_others_compile_meanwhile_is_not_taken_for_one_s_own(other: str) -> None:
    """Another function, or the same one for other shapes, under the same mark."""
    mine, others = event("_mine_", A), event(other, B)
    gone, others_gone = (event(name, gone="nothing") for name in ("_mine_", other))

    def compile(kind: str) -> Any:
        for one in (mine, others, others_gone):
            xla_pass._emit(one)
        return Text(A)

    def given_up(kind: str) -> Any:
        for one in (gone, others_gone, others):
            xla_pass._emit(one)
        raise jax.errors.JaxRuntimeError(f"INTERNAL: {gone.error}")

    found = program(compile).attempt("c0")
    assert (found.stitched, found.planned) == (True, mine.result)
    found = program(given_up).attempt("c0")
    assert (found.stitched, found.planned) == (False, gone.result)


def test_what_is_refused_is_not_taken_for_what_others_give_up() -> None:
    one = event("_mine_", A)

    def refused(kind: str) -> Any:
        for other in (event("_other_", gone="nothing"), one, event("_other_", gone="nothing")):
            xla_pass._emit(other)
        raise jax.errors.JaxRuntimeError("INTERNAL: no memory")

    mine = program(refused)
    with pytest.raises(jax.errors.JaxRuntimeError, match="no memory"):
        mine.attempt("c0")
    assert mine.planned is one.result


def test_what_another_function_s_call_needs_is_not_given_up() -> None:
    mark = "a" * cuda._TOKEN + "c0"
    with xla_pass.collect(mark, "<mine>"):
        assert cuda._compiled(None, mark, "_other_") is None
        with pytest.raises(xla_pass.GivenUp):
            cuda._compiled(None, mark, "_mine_")


def test_what_a_call_needs_is_not_given_up(
    stage: Stage, offered: Callable[[bool], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kept outcome names an attempt whose plan is lost, and is another one now."""
    offered(True)
    wanted = fs.jit(mixed, options=options())(X)
    marks = offered(False)
    again = fs.jit(lambda x: mixed(x), options=options())
    monkeypatch.setattr(outcome, "known", lambda key: next(iter(outcome._known.values())))
    assert (again(X) == wanted).all()
    assert len(marks) == 2
    assert marks[0] == marks[1]
    assert kinds(again) == {"c0"}
