"""The No-U-Turn Sampler of NumPyro on the eight schools, with many chains at once.

A transition builds a tree of leapfrog steps: nested loops whose lengths depend on the data. XLA
runs both until the last chain is done, and launches many tiny kernels in each iteration.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from common import Workload, size
from numpyro.infer import NUTS
from numpyro.infer.hmc import HMCState
from numpyro.infer.reparam import LocScaleReparam

EFFECTS = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


@numpyro.handlers.reparam(config={"theta": LocScaleReparam(0)})
def eight_schools(effects: jax.Array, errors: jax.Array) -> None:
    """Effects of coaching in eight schools: Rubin (1981)."""
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("schools", len(effects)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("effects", dist.Normal(theta, errors), obs=effects)


def transitions() -> Workload:
    """20 transitions of 1024 chains, trees up to depth 6 (small: 2 of 4, depth 3). The step size is
    fixed, as it is after warm-up."""
    steps, chains, depth = size((20, 1024, 6), (2, 4, 3))
    fixed = {"step_size": 0.2, "adapt_step_size": False, "adapt_mass_matrix": False}
    kernel = NUTS(eight_schools, max_tree_depth=depth, **fixed)
    data = (EFFECTS, ERRORS)
    keys = jax.random.split(jax.random.key(0), chains)
    state = kernel.init(keys, num_warmup=0, init_params=None, model_args=data, model_kwargs={})

    def sample(state: HMCState) -> tuple[HMCState, dict[str, jax.Array]]:
        def step(state: HMCState, _: None) -> tuple[HMCState, dict[str, jax.Array]]:
            state = kernel.sample(state, data, {})
            return state, state.z

        return jax.lax.scan(step, state, length=steps)

    return sample, (state,)
