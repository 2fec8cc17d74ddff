"""The plugin on a folder of tests as JAX writes them, with one op's kernels made wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jax_tests import __main__ as command
from tests.jax_tests import outcomes
from tests.jax_tests.outcomes import Outcome

pytestmark = pytest.mark.slow

TESTS = """
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from jax._src import api
from jax._src import test_util as jtu

ARGUMENTS = lambda: [np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)]


class FakeTest(jtu.JaxTestCase):
    def test_right(self):
        self._CompileAndCheck(lambda x: jnp.exp(x) * 2 + 1, ARGUMENTS)

    def test_wrong_kernel(self):
        self._CompileAndCheck(lambda x: jnp.tanh(x) * 2 + 1, ARGUMENTS)

    def test_wrong_kernel_of_one_op(self):
        self._CompileAndCheck(jnp.tanh, ARGUMENTS)

    def test_wrong_kernel_of_another_name(self):
        x = ARGUMENTS()[0]
        self.assertAllClose(api.jit(lambda x: jnp.tanh(x) * 2)(x), np.tanh(x) * 2)

    def test_wrong_kernel_of_jax_jit(self):
        x = ARGUMENTS()[0]
        self.assertAllClose(jax.jit(lambda x: jnp.tanh(x) * 2)(x), np.tanh(x) * 2)

    def test_wrong_anyway(self):
        self._CheckAgainstNumpy(np.sin, jnp.cos, ARGUMENTS)

    def test_other_results(self):
        kinds = lambda: [np.True_, np.float32(2), np.zeros((0, 3), np.int8)]
        self._CompileAndCheck(lambda b, x, e: (~b, {"x": x, "y": x + 1}, None, e, 2.5), kinds)

    def test_wrong_kernel_of_a_loop_without_a_jit(self):
        x = ARGUMENTS()[0]
        found = jax.lax.fori_loop(0, 2, lambda i, x: jnp.tanh(x), x)
        self.assertAllClose(found, np.tanh(np.tanh(x)))

    @jtu.skip_on_devices("cpu", "gpu", "tpu")
    def test_elsewhere(self):
        pass
"""

BREAKS = """
from fusionstitch.codegen.text import expressions


def pytest_configure(config):
    if config.getoption("under") != "base":
        expressions.EXPRESSIONS["tanh"] = {"single": "sinhf({0})"}
"""
#: What fails under fs.jit, by mode; a lone tanh has no kernel without a neighbour.
WRONG = {"user": {"wrong_kernel", "wrong_kernel_of_another_name", "wrong_kernel_of_jax_jit"}}
WRONG["neighbour"] = WRONG["user"] | {"wrong_kernel_of_one_op"}
#: By the model no kernel pays in programs this small; those of loops are made all the same.
WRONG["loops"] = {"wrong_kernel_of_a_loop_without_a_jit"}


def _name(test: str) -> str:
    return test.partition("::FakeTest::test_")[2]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str, Path]:
    pytest.importorskip("absl.testing")
    pytest.importorskip("pytest_timeout")
    folder, logs = tmp_path_factory.mktemp("tests"), tmp_path_factory.mktemp("logs")
    (folder / "fake_test.py").write_text(TESTS)
    (folder / "conftest.py").write_text(BREAKS)
    command_line = [sys.executable, "-m", "tests.jax_tests", str(folder), "--logs", str(logs)]
    command_line += ["--backend", "emulate", "--workers", "0", "--under", *WRONG]
    run = subprocess.run(command_line, cwd=command.ROOT, capture_output=True, text=True)
    return run.returncode, run.stdout + run.stderr, logs


@pytest.mark.parametrize("mode", WRONG)
def test_what_fails_under_fs_jit_alone_is_found(ran: tuple[int, str, Path], mode: str) -> None:
    status, printed, logs = ran
    assert status == 1, printed
    ours, base = outcomes.read(logs / f"{mode}.jsonl"), outcomes.read(logs / "base.jsonl")
    found = outcomes.compare(ours, base, {})
    assert {_name(one.test) for one in found.new} == WRONG[mode], printed
    assert [_name(one.test) for one in found.shared] == ["wrong_anyway"]
    assert all(one.test in printed for one in found.new)
    assert len(ours) == 9


def test_records_hold_what_was_stitched(ran: tuple[int, str, Path]) -> None:
    user, neighbour, loops = (
        {_name(test): one for test, one in outcomes.read(ran[2] / f"{mode}.jsonl").items()}
        for mode in WRONG
    )
    assert user["right"].programs == user["right"].patterns == 1
    assert user["wrong_kernel_of_one_op"].programs == 1
    assert user["wrong_kernel_of_one_op"].patterns == 0
    assert neighbour["wrong_kernel_of_one_op"].patterns == 1
    assert loops["wrong_kernel_of_a_loop_without_a_jit"].patterns == 1
    assert user["elsewhere"].outcome == "skipped"
    assert user["other_results"].outcome == neighbour["other_results"].outcome == "passed"
    assert "Not equal to tolerance" in user["wrong_kernel"].headline


def test_base_runs_what_failed_and_nothing_else(ran: tuple[int, str, Path]) -> None:
    base = {_name(test): one for test, one in outcomes.read(ran[2] / "base.jsonl").items()}
    assert set(base) == WRONG["neighbour"] | WRONG["loops"] | {"wrong_anyway"}
    assert all(one.programs == 0 for one in base.values())


def test_a_folder_without_tests_says_where_to_get_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([str(tmp_path)]) == command.main([]) == 2
    assert capsys.readouterr().err.count("https://github.com/jax-ml/jax at the tag jax-v") == 2


FAILED = {
    "a_test.py::A::test_x3": Outcome("a_test.py::A::test_x3", "failed", 1, 1, 0.1, "E   boom | x"),
}


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [(None, "new"), ("passed", "new"), ("skipped", "new"), ("failed", "shared")],
)
def test_a_failure_is_excused_only_by_one_of_the_same_test(outcome: str | None, kind: str) -> None:
    plain = {test: Outcome(test, outcome) for test in FAILED if outcome}
    found = outcomes.compare(FAILED, plain, {})
    assert len(getattr(found, kind)) == 1
    assert len(found.new) + len(found.shared) + len(found.accepted) == 1
    assert "boom \\| x" in outcomes.table(found)


def test_a_difference_is_accepted_with_its_error_only() -> None:
    named = outcomes.Known("Not equal to tolerance", "rounding")
    assert outcomes.compare(FAILED, {}, {"a_test.py::A::test_x": named}).new
    rounding = Outcome("a_test.py::A::test_x3", "failed", error="E   Not equal to tolerance rtol=1")
    ours = {rounding.test: rounding}
    assert outcomes.compare(ours, {}, {"a_test.py::A::test_x": named}).accepted
    assert outcomes.compare(ours, {}, {"a_test.py::A::test_xy": named}).new


def test_each_accepted_difference_has_its_error_and_a_reason() -> None:
    for test, one in outcomes.accepted().items():
        assert re.fullmatch(r"\w+_test\.py::\w+::\w*[a-zA-Z_]", test)
        assert one.error
        assert one.why


def test_a_failure_before_a_success_of_the_same_test_counts(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    lines = [
        Outcome("a", "passed"),
        Outcome("a", "failed", error="E   teardown"),
        Outcome("a", "passed"),
    ]
    record.write_text("".join(one.line() for one in lines))
    assert outcomes.read(record)["a"].failed
    assert outcomes.main([str(record), str(record)]) == 0
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert outcomes.main([str(record), str(empty)]) == 1
