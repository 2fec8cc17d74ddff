"""Programs over several devices: sharded by the compiler, by explicit axes, and by shard_map.

`programs(mesh)` maps a name to (function, arguments in place, keywords of jit); the mesh has one
axis "d" over all devices. The result of each is that of one device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

Entry = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def mixed(x: jax.Array) -> jax.Array:
    s = jax.nn.softmax(x, -1)
    return s * (s * x).sum(0)


def layer_norm(x: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def network(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    hidden = jax.nn.gelu(layer_norm(x) @ params["up"] + params["bias"])
    return layer_norm(hidden @ params["down"] + x)


def step(params: dict[str, jax.Array], x: jax.Array) -> tuple[Any, jax.Array]:
    loss, grads = jax.value_and_grad(lambda p: (network(p, x) ** 2 * x).mean())(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss


def programs(mesh: Mesh) -> dict[str, Entry]:
    draw, count = np.random.default_rng(0), mesh.size

    def place(shape: tuple[int, ...], *spec: Any) -> jax.Array:
        value = 0.5 * draw.standard_normal(shape).astype(np.float32)
        sharding = NamedSharding(mesh, P(*spec))
        return jax.make_array_from_callback(shape, sharding, lambda index: value[index])

    def mapped(fun: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
        return jax.shard_map(fun, mesh=mesh, in_specs=in_specs, out_specs=out_specs)

    def mean_over_devices(x: jax.Array) -> jax.Array:
        e = jnp.exp(x - jax.lax.pmax(jax.lax.stop_gradient(x.max(0)), "d"))
        return layer_norm(e / jax.lax.psum(e.sum(0), "d"))

    def ring(x: jax.Array) -> jax.Array:
        def body(carry: tuple[jax.Array, jax.Array], _: Any) -> tuple[Any, None]:
            total, block = carry
            total = total + layer_norm(jnp.tanh(block) * 2.0 - x)
            return (total, jax.lax.ppermute(block, "d", moves)), None

        return jax.lax.scan(body, (x * 0.0, x), None, length=count)[0][0]

    moves = [(i, (i + 1) % count) for i in range(count)]
    rows, columns = 32 * count, 16 * count
    shapes = {"up": (columns, 64), "bias": (64,), "down": (64, columns)}
    replicated = {name: place(shape) for name, shape in shapes.items()}
    split = {
        "up": place(shapes["up"], None, "d"),
        "bias": place(shapes["bias"], "d"),
        "down": place(shapes["down"], "d", None),
    }
    by_row = NamedSharding(mesh, P("d"))
    return {
        "rows": (mixed, (place((rows, columns), "d"),), {}),
        "columns": (mixed, (place((rows, columns), None, "d"),), {}),
        "given shardings": (
            *(mixed, (place((rows, columns), "d"),)),
            {"in_shardings": by_row, "out_shardings": by_row},
        ),
        "data parallel step": (
            *(step, (replicated, place((rows, columns), "d"))),
            {"donate_argnums": 0},
        ),
        "tensor parallel step": (step, (split, place((rows, columns))), {}),
        "shard_map": (
            *(mapped(mean_over_devices, P("d"), P("d")), (place((rows, columns), "d"),)),
            {},
        ),
        "ring in a scan": (mapped(ring, P("d"), P("d")), (place((rows, columns), "d"),), {}),
    }


def gathered(tree: Any) -> list[np.ndarray]:
    """The addressable parts of each leaf, in the order of devices."""
    return [
        np.stack([np.asarray(s.data) for s in leaf.addressable_shards])
        for leaf in jax.tree.leaves(tree)
    ]


def check(jit: Callable[..., Any], mesh: Mesh, name: str) -> list[str]:
    """Asserts that the program is what jax.jit makes of it; returns the names of its kernels."""
    # XLA multiplies floats as tf32 unless told not to, which is not what is compared here
    with jax.default_matmul_precision("highest"):
        (fun, mine, keywords), (_, others, _) = programs(mesh)[name], programs(mesh)[name]
        jitted, plain = jit(fun, **keywords), jax.jit(fun, **keywords)
        compiled = jitted.lower(*mine).compile()
        theirs, ours = plain(*others), jitted(*mine)
        for one, two in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            assert (one.aval, one.sharding) == (two.aval, two.sharding)
        for one, two in zip(gathered(ours), gathered(theirs), strict=True):
            error = float(np.linalg.norm((one - two).ravel()))
            assert error <= 2e-4 * float(np.linalg.norm(two.ravel())), (name, error)
        deleted = [[x.is_deleted() for x in jax.tree.leaves(args)] for args in (mine, others)]
        assert deleted[0] == deleted[1]
        return [kernel.name for kernel in compiled.kernels]
