"""The loop programs: each runs, and what checks and measures them does what it says."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

# equinox reports errors through host callbacks, which the emulator's execution path cannot carry
os.environ.setdefault("EQX_ON_ERROR", "nan")

from benchmarks.loops import __main__ as command
from benchmarks.loops import by_hand, checking, record, spans
from benchmarks.loops.check import check
from benchmarks.loops.table import FORMS, KINDS, Loop, find, loops
from benchmarks.loops.worker import Side, planned_s, stitched_loops
from fusionstitch.compiler import builders
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.verdict import allow
from fusionstitch.measure import side_by_side
from fusionstitch.runtime import cuda

LOOPS = loops()
#: One of each form, and one with a branch: whole programs through the emulator.
EMULATED = ("lorenz", "collatz_all", "heat", "logistic_map", "thermostat")


def test_the_table_is_complete() -> None:
    own = [loop for loop in LOOPS.values() if not loop.needs]
    assert len(own) >= 45
    assert {loop.kind for loop in LOOPS.values()} == set(KINDS)
    assert {loop.form for loop in own} == set(FORMS)
    assert all(loop.small for loop in LOOPS.values())


def test_files_define_nothing_else() -> None:
    folder = Path(command.__file__).parent
    made = sum((folder / f"{kind}.py").read_text().count("@loop(") for kind in KINDS)
    assert made == len(LOOPS)


@pytest.mark.parametrize("loop", LOOPS.values(), ids=list(LOOPS))
def test_a_small_loop_runs(loop: Loop) -> None:
    if not loop.is_there():
        pytest.skip(f"{loop.needs} is not installed")
    fun, args = loop.program(loop.small)
    leaves = jax.tree.leaves(args)
    assert all(isinstance(leaf, (np.ndarray, np.generic)) for leaf in leaves)
    assert all(leaf.dtype not in (np.float64, np.int64) for leaf in leaves)
    with warnings.catch_warnings():
        if loop.needs:  # libraries warn of each other
            warnings.simplefilter("ignore")
        traced = jax.jit(fun).trace(*args)
    lowered = traced.lower()
    assert "stablehlo.while" in lowered.as_text()
    results = jax.tree.leaves(lowered.compile()(*args))
    assert results
    assert all(np.isfinite(np.asarray(result).astype(np.float64)).all() for result in results)


@pytest.mark.parametrize("name", EMULATED)
@pytest.mark.usefixtures("host_compiler")
def test_emulated_loops_are_right(name: str) -> None:
    assert check(LOOPS[name]) == ""


def test_names_kinds_and_what_is_none() -> None:
    assert [loop.name for loop in find(["heat"])] == ["heat"]
    assert {loop.kind for loop in find(["scalar"])} == {"scalar"}
    assert len(find([])) == sum(loop.is_there() for loop in LOOPS.values())
    with pytest.raises(ValueError, match=r"No loop is called cold\. There are: lorenz"):
        find(["cold"])


ONE = np.linspace(1, 2, 100, dtype=np.float32)


@pytest.mark.parametrize("ours", [ONE * np.float32(1.01), ONE[:-1], ONE * np.float32(np.nan)])
def test_planted_errors_are_found(ours: np.ndarray) -> None:
    assert not checking.check([ONE], [ONE], [ONE])["wrong"]
    assert checking.check([ours], [ONE], [ONE])["wrong"]


def test_integers_are_equal_where_rounding_changes_none() -> None:
    whole = np.arange(100, dtype=np.int32)
    other = np.where(whole == 7, 8, whole).astype(np.int32)
    assert checking.check([other], [whole], [whole])["wrong"]
    assert not checking.check([other], [whole], [other])["wrong"]


def test_what_moves_under_rounding_may_differ_by_twice_that() -> None:
    moved, near, far = (ONE * np.float32(1 + by) for by in (1e-3, 1.5e-3, 3e-3))
    assert not checking.check([near], [ONE], [moved])["wrong"]
    assert checking.check([far], [ONE], [moved])["wrong"]


def test_inputs_move_by_one_ulp() -> None:
    assert (checking.moved(ONE) == np.nextafter(ONE, np.float32(9))).all()
    half = ONE.astype(jax.numpy.bfloat16)
    assert (checking.moved(half) > half).all()
    assert np.array_equal(checking.moved(np.arange(3)), np.arange(3))


def test_which_patterns_hold_a_loop() -> None:
    def stitch(*opcodes: str) -> SimpleNamespace:
        ops = [SimpleNamespace(opcode=opcode) for opcode in opcodes]
        return SimpleNamespace(chosen=SimpleNamespace(pattern=SimpleNamespace(ops=ops)))

    found = SimpleNamespace(stitches=[stitch("add", "while"), stitch("add")])
    assert stitched_loops(SimpleNamespace(stitched=found)) == [{"ops": 2, "loops": 1}]
    assert stitched_loops(SimpleNamespace(stitched=None)) == []


def test_what_planning_takes_is_without_compilers() -> None:
    timings = {"plan": 0.5, "codegen": 0.25, "build": 3.0, "measure": 2.0}
    assert planned_s(SimpleNamespace(stitched=SimpleNamespace(timings=timings))) == 0.75
    assert planned_s(SimpleNamespace(stitched=None)) is None


def _row(name: str, form: str, xla: float, ours: float) -> dict[str, object]:
    times = {"xla": xla, "fusionstitch": ours}
    return {
        "target": name,
        "form": form,
        "loops": [{"ops": 3, "loops": 1}],
        "span_us": times,
        "wall_us": times,
        "compile_s": times,
        "planned_s": ours,
        "activity": {"xla": {"kernels": 9}},
        "check": {"wrong": []},
    }


def test_rows_and_their_means() -> None:
    rows = [_row("a", "rows", 8, 1), _row("b", "grid", 2, 1), {"target": "c", "failure": "late"}]
    assert [command.gain(row, "span_us") for row in rows] == [8, 2, None]
    means = command.means(rows)
    assert means["all"]["span_us"] == {"programs": 2, "gain": pytest.approx(4)}
    assert means["block"]["wall_us"] == {"programs": 0, "gain": None}
    assert command.planned(rows) == {"programs": 2, "share": pytest.approx(0.25)}
    assert command.planned([]) == {"programs": 0, "share": None}
    columns = command.HEAD.splitlines()[0].count("|")
    assert all(command.line(row).count("|") == columns for row in rows)


def test_a_worker_that_cannot_start_is_a_row(tmp_path: Path) -> None:
    loop = Loop("no_such_loop", "ode", "rows", lambda: (abs, (1,)), {}, {})
    worker = command.Worker(loop, tmp_path, 1, 60.0)
    row = worker.measured()
    assert row["failure"] == "ended with 1 in step 'start'"
    assert "blackjax_hmc." in row["output"]  # the end of what it said


def test_a_span_lies_between_two_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    def clock(profile: Any, values: Sequence[Any]) -> bytes:
        given = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in values]
        ticked = jax.jit(lambda earlier, *_: earlier + jax.numpy.uint64(7000), keep_unused=True)
        return ticked.lower(*given).compiler_ir("hlo").as_serialized_hlo_module_proto()

    monkeypatch.setattr(side_by_side, "_clock", clock)
    monkeypatch.setattr(cuda, "register_launcher", lambda store: allow())
    monkeypatch.setattr(builders, "profile", lambda options: device("h200"))
    side = Side(LOOPS["lotka_volterra"], jax.jit, LOOPS["lotka_volterra"].small)
    assert spans.spans_us(side.module(), jax.tree.leaves(side.args), most=3) == [7.0] * 3


def test_kernels_by_hand_compile_and_name_programs() -> None:
    nvrtc = pytest.importorskip("fusionstitch.runtime.nvrtc")
    if not nvrtc.available():
        pytest.skip("there is no NVRTC")
    compiled = nvrtc.compile(by_hand.SOURCE.read_text(), "sm_90")
    assert {hand.entry for hand in by_hand.HANDS.values()} == {n for n, _ in compiled.resources}
    for name, hand in by_hand.HANDS.items():
        fun, args = LOOPS[name].program()
        [result] = jax.tree.leaves(jax.eval_shape(fun, *args))
        assert result.shape == hand.shape
        assert hand.bound_us(1000.0, 100) > 0


def test_modules_are_stored_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fun, args = LOOPS["heat"].program(LOOPS["heat"].small)
    module = jax.jit(fun).lower(*args).compiler_ir("hlo").as_serialized_hlo_module_proto()
    bare = record.bare(module)
    given = {"heat": bare, "wave": None, "life": bytes(record.MOST + 1)}
    monkeypatch.setattr(record, "recorded", lambda loop: given[loop.name])
    path = tmp_path / "modules.zip"
    record.write(path, find(["heat", "wave", "life"]))
    assert list(record.stored(path)) == [("heat", bare)]
    assert not list(record.stored(tmp_path / "none.zip"))


def test_results_are_plain_data() -> None:
    assert json.loads(json.dumps(command.means([])))["rows"]["span_us"]["programs"] == 0
