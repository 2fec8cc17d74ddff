"""optax: every optimizer's update of a tree of unlike arrays, many small tensors at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.clients.near import assert_near

optax = pytest.importorskip("optax")

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: optax.sgd(1e-2, momentum=0.9, nesterov=True),
    "adamw": lambda: optax.adamw(optax.cosine_decay_schedule(1e-2, 10)),
    "lamb": lambda: optax.lamb(1e-2),
    "adafactor": lambda: optax.adafactor(1e-2, min_dim_size_to_factor=4),
    "accumulated": lambda: optax.MultiSteps(optax.rmsprop(1e-2), every_k_schedule=2),
}


def tree(seed: int) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    shapes = {"w": (12, 9), "b": (9,), "scale": (), "layers": (3, 8, 8)}
    return {k: jnp.asarray(draw.standard_normal(s, np.float32)) for k, s in shapes.items()}


def run(optimizer: Any, jit: Callable[..., Any]) -> Any:
    params = tree(0)
    state = optimizer.init(params)

    def step(params: Any, state: Any, grads: Any) -> Any:
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, optax.tree.norm(updates)

    jitted = jit(step, donate_argnums=(0, 1))
    for i in range(3):
        params, state, norm = jitted(params, state, tree(i + 1))
    return params, state, norm


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates(name: str, jit: Callable[..., Any]) -> None:
    optimizer = OPTIMIZERS[name]()
    assert_near(run(optimizer, jit), run(optimizer, jax.jit))
