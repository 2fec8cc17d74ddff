"""Black-Scholes prices of European options: elementwise, bound by arithmetic and traffic."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from common import Random, Workload, size

RATE = 0.02
VOLATILITY = 0.30


def normal_cdf(x: jax.Array) -> jax.Array:
    return 0.5 * (1.0 + jax.lax.erf(x * 0.5**0.5))


def prices(spot: jax.Array, strike: jax.Array, years: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Call and put prices, elementwise."""
    spread = VOLATILITY * jnp.sqrt(years)
    d1 = (jnp.log(spot / strike) + (RATE + 0.5 * VOLATILITY**2) * years) / spread
    d2 = d1 - spread
    discounted = strike * jnp.exp(-RATE * years)
    call = spot * normal_cdf(d1) - discounted * normal_cdf(d2)
    put = discounted * normal_cdf(-d2) - spot * normal_cdf(-d1)
    return call, put


def options() -> Workload:
    """10 million options f32 (small: 4000)."""
    draw = Random()
    count = size(10_000_000, 4000)
    spot, strike = draw.uniform(count, low=5, high=30), draw.uniform(count, low=1, high=100)
    return prices, (spot, strike, draw.uniform(count, low=0.25, high=10))
