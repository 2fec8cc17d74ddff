"""Full training steps of flax, equinox and haiku with chains of optax, as under jax.jit: a jitted
loss inside a jitted step, parameters and optimizer donated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from fusionstitch.compiler import core
from fusionstitch.compiler.stitched import Stitched
from tests.clients.models import MODELS, Model
from tests.clients.near import assert_near

pytestmark = pytest.mark.slow

optax = pytest.importorskip("optax")

STEPS = 3
#: Large, so that a gradient that is zero but for rounding does not become a step of its own.
EPS = 1e-3


def matrices(params: Any) -> Any:
    return jax.tree.map(lambda p: p.ndim > 1, params)


def decayed_by_kind() -> Any:
    kinds = {"matrix": optax.adamw(1e-2, eps=EPS), "vector": optax.sgd(1e-2, momentum=0.9)}
    label = {True: "matrix", False: "vector"}
    return optax.multi_transform(
        kinds, lambda params: jax.tree.map(lambda p: label[p.ndim > 1], params)
    )


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "clipped adamw": lambda: optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(1e-2, eps=EPS)
    ),
    "scheduled": lambda: optax.chain(
        optax.clip(0.5),
        optax.scale_by_adam(eps=EPS),
        optax.add_decayed_weights(1e-2, mask=matrices),
        optax.scale_by_schedule(optax.warmup_cosine_decay_schedule(0.0, 1e-2, 2, 10)),
        optax.scale(-1.0),
    ),
    "accumulated": lambda: optax.MultiSteps(
        optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.1, momentum=0.9, nesterov=True)), 2
    ),
    "masked": lambda: optax.chain(
        optax.masked(optax.add_decayed_weights(0.1), matrices),
        optax.scale_by_rms(eps=EPS),
        optax.ema(0.5),
        optax.scale_by_learning_rate(optax.exponential_decay(1e-2, 2, 0.5)),
    ),
    "by kind": decayed_by_kind,
    "guarded": lambda: optax.apply_if_finite(
        optax.chain(optax.zero_nans(), optax.adabelief(1e-2, eps=EPS)), 3
    ),
}

#: The optimizer that each model is trained with.
STEPS_OF = {
    "flax_transformer": "clipped adamw",
    "flax_batch_norm": "scheduled",
    "flax_recurrent": "accumulated",
    "flax_nnx": "by kind",
    "equinox_mlp": "scheduled",
    "equinox_attention": "guarded",
    "equinox_recurrent": "masked",
    "haiku_batch_norm": "by kind",
    "haiku_recurrent": "scheduled",
    "haiku_attention": "clipped adamw",
}


def train(model: Model, optimizer: Any, start: Any, jit: Callable[..., Any]) -> Any:
    """Parameters, state and losses after some steps from `start`."""
    loss = jit(model.loss)

    def step(params: Any, state: Any, moments: Any, batch: Any, key: jax.Array) -> Any:
        (value, state), grads = jax.value_and_grad(loss, has_aux=True)(params, state, batch, key)
        updates, moments = optimizer.update(grads, moments, params)
        return optax.apply_updates(params, updates), state, moments, value

    jitted = jit(step, donate_argnums=(0, 1, 2))
    (params, state, moments), losses = jax.tree.map(jnp.array, start), []
    for i in range(STEPS):
        params, state, moments, value = jitted(
            params, state, moments, model.batch(i), jax.random.key(i)
        )
        losses.append(value)
    return params, state, losses


def test_every_model_and_every_optimizer_is_trained() -> None:
    assert set(STEPS_OF) == set(MODELS)
    assert set(STEPS_OF.values()) == set(OPTIMIZERS)


@pytest.mark.parametrize("name", STEPS_OF)
def test_training(name: str, jit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer = MODELS[name](), OPTIMIZERS[STEPS_OF[name]]()
    stitched, stitch = [], core.stitch

    def counted(*args: Any, **keywords: Any) -> Stitched:
        stitched.append(stitch(*args, **keywords))
        return stitched[-1]

    monkeypatch.setattr(core, "stitch", counted)

    @jax.jit
    def start() -> Any:
        params, state = model.init(jax.random.key(0))
        return params, state, optimizer.init(params)

    ours, theirs = (train(model, optimizer, start(), one) for one in (jit, jax.jit))
    assert_near(ours, theirs, 1e-4)
    assert any(result.stitches for result in stitched)
