"""numpyro: the steps of NUTS and of variational inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.clients.near import assert_near

pytestmark = pytest.mark.slow

numpyro = pytest.importorskip("numpyro")
distributions = pytest.importorskip("numpyro.distributions")
infer = pytest.importorskip("numpyro.infer")

DRAW = np.random.default_rng(0)
X = jnp.asarray(DRAW.standard_normal((24, 3), np.float32))
Y = X @ jnp.array([1.0, -2.0, 0.5]) + 0.1 * jnp.asarray(DRAW.standard_normal(24, np.float32))


def regression(x: jax.Array, y: jax.Array) -> None:
    weights = numpyro.sample("weights", distributions.Normal(jnp.zeros(3), 1.0).to_event(1))
    noise = numpyro.sample("noise", distributions.HalfNormal(1.0))
    numpyro.sample("y", distributions.Normal(x @ weights, noise), obs=y)


def nuts(jit: Callable[..., Any], steps: int) -> Any:
    kernel = infer.NUTS(regression, max_tree_depth=3)
    state = kernel.init(jax.random.key(0), 4, None, model_args=(X, Y), model_kwargs={})
    sample, found = jit(lambda state: kernel.sample(state, (X, Y), {})), []
    for _ in range(steps):
        state = sample(state)
        found.append((state.z, state.potential_energy, state.num_steps))
    return found


def test_nuts(jit: Callable[..., Any]) -> None:
    """Whole transitions: trees of leapfrog steps, adaptation of step size and mass matrix."""
    assert_near(nuts(jit, 3), nuts(jax.jit, 3), 1e-3)


def test_a_posterior(jit: Callable[..., Any]) -> None:
    """Chains part once a choice flips on rounding, so longer ones agree in distribution."""

    def posterior(jit: Callable[..., Any]) -> np.ndarray:
        kernel = infer.NUTS(regression, max_tree_depth=4)
        state = kernel.init(jax.random.key(1), 60, None, model_args=(X, Y), model_kwargs={})

        def chain(state: Any) -> Any:
            def step(state: Any, _: Any) -> Any:
                state = kernel.sample(state, (X, Y), {})
                return state, state.z["weights"]

            return jax.lax.scan(step, state, None, length=160)[1]

        return np.asarray(jit(chain)(state))[60:].mean(0)

    exact = np.linalg.lstsq(np.asarray(X), np.asarray(Y), rcond=None)[0]
    np.testing.assert_allclose(posterior(jit), exact, atol=0.08)


def test_variational_inference(jit: Callable[..., Any]) -> None:
    def train(jit: Callable[..., Any]) -> Any:
        guide = infer.autoguide.AutoNormal(regression)
        svi = infer.SVI(regression, guide, numpyro.optim.Adam(1e-2), infer.Trace_ELBO())
        state, losses = svi.init(jax.random.key(2), X, Y), []
        update = jit(svi.update)
        for _ in range(3):
            state, loss = update(state, X, Y)
            losses.append(loss)
        return svi.get_params(state), losses

    assert_near(train(jit), train(jax.jit), 1e-4)
