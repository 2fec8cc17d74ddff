"""Sums of deviations from a mean in one pass: the same values, as exact as two passes."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.codegen.generate import CodegenOptions
from fusionstitch.codegen.rewrite.factors import take_out_factors
from fusionstitch.codegen.rewrite.moments import centre_sums, merge_variances
from fusionstitch.codegen.rewrite.strength import reduce_strength
from fusionstitch.codegen.rewrite.strength_rules import RULES
from fusionstitch.codegen.schedule.split import find_splits, split_reductions
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import Graph
from fusionstitch.hlo.verify import verify
from tests.codegen.kernel_cases import batch_norm
from tests.codegen.regions import H200, Case, build, whole_of

ROWS, COLUMNS = 2048, 64


def split(graph: Graph) -> Graph:
    return split_reductions(graph, find_splits(graph, H200))


def merged(graph: Graph) -> Graph:
    graph = take_out_factors(reduce_strength(graph, RULES))
    found = merge_variances(split(centre_sums(graph)))
    verify(found)
    return found


def squares_about(x, m):
    return ((x - m) ** 2).sum(0)


def variance(x):
    return ((x - x.mean(0)) ** 2).mean(0)


def variance_of_channels(x):
    return ((x - x.mean((0, 1, 3), keepdims=True)) ** 2).mean((0, 1, 3))


def variance_of_images(x):
    return jnp.var(x, (0, 1, 2)) + x.mean((0, 1, 2))


def variance_of_all(x):
    return ((x - x.mean()) ** 2).mean()


def about_half_the_mean(x):
    return squares_about(x, x.mean(0) * 0.5)


#: Functions with a pass over `x` that another has to wait for, and shapes for which sums are split.
WAITING: dict[str, tuple[Callable, tuple[int, ...]]] = {
    "columns": (variance, (ROWS, COLUMNS)),
    "odd columns": (variance, (4096, 37)),
    "channels": (variance_of_channels, (16, 32, 8, 64)),
    "images": (variance_of_images, (8, 32, 16, 48)),
    "all": (variance_of_all, (512, 256)),
    "about something else": (about_half_the_mean, (ROWS, COLUMNS)),
}


def draw(*dims: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(dims, np.float32)


@pytest.mark.parametrize("name", WAITING)
def test_merged_variances_are_the_same_numbers(name: str) -> None:
    fun, dims = WAITING[name]
    graph, x = whole_of(fun, draw(*dims)), draw(*dims) + 3
    found = merged(graph)
    assert "slice" in {op.opcode for op in found}
    [one], [other] = (evaluate(g, [x], float64=True) for g in (graph, found))
    np.testing.assert_allclose(other, one, rtol=1e-12)


@pytest.mark.parametrize(
    ("fun", "dims"),
    [
        (lambda x: squares_about(x, 2.0), (ROWS, COLUMNS)),  # waits for nothing
        (lambda x: ((x - x.mean(1, keepdims=True)) ** 2).sum(0), (ROWS, COLUMNS)),  # m varies
        (lambda x: squares_about(x, jnp.exp(x).mean(0)), (ROWS, COLUMNS)),  # another sum
        (variance, (100, 20)),  # not split
        (variance, (2039, COLUMNS)),  # a prime: parts are padded
    ],
)
def test_other_sums_of_squares_are_left_alone(fun: Callable, dims: tuple[int, ...]) -> None:
    graph = take_out_factors(reduce_strength(whole_of(fun, draw(*dims)), RULES))
    parted = split(graph)
    assert str(merge_variances(parted)) == str(parted)


def _first_row_far_out(x: np.ndarray) -> np.ndarray:
    x[:: ROWS // 32] *= 1000  # the first row of every part
    return x


DATA: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "as drawn": lambda x: x,
    "far from zero": lambda x: x + 3000,
    "one row far out": lambda x: np.concatenate([x[:1] + 1e4, x[1:]]),
    "the first row of every part far out": _first_row_far_out,
    "drifting": lambda x: x + np.arange(ROWS, dtype=np.float32)[:, None],
    "two values": lambda x: np.sign(x) + 100,
}


@pytest.mark.parametrize("name", DATA)
def test_variances_of_awkward_columns(host_compiler: str, name: str) -> None:
    """As near to float64 as two passes are."""
    x = DATA[name](draw(ROWS, COLUMNS))
    graph = whole_of(variance, x)
    case = Case(graph, [x], limit=2e-7)
    assert "_of_slice" in case.kernel().source
    build([case]).check(case)


@pytest.mark.parametrize("dims", [(8, 32, 32, 48), (32, 25, 21, 40)])
def test_variances_of_images_take_one_pass(host_compiler: str, dims: tuple[int, ...]) -> None:
    """Their dims become one before it is split."""
    x = draw(*dims) + 3000
    case = Case(whole_of(variance_of_images, x), [x], limit=2e-7)
    assert "_of_slice" in case.kernel().source
    build([case]).check(case)


def test_a_column_of_one_value_has_no_variance_below_zero(host_compiler: str) -> None:
    x = np.broadcast_to(np.linspace(0.1, 1e4, COLUMNS, dtype=np.float32), (ROWS, COLUMNS)).copy()
    case = Case(whole_of(lambda x: jnp.sqrt(variance(x)), x), [x])
    [found] = build([case]).run(case)
    assert (found >= 0).all()
    assert (found <= 2e-6 * x[0]).all()


def test_a_batch_norm_waits_once(host_compiler: str) -> None:
    """Its two statistics, and what uses them: two barriers, where strict numerics has four."""
    args = draw(ROWS, COLUMNS), draw(COLUMNS), draw(COLUMNS)
    graph = whole_of(batch_norm, *args)
    one = Case(graph, args)
    strict = Case(graph, args, options=CodegenOptions(numerics="strict"))
    counts = [c.kernel().source.count("fs_grid_barrier();") for c in (one, strict)]
    assert counts == [2, 4]
    built = build([one, strict])
    built.check(one)
    built.check(strict)


def test_deviations_from_the_mean_of_the_very_values_are_not_summed() -> None:
    graph = whole_of(lambda x: (x - x.mean(1, keepdims=True)).sum(1), draw(8, 128))
    found = centre_sums(reduce_strength(graph, RULES))
    verify(found)
    assert sum(op.opcode == "reduce" for op in reduce_strength(found, RULES)) == 1
    x = draw(8, 128) + 1
    [one], [other] = (evaluate(g, [x], float64=True) for g in (graph, found))
    np.testing.assert_allclose(other, one, atol=1e-12)


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: (x - x.mean(0)).sum(1),  # the mean of columns
        lambda x: (x - x.sum(1, keepdims=True)).sum(1),  # no mean
        lambda x: (x - jnp.exp(x).mean(1, keepdims=True)).sum(1),  # of other values
        lambda x: (x - 1.0).sum(1),
    ],
)
def test_other_differences_are_summed(fun: Callable) -> None:
    graph = reduce_strength(whole_of(fun, draw(64, 64)), RULES)
    assert str(centre_sums(graph)) == str(graph)
