"""Geometry and control: small functions over many bodies, rays, filters."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.unseen.inputs import Draw, Program

#: The parent of each joint of a body, of which the first is the root.
PARENTS = (-1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 12, 13, 14, 16, 17, 18, 19)


def rotation(axis_angle: Any) -> Any:
    """The matrix of a rotation vector."""
    angle = jnp.sqrt(jnp.sum(axis_angle**2) + 1e-12)
    x, y, z = axis_angle / angle
    zero = jnp.zeros_like(x)
    k = jnp.stack([zero, -z, y, z, zero, -x, -y, x, zero]).reshape(3, 3)
    return jnp.eye(3) + jnp.sin(angle) * k + (1 - jnp.cos(angle)) * (k @ k)


def joints(pose: Any, offsets: Any, shift: Any) -> Any:
    """Places of a body's joints: rotations along the tree of bones."""
    local = jax.vmap(rotation)(pose)
    turned, places = [local[0]], [shift]
    for n, parent in enumerate(PARENTS[1:], 1):
        turned.append(turned[parent] @ local[n])
        places.append(places[parent] + turned[parent] @ offsets[n])
    return jnp.stack(places)


def body_kinematics() -> Program:
    draw = Draw(91)
    fun = jax.vmap(joints, in_axes=(0, None, 0))
    pose = draw.normal(4099, len(PARENTS), 3, scale=0.3)
    return fun, (pose, draw.normal(len(PARENTS), 3, scale=0.2), draw.normal(4099, 3))


def march(origins: Any, directions: Any, centers: Any, radii: Any) -> tuple[Any, Any]:
    """Sphere tracing of a smooth union of balls until all rays have hit or left, with shading."""

    def distance(point: Any) -> Any:
        away = jnp.sqrt(jnp.sum((point - centers) ** 2, axis=-1)) - radii
        return -jax.nn.logsumexp(-8.0 * away) / 8.0

    field = jax.vmap(distance)

    def step(carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        t, _, count = carry
        d = field(origins + t[:, None] * directions)
        active = (d > 1e-3) & (t < 20.0)
        return jnp.where(active, t + d, t), jnp.any(active), count + 1

    def go_on(carry: tuple[Any, Any, Any]) -> Any:
        return carry[1] & (carry[2] < 40)

    start = jnp.zeros(origins.shape[0]), jnp.array(True), 0
    t, _, _ = lax.while_loop(go_on, step, start)
    normal = jax.vmap(jax.grad(distance))(origins + t[:, None] * directions)
    light = jnp.array([0.6, 0.64, -0.48])
    shade = jnp.where(t < 20.0, jnp.clip(normal @ light, 0.0, 1.0) * 0.8 + 0.2, 0.0)
    return t, jnp.power(shade, 1 / 2.2)


def sphere_tracing() -> Program:
    draw = Draw(92)
    y, x = np.mgrid[-1:1:181j, -1:1:241j].reshape(2, -1)
    directions = np.stack([x, y, np.ones_like(x)], 1)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    origins = np.tile(np.array([[0.0, 0.0, -6.0]]), (x.size, 1))
    rays = (origins.astype(np.float32), directions.astype(np.float32))
    return march, (*rays, draw.normal(13, 3), draw.uniform(13, low=0.3, high=0.8))


def kalman(observed: Any, heard: Any, move: Any, noise: Any) -> tuple[Any, Any]:
    """Filters of many tracks with four states and two observations, some of them missing."""

    def step(carry: tuple[Any, Any], now: tuple[Any, Any]) -> tuple[tuple[Any, Any], Any]:
        x, p = carry
        z, there = now
        x = x @ move.T
        p = jnp.einsum("ij,bjk,lk->bil", move, p, move) + noise
        residual = z - x[:, :2]
        s = p[:, :2, :2] + 0.25 * jnp.eye(2)
        det = s[:, 0, 0] * s[:, 1, 1] - s[:, 0, 1] * s[:, 1, 0]
        inverse = jnp.stack([s[:, 1, 1], -s[:, 0, 1], -s[:, 1, 0], s[:, 0, 0]], -1)
        inverse = inverse.reshape(-1, 2, 2) / det[:, None, None]
        gain = jnp.einsum("bij,bjk->bik", p[:, :, :2], inverse)
        gain = gain * there[:, None, None]
        x = x + jnp.einsum("bij,bj->bi", gain, residual)
        p = p - jnp.einsum("bij,bjk->bik", gain, p[:, :2, :])
        log_p = -0.5 * jnp.einsum("bi,bij,bj->b", residual, inverse, residual)
        return (x, p), (x, there * (log_p - 0.5 * jnp.log(det)))

    tracks = observed.shape[1]
    start = jnp.zeros((tracks, 4)), jnp.broadcast_to(10.0 * jnp.eye(4), (tracks, 4, 4))
    _, (states, log_p) = lax.scan(step, start, (observed, heard))
    return states, jnp.sum(log_p, axis=0)


def kalman_filters() -> Program:
    draw = Draw(93)
    move = np.eye(4, dtype=np.float32) + 0.1 * np.eye(4, k=2, dtype=np.float32)
    observed = np.cumsum(draw.normal(50, 1009, 2, scale=0.3), axis=0)
    heard = (draw.uniform(50, 1009) < 0.8).astype(np.float32)
    return kalman, (observed, heard, move, 0.01 * np.eye(4, dtype=np.float32))


def rotated(points: Any, quaternions: Any, colors: Any) -> tuple[Any, Any]:
    """Covariances of Gaussian splats turned by quaternions and projected, and their colours."""
    w, x, y, z = (quaternions / jnp.linalg.norm(quaternions, axis=-1, keepdims=True)).T
    turn = jnp.stack(
        [
            jnp.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], -1),
            jnp.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], -1),
            jnp.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1),
        ],
        axis=-2,
    )
    place, size = points[:, :3], jnp.exp(points[:, 3:])
    half = turn * size[:, None, :]
    spread = jnp.einsum("nij,nkj->nik", half, half)
    depth = place[:, 2] + 5.0
    zero = jnp.zeros_like(depth)
    jacobian = jnp.stack(
        [
            jnp.stack([1 / depth, zero, -place[:, 0] / depth**2], -1),
            jnp.stack([zero, 1 / depth, -place[:, 1] / depth**2], -1),
        ],
        axis=-2,
    )
    flat = jnp.einsum("nij,njk,nlk->nil", jacobian, spread, jacobian) + 0.01 * jnp.eye(2)
    direction = place / jnp.linalg.norm(place, axis=-1, keepdims=True)
    basis = jnp.concatenate([jnp.full_like(depth, 0.28)[:, None], 0.49 * direction], axis=-1)
    return flat, jax.nn.sigmoid(jnp.einsum("nb,nbc->nc", basis, colors.astype(jnp.float32)))


def gaussian_splats() -> Program:
    draw = Draw(94)
    count = 300007
    colors = draw.normal(count, 4, 3, dtype=jnp.float16)
    return rotated, (draw.normal(count, 6, scale=0.7), draw.normal(count, 4), colors)
