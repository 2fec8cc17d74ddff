"""Execution inside XLA without a GPU: the test calls the pass, and NVRTC compiles kernels."""

from __future__ import annotations

import dataclasses
import gc
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import fusionstitch as fs
from fusionstitch.compiler import builders
from fusionstitch.errors import FusionStitchWarning, StitchError
from fusionstitch.execution import cuda as execution_cuda
from fusionstitch.execution import deferred, recall
from fusionstitch.hlo.verdict import allow, forbid
from fusionstitch.runtime import artifact, cuda, xla_pass
from fusionstitch.runtime.apart import alone
from fusionstitch.runtime.cache import Database, Store
from fusionstitch.tuning.record import Entry, Record, record_key, versions
from fusionstitch.tuning.tuned import store
from tests.tuning.stubs import in_blocks_of

SPEC = jax.ShapeDtypeStruct((256, 384), jnp.float32)


def mixed(x: jax.Array) -> jax.Array:
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    store = Store(tmp_path / "cache")
    monkeypatch.setenv("FUSIONSTITCH_SCORER", "model")  # no GPU here can be asked
    monkeypatch.setattr(builders, "gpu", lambda: allow("faked", kind="NVIDIA H200"))
    monkeypatch.setattr(builders, "store", lambda: store)
    monkeypatch.setattr(cuda, "register_launcher", lambda store: allow())
    monkeypatch.setattr(xla_pass, "register", lambda callback: allow())
    deferred.reasons.clear()
    deferred.errors.clear()


def marked(jitted: Any) -> tuple[bytes, str]:
    """The module of `mixed` as XLA would offer it, and the token of its mark."""
    lowered = jitted._fusionstitch.execution.jitted.lower(SPEC)
    module = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    found = xla_pass.read_mark(module)
    assert found is not None
    assert found[0] == "mixed"
    return module, found[1]


def test_the_pass_stitches_marked_modules(nvrtc: ModuleType) -> None:
    module, token = marked(fs.jit(mixed))
    stitched = execution_cuda._inside_xla(module, token)
    assert stitched is not None
    assert b"fusionstitch_launch" in stitched
    assert execution_cuda._inside_xla(module, "0123") is None  # a mark of nobody in this process
    assert not deferred.reasons
    assert not deferred.errors


def test_options_and_device_are_in_the_mark() -> None:
    tokens = {
        marked(fs.jit(mixed, options=options))[1]
        for options in (
            fs.Options(),
            fs.Options(numerics="strict"),
            fs.Options(device="a100"),
            fs.Options(device="h200"),
        )
    }
    assert len(tokens) == 4
    assert marked(fs.jit(mixed))[1] == marked(fs.jit(mixed))[1]


def test_programs_with_calls_of_another_format_are_not_taken_from_a_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    token = marked(fs.jit(mixed))[1]
    monkeypatch.setattr(artifact, "CALL_FORMAT", artifact.CALL_FORMAT + 1)
    assert marked(fs.jit(mixed))[1] != token


