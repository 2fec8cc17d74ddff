"""Marks, events and the pass itself, registered for the CPU, where XLA offers modules as well."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.hlo import schema
from fusionstitch.runtime import xla_pass
from fusionstitch.runtime.artifact import TARGET
from fusionstitch.runtime.xla_pass import Event

A, B, C = "a" * 64, "b" * 64, "c" * 64


@pytest.fixture(autouse=True)
def a_pass_of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(xla_pass, "_state", xla_pass._State())
    yield
    xla_pass.unregister()


def compile_marked(token: str = "12ab", name: str = "step") -> jax.stages.Compiled:
    def fun(x: jax.Array) -> jax.Array:
        return jnp.tanh(x) * 2

    fun.__name__ = xla_pass.mark(name, token)
    return jax.jit(fun).lower(np.ones(4, np.float32)).compile()


def launch(key: str) -> str:
    return f'{{block = 256 : i64, entry = "k", image = "\\7FELF\\22", key = "{key}", shared = 0}}'


def call_line(*keys: str) -> str:
    return "\n".join(
        f'  c.{i} = f32[4]{{0}} custom-call(x), custom_call_target="{TARGET}", '
        f"api_version=API_VERSION_TYPED_FFI, backend_config={launch(key)}"
        for i, key in enumerate(keys)
    )


@pytest.mark.parametrize("name", ["step", "", "train__fs_step", "a.b-c", "lambda"])
def test_a_mark_is_read_back(name: str) -> None:
    marked = xla_pass.mark(name, "0f9")
    assert xla_pass.read_mark(f"jit_{marked}") == (name, "0f9")
    assert xla_pass.read_mark(f"jit_{marked}.17") == (name, "0f9")


def test_marking_again_replaces_the_mark() -> None:
    assert xla_pass.mark(xla_pass.mark("step", "aa"), "bb") == "step__fs_bb"


@pytest.mark.parametrize("token", ["", "XY", "a b", "0x1"])
def test_a_token_must_be_hex(token: str) -> None:
    with pytest.raises(ValueError, match="lower-case hex"):
        xla_pass.mark("step", token)


@pytest.mark.parametrize("name", ["", "jit_step", "jit_step__fs_", "x__fs_12-clone", "__fs_zz"])
def test_other_names_have_no_mark(name: str) -> None:
    assert xla_pass.read_mark(name) is None


def test_the_mark_is_read_from_a_module_and_from_nothing_else() -> None:
    def fun(x: jax.Array) -> jax.Array:
        return x + 1

    fun.__name__ = xla_pass.mark("n" * 300, "1234")
    hlo: Any = jax.jit(fun).lower(np.ones(4)).compiler_ir("hlo")
    proto = hlo.as_serialized_hlo_module_proto()
    assert xla_pass.module_name(proto) == f"jit_{'n' * 300}__fs_1234"
    assert xla_pass.read_mark(proto) == ("n" * 300, "1234")
    for junk in (b"", b"\x0a", b"\x0a\xff\xff\xff\xff\xff\xff", b"\x12\x01a", b"no module"):
        assert xla_pass.module_name(junk) == ""
        assert xla_pass.read_mark(junk) is None


def test_marked_modules_reach_the_callback_and_others_do_not() -> None:
    seen = []

    def stitch(module: bytes, token: str) -> None:
        seen.append((xla_pass.module_name(module), token))

    assert xla_pass.register(stitch, "cpu")
    jax.jit(lambda x: x - 3)(np.ones(4))
    with xla_pass.collect() as events:
        compile_marked()
    assert seen == [("jit_step__fs_12ab", "12ab")]
    assert events == [Event("step", "12ab", (), None, None)]


def test_the_pass_is_registered_once_and_the_last_callback_counts() -> None:
    seen = []
    xla_pass.register(lambda module, token: seen.append("first"), "cpu")
    xla_pass.register(lambda module, token: seen.append("second"), "cpu")
    compile_marked()
    assert seen == ["second"]
    xla_pass.unregister()
    compile_marked(name="again")
    assert seen == ["second"]


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_a_failing_callback_leaves_the_program_to_xla(kind: type[BaseException]) -> None:
    def stitch(module: bytes, token: str) -> None:
        raise kind("the reason")

    xla_pass.register(stitch, "cpu")
    with xla_pass.collect() as events:
        compiled = compile_marked()
    assert float(compiled(np.zeros(4, np.float32)).sum()) == 0.0
    (event,) = events
    assert not event.replaced
    assert isinstance(event.error, kind)
    assert str(event.error) == "the reason"


def test_a_failure_of_our_own_does_not_reach_xla(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(module: bytes) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(xla_pass, "read_mark", broken)
    with caplog.at_level(logging.ERROR):
        assert xla_pass.transform(b"\x0a\x0bjit_f__fs_1") is None
    assert "XLA compiles it as it is" in caplog.text


def test_what_the_callback_publishes_is_on_the_event() -> None:
    proto = schema.HloModule()
    calls = proto.computations.add().instructions
    for key in (A, B, A):
        calls.add(custom_call_target=TARGET, backend_config=launch(key).encode())
    module = proto.SerializeToString()

    def stitch(_: bytes, token: str) -> bytes:
        xla_pass.publish("draft")
        xla_pass.publish("plan")
        return module

    xla_pass._state.callback = stitch
    with xla_pass.collect() as events:
        assert xla_pass.transform(b"\x0a\x0bjit_f__fs_1") == module
    assert events == [Event("f", "1", (A, B), "plan", None)]
    assert events[0].replaced


def test_a_nested_compile_keeps_its_own_result() -> None:
    def stitch(_: bytes, token: str) -> None:
        if token == "1":
            xla_pass.publish("before")
            xla_pass.transform(b"\x0a\x0bjit_g__fs_2")
        else:
            xla_pass.publish("inner")

    xla_pass._state.callback = stitch
    with xla_pass.collect() as events:
        xla_pass.transform(b"\x0a\x0bjit_f__fs_1")
    assert [(e.name, e.result) for e in events] == [("g", "inner"), ("f", "before")]


def test_collecting_by_token_nested_and_from_threads() -> None:
    xla_pass._state.callback = lambda module, token: None
    with xla_pass.collect() as everything:
        with xla_pass.collect("2") as twos:
            offer = threading.Thread(target=xla_pass.transform, args=(b"\x0a\x0bjit_f__fs_1",))
            offer.start()
            offer.join()
            xla_pass.transform(b"\x0a\x0bjit_f__fs_2")
        xla_pass.transform(b"\x0a\x0bjit_f__fs_2")
    assert [e.token for e in everything] == ["1", "2", "2"]
    assert [e.token for e in twos] == ["2"]


def test_keys_are_read_from_compiled_text() -> None:
    foreign = call_line(C).replace(TARGET, "other_target")
    text = f"ENTRY main {{\n{call_line(B, A, B)}\n{foreign}\n}}"
    assert xla_pass.keys_in(text) == [B, A]
    assert xla_pass.keys_in(compile_marked().as_text() or "") == []


def test_keys_survive_jax_lowering() -> None:
    def fun(x: jax.Array) -> jax.Array:
        made: Any = jax.ffi.ffi_call(TARGET, jax.typeof(x))
        result: jax.Array = made(x, key=A, image="\x7fELF", grid=np.int64(1))
        return result

    hlo: Any = jax.jit(fun).lower(np.ones(4, np.float32)).compiler_ir("hlo")
    assert xla_pass.keys_in(hlo.as_hlo_text()) == [A]


def test_a_program_finds_its_event() -> None:
    events = [
        Event("f", "1", (A,), "one", None),
        Event("f", "1", (A, B), "two", None),
        Event("f", "1", (A, B), "three", None),
        Event("f", "1", (), None, None),
    ]
    assert xla_pass.find(call_line(A), events) is events[0]
    assert xla_pass.find(call_line(B), events) is events[2]
    assert xla_pass.find(call_line(A, C), events) is None
    assert xla_pass.find("", events) is None


def test_without_a_device_there_is_a_reason() -> None:
    verdict = xla_pass.register(lambda module, token: None, "cuda")
    assert not verdict
    assert "JAX has no cuda device" in verdict.reason


def test_without_the_pass_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xla_pass, "_door", lambda: None)
    verdict = xla_pass.register(lambda module, token: None, "cpu")
    assert not verdict
    assert "install JAX 0.10.2 or newer" in verdict.reason


def test_a_compile_that_nobody_wants_fails() -> None:
    def callback(module: bytes, token: str) -> bytes | None:
        xla_pass.publish("a plan")
        raise xla_pass.GivenUp("nothing in it")

    assert xla_pass.register(callback, "cpu")
    with (
        xla_pass.collect("12ab") as events,
        pytest.raises(jax.errors.JaxRuntimeError, match="nothing in it") as raised,
    ):
        compile_marked()
    assert xla_pass.event_of_failure([*events, *events], str(raised.value)) is events[0]
    assert str(events[0].error) in str(raised.value)
    assert str(xla_pass.GivenUp("nothing in it")) != str(events[0].error)
    assert [(event.given_up, event.result) for event in events] == [(True, "a plan")]
