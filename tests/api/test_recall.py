"""A later process does not plan again: it uses the stored result, and explains it the same way."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import fusionstitch as fs
from fusionstitch import version
from fusionstitch.compiler import builders, core
from fusionstitch.costmodel.model_errors import ModelError
from fusionstitch.execution import cuda as execution_cuda
from fusionstitch.execution import deferred, recall
from fusionstitch.guard import live
from fusionstitch.hlo import schema
from fusionstitch.hlo.errors import ToolchainError
from fusionstitch.hlo.verdict import allow
from fusionstitch.reports.explain import explain
from fusionstitch.runtime import cuda, xla_pass
from fusionstitch.runtime import nvrtc as nvrtc_module
from fusionstitch.runtime.cache import Database, Store
from fusionstitch.runtime.emulator import header_folder
from fusionstitch.trial.fewer import fewer
from fusionstitch.trial.outcome import DIRECT
from fusionstitch.trial.request import TrialRequest, on_trial
from tests.guard.both import Both
from tests.kept import kept_sort

SPEC = jax.ShapeDtypeStruct((256, 384), jnp.float32)
GUARDED = fs.Options(scorer="guarded")


def mixed(x: jax.Array) -> jax.Array:
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)


def alone(x: jax.Array) -> jax.Array:
    return kept_sort(x)


def off_by(share: float) -> dict[str, ModelError]:
    return dict.fromkeys(("reduction", "elemwise"), ModelError(share))


@pytest.fixture(autouse=True)
def compare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nvrtc: ModuleType) -> Both:
    """A GPU that is not there; what measures on it, by a rule."""
    store, database = Store(tmp_path / "cache"), Database(tmp_path / "cache")
    both = Both(lambda n: (3.0, 6.0), runs=False)
    monkeypatch.setattr(builders, "gpu", lambda: allow("faked", kind="NVIDIA H200"))
    monkeypatch.setattr(builders, "store", lambda: store)
    monkeypatch.setattr(cuda, "register_launcher", lambda store: allow())
    monkeypatch.setattr(xla_pass, "register", lambda callback: allow())
    monkeypatch.setattr(live, "_compare_on", lambda device: both)
    monkeypatch.setattr(live, "_database", lambda: database)
    monkeypatch.setattr(live, "errors", lambda: off_by(9.0))
    deferred.reasons.clear()
    return both


class Planned:
    """Counts the modules that are planned."""

    def __init__(self, patch: pytest.MonkeyPatch):
        self.count, self._plain = 0, core.stitch
        patch.setattr(core, "stitch", self)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        self.count += 1
        return self._plain(*args, **keywords)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Planned:
    return Planned(monkeypatch)


def compiled(
    fun: Callable[..., Any], options: fs.Options = GUARDED, number: int = 0, kind: str = DIRECT
) -> tuple[bytes | None, list[xla_pass.Event]]:
    """What XLA gets for the `number`th module of a process, or for an attempt of a trial, and what
    was told of it."""
    execution = fs.jit(fun, options=options)._fusionstitch.execution
    trial = kind != DIRECT
    jitted = execution.variants.jit(kind, free=True) if trial else execution.jitted
    lowered = jitted.lower(SPEC)
    proto = schema.HloModule.FromString(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
    proto.id = number
    module = proto.SerializeToString()
    found = xla_pass.read_mark(module)
    assert found is not None
    with xla_pass.collect(found[1]) as events:
        stitched = xla_pass._stitch(module, execution_cuda._inside_xla, *found)
    return stitched, events


def shown(stitched: bytes | None, events: list[xla_pass.Event]) -> str:
    keys = xla_pass._keys_of(stitched) if stitched else ()
    calls = [f'custom_call_target="fusionstitch_launch", {{key = "{key}"}}' for key in keys]
    return explain(recall.find("\n".join(calls), events))


@pytest.mark.parametrize("fun", [mixed, alone])
def test_a_module_is_planned_once(fun: Any, planned: Planned, compare: Both) -> None:
    first = compiled(fun)
    assert (planned.count, compare.count) == (1, int(fun is mixed))
    second = compiled(fun, number=7)
    assert (planned.count, compare.count) == (1, int(fun is mixed))
    assert second[0] == first[0]
    assert (second[0] is None) == (fun is alone)
    assert shown(*second) == shown(*first)
    assert ("measured: 3.00 us against 6.00 us" in shown(*second)) == (fun is mixed)


def test_a_module_is_known_wherever_its_lines_stand_now(planned: Planned, tmp_path: Path) -> None:
    found = []
    for above in (1, 30):
        file = tmp_path / f"program{above}.py"
        file.write_text("\n" * above + inspect.getsource(mixed))
        names = {"jax": jax}
        exec(compile(file.read_text(), str(file), "exec"), names)
        found.append(compiled(names["mixed"]))
    assert planned.count == 1
    assert found[0][0] == found[1][0]
    assert "program30.py:32" in shown(*found[1])
    assert "program1.py" not in shown(*found[1])


def test_a_module_of_other_names_is_another_one(planned: Planned) -> None:
    def scoped(x: jax.Array) -> jax.Array:
        with jax.named_scope("attention"):
            return mixed(x)

    scoped.__name__ = "mixed"
    compiled(mixed)
    compiled(scoped)
    assert planned.count == 2


def test_a_program_from_xlas_cache_has_the_measured_plan(compare: Both) -> None:
    stitched, events = compiled(mixed)
    assert shown(stitched, []) == shown(stitched, events)
    assert compare.count == 1


TRIED = GUARDED.replace(trial="copies")


def twice(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two patterns: the sort keeps them apart."""
    first = mixed(x)
    return first, mixed(kept_sort(first, 0)[:128])


