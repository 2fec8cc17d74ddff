"""Recording what XLA's kernels take, and how far off the model is."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchmarks import model_kernels
from benchmarks.fit_xla import (
    Kernel,
    by_emitter,
    factors_of,
    held_out,
    kept_of,
    kernels_of,
    quantile,
    table,
    totals_of,
)
from benchmarks.kernel_times import times_of, written
from benchmarks.model_kernels import programs, record, recorded
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.xla_final import Emitter, FinalKernel
from fusionstitch.costmodel.xla_truth import truth_of
from fusionstitch.measure.activity import Activity, activities
from tests.costmodel.final_modules import GPU

GEMM, REDUCTION = "nvjet_sm90_128x64_tn", "input_reduce_fusion_1"


def _gpu_kernels() -> tuple[FinalKernel, ...]:
    return truth_of(GPU, 1.0, device("h200")).kernels


def _call() -> list[Activity]:
    """What a trace holds of a call of the module: a copy, ten iterations, a split product."""
    return [
        Activity("MemcpyD2D", 2.0),
        *[Activity("triton_softmax_2", 3.0)] * 10,
        Activity(GEMM, 20.0),
        Activity("cublasLt::splitKreduce_kernel", 4.0),
        Activity(REDUCTION, 7.0),
    ]


def test_kernels_are_known_by_name_and_those_of_libraries_by_their_place() -> None:
    kernels = _gpu_kernels()
    found = times_of(kernels, _call() * 2, calls=2)
    us = {kernels[n].name: us for n, us in found.us.items()}
    assert us == {
        "copy-start.1": 2.0,
        "triton_softmax.2": 3.0,
        "cublas-gemm.1.0": 24.0,
        "input_reduce_fusion.1": 7.0,
    }
    assert found.unknown_us == 0.0


def test_what_the_trace_says_goes_first_and_the_rest_stays_unknown() -> None:
    kernels = _gpu_kernels()
    found = times_of(
        kernels, [Activity("odd", 5.0, "input_reduce_fusion.1"), Activity("stranger", 9.0)], 1
    )
    assert {kernels[n].name: us for n, us in found.us.items()} == {"input_reduce_fusion.1": 5.0}
    assert found.unknown_us == 9.0


def test_equal_fusions_share_the_kernel_of_the_first() -> None:
    def kernel(name: str) -> FinalKernel:
        return FinalKernel(name, Emitter.LOOP, (), "main", 1, 64, 1.0, 1.5, 1.5)

    found = times_of([kernel("loop.1"), kernel("loop.2")], [Activity("loop_1", 4.0)] * 2, 1)
    assert found.us == {0: 4.0, 1: 4.0}


def test_a_trace_says_what_launched_each() -> None:
    space = """planes { name: "/device:GPU:0"
      lines { name: "Stream #1" timestamp_ns: 0
        events { metadata_id: 1 offset_ps: 2000 duration_ps: 3000000
                 stats { metadata_id: 1 str_value: "loop_fusion.3" } }
        events { metadata_id: 2 offset_ps: 1000 duration_ps: 1000000 }
        events { metadata_id: 3 offset_ps: 3000 duration_ps: 1000000 } }
      event_metadata { key: 1 value { id: 1 name: "loop_fusion_3" } }
      event_metadata { key: 2 value { id: 2 name: "MemcpyD2D" } }
      event_metadata { key: 3 value { id: 3 name: "MemcpyH2D" } }
      stat_metadata { key: 1 value { id: 1 name: "hlo_op" } } }"""
    data = jax.profiler.ProfileData.from_text_proto(space)
    assert activities(data, 0) == [
        Activity("MemcpyD2D", 1.0),
        Activity("loop_fusion_3", 3.0, "loop_fusion.3"),
    ]
    assert activities(data, 1) == []


def _softmax(x: jax.Array, scale: float) -> tuple[jax.Array, jax.Array]:
    return jax.nn.softmax(x * scale), jnp.sort(x)


def test_a_program_is_recorded_with_all_its_kernels() -> None:
    """The trace is made up: each kernel takes thrice what the model says."""
    x = jnp.ones((64, 128))
    text = jax.jit(_softmax, static_argnums=1).lower(x, 2.0).compile().as_text() or ""
    one = [
        Activity(written(k.name), 3 * k.modelled_us)
        for k in truth_of(text, 1.0, device("emulated")).kernels
    ]
    called: list[int] = []

    def trace(run: Callable[[], None]) -> list[Activity]:
        run()
        called.append(1)
        return one if len(called) == 1 else one * model_kernels.CALLS

    found = record((_softmax, (x, 2.0), {"static_argnums": 1, "donate_argnums": 0}), trace)
    assert len(called) == 2
    rows = found["kernels"]
    assert {row["emitter"] for row in rows} >= {"sort", "reduction"}
    for row in rows:
        assert row["measured_us"] == pytest.approx(3 * row["modelled_us"], abs=1e-3)
    assert found["us"] == pytest.approx(3 * found["modelled_us"])
    assert found["unfused_us"] > 0
    assert found["unknown_us"] == 0.0
    json.dumps(found)


def test_a_program_that_fails_or_takes_long_is_a_row_of_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = subprocess.CompletedProcess([], 1, "", "Traceback\nValueError: no such thing")

    def run(command: list[str], **settings: Any) -> subprocess.CompletedProcess[str]:
        assert command[:3] == [sys.executable, "-m", "benchmarks.model_kernels"]
        if settings["timeout"] == 1.0:
            raise subprocess.TimeoutExpired(command, 1.0)
        return done

    monkeypatch.setattr(subprocess, "run", run)
    assert "no such thing" in recorded("everyday/a", (), None, 5.0)["failed"]
    assert recorded("everyday/a", (), None, 1.0) == {"failed": "more than 1 s"}


def test_programs_are_named_by_suite_and_by_file() -> None:
    assert len(programs([])) > 200
    assert [*programs(["unseen/vision/color_jitter"])] == ["unseen/vision/color_jitter"]
    assert [*programs(["my.py:step"])] == ["my.py:step"]
    with pytest.raises(SystemExit, match="No program is called nonsense"):
        programs(["nonsense"])


def _kernel(program: str, emitter: str, ratio: float, us: float = 10.0) -> Kernel:
    """One whose time beyond its floor is `ratio` of what was modelled."""
    return Kernel(program, "k", emitter, 1, 1.0, 1.0 + us, 1.0 + ratio * us, 1.0)


def test_a_quantile_counts_by_weight() -> None:
    assert quantile([(1.0, 1.0), (5.0, 1.0), (9.0, 8.0)]) == 9.0
    assert quantile([(9.0, 8.0), (1.0, 9.0)]) == 1.0
    assert math.isnan(quantile([]))


def test_the_factor_of_other_programs_meets_a_program() -> None:
    kernels = [_kernel(f"p{n}", "transpose", 4.0) for n in range(10)]
    kernels += [_kernel(f"p{n}", "loop", 1.0, us=2.0) for n in range(10)]
    assert factors_of(kernels) == {"transpose": 4.0, "loop": 1.0}
    found = by_emitter(kernels)
    plain, fitted = found["transpose"]
    assert plain.median == pytest.approx(41 / 11)
    assert (plain.near, fitted.near, fitted.median) == (0.0, 1.0, 1.0)
    assert found["loop"][0].near == found["loop"][1].near == 1.0
    assert found["all"][0].near == pytest.approx(0.5)


def test_a_factor_is_kept_that_enough_programs_give() -> None:
    kernels = [_kernel(f"p{n}", "transpose", 4.0) for n in range(10)]
    kernels += [_kernel(f"p{n}", "sort", 2.0) for n in range(9)] * 2
    assert kept_of(kernels) == {"transpose": 4.0}


def test_no_program_is_met_by_what_it_gave_itself() -> None:
    kernels = [_kernel(f"p{n}", "loop", 1.0) for n in range(9)]
    odd = _kernel("q", "sort", 7.0)
    assert held_out([*kernels, odd])[odd] == odd.modelled_us  # nobody else has a sort


def _content(tmp_path: Path) -> Path:
    def row(name: str, emitter: str, modelled: float, measured: float | None) -> dict[str, Any]:
        return {
            "name": name,
            "emitter": emitter,
            "runs": 2,
            "floor_us": 1.0,
            "modelled_us": modelled,
            "measured_us": measured,
        }

    kernels = [row("a", "loop", 2.0, 2.2), row("b", "copy", 2.0, None), row("c", "scatter", 4, 40)]
    found = {"us": 90.0, "modelled_us": 80.0, "unfused_us": 9.0, "kernels": kernels}
    path = tmp_path / "recorded.json"
    path.write_text(json.dumps({"programs": {"one": found, "two": found}}))
    return path


def test_a_table_is_printed_of_a_recorded_file(tmp_path: Path) -> None:
    path = _content(tmp_path)
    contents = [json.loads(path.read_text())]
    kernels = kernels_of(contents)
    assert [(k.program, k.name) for k in kernels] == [
        *(("one", "a"), ("one", "c"), ("two", "a"), ("two", "c"))
    ]
    assert sum(k.weight for k in kernels) == pytest.approx(2.0)
    assert [line.split()[0] for line in table(by_emitter(kernels))[1:]] == [
        "all",
        "scatter",
        "loop",
    ]
    assert totals_of(contents, "modelled_us") == (90 / 80, 1.0)
    assert totals_of(contents, "unfused_us") == (10.0, 0.0)
    command = [sys.executable, "-m", "benchmarks.fit_xla", str(path), "--worst", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "programs from unfused modules: median error factor 10.00, 0% within 1.5" in done.stdout
    assert "72.0 us lost: one c (scatter, 2 runs): modelled 4.00, measured 40.00" in done.stdout


def test_kernels_are_modelled_again_without_a_gpu(tmp_path: Path) -> None:
    """Those of a loop that ran less often than was guessed have no time."""
    (tmp_path / "a.b.hlo").write_text(GPU)
    names = ["copy-start.1", "while.1", "triton_softmax.2", "cublas-gemm.1.0", "input_reduce"]

    def rows(softmax_us: float) -> list[dict[str, Any]]:
        times = [2.0, None, softmax_us, 9.0, 4.0]
        return [{"name": n, "measured_us": us} for n, us in zip(names, times, strict=True)]

    def times(softmax_us: float) -> list[float | None]:
        record = {"us": 30.0, "unfused_us": 25.0, "kernels": rows(softmax_us)}
        content = {"programs": {"a/b": record}}
        again = model_kernels.modelled_again(content, tmp_path, device("h200"))
        [found] = again["programs"].values()
        assert found["unfused_us"] == 25.0
        assert found["modelled_us"] > 0
        assert all(set(row) == set(model_kernels.READ) for row in found["kernels"])
        return [row["measured_us"] for row in found["kernels"]]

    assert times(1.5) == [2.0, None, 1.5, 9.0, 4.0]
    assert times(0.1) == [2.0, None, None, 9.0, 4.0]