def test_tuned_results_are_in_the_mark_and_no_mark_is_in_a_kernel(
    nvrtc: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FUSIONSTITCH_CACHE_DIR", str(tmp_path / "tuned"))
    module, token = marked(fs.jit(mixed))
    with xla_pass.collect(token) as events:
        xla_pass._stitch(module, execution_cuda._inside_xla, "mixed", token)
    [kernel] = events[0].result.kernels  # type: ignore[union-attr]
    assert "__fs_" not in kernel.source
    assert "jit(mixed)" in kernel.source
    chosen = events[0].result.plans[-1].chosen[0]  # type: ignore[union-attr]
    key = record_key(chosen.pattern.key, fs.Options())
    record = Record(
        in_blocks_of(512, chosen.pattern), 1.0, 2.0, 9.0, 1.0, 3, True, kernel.name, "faked"
    )
    database = Database(tmp_path / "tuned")
    store([Entry(key, versions(), record)], "h200", database)
    database.close()
    module, other = marked(fs.jit(mixed))
    assert other != token
    with xla_pass.collect(other) as events:
        xla_pass._stitch(module, execution_cuda._inside_xla, "mixed", other)
    assert [k.block for k in events[0].result.kernels] == [512]  # type: ignore[union-attr]


def test_plans_are_found_again_by_the_keys_in_the_compiled_text(nvrtc: ModuleType) -> None:
    module, token = marked(fs.jit(mixed))
    with xla_pass.collect(token) as events:
        xla_pass._stitch(module, execution_cuda._inside_xla, "mixed", token)
    result = events[0].result
    text = "\n".join(
        f'custom_call_target="fusionstitch_launch", {{key = "{artifact.key}"}}'
        for artifact in result.artifacts  # type: ignore[union-attr]
    )
    assert recall.find(text, events) is result
    again = recall._again(xla_pass.keys_in(text))
    assert again is not None
    assert again.kernels == result.kernels  # type: ignore[union-attr]
    assert recall.find("no kernels here", events) is result
    assert recall.find("no kernels here", []) is None


def test_failures_are_left_for_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise StitchError("asked for.")

    jitted = fs.jit(mixed)
    module, token = marked(jitted)
    marked_function = jitted._fusionstitch.execution.marked_function
    monkeypatch.setattr("fusionstitch.compiler.core.stitch", fail)
    with pytest.raises(StitchError):
        execution_cuda._inside_xla(module, token)
    with pytest.raises(StitchError, match="asked for"):
        deferred.deliver(marked_function)
    deferred.reasons.append(("mixed", "Something was missing."))
    with pytest.warns(FusionStitchWarning, match="mixed runs as under jax.jit: Something was"):
        deferred.deliver(marked_function)


def test_errors_wait_for_the_function_that_they_are_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiles of several functions run side by side; the calls of one must not end in the error of
    another."""

    def fail(module: bytes, *_: Any, **__: Any) -> Any:
        raise StitchError(f"{(xla_pass.read_mark(module) or '?')[0]} was asked for.")

    def lambda_(x: jax.Array) -> jax.Array:
        return mixed(x) + 1.0

    lambda_.__name__ = "<other>"
    monkeypatch.setattr("fusionstitch.compiler.core.stitch", fail)
    paths = [fs.jit(fun)._fusionstitch.execution for fun in (mixed, lambda_)]
    for execution in paths:
        module = execution.jitted.lower(SPEC).compiler_ir("hlo").as_serialized_hlo_module_proto()
        with pytest.raises(StitchError):
            execution_cuda._inside_xla(module, execution.token)
    one, other = paths
    with pytest.raises(StitchError, match="_other_ was asked for"):
        deferred.deliver(other.marked_function)
    deferred.deliver(other.marked_function)
    with pytest.raises(StitchError, match="mixed was asked for"):
        deferred.deliver(one.marked_function)
    assert not deferred.errors


def test_errors_wait_for_the_thread_that_compiled() -> None:
    """Two functions of one name look alike to the pass, and compile at the same time."""
    execution = fs.jit(mixed)._fusionstitch.execution
    left, settled = threading.Barrier(3, timeout=600), threading.Barrier(3, timeout=600)
    heard: dict[str, str] = {}

    def compiles(why: str) -> None:
        alone(
            lambda: deferred.defer_error("mixed", execution.token, StitchError(why))
        )  # as the pass is
        left.wait()
        settled.wait()
        with pytest.raises(StitchError) as raised:
            deferred.deliver(execution.marked_function)
        heard[why] = str(raised.value)

    threads = [threading.Thread(target=compiles, args=(why,)) for why in ("first", "second")]
    for thread in threads:
        thread.start()
    left.wait()
    deferred.deliver(execution.marked_function)  # nothing of this thread's
    settled.wait()
    for thread in threads:
        thread.join()
    assert heard == {"first": "first", "second": "second"}
    assert not deferred.errors


def test_errors_of_threads_that_have_ended_are_raised_by_the_next_call() -> None:
    execution = fs.jit(mixed)._fusionstitch.execution
    error = StitchError("It was asked for.")
    thread = threading.Thread(target=deferred.defer_error, args=("mixed", execution.token, error))
    thread.start()
    thread.join()
    with pytest.raises(StitchError, match="It was asked for"):
        deferred.deliver(execution.marked_function)
    deferred.deliver(execution.marked_function)


def test_calls_and_compiles_raise_their_own_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(x: jax.Array) -> jax.Array:
        return mixed(x) + 1.0

    jitted, another = fs.jit(mixed), fs.jit(other)
    x = jnp.ones(SPEC.shape)
    token = jitted._fusionstitch.execution.token if jitted(x) is not None else ""
    for again in (lambda: jitted(x), lambda: jitted.lower(SPEC).compile()):
        deferred.defer_error("mixed", token, StitchError("It was asked for."))
        another(x)
        another.lower(SPEC).compile()
        with pytest.raises(StitchError, match="It was asked for"):
            again()
        again()


def test_errors_that_nobody_collects_do_not_pile_up() -> None:
    execution = fs.jit(mixed)._fusionstitch.execution
    for step in range(5):
        deferred.defer_error("mixed", execution.token, StitchError(f"Step {step}."))
    assert len(deferred.errors) == 1
    with pytest.raises(StitchError, match="Step 4"):
        deferred.deliver(execution.marked_function)


def test_errors_of_functions_that_are_gone_become_warnings() -> None:
    def brief(x: jax.Array) -> jax.Array:
        return x + 1.0

    execution, gone = fs.jit(mixed)._fusionstitch.execution, fs.jit(brief)
    deferred.defer_error(
        "brief", gone._fusionstitch.execution.token, StitchError("It was asked for.")
    )
    deferred.deliver(execution.marked_function)  # it may still be called
    del gone
    gc.collect()
    with pytest.warns(FusionStitchWarning, match="brief runs as under jax.jit: It was asked for"):
        deferred.deliver(execution.marked_function)
    assert not deferred.errors


class Refused:
    """A lowered program whose stitched module XLA refuses after the pass has run."""

    def __init__(self, lowered: Any):
        self.lowered = lowered

    def compile(self, *args: Any, **keywords: Any) -> Any:
        module = self.lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
        mark = xla_pass.read_mark(module)
        assert mark is not None
        assert xla_pass._stitch(module, execution_cuda._inside_xla, *mark) is not None
        raise jax.errors.JaxRuntimeError("INVALID_ARGUMENT: Different aliasing shapes\nat an op")


def test_a_program_that_xla_refuses_is_compiled_as_under_jax_jit(nvrtc: ModuleType) -> None:
    jitted = fs.jit(mixed)
    lowered = jitted.lower(SPEC)
    lowered._stage = Refused(lowered._stage)
    with pytest.warns(FusionStitchWarning, match="mixed runs as under jax.jit: XLA") as warned:
        compiled = lowered.compile()
    assert len(warned) == 1
    why = "XLA refused the stitched program: INVALID_ARGUMENT: Different aliasing shapes."
    assert [f.reason for f in compiled.fallbacks] == [why]
    assert compiled.plan
    assert compiled.kernels == ()
    text = compiled.explain()
    assert f"the whole program: {why}" in text
    assert "not carried out, see below" in text
    x = jax.random.normal(jax.random.key(0), SPEC.shape)
    wanted = jax.jit(mixed)(x)
    assert (compiled(x) == wanted).all()
    assert (jitted(x) == wanted).all()  # no second try, no second warning
    again = jitted.lower(SPEC).compile()
    assert [f.reason for f in again.fallbacks] == [why]


def test_a_program_that_xla_refuses_is_an_error_where_that_is_asked_for(nvrtc: ModuleType) -> None:
    lowered = fs.jit(mixed, options=fs.Options(fallback="error")).lower(SPEC)
    lowered._stage = Refused(lowered._stage)
    with pytest.raises(StitchError, match="mixed could not be stitched: XLA refused the stitched"):
        lowered.compile()


def test_missing_pieces_mean_jax_jit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "register_launcher", lambda store: forbid("There is no compiler."))
    x = jnp.ones((4, 4))
    with pytest.warns(FusionStitchWarning, match="There is no compiler"):
        assert fs.jit(mixed)(x).shape == (4, 4)
    with pytest.raises(StitchError, match="There is no compiler"):
        fs.jit(mixed, options=fs.Options(fallback="error"))(x)


def test_install_replaces_jax_jit() -> None:
    before = jax.jit
    assert fs.install()
    try:
        assert fs.install()
        jitted = jax.jit(mixed, static_argnames=())
        assert isinstance(jitted, type(fs.jit(mixed)))
        assert jax.jit(static_argnames=())(mixed).__name__ == "mixed"
    finally:
        fs.uninstall()
    assert jax.jit is before


def test_unknown_gpus_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builders, "gpu", lambda: allow("faked", kind="NVIDIA B999"))
    with pytest.warns(FusionStitchWarning, match="no device profile for 'NVIDIA B999'"):
        fs.jit(mixed)(jnp.ones((4, 4)))


def test_a_calibrated_profile_replaces_the_gpu_s(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from fusionstitch.costmodel.devices import device
    from fusionstitch.measure.calibrate import to_json

    monkeypatch.setattr(builders, "gpu", lambda: allow("faked", kind="NVIDIA H200"))
    mine = dataclasses.replace(device("h200"), launch_us=0.5)
    path = tmp_path / "mine.json"
    path.write_text(to_json(mine))
    monkeypatch.setenv("FUSIONSTITCH_PROFILE", str(path))
    assert builders.profile(fs.Options()) == mine
    assert builders.profile(fs.Options(device="h200")) == device("h200")
