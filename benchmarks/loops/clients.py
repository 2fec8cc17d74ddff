"""Loops of client libraries; programs of a library that is missing are left out."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.loops.table import Program, loop
from benchmarks.unseen.inputs import Draw


def _diffrax(solver: str, systems: int, backwards: bool = False) -> Program:
    import diffrax

    def one(start: Any, rho: Any) -> Any:
        def slope(t: Any, y: Any, rho: Any) -> Any:
            a, b, c = y
            return jnp.stack([10.0 * (b - a), a * (rho - c) - b, a * b - 8 / 3 * c])

        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(slope),
            getattr(diffrax, solver)(),
            t0=0.0,
            t1=1.0,
            dt0=0.01,
            y0=start,
            args=rho,
            stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-6),
            max_steps=256,
            throw=False,
        )
        assert solution.ys is not None
        return solution.ys[-1]

    fun: Any = jax.vmap(one)
    if backwards:
        fun = jax.grad(lambda start, rho: jnp.sum(jax.vmap(one)(start, rho) ** 2), (0, 1))
    draw = Draw(131)
    return fun, (draw.normal(systems, 3), draw.uniform(systems, low=10.0, high=28.0))


@loop("rows", needs="diffrax", systems=3)
def diffrax_tsit5(systems: int = 1024) -> Program:
    return _diffrax("Tsit5", systems)


@loop("rows", needs="diffrax", systems=3)
def diffrax_dopri5(systems: int = 1024) -> Program:
    return _diffrax("Dopri5", systems)


@loop("rows", needs="diffrax", systems=2)
def diffrax_adjoint(systems: int = 256) -> Program:
    return _diffrax("Tsit5", systems, backwards=True)


@loop("rows", needs="flax", batch=2, steps=3, hidden=4)
def flax_rnn(batch: int = 128, steps: int = 50, hidden: int = 64) -> Program:
    """A layer of flax's LSTM by nn.RNN, with its gradient."""
    import flax.linen as nn

    model = nn.RNN(nn.OptimizedLSTMCell(hidden))
    x = Draw(132).normal(batch, steps, 16)
    shapes = jax.eval_shape(model.init, jax.random.key(0), x)
    draw = Draw(133)
    params = jax.tree.map(lambda leaf: draw.normal(*leaf.shape, scale=0.1), shapes)

    def loss(params: Any, x: Any) -> Any:
        return jnp.mean(model.apply(params, x) ** 2)

    return jax.value_and_grad(loss), (params, x)


@loop("rows", needs="equinox", batch=2, steps=3, hidden=4)
def equinox_gru(batch: int = 128, steps: int = 50, hidden: int = 64) -> Program:
    """equinox's GRUCell in a scan, under vmap."""
    import equinox as eqx

    made = jax.eval_shape(lambda: eqx.nn.GRUCell(8, hidden, key=jax.random.key(0)))
    shapes, static = eqx.partition(made, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    draw = Draw(134)
    params = jax.tree.map(lambda leaf: draw.normal(*leaf.shape, scale=0.2), shapes)

    def run(params: Any, xs: Any) -> Any:
        cell = eqx.combine(params, static)

        def one(xs: Any) -> Any:
            return lax.scan(lambda h, x: (cell(x, h), None), jnp.zeros(hidden), xs)[0]

        return jax.vmap(one)(xs)

    return run, (params, draw.normal(batch, steps, 8))


@loop("grid", needs="optax", rows=16, steps=3)
def optax_adam(rows: int = 1024, steps: int = 200) -> Program:
    """A regression trained by optax inside one scan."""
    import optax

    def run(w: Any, x: Any, y: Any) -> Any:
        optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))

        def step(carry: Any, _: Any) -> tuple[Any, Any]:
            w, state = carry
            value, slope = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
            change, state = optimizer.update(slope, state, w)
            return (optax.apply_updates(w, change), state), value

        return lax.scan(step, (w, optimizer.init(w)), None, length=steps)[1]

    draw = Draw(135)
    return run, (draw.normal(16), draw.normal(rows, 16), draw.normal(rows))


@loop("block", needs="numpyro", warmup=2, samples=2)
def numpyro_nuts(warmup: int = 100, samples: int = 100) -> Program:
    """NUTS of eight schools with its warm-up: trees are built by loops in loops."""
    import numpyro
    from numpyro import distributions as dist
    from numpyro.infer import NUTS

    effects = np.array([28, 8, -3, 7, -1, 1, 18, 12], np.float32)
    errors = np.array([15, 10, 16, 11, 9, 11, 10, 18], np.float32)

    def model(effects: Any, errors: Any) -> None:
        mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
        spread = numpyro.sample("spread", dist.HalfCauchy(5.0))
        with numpyro.plate("schools", 8):
            raw = numpyro.sample("raw", dist.Normal(0.0, 1.0))
            numpyro.sample("seen", dist.Normal(mean + spread * raw, errors), obs=effects)

    def run(key: Any, effects: Any, errors: Any) -> Any:
        kernel = NUTS(model, max_tree_depth=5)
        given = {"model_args": (effects, errors), "model_kwargs": {}}
        key = jax.random.wrap_key_data(key)
        state = kernel.init(key, warmup, None, (effects, errors), {})

        def step(state: Any, _: Any) -> tuple[Any, Any]:
            state = kernel.sample(state, **given)
            return state, state.z["mean"]

        return lax.scan(step, state, None, length=warmup + samples)[1]

    return run, (Draw(136).key(), effects, errors)


@loop("block", needs="jaxopt", size=4, steps=3)
def jaxopt_gradient(size: int = 32, steps: int = 100) -> Program:
    """jaxopt's gradient descent with line search."""
    import jaxopt

    def run(a: Any, b: Any) -> Any:
        solver = jaxopt.GradientDescent(lambda x: jnp.sum((a @ x - b) ** 2), maxiter=steps)
        return solver.run(jnp.zeros(size)).params

    draw = Draw(137)
    return run, (draw.weight(size, size), draw.normal(size))


@loop("rows", needs="blackjax", chains=2, steps=3)
def blackjax_hmc(chains: int = 256, steps: int = 100) -> Program:
    """blackjax's HMC of a normal density, many chains."""
    import blackjax

    def one(key: Any, start: Any) -> Any:
        sampler = blackjax.hmc(lambda x: -0.5 * jnp.sum(x**2), 0.1, jnp.ones(4), 8)

        def step(state: Any, own: Any) -> tuple[Any, Any]:
            state, _ = sampler.step(own, state)
            return state, state.position

        keys = jax.random.split(key, steps)
        return lax.scan(step, sampler.init(start), keys)[1]

    draw = Draw(138)
    keys = draw.integers(chains, 2, high=2**31, dtype="uint32")
    return jax.vmap(one), (keys, draw.normal(chains, 4))
