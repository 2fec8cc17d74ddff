"""Scans as trees, whose levels each take two values of the one below: what a stage would compute
doubles with each level."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.codegen.drafts import Draft
from fusionstitch.codegen.generate import draft
from fusionstitch.codegen.loops import once, stages
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.errors import CodegenError
from tests.codegen.regions import lowered


def averages(price: jax.Array, share: jax.Array) -> jax.Array:
    def join(a, b):  # type: ignore[no-untyped-def]
        return a[0] * b[0], a[1] * b[0] + b[1]

    weights = jnp.broadcast_to(1 - share[:, None], price.shape)
    return jax.lax.associative_scan(join, (weights, share[:, None] * price), axis=1)[1]


def specs(length: int) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(dims, jnp.float32) for dims in ((8, length), (8,))]


@pytest.mark.parametrize("length", [20_001, 80_001])
def test_places_are_bounded(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    count, plain = 0, stages.inlined_reads

    def counted(op, index):  # type: ignore[no-untyped-def]
        nonlocal count
        count += 1
        return plain(op, index)

    monkeypatch.setattr(stages, "inlined_reads", counted)
    graph = lowered(averages, *specs(length))
    found = draft(graph, device("h200"))
    assert isinstance(found, Draft)
    assert len(found.scheduled.plan.phases) > 1  # levels are stored
    assert count < 100 * once.MOST_AGAIN
    with pytest.raises(CodegenError, match="places"):
        stages.find_stages(graph, stored=frozenset())


@pytest.mark.parametrize("length", [16, 61])
def test_what_is_stitched_of_one_is_right(length: int, host_compiler: str) -> None:
    price = np.random.default_rng(0).standard_normal((8, length), np.float32)
    share = np.linspace(0.1, 0.9, 8, dtype=np.float32)
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    compiled = fs.jit(averages, options=options).lower(price, share).compile()
    assert compiled.kernels
    np.testing.assert_allclose(compiled(price, share), averages(price, share), rtol=1e-5, atol=1e-6)
