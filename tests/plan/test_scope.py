"""Options.scope and packing: kernels are held to the compositions that are allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from fusionstitch.compiler import builders, core
from fusionstitch.costmodel.facts import SCOPES
from fusionstitch.hlo.errors import OptionError
from fusionstitch.options import Options

X = jnp.ones((256, 512))


def norm(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A row statistic, a column sum of what follows from it, and another output."""
    y = x / jnp.sum(x * x, axis=1, keepdims=True)
    return y, jnp.sum(y, axis=0)


def scopes(fun: Callable[..., Any], *args: Any, **options: Any) -> list[str]:
    lowered: Any = jax.jit(fun).lower(*args).compiler_ir("hlo")
    chosen = Options(scorer="paper", device="h200", **options)
    data = lowered.as_serialized_hlo_module_proto()
    found = core.stitch(data, chosen, builders.profile(chosen), None)
    assert found.fallbacks == ()
    return [one.chosen.facts.scope for one in found.stitches]


@pytest.mark.parametrize("scope", SCOPES)
def test_no_value_crosses_more_than_the_scope(scope: str) -> None:
    found = scopes(norm, X, scope=scope)
    assert all(SCOPES.index(one) <= SCOPES.index(scope) for one in found)
    assert found


def test_a_column_sum_of_many_rows_needs_the_grid() -> None:
    assert scopes(norm, X) == ["grid"]
    assert scopes(norm, X, scope="block") == ["block"]


def test_a_row_that_outgrows_a_block_needs_a_cluster() -> None:
    x = jax.ShapeDtypeStruct((1024, 65_536), jnp.float32)
    assert scopes(jax.nn.softmax, x) == ["cluster"]
    assert scopes(jax.nn.softmax, x, scope="block") == ["warp"]


def test_without_packing_independent_ops_stay_apart() -> None:
    def two(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.tanh(a) * 2, jnp.tanh(b) * 2

    assert scopes(two, X, X + 1) == ["thread"]
    assert scopes(two, X, X + 1, packing=False) == ["thread", "thread"]


def test_an_unknown_scope_is_refused() -> None:
    with pytest.raises(OptionError, match=r"Options\.scope is 'lane'"):
        Options(scope="lane")
