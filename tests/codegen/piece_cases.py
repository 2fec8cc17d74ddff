"""Cases whose outputs are joined from pieces, and whose concatenates sink (loops/pieces.py)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tests.codegen.kernel_cases import BF16, GRID, LANES, STRICT, VECTORS, add, case, normal

SUNK = "// sink concatenates;"


@case(normal(300, 41), normal(300, 41))
def pieces_of_a_stack(x, y):
    """Three values of an item from what they have in common: one loop, stores side by side."""
    return jnp.stack([jnp.sin(x * y), jnp.cos(x * y), x * y], -1)


@case(normal(2000, 4), shows=VECTORS)
def pieces_that_make_a_vector(q):
    """Four components side by side, read and stored as one vector."""
    w, x, y, z = (q[:, n] for n in range(4))
    return jnp.stack([w * w - x * x, w * x + y, z * jnp.tanh(y), w - z], -1)


@case(normal(64, 48), normal(64, 16))
def pieces_of_two_widths(x, y):
    """Each has a loop of its own: their rows are of different lengths."""
    return jnp.concatenate([jnp.exp(x), jnp.tanh(y), x], 1)


@case(normal(96, 48), shows=LANES)
def pieces_that_are_summed(x):
    """What a row's sum decides, beside the row."""
    y = x - x.mean(1, keepdims=True)
    return jnp.concatenate([y, jnp.abs(y)], 1), jnp.abs(y).sum(1)


@case(normal(80, 64), shows=GRID)
def pieces_after_a_grid_barrier(x):
    total = (x * x).sum()
    return jnp.concatenate([x / total, x * total])


@case(normal(70, 3, 24))
def pieces_of_a_gradient(raw):
    """Slices along a short dim: their gradient is a sum of pads."""

    def loss(raw):
        w, m, s = raw[:, 0], raw[:, 1], raw[:, 2]
        return (jax.nn.log_softmax(w) * m * jnp.exp(-s)).sum()

    return jax.grad(loss)(raw)


@case(normal(301, 20))
def pieces_of_differences(x):
    """Shifted slices that overlap: the first row, the last one, and all between them."""
    return jax.grad(lambda x: (jnp.sin(x[1:] - x[:-1]) ** 2).sum())(x)


@case(normal(600, 12))
def pieces_beside_all_of_it(x):
    """A gradient of slices beside one of the whole."""
    return jax.grad(lambda x: (x[:, 2:6] * x[:, 4:8]).sum() - (x * jnp.cos(x)).sum())(x)


@case(normal(16, 256, 64), normal(256, 64), normal(256, 64), shows=SUNK)
def sunk_rotation(x, cos, sin):
    """Halves that are swapped: both in one loop."""
    a, b = jnp.split(x, 2, -1)
    return x * cos + jnp.concatenate([-b, a], -1) * sin


@case(normal(8, 32, 64, dtype=BF16), normal(32, 64, dtype=BF16), shows=SUNK)
def sunk_rotation_in_16_bits(x, cos):
    a, b = jnp.split(x, 2, -1)
    return x * cos + jnp.concatenate([-b, a], -1)


@case(normal(50000, 3), normal(50000, 3), shows=SUNK)
def sunk_products_of_vectors(a, b):
    """A cross product over its length: the sum over the components becomes two additions."""
    c = jnp.cross(a, b)
    return c / jnp.sqrt((c * c).sum(-1, keepdims=True) + 1e-3)


@case(normal(4, 1100), shows=SUNK)
def sunk_steps(y):
    """Runge-Kutta on a state of four: what a step gives is taken apart by the next."""

    def d(y):
        return jnp.stack([y[1], -jnp.sin(y[0]), y[3], -y[2] * y[0]])

    k1 = d(y)
    k2 = d(y + 0.05 * k1)
    k3 = d(y + 0.05 * k2)
    return y + 0.1 / 6 * (k1 + 4 * k2 + k3)


@case(np.abs(normal(9, 23, 20)) + 1, shows=SUNK)
def sunk_lattice(f):
    """Nine directions stream and meet: sums over them, and each is changed by these."""
    f = jnp.stack([jnp.roll(f[n], n - 4, 0) for n in range(9)])
    weights = jnp.arange(1, 10, dtype=jnp.float32)[:, None, None] / 45
    rho = f.sum(0)
    flow = (f * weights).sum(0) / rho
    return f - 0.6 * (f - weights * rho * (1 + 3 * flow[None] * weights + flow * flow))


@case(normal(40, 30, 3), shows=SUNK)
def sunk_colours(image):
    """Colours as others by a matrix, bounded and scaled: a product of three by three."""
    matrix = jnp.array([[0.3, 0.6, 0.1], [-0.17, -0.33, 0.5], [0.5, -0.42, -0.08]], jnp.float32)
    colours = jnp.stack([image[..., 0], image[..., 1] ** 2, jnp.exp(image[..., 2])], -1)
    turned = jnp.einsum("hwc,dc->hwd", colours, matrix)
    return jnp.clip(turned[..., jnp.array([2, 0, 1])], -1, 1) * 0.5


@case(normal(700, 6), shows=SUNK)
def sunk_extremum(x):
    """The largest of some values, whichever it is."""
    y = jnp.stack([x[:, 0] * x[:, 1], x[:, 2] - x[:, 3], x[:, 4], x[:, 5]], -1)
    y = jnp.concatenate([y, -y], -1)
    return y - y.max(-1, keepdims=True)


add("pieces_in_strict_numerics", pieces_of_a_gradient, normal(70, 3, 24), options=STRICT)
