"""What bodies of loops do less often, and compilers get wrong more often."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.loops.growing import FLOATS, is_float
from tests.loops.steps import INTS, Steps

#: Not a number, the infinities, and what is nothing but for its sign.
SPECIAL = (jnp.nan, jnp.inf, -jnp.inf, -0.0)


class Rare(Steps):
    """Steps at the ends of what types hold and of where arrays end."""

    STEPS = (
        *Steps.STEPS,
        *("exchange", "outside", "dropped", "collide", "special", "divide", "shift", "bits"),
        *("rounded", "joined", "runs", "batched", "picked", "recast", "prodded", "windows"),
    )

    # ---- indices --------------------------------------------------------------------------------

    def exchange(self) -> None:
        """Two rows of an array are swapped, which the data decides."""
        v = self.any(least_rank=1)
        n = v.dims[0]
        a, b = self.at() % n, self.at() % n
        self.keep(v.x.at[a].set(v.x[b]).at[b].set(v.x[a]), v)

    def outside(self) -> None:
        """Reads that fill what lies outside, and from the end."""
        v = self.any(*FLOATS, *INTS, least_rank=1)
        at = self.like(self.pick(((), (3,))), jnp.int32).x
        fill = 1 if not is_float(v.dtype) else 0.25
        self.keep(v.x.at[at - 2].get(mode="fill", fill_value=fill), v)

    def dropped(self) -> None:
        """Writes of which those outside do nothing."""
        v = self.any(*FLOATS, *INTS, least_rank=1)
        new = self.like(v.dims[1:], v.dtype)
        at = v.x.at[self.at() - 1]
        ways = (at.set, at.max, at.min)
        self.keep(self.pick(ways)(new.x, mode=self.pick(("drop", "clip"))), v, new)

    def collide(self) -> None:
        """Several updates, some at one index: the result is the same in any order."""
        v = self.any(jnp.float32, *INTS, least_rank=1)
        at = self.like((self.pick((3, 1, 4)),), jnp.int32).x
        new = self.like((*at.shape, *v.dims[1:]), v.dtype)
        ways: Sequence[Callable[..., Any]] = (v.x.at[at].max, v.x.at[at].min)
        if not is_float(v.dtype):
            ways = (*ways, v.x.at[at].add)
        self.keep(self.pick(ways)(new.x), v, new)

    def picked(self) -> None:
        """One element for each of several indices in two dims."""
        v = self.any(least_rank=2)
        a, b = (self.like((3,), jnp.int32).x % n for n in v.dims[:2])
        self.keep(v.x[a, b], v)

    # ---- values ---------------------------------------------------------------------------------

    def special(self) -> None:
        """NaN or infinity at some indices; then numbers again."""
        v = self.any(jnp.float32, jnp.float16)
        mask = self.like(v.dims, jnp.bool_).x
        wild = jnp.where(mask, jnp.asarray(self.pick(SPECIAL), v.dtype), v.x)
        other = self.like(v.dims, v.dtype)
        ways = (
            lambda a, b: jnp.maximum(a, b),
            lambda a, b: jnp.minimum(b, a),
            lambda a, b: a * 0.5 - b * 0.5,
            lambda a, b: jnp.where(a > 0.0137, a, b),
            lambda a, b: jnp.clip(a, -1, 1),
            lambda a, b: jnp.where(a != a, b, a),
            lambda a, b: jnp.tanh(a),
            lambda a, b: jnp.exp(-jnp.abs(a)),
            lambda a, b: jnp.copysign(b, a),
        )
        made = self.pick(ways)(wild, other.x)
        if v.dims and 0 not in v.dims and self.flag():
            axis = self.number(0, len(v.dims) - 1)
            made = self.pick((jnp.max, jnp.min, jnp.sum))(made, axis, keepdims=True)
            made = made / v.dims[axis]
        self.keep(jnp.where(jnp.isfinite(made), made, jnp.where(made > 0, 0.5, 0.25)), v, other)

    def rounded(self) -> None:
        v = self.any(jnp.float32, exact=True)
        ways = (
            lambda x: jnp.floor(x * 1.7 + 0.0137) * 0.25,
            lambda x: jnp.ceil(x * 1.7 + 0.0137) * 0.25,
            lambda x: jnp.round(x * 1.7 + 0.0137) * 0.25,
            lambda x: jnp.sign(x + 0.0137),
            lambda x: jnp.trunc(x * 2.3 + 0.0137) * 0.25,
            lambda x: jnp.sqrt(jnp.abs(x)),
            lambda x: jnp.log1p(jnp.abs(x)),
            lambda x: jnp.expm1(-jnp.abs(x)),
            lambda x: jax.nn.sigmoid(x),
            lambda x: jnp.arctan2(x, 1.5 + x * x) * 0.5,
            lambda x: lax.erf(x),
            lambda x: jnp.abs(x) ** 1.5 * 0.5,
            lambda x: lax.rem(x * 1.37 + 0.0137, jnp.asarray(0.7, x.dtype)),
            lambda x: lax.cbrt(x),
        )
        self.keep(self.pick(ways)(v.x), v)

    def divide(self) -> None:
        """Quotients, by nothing too, and of the least number by -1."""
        a = self.any(*INTS)
        b = self.like(a.dims, a.dtype)
        ways = (
            lambda a, b: lax.div(a, b),
            lambda a, b: lax.rem(a, b),
            lambda a, b: a // (b | jnp.ones((), b.dtype)),
            lambda a, b: a % (b | jnp.ones((), b.dtype)),
            lambda a, b: lax.div(jnp.full_like(a, jnp.iinfo(a.dtype).min), b),
            lambda a, b: lax.sign(a) * b,
        )
        self.keep(self.pick(ways)(a.x, b.x), a, b)

    def shift(self) -> None:
        """Shifts, by more than there are bits too."""
        a = self.any(*INTS)
        b = self.like(a.dims, a.dtype)
        ways = (lax.shift_left, lax.shift_right_arithmetic, lax.shift_right_logical)
        self.keep(self.pick(ways)(a.x, b.x), a, b)

    def bits(self) -> None:
        a = self.any(*INTS)
        ways = (jnp.bitwise_not, lax.population_count, lax.clz, jnp.negative, jnp.abs)
        self.keep(self.pick(ways)(a.x), a)

    def recast(self) -> None:
        """The same bits as numbers of another sign, or as bytes."""
        a = self.any(jnp.int32, jnp.uint32, jnp.int8)
        other = {"int32": jnp.uint32, "uint32": jnp.uint8, "int8": jnp.uint8}[a.dtype.name]
        self.keep(lax.bitcast_convert_type(a.x, other), a)

    # ---- reductions -----------------------------------------------------------------------------

    def prodded(self) -> None:
        """Products of all, which wrap around in integers."""
        v = self.any(jnp.float32, *INTS, least_rank=1)
        axis = self.number(0, len(v.dims) - 1)
        x = jnp.tanh(v.x) if is_float(v.dtype) else v.x
        self.keep(jnp.prod(x, axis).astype(v.dtype), v)

    def joined(self) -> None:
        v = self.any(jnp.float32, least_rank=1)
        axis = self.number(0, len(v.dims) - 1)
        ways = (
            lambda x: jax.nn.logsumexp(x, axis) * 0.25,
            lambda x: jnp.var(x, axis) * 0.5,
            lambda x: jnp.sqrt(jnp.mean(x * x, axis)),
            lambda x: jnp.max(x, axis) - jnp.min(x, axis),
        )
        self.keep(self.pick(ways)(v.x), v)

    def runs(self) -> None:
        """Running reductions, from the end too."""
        v = self.any(jnp.float32, jnp.int32, least_rank=1)
        axis, backwards = self.number(0, len(v.dims) - 1), self.flag()
        ways = (lax.cummin, lax.cummax)
        if not is_float(v.dtype):
            ways = (*ways, lax.cumsum, lax.cumprod)
        self.keep(self.pick(ways)(v.x, axis, reverse=backwards), v)

    def windows(self) -> None:
        v = self.any(jnp.float32, jnp.int32, least_rank=1)
        axis = self.number(0, len(v.dims) - 1)
        size = tuple(3 if d == axis else 1 for d in range(len(v.dims)))
        step = tuple(self.pick((1, 2)) if d == axis else 1 for d in range(len(v.dims)))
        low = v.dtype.type(
            -jnp.inf if is_float(v.dtype) else -(2**31)
        )  # what JAX has a gradient for
        self.keep(lax.reduce_window(v.x, low, lax.max, size, step, "SAME"), v)

    def batched(self) -> None:
        a = self.any(jnp.float32, least_rank=2)
        b = self.like(a.dims, a.dtype)
        made = jnp.einsum("...ij,...kj->...ik", a.x, b.x, precision="highest")
        self.keep(made / (1.5 * a.dims[-1]), a, b)
