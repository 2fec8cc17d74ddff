"""Values of user-defined types (`jax.experimental.hijax`), with and without a shape."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import hijax

from fusionstitch.errors import FusionStitchWarning
from tests.behaviour.same import assert_same
from tests.behaviour.table import Jit, mixed

X = jnp.asarray(np.random.default_rng(0).standard_normal((4, 6), np.float32))


@dataclass(frozen=True)
class Pair:
    one: Any
    other: Any


@dataclass(frozen=True)
class PairType(hijax.HiType):
    dims: tuple[int, ...]

    def lo_ty(self) -> list[Any]:
        return [hijax.ShapedArray(self.dims, np.dtype("float32"))] * 2

    def lower_val(self, hi_val: Pair) -> list[Any]:
        return [hi_val.one, hi_val.other]

    def raise_val(self, *lo_vals: Any) -> Pair:
        return Pair(*lo_vals)


@dataclass(frozen=True)
class ShapedPair(Pair):
    """A pair whose type has what an array's has."""


@dataclass(frozen=True)
class ShapedPairType(PairType):
    def raise_val(self, *lo_vals: Any) -> Pair:
        return ShapedPair(*lo_vals)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.dims

    @property
    def dtype(self) -> Any:
        return np.dtype("float32")


hijax.register_hitype(Pair, lambda pair: PairType(pair.one.shape))
hijax.register_hitype(ShapedPair, lambda pair: ShapedPairType(pair.one.shape))


#: JAX 0.12 gave the class another name.
Primitive: Any = getattr(hijax, "HiPrim", None) or hijax.VJPHiPrimitive


class Total(Primitive):
    """The sum of a pair."""

    def __init__(self, kind: PairType):
        self.in_avals = (kind,)
        self.out_aval = hijax.ShapedArray(kind.dims, np.dtype("float32"))
        self.params: dict[str, Any] = {}
        super().__init__()

    def expand(self, pair: Any) -> Any:
        return pair.one + pair.other


@pytest.mark.parametrize("made", [Pair, ShapedPair])
def test_arguments_and_results(jit: Jit, made: type[Pair]) -> None:
    def fun(pair: Any, x: jax.Array) -> Any:
        return pair, mixed(x + Total(jax.typeof(pair))(pair))

    def run(jit: Jit) -> Any:
        pair, y = jit(fun)(made(X, 2.0 * X), X)
        return [pair.one, pair.other, y], type(pair)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", FusionStitchWarning)
        ours, kind = run(jit)
    theirs, expected = run(jax.jit)
    assert kind is expected
    assert_same(ours, theirs, committed=False)
    assert all("other than arrays" in str(one.message) for one in said)