def attempted(
    fun: Callable[..., Any], request: TrialRequest, kind: str
) -> tuple[bytes | None, Any]:
    """An attempt of a trial: what XLA gets, and what was stitched."""
    with on_trial(request):
        stitched, [event] = compiled(fun, TRIED, kind=kind)
    assert "measured:" not in shown(stitched, []) or request.judge is None
    now, later = (shown(stitched, events).partition("\n")[2] for events in ([event], []))
    assert now == later
    return stitched, event.result


def request_for(fun: Callable[..., Any]) -> TrialRequest:
    return TrialRequest(fs.jit(fun, options=TRIED)._fusionstitch.execution.variants.token, False)


def test_of_a_program_on_trial_nothing_is_measured_before_it_has_lost(compare: Both) -> None:
    request = request_for(twice)
    _, first = attempted(twice, request, "c0")
    assert len(first.stitches) == 2
    assert compare.count == 0
    compare.rule = lambda n: (9.0, 6.0) if n == 0 else (3.0, 6.0)
    judge, request.judge = request.judge, None
    request.instead = fewer(first, judge)
    assert request.instead is not None
    assert compare.count == 2
    [left] = request.instead.stitches
    assert left.chosen.pattern in {one.chosen.pattern for one in first.stitches}
    module, second = attempted(twice, request, "c1")
    assert module == request.instead.module
    assert [one.chosen.measured.xla_us for one in second.stitches] == [6.0]
    assert fewer(second, None) is None
    assert compare.count == 2


def test_of_patterns_that_all_lose_when_they_are_measured_nothing_is_left(compare: Both) -> None:
    request = request_for(twice)
    _, first = attempted(twice, request, "c0")
    compare.rule = lambda n: (9.0, 6.0)
    assert fewer(first, request.judge) is None


def test_of_patterns_that_all_win_alone_those_stay_that_win_more(compare: Both) -> None:
    request = request_for(twice)
    _, first = attempted(twice, request, "c0")
    compare.rule = lambda n: (3.0, 6.0 + n)
    found = fewer(first, request.judge)
    assert found is not None
    assert [one.chosen.measured.xla_us for one in found.stitches] == [7.0]


def test_where_measuring_fails_the_program_is_halved(compare: Both) -> None:
    request = request_for(twice)
    _, first = attempted(twice, request, "c0")
    compare.rule = None

    def broken() -> Any:
        raise RuntimeError("no device")

    found = fewer(first, broken)
    assert found is not None
    assert len(found.stitches) == 1
    assert found.stitches[0].chosen.measured is None


def test_a_program_without_a_trial_is_measured_while_it_is_compiled(compare: Both) -> None:
    compiled(twice, TRIED)
    assert compare.count == 2


@pytest.mark.parametrize("change", ["flags", "options", "code", "processes"])
def test_what_decides_the_result_is_in_the_key(
    change: str, planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(mixed)
    if change == "flags":
        monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_enable_triton_gemm=false")
    if change == "code":
        monkeypatch.setattr(recall, "code", lambda: "another")
    if change == "processes":
        monkeypatch.setattr(jax, "process_count", lambda: 2)
    compiled(mixed, GUARDED.replace(numerics="strict") if change == "options" else GUARDED)
    assert planned.count == 2


def test_the_headers_of_kernels_are_part_of_the_code() -> None:
    assert set(header_folder().iterdir()) <= set(version.files())


def test_kernels_that_are_to_be_dumped_are_made(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiled(mixed)
    monkeypatch.setenv("FUSIONSTITCH_DUMP_DIR", str(tmp_path / "dump"))
    compiled(mixed)
    assert planned.count == 2
    assert list((tmp_path / "dump").iterdir())


def test_nothing_is_stored_of_what_may_improve(
    planned: Planned, compare: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise ToolchainError("There is no space left on the device.")

    with monkeypatch.context() as patch:
        patch.setattr(nvrtc_module, "compile", full)
        assert compiled(mixed)[0] is None
    with monkeypatch.context() as patch:
        patch.setattr(compare, "rule", None)  # the GPU is busy
        assert compiled(mixed)[0] is None
    deferred.reasons.clear()
    assert compiled(mixed)[0] is not None
    assert planned.count == 3


def test_for_another_gpu_than_the_one_in_use_nothing_is_measured(compare: Both) -> None:
    found, _ = compiled(mixed, GUARDED.replace(device="h100"))
    assert found is not None  # as by the model
    assert compare.count == 0
    compiled(mixed, GUARDED.replace(device="h200"))
    assert compare.count == 1


def test_programs_of_several_processes_take_what_the_model_proves(
    compare: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(mixed)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert compiled(mixed)[0] is None  # whatever is known
    monkeypatch.setattr(live, "errors", lambda: off_by(0.0))
    assert compiled(mixed, GUARDED.replace(sharing=False))[0] is not None
    assert compare.count == 1
