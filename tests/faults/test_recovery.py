"""When a failed run or compile is repeated under jax.jit, and when it must not be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.errors import StitchError
from fusionstitch.execution.recovery import Recovery
from fusionstitch.runtime.emulator import header_folder

X = jnp.arange(4.0)
FAILURE = "INTERNAL: fusionstitch: cuLaunchKernelEx failed for kernel fs_x: CUDA_ERROR_UNKNOWN"


def failing(*_: Any, **__: Any) -> Any:
    raise jax.errors.JaxRuntimeError(FAILURE + "\nmore lines")


class Said(list[tuple[str, str]]):
    def __call__(self, name: str, why: str) -> None:
        self.append((name, why))


def recovery(fun: Callable[..., Any], fallback: str = "xla", **keywords: Any) -> Recovery:
    return Recovery("fun", jax.jit(fun, **keywords), fallback, Said())


def double(x: jax.Array) -> jax.Array:
    return x * 2


def test_a_run_that_fails_is_repeated_once_and_later_ones_are_jax_s() -> None:
    found = recovery(double)
    calls: list[int] = []

    def counted(*args: Any) -> Any:
        calls.append(1)
        return failing(*args)

    for _ in range(3):
        np.testing.assert_array_equal(found.call(counted, (X,), {}), X * 2)
    assert len(calls) == 1
    assert found.warn == [("fun", f"Its kernels could not be run: {FAILURE}.")]


def test_fallback_error_raises_and_names_the_cause() -> None:
    with pytest.raises(StitchError, match="fun could not be stitched: Its kernels") as caught:
        recovery(double, "error").call(failing, (X,), {})
    assert isinstance(caught.value.__cause__, jax.errors.JaxRuntimeError)


def test_what_jax_cannot_do_either_is_jax_s_error() -> None:
    def raising(x: Any) -> Any:
        raise ValueError("of the callback")

    def fun(x: jax.Array) -> jax.Array:
        return jax.pure_callback(raising, x, x)

    for fallback in ("xla", "error"):
        found = recovery(fun, fallback)
        with pytest.raises(jax.errors.JaxRuntimeError, match="of the callback"):
            found.call(failing, (X,), {})
        assert not found.failed
        assert found.warn == []


#: What fails in a run of something else: XLA's texts around what the user or a library raised.
NOT_OURS = [
    "INTERNAL: CpuCallback error calling callback: ValueError: " + FAILURE,
    "INTERNAL: XLA FFI call failed: Traceback (most recent call last):\n" + FAILURE,
    "INVALID_ARGUMENT: of another library's custom call",
    "INTERNAL: CUDA error: an illegal memory access was encountered",
    "INTERNAL: RESOURCE_EXHAUSTED is what the user's library said",
    "DEADLINE_EXCEEDED: rendezvous of a collective",
]


@pytest.mark.parametrize("text", NOT_OURS)
@pytest.mark.parametrize("first", [False, True])
def test_a_run_that_fails_for_the_user_s_reasons_is_not_repeated(text: str, first: bool) -> None:
    calls: list[str] = []

    def fails(x: jax.Array) -> Any:
        calls.append("run")
        if first:
            found.tracing()
        raise jax.errors.JaxRuntimeError(text)

    fails.lower = jax.jit(double).lower  # type: ignore[attr-defined]
    for fallback in ("xla", "error"):
        found = recovery(lambda x: calls.append("plain"), fallback)
        calls.clear()
        with pytest.raises(jax.errors.JaxRuntimeError) as caught:
            found.call(fails, (X,), {})
        assert str(caught.value) == text
        assert calls == ["run"]
        assert not found.failed
        assert found.warn == []


def test_an_error_of_a_kernel_that_gave_up_waiting_says_what_that_means() -> None:
    """It stays the error that it is: it may be another library's, and the GPU is lost anyway."""
    texts = ["INTERNAL: CUDA error: CUDA_ERROR_ASSERT: device-side assert triggered", NOT_OURS[3]]
    notes = []
    for text in texts:

        def fails(x: jax.Array, text: str = text) -> Any:
            raise jax.errors.JaxRuntimeError(text)

        with pytest.raises(jax.errors.JaxRuntimeError) as caught:
            recovery(double).call(fails, (X,), {})
        assert str(caught.value) == text
        notes.append(getattr(caught.value, "__notes__", []))
    [[gave_up], nothing] = notes
    assert "a kernel of fusionstitch gave up" in gave_up
    assert nothing == []


def test_the_note_quotes_what_kernels_say() -> None:
    said = (header_folder() / "counters.cuh").read_text()
    assert "fusionstitch: a block has waited for others" in said


