"""diffrax: an ODE with adaptive steps, its gradient, and many systems at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.clients.near import assert_near
from tests.codegen.whole_loop_programs import rows_of, stitched

diffrax = pytest.importorskip("diffrax")

STARTS = jnp.asarray(np.random.default_rng(0).standard_normal((5, 3), np.float32))


def lorenz(t: Any, y: jax.Array, args: Any) -> jax.Array:
    sigma, rho, beta = args
    a, b, c = y
    return jnp.stack([sigma * (b - a), a * (rho - c) - b, a * b - beta * c])


def solve(start: jax.Array, parameters: Any, adjoint: Any = None) -> jax.Array:
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lorenz),
        diffrax.Tsit5(),
        t0=0.0,
        t1=0.3,
        dt0=0.01,
        y0=start,
        args=parameters,
        saveat=diffrax.SaveAt(ts=jnp.linspace(0.0, 0.3, 4)),
        stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-6),
        adjoint=adjoint or diffrax.RecursiveCheckpointAdjoint(),
        max_steps=64,
    )
    assert solution.ys is not None
    return solution.ys


PARAMETERS = (jnp.float32(10.0), jnp.float32(28.0), jnp.float32(8 / 3))


def test_a_trajectory(jit: Callable[..., Any]) -> None:
    # the number of steps may differ by rounding, and the solution by the solver's own tolerance
    ours, theirs = (j(solve)(STARTS[0], PARAMETERS) for j in (jit, jax.jit))
    assert_near(ours, theirs, 1e-4)


def test_many_trajectories(jit: Callable[..., Any]) -> None:
    ours, theirs = (
        j(jax.vmap(solve, in_axes=(0, None)))(STARTS, PARAMETERS) for j in (jit, jax.jit)
    )
    assert_near(ours, theirs, 1e-4)


def test_a_gradient_through_the_solver(jit: Callable[..., Any]) -> None:
    def loss(parameters: Any) -> jax.Array:
        return jnp.mean(solve(STARTS[0], parameters, diffrax.DirectAdjoint()) ** 2)

    ours, theirs = (j(jax.value_and_grad(loss))(PARAMETERS) for j in (jit, jax.jit))
    assert_near(ours, theirs, 1e-3)


SAVED = {"the end": diffrax.SaveAt(t1=True), "times": diffrax.SaveAt(ts=jnp.linspace(0.0, 0.3, 4))}


#: Solvers, and the kernels that they take: one counts how long any system has yet to take its first
#: step, where solvers take over what they found in the step before.
@pytest.mark.parametrize(
    ("solver", "saved", "kernels"),
    [("Heun", "the end", 1), ("Tsit5", "times", 2), ("Dopri5", "the end", 2)],
)
def test_each_of_many_systems_takes_its_own_steps(
    jit: Callable[..., Any], solver: str, saved: str, kernels: int
) -> None:
    def solved(start: jax.Array) -> Any:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lorenz),
            getattr(diffrax, solver)(),
            t0=0.0,
            t1=0.3,
            dt0=0.01,
            y0=start,
            args=PARAMETERS,
            saveat=SAVED[saved],
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-5),
            max_steps=64,
            throw=False,
        )
        return solution.ys

    assert rows_of(stitched(jax.vmap(solved), STARTS)) == [len(STARTS)] * kernels
    ours, theirs = (j(jax.vmap(solved))(STARTS) for j in (jit, jax.jit))
    assert_near(ours, theirs, 1e-4)
