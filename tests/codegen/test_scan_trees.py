"""Scans as trees, whose levels each take two values of the one below: what a stage would compute
doubles with each level."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.codegen.generate import draft
from fusionstitch.codegen.loops import stages
from fusionstitch.compiler.core import stitch
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.options import Options
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
    with pytest.raises(CodegenError, match="places"):
        draft(lowered(averages, *specs(length)), device("h200"))
    assert count < 20 * stages.MOST_AGAIN


def test_values_that_are_written_are_bounded() -> None:
    """Each of two ways that a value may come is a block of its own, which knows none of what is
    written in the other: thousands of values, at few places."""
    traced = jax.jit(averages).trace(*specs(61))
    data = traced.lower(lowering_platforms=("cuda",)).compiler_ir("hlo")
    options = Options(device="emulated", scorer="paper")
    found = stitch(
        data.as_serialized_hlo_module_proto(),  # type: ignore[union-attr]
        options,
        device("emulated"),
        None,
    )
    said = [one.reason for plan in found.plans for one in plan.rejected]
    assert any("values would take too long to compile" in reason for reason in said)


def test_what_is_stitched_of_one_is_right(host_compiler: str) -> None:
    price = np.random.default_rng(0).standard_normal((8, 16), np.float32)
    share = np.linspace(0.1, 0.9, 8, dtype=np.float32)
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    compiled = fs.jit(averages, options=options).lower(price, share).compile()
    assert compiled.kernels
    np.testing.assert_allclose(compiled(price, share), averages(price, share), rtol=1e-5, atol=1e-6)
