"""Every example through the report, stitched and run on the emulator at its small size."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import common
import pytest

import fusionstitch as fs
from fusionstitch.commands import cli
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.reports import trial
from fusionstitch.reports.answers import ALONE, Answers
from tests.cli.test_cli import assert_keys
from tests.examples.test_examples import TARGETS, load

pytestmark = pytest.mark.slow

FOLDER = Path(common.__file__).parent
ROOT = FOLDER.parent

#: Programs that XLA already makes one kernel of at this size, or a few that are no slower on a
#: device as small as the emulated one: the model leaves them alone.
LEFT_TO_XLA = frozenset(
    {
        *("black_scholes.py:options", "norms.py:forward"),
        *("norms.py:residual_norm_gelu", "softmax.py:rows"),
    }
)
#: Programs that are one kernel when the paper's scorer chooses.
ONE_KERNEL = frozenset(
    {
        *("adam.py:gpt2_small", "bi_rnn.py:train_step", "bi_rnn.py:train_step_last_output"),
        *("black_scholes.py:options", "figure1.py:deep", "figure1.py:original"),
        *("figure1.py:variant", "logistic.py:train_step", "norms.py:backward"),
        *("norms.py:batch_backward", "norms.py:forward", "norms.py:residual_norm_gelu"),
        *("norms.py:rms_backward", "perceptron.py:train_step", "rmsprop.py:rmsprop100"),
        *("softmax.py:rows", "transformer.py:block_forward", "transformer.py:block_gradient"),
        *("cross_entropy.py:vocabulary", "word2vec.py:evaluation", "dlrm.py:train_step"),
        *("aiwriter.py:train_step", "nmt.py:greedy", "cross_entropy.py:long_vocabulary"),
        *("dyn_rnn.py:train_step", "transformer.py:train_step", "graph_network.py:train_step"),
        *("nmt.py:beam", "resnet.py:train_step", "rokid.py:train_step"),
    }
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSIONSTITCH_EXAMPLE_SCALE", "small")
    monkeypatch.setattr(sys, "path", [*sys.path])


def check(data: dict[str, Any]) -> None:
    """What holds for the report of every example."""
    assert_keys(data)
    assert data["device"] == "emulated"
    assert data["backend"] == "emulate"
    assert data["fallbacks"] == []
    kernels, traffic = data["kernels"], data["traffic_bytes"]
    assert 0 < kernels["fusionstitch"] <= kernels["xla"] < kernels["unfused"]
    assert kernels["fusionstitch"] >= len(data["patterns"])
    assert data["compression"]["vs_unfused"] == kernels["unfused"] / kernels["fusionstitch"]
    assert data["compression"]["vs_xla"] == kernels["xla"] / kernels["fusionstitch"]
    assert 0 < traffic["fusionstitch"] <= traffic["unfused"]
    assert set(data["time_us"].values()) == {None}
    assert data["speedup_vs_xla"] is None
    assert data["modelled_us"] > 0
    for pattern in data["patterns"]:
        assert pattern["score_us"] > 0
        assert len(pattern["ops"]) >= 1
    assert all(one["reason"] for one in data["rejected"])


def explained(one: trial.Trial) -> None:
    """Each op is in a kernel or has a reason, those that the simplifier took out included."""
    given = from_proto(inline_calls(one.stitched.given))
    asked = {(graph.name, op.name) for graph in given.stitchable for op in graph}
    answers = list(Answers(one.stitched))
    assert asked <= {(answer.graph, answer.name) for answer in answers}
    known = {kernel.name for kernel in one.stitched.kernels}
    assert {name for answer in answers for name in answer.kernels} == known
    assert all(bool(answer.kernels) != bool(answer.reason) for answer in answers)
    assert all(answer.reason != ALONE for answer in answers)


@pytest.mark.parametrize("target", TARGETS)
def test_command(
    host_compiler: str,
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "report.json"
    trials: list[trial.Trial] = []
    run = trial.run
    monkeypatch.setattr(trial, "run", lambda *call: trials.append(run(*call)) or trials[-1])
    command = ["report", str(FOLDER / target), "--backend", "emulate", "--json", str(path)]
    assert cli.main([*command, "--fallback", "error"]) == 0
    explained(trials[0])
    text, data = capsys.readouterr().out, json.loads(path.read_text())
    check(data)
    assert data["workload"] == target.replace(".py", "")
    assert bool(data["patterns"]) == (target not in LEFT_TO_XLA)
    # an output beyond what XLA's own error and its type allow would be a note
    assert "has error" not in text
    assert data["max_rel_error"] is not None


@pytest.mark.parametrize("target", TARGETS)
def test_as_much_as_the_paper_stitches(host_compiler: str, target: str) -> None:
    fun, args = load(target)
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    report = fs.report(fun, *args, options=options)
    check(report.to_dict())
    assert report.patterns
    assert not [note for note in report.notes if "error" in note]
    assert report.max_rel_error is not None
    assert (report.kernels["fusionstitch"] == 1) == (target in ONE_KERNEL)


@pytest.mark.parametrize("target", ["figure1.py:original", "logistic.py:train_step"])
def test_command_of_its_own_process(host_compiler: str, target: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fusionstitch", "report", f"examples/{target}", "--json", "-"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    data = json.loads(done.stdout)
    check(data)
    assert data["max_rel_error"] <= 1e-6
