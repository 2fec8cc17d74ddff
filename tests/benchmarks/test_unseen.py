"""The sixty programs that nothing was fitted to."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from benchmarks import model_error
from benchmarks.unseen.table import PROGRAMS, find
from benchmarks.workloads import WORKLOADS

#: Inputs that take longer to make, or do not fit into a slice of a GPU, are too large.
MOST_BYTES = 200_000_000


def test_there_are_sixty_and_none_is_an_example() -> None:
    assert len(PROGRAMS) == 60
    short = [name.partition("/")[2] for name in PROGRAMS]
    assert len(set(short)) == 60
    assert not {workload.target.partition(":")[2] for workload in WORKLOADS} & set(short)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_traces(name: str) -> None:
    fun, args = PROGRAMS[name]()
    leaves = jax.tree.leaves(args)
    assert all(isinstance(leaf, (np.ndarray, np.generic)) for leaf in leaves)
    assert all(leaf.dtype not in (np.float64, np.int64) for leaf in leaves)
    assert sum(leaf.nbytes for leaf in leaves) < MOST_BYTES
    assert jax.tree.leaves(jax.eval_shape(fun, *args))


def test_inputs_are_the_same_ones_again() -> None:
    make = PROGRAMS["reinforcement/prioritized_replay"]
    one, other = (jax.tree.leaves(make()[1]) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_names_and_how_they_begin() -> None:
    assert find([]) == list(PROGRAMS)
    assert find(["graphs"]) == [name for name in PROGRAMS if name.startswith("graphs/")]
    found = ["vision/color_jitter", "statistics/von_mises"]
    assert find(["von_mises", "vision/color_jitter"]) == found
    with pytest.raises(ValueError, match=r"No program is called mises\. There are: vision/"):
        find(["mises"])


def test_the_model_is_fitted_to_none_of_them() -> None:
    short = {name.partition("/")[2] for name in PROGRAMS}
    fitted = model_error.programs(())
    everyday = {name.partition("/")[2] for name in fitted if name.startswith("everyday/")}
    assert len(everyday) == 70
    for name in everyday & short:  # the same kind of program, by another author
        fun, args, _ = fitted[f"everyday/{name}"]()
        [unseen] = (make for known, make in PROGRAMS.items() if known.endswith(f"/{name}"))
        assert (
            jax.make_jaxpr(fun)(*args).in_avals
            != jax.make_jaxpr(unseen()[0])(*unseen()[1]).in_avals
        )
    assert list(model_error.programs(["everyday/focal"])) == ["everyday/focal_loss"]
