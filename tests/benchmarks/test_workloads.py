"""The table of workloads against the examples."""

from __future__ import annotations

import jax
import pytest

from benchmarks.inductor import PROGRAMS
from benchmarks.suites import MEMORY, PAPER, SUITES
from benchmarks.workloads import WORKLOADS, Workload, find
from tests.examples import test_examples


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSIONSTITCH_EXAMPLE_SCALE", "small")


def test_every_target_is_measured_once() -> None:
    assert sorted(w.target for w in WORKLOADS) == test_examples.TARGETS


@pytest.mark.parametrize("workload", [w for w in WORKLOADS if w.chain], ids=lambda w: w.target)
def test_the_next_state_fits_the_first_argument(workload: Workload) -> None:
    fun, args = test_examples.load(workload.target)
    state = workload.next_state(jax.eval_shape(fun, *args))
    shape = lambda leaf: (leaf.shape, leaf.dtype)  # noqa: E731
    assert jax.tree.map(shape, state) == jax.tree.map(shape, args[0])


def test_training_steps_are_chained() -> None:
    assert [w.target for w in WORKLOADS if ":train_step" in w.target and not w.chain] == []


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["softmax.py:rows"], ["softmax.py:rows"]),
        (["examples/softmax.py:rows"], ["softmax.py:rows"]),
        (["word2vec"], ["word2vec.py:train_step", "word2vec.py:evaluation"]),
        (["adam.py", "softmax"], ["softmax.py:rows", "adam.py:gpt2_small"]),
    ],
)
def test_names_of_targets_and_of_files(names: list[str], found: list[str]) -> None:
    assert [w.target for w in find(names)] == found


def test_an_unknown_name_is_refused() -> None:
    assert len(find([])) == len(WORKLOADS)
    with pytest.raises(ValueError, match=r"No target is called soft\. There are: logistic"):
        find(["soft"])


def test_suites_are_of_workloads_and_the_paper_has_ten() -> None:
    known = {w.target for w in WORKLOADS}
    for targets in SUITES.values():
        assert set(targets) <= known
        assert len(set(targets)) == len(targets)
    assert len(PAPER) == 10
    assert set(PROGRAMS) <= {*MEMORY, *SUITES["arithmetic"]}
    assert set(MEMORY) <= set(PROGRAMS)


def test_suites_and_names_add_up() -> None:
    assert sorted(w.target for w in find([], ["memory"])) == sorted(MEMORY)
    found = [w.target for w in find(["lorenz"], ["arithmetic"])]
    assert found == ["norms.py:dropout", "lorenz.py:scan", "black_scholes.py:options"]
    with pytest.raises(ValueError, match=r"No suite is called big\. There are: paper, memory"):
        find([], ["big"])


def test_the_least_traffic() -> None:
    [softmax, batch] = find(["softmax", "norms.py:batch_backward"])
    assert softmax.floor_bytes([100, 8], [100]) == 208
    assert batch.floor_bytes([100, 8], [100]) == 600
