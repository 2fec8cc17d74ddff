"""Real programs as JAX lowers them, and a way to run edited HLO bytes on the CPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.mlir as extend_mlir
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.extend.lowering import JaxIrContext, upstream_dialects
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo


def _mlp_step(params, x, y):
    def loss(params):
        (w1, b1), (w2, b2) = params
        hidden = jax.nn.gelu(x @ w1 + b1)
        logits = jax.nn.log_softmax(hidden @ w2 + b2)
        return -(logits * y).sum(axis=-1).mean()

    value, grads = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def _transformer(w, x):
    def norm(h):
        centred = h - h.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)

    qkv = (norm(x) @ w["qkv"]).reshape(2, 8, 3, 2, 4)
    q, k, v = (qkv[:, :, i] for i in range(3))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.5
    scores = jnp.where(jnp.tril(jnp.ones((8, 8), bool)), scores, -jnp.inf)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(2, 8, 8)
    x = x + mixed
    return x + jax.nn.silu(norm(x) @ w["up"]) @ w["down"]


def _scan(x, w):
    def body(carry, step):
        return jnp.tanh(carry @ w) + step, carry.sum()

    return jax.lax.scan(body, x, jnp.arange(3.0))


def _cond(flag, x):
    return jax.lax.cond(flag, lambda v: jnp.exp(v).sum(), lambda v: v.max(), x) + jax.lax.switch(
        jnp.int32(x[0, 0] > 0) + 1, [jnp.sin, jnp.cos, jnp.tanh], x
    )


def _random(key, x):
    return x + jax.random.normal(key, x.shape), jax.random.bernoulli(key, 0.3, (5,))


def _half(x):
    wide = x.astype(jnp.float32)
    return jax.nn.softmax(wide).astype(jnp.bfloat16) * x, (x > 0).sum()


def _movement(x):
    padded = jnp.pad(x, ((1, 2), (0, 3)), constant_values=2.0)
    joined = jnp.concatenate([x, x[::-1], x[:, ::2].repeat(2, 1)], 0)
    picked = x[jnp.array([3, 0, 2])]
    return padded[::2, 1:], joined.T, picked, x.at[1].set(0.0), jnp.roll(x, 1), x[2, 1:3]


def _integers(a, b):
    mixed = (a ^ b) | (a & 7) + (b << 3)
    return mixed // 3, mixed % 5, jnp.abs(-mixed), jax.lax.population_count(mixed), a > b


def _sort(x):
    return jnp.sort(x), jnp.argmax(x, -1), jnp.cumsum(x, 0)


def _array(*shape: int, dtype: Any = jnp.float32, seed: int = 0) -> jax.Array:
    values = np.random.default_rng(seed).standard_normal(shape)
    return jnp.asarray(values, dtype)


@dataclass(frozen=True)
class Program:
    """A jitted function with example arguments."""

    fun: Callable[..., Any]
    args: tuple[Any, ...]
    donate: tuple[int, ...] = ()

    @property
    def hlo(self) -> bytes:
        lowered = jax.jit(self.fun, donate_argnums=self.donate).lower(*self.args)
        return lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()

    @property
    def want(self) -> list[np.ndarray]:
        return [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(self.fun)(*self.args))]

    def run(self, hlo: bytes) -> list[np.ndarray]:
        """The results of the same function with `hlo` as its program."""
        exported = export.export(jax.jit(self.fun))(*self.args)
        context = JaxIrContext()
        context.append_dialect_registry(upstream_dialects)
        context.load_all_available_dialects()
        stablehlo.register_dialect(context)
        with context:
            text = str(ir.Module.parse(extend_mlir.hlo_to_stablehlo(hlo)))
        version = stablehlo.get_current_version()
        artifact = extend_mlir.serialize_portable_artifact(text, version)
        edited = dataclasses.replace(exported, mlir_module_serialized=artifact)
        return [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(edited.call)(*self.args))]

    @property
    def leaves(self) -> list[np.ndarray]:
        """The arguments as the entry computation takes them (keys as their bits)."""
        return [
            np.asarray(
                jax.random.key_data(a) if jnp.issubdtype(a.dtype, jax.dtypes.prng_key) else a
            )
            for a in map(jnp.asarray, jax.tree.leaves(self.args))
        ]


def _programs() -> dict[str, Program]:
    params = ((_array(6, 8), _array(8)), (_array(8, 4, seed=1), _array(4)))
    weights = {"qkv": _array(8, 24), "up": _array(8, 16, seed=2), "down": _array(16, 8, seed=3)}
    ints = (jnp.arange(-6, 6, dtype=jnp.int32), jnp.arange(3, 15, dtype=jnp.int32))
    return {
        "mlp": Program(_mlp_step, (params, _array(5, 6), jax.nn.one_hot(jnp.arange(5) % 4, 4))),
        "donated": Program(
            _mlp_step, (params, _array(5, 6), jax.nn.one_hot(jnp.arange(5) % 4, 4)), donate=(0,)
        ),
        "transformer": Program(_transformer, (weights, _array(2, 8, 8, seed=4))),
        "scan": Program(_scan, (_array(4, 4), _array(4, 4, seed=5))),
        "cond": Program(_cond, (jnp.bool_(True), _array(3, 4))),
        "random": Program(_random, (jax.random.key(7), _array(4, 5))),
        "half": Program(_half, (_array(4, 8, dtype=jnp.bfloat16),)),
        "movement": Program(_movement, (_array(5, 4),)),
        "integers": Program(_integers, ints),
        "sort": Program(_sort, (_array(4, 6),)),
    }


@pytest.fixture(scope="session")
def programs() -> dict[str, Program]:
    return _programs()


@pytest.fixture(
    params=[
        *("mlp", "donated", "transformer", "scan", "cond"),
        *("random", "half", "movement", "integers", "sort"),
    ]
)
def program(request: pytest.FixtureRequest, programs: dict[str, Program]) -> Program:
    return programs[request.param]