@pytest.mark.parametrize(
    "text",
    [
        FAILURE,
        "INTERNAL: Failed to execute: custom call failed: fusionstitch: cuLaunchKernelEx failed",
        "RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes",
        "INTERNAL: CUDA error: Failed to instantiate CUDA graph: CUDA_ERROR_UNKNOWN",
    ],
)
def test_a_kernel_that_fails_is_ours(text: str) -> None:
    def fails(x: jax.Array) -> Any:
        raise jax.errors.JaxRuntimeError(text)

    found = recovery(double)
    np.testing.assert_array_equal(found.call(fails, (X,), {}), X * 2)
    assert found.warn == [("fun", f"Its kernels could not be run: {text}.")]


def test_a_first_call_whose_compile_fails_is_ours() -> None:
    """A call compiles and runs in one: which of them failed shows when it is compiled once more."""
    text = "INVALID_ARGUMENT: Different aliasing shapes"

    def fails(*_: Any) -> Any:
        found.tracing()
        raise jax.errors.JaxRuntimeError(text)

    fails.lower = fails  # type: ignore[attr-defined]
    found = recovery(double)
    np.testing.assert_array_equal(found.call(fails, (X,), {}), X * 2)
    assert found.warn == [("fun", f"XLA refused the stitched program: {text}.")]


def test_other_errors_pass() -> None:
    def fun(x: jax.Array) -> jax.Array:
        raise KeyError("the user's")

    found = recovery(fun)
    with pytest.raises(KeyError, match="the user's"):
        found.call(jax.jit(fun), (X,), {})


def test_a_program_with_side_effects_is_not_repeated() -> None:
    seen: list[Any] = []

    def fun(x: jax.Array) -> jax.Array:
        jax.debug.callback(lambda value: seen.append(value), x.sum())
        return x * 2

    with pytest.raises(jax.errors.JaxRuntimeError, match="fusionstitch"):
        recovery(fun).call(failing, (X,), {})
    assert seen == []


def test_a_program_whose_arguments_are_gone_is_not_repeated() -> None:
    x = jnp.arange(4.0)
    donating = jax.jit(double, donate_argnums=0)

    def failing_late(x: jax.Array) -> Any:
        donating(x)
        x.delete()
        return failing()

    with pytest.raises(jax.errors.JaxRuntimeError, match="fusionstitch"):
        recovery(double, donate_argnums=0).call(failing_late, (x,), {})


def test_one_of_several_processes_does_not_go_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(jax.errors.JaxRuntimeError, match="fusionstitch"):
        recovery(double).call(failing, (X,), {})


def test_the_first_run_after_tracing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []
    monkeypatch.setattr(jax, "block_until_ready", waited.append)
    found = recovery(double)

    def traced(x: jax.Array) -> jax.Array:
        found.tracing()
        return double(x)

    jitted = jax.jit(traced)
    for _ in range(3):
        found.call(jitted, (X,), {})
    assert len(waited) == 1
    found.call(jitted, (jnp.arange(5.0),), {})
    assert len(waited) == 2
    # inside another jit there is nothing to wait for
    jax.jit(lambda x: found.call(jitted, (x,), {}))(jnp.arange(6.0))
    assert len(waited) == 2


def test_a_compile_that_fails_is_jax_s_and_so_is_all_that_follows() -> None:
    found = recovery(double)
    stages: list[str] = []

    def refused() -> str:
        stages.append("stitched")
        return failing()

    for _ in range(3):
        assert found.compile(refused, lambda: "plain") == "plain"
    assert stages == ["stitched"]
    assert found.warn == [("fun", f"XLA refused the stitched program: {FAILURE}.")]
    np.testing.assert_array_equal(found.call(failing, (X,), {}), X * 2)


def test_what_xla_takes_is_not_compiled_again() -> None:
    found = recovery(double)
    assert found.compile(lambda: "stitched", failing) == "stitched"
    assert not found.failed


def test_a_compile_under_fallback_error_raises_and_names_the_cause() -> None:
    with pytest.raises(StitchError, match="fun could not be stitched: XLA refused") as caught:
        recovery(double, "error").compile(failing, lambda: "plain")
    assert isinstance(caught.value.__cause__, jax.errors.JaxRuntimeError)


def test_what_jax_cannot_compile_either_is_jax_s_error() -> None:
    def refused() -> str:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: jax's own")

    for fallback in ("xla", "error"):
        found = recovery(double, fallback)
        with pytest.raises(jax.errors.JaxRuntimeError, match="jax's own"):
            found.compile(failing, refused)
        assert not found.failed


def test_one_of_several_processes_compiles_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(jax.errors.JaxRuntimeError, match="fusionstitch"):
        recovery(double).compile(failing, lambda: "plain")
