"""Higher derivatives: Hessians, Laplacians, traces, products with curvature, nested gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from benchmarks.corpus.drawing import Draw
from benchmarks.corpus.table import template


def _dense(layers, x, act=jnp.tanh):
    *first, last = layers
    for layer in first:
        x = act(x @ layer["w"] + layer["b"])
    return x @ last["w"] + last["b"]


@template
def hessians_of_energies(draw: Draw):
    """Values, gradients and full Hessians of a small formula at many points."""
    n, d, axis = draw.size(40000, 1600000), draw.size(2, 8), draw.choice(0, 1)
    kind = draw.choice("valley", "waves", "springs")

    def energy(x, a):
        if kind == "valley":
            return (100 * (x[1:] - x[:-1] ** 2) ** 2 + a * (1 - x[:-1]) ** 2).sum()
        if kind == "waves":
            return a * (x**2).sum() + jnp.sin(3 * x).prod() + jnp.exp(-(x**2).sum())
        length = jnp.sqrt((x[1:] - x[:-1]) ** 2 + 1)
        return ((length - a) ** 2).sum() + jnp.cosh(x).sum()

    def fun(x, a):
        value, slope = jax.vmap(jax.value_and_grad(energy), (axis, 0), (0, axis))(x, a)
        return value, slope, jax.vmap(jax.hessian(energy), (axis, 0))(x, a)

    shape = (n, d) if axis == 0 else (d, n)
    return fun, (draw.normal(*shape, scale=0.5), draw.uniform(n))


@template
def laplacian_of_network(draw: Draw):
    """A network that solves an equation: its Laplacian point by point, and the loss's gradient."""
    n, d, width = draw.size(8000, 128000), draw.choice(2, 3), draw.choice(16, 32, 64)
    form, act = draw.choice("forward", "hessian"), draw.choice(jnp.tanh, jnp.sin)

    def loss(layers, x, source, weight):
        def u(p):
            return _dense(layers, p, act)[0] * jnp.prod(1 - p**2)

        def laplacian(p):
            if form == "hessian":
                return jnp.trace(jax.hessian(u)(p))

            def second(e):
                return jax.jvp(lambda q: jax.grad(u)(q) @ e, (p,), (e,))[1]

            return sum(second(e) for e in jnp.eye(d))

        residual = jax.vmap(laplacian)(x) + source
        return (weight * residual**2).mean()

    args = (draw.layers(d, width, width, 1), draw.uniform(n, d, low=-1), draw.normal(n))
    return jax.value_and_grad(loss), (*args, draw.uniform(n))


@template
def exact_divergence(draw: Draw):
    """A field of a network with its exact divergence and the size of its Jacobian, for flows."""
    n, d, width = draw.size(16000, 256000), draw.size(2, 8), draw.choice(16, 32, 64)
    forward, act = draw.choice(True, False), draw.choice(jnp.tanh, jax.nn.softplus, jax.nn.silu)

    def fun(layers, x, t):
        def field(p, time):
            return _dense(layers, jnp.concatenate([p, time[None]]), act)

        jacobian = jax.vmap((jax.jacfwd if forward else jax.jacrev)(field))(x, t)
        divergence = jnp.trace(jacobian, axis1=1, axis2=2)
        curl = jacobian - jacobian.transpose(0, 2, 1)
        v = jax.vmap(field)(x, t)
        return v, divergence, (jacobian**2).sum((1, 2)), (curl**2).sum((1, 2)) / 2

    return fun, (draw.layers(d + 1, width, d), draw.normal(n, d), draw.uniform(n))


@template
def curvature_along_a_direction(draw: Draw):
    """The Hessian of a regularised loss times vectors, and the quotient with the vector."""
    rows, c, classes = draw.size(4000, 64000), draw.size(16, 200), draw.size(3, 12)
    vectors, smooth = draw.choice(1, 4), draw.number(0.0, 0.2)

    def loss(params, x, y):
        logits = jax.nn.softplus(x @ params["in"]) @ params["out"]
        hot = (1 - smooth) * jax.nn.one_hot(y, classes) + smooth / classes
        entropy = -(hot * jax.nn.log_softmax(logits)).sum(-1).mean()
        return entropy + 1e-3 * sum((p**2).sum() for p in jax.tree.leaves(params))

    def fun(params, v, x, y):
        slope = jax.grad(loss)

        def product(u):
            return jax.jvp(lambda p: slope(p, x, y), (params,), (u,))[1]

        hv = jax.vmap(product)(v)

        def dot(a, b):
            return sum(
                (p * q).reshape(vectors, -1).sum(1)
                for p, q in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
            )

        norm = jnp.sqrt(dot(hv, hv))
        unit = jax.tree.map(lambda h: h / norm.reshape(-1, 1, 1), hv)
        return unit, dot(v, hv) / dot(v, v), norm

    params = {"in": draw.weight(c, 64), "out": draw.weight(64, classes)}
    v = {"in": draw.normal(vectors, c, 64), "out": draw.normal(vectors, 64, classes)}
    return fun, (params, v, draw.normal(rows, c), draw.integers(rows, high=classes))


@template
def damped_least_squares(draw: Draw):
    """Curves fitted to many series: residuals, Jacobians, one damped step, kept if better."""
    n, points = draw.size(8000, 240000), draw.odd_size(9, 65)
    model = draw.choice("decay", "peak", "logistic")

    def curve(p, t):
        if model == "decay":
            return p[0] * jnp.exp(-jnp.exp(p[1]) * t) + p[2]
        if model == "peak":
            return p[0] * jnp.exp(-(((t - p[1]) * jnp.exp(p[2])) ** 2))
        return p[0] * jax.nn.sigmoid((t - p[1]) * jnp.exp(p[2]))

    def one(p, damping, t, y, weight):
        def residual(p):
            return weight * (curve(p, t) - y)

        r, jacobian = residual(p), jax.jacfwd(residual)(p)
        a = jacobian.T @ jacobian
        a = a + damping * jnp.diag(jnp.diagonal(a) + 1e-3)
        g = jacobian.T @ r
        m00, m11, m22, m01, m02, m12 = a[0, 0], a[1, 1], a[2, 2], a[0, 1], a[0, 2], a[1, 2]
        c00, c01, c02 = m11 * m22 - m12**2, m02 * m12 - m01 * m22, m01 * m12 - m02 * m11
        c11, c12, c22 = m00 * m22 - m02**2, m01 * m02 - m00 * m12, m00 * m11 - m01**2
        det = m00 * c00 + m01 * c01 + m02 * c02
        inverse = jnp.array([[c00, c01, c02], [c01, c11, c12], [c02, c12, c22]])
        new = p - inverse @ g / (det + 1e-9)
        before, after = (r**2).sum(), (residual(new) ** 2).sum()
        better = after < before
        return jnp.where(better, new, p), jnp.where(better, damping / 3, damping * 2), after

    def fun(p, damping, t, y, weight):
        return jax.vmap(one, in_axes=(0, 0, None, 0, 0))(p, damping, t, y, weight)

    args = (draw.normal(n, 3, scale=0.5), draw.uniform(n, low=0.1, high=1))
    args += (draw.uniform(points, high=3), draw.normal(n, points))
    return fun, (*args, draw.uniform(n, points, low=0.5))


@template
def local_energies(draw: Draw):
    """Electrons around nuclei: the kinetic energy from second derivatives of a wave function."""
    walkers, electrons, atoms = draw.size(2000, 48000), draw.size(2, 5), draw.size(1, 4)

    def log_psi(r, params, nuclei):
        alpha, beta, gamma = params
        e = r.reshape(electrons, 3)
        to_atoms = jnp.sqrt(((e[:, None] - nuclei) ** 2).sum(-1) + 1e-6)
        orbital = jnp.log(jnp.exp(-jax.nn.softplus(alpha) * to_atoms).sum(-1)).sum()
        i, j = jnp.triu_indices(electrons, 1)
        apart = jnp.sqrt(((e[i] - e[j]) ** 2).sum(-1) + 1e-6)
        jastrow = (jax.nn.softplus(beta) * apart / (1 + jax.nn.softplus(gamma) * apart)).sum()
        return orbital + jastrow

    def fun(r, params, nuclei, charge):
        def kinetic(one):
            slope = jax.grad(log_psi)
            first = slope(one, params, nuclei)
            second = jnp.diagonal(jax.jacfwd(slope)(one, params, nuclei))
            return -0.5 * (second + first**2).sum()

        e = r.reshape(walkers, electrons, 3)
        to_atoms = jnp.sqrt(((e[:, :, None] - nuclei) ** 2).sum(-1) + 1e-6)
        i, j = jnp.triu_indices(electrons, 1)
        apart = jnp.sqrt(((e[:, i] - e[:, j]) ** 2).sum(-1) + 1e-6)
        potential = (1 / apart).sum(-1) - (charge / to_atoms).sum((1, 2))
        energy = jax.vmap(kinetic)(r) + potential
        middle = jnp.median(energy)
        width = jnp.abs(energy - middle).mean()
        kept = jnp.clip(energy, middle - 5 * width, middle + 5 * width)
        by_params = jax.vmap(jax.grad(log_psi, argnums=1), (0, None, None))(r, params, nuclei)
        force = jax.tree.map(
            lambda g: 2 * jnp.einsum("w,w...->...", kept - kept.mean(), g) / walkers, by_params
        )
        return energy, kept.mean(), force

    params = (draw.normal(atoms), draw.normal(), draw.normal())
    args = (draw.normal(walkers, electrons * 3), params, draw.normal(atoms, 3))
    return fun, (*args, draw.uniform(atoms, low=1, high=4))


@template
def gradient_through_steps(draw: Draw):
    """Tasks adapt shared weights by a few inner steps; the gradient goes through these steps."""
    tasks, shots, c = draw.size(128, 1024), draw.odd_size(5, 33), draw.size(2, 40)
    width, steps, first_order = draw.choice(32, 64), draw.choice(1, 2, 3), draw.choice(True, False)

    def loss(layers, x, y):
        return ((_dense(layers, x, jax.nn.relu) - y) ** 2).mean()

    def after(layers, rate, x, y, new_x, new_y):
        for _ in range(steps):
            grads = jax.grad(loss)(layers, x, y)
            if first_order:
                grads = jax.lax.stop_gradient(grads)
            layers = jax.tree.map(lambda p, g, r: p - jnp.exp(r) * g, layers, grads, rate)
        return loss(layers, new_x, new_y)

    def total(both, *data):
        each = jax.vmap(lambda *one: after(*both, *one))(*data)
        return each.mean(), each

    layers = draw.layers(c, width, width, 1)
    rates = [{k: draw.normal(mean=-4, scale=0.1) for k in one} for one in layers]
    data = (draw.normal(tasks, shots, c), draw.normal(tasks, shots, 1))
    data += (draw.normal(tasks, 2 * shots, c), draw.normal(tasks, 2 * shots, 1))
    return jax.value_and_grad(total, has_aux=True), ((layers, rates), *data)


@template
def derivatives_up_to_the_fourth(draw: Draw):
    """A function of one variable and its derivatives by nesting, compared with a series."""
    n, most = draw.size(200000, 6000000), draw.choice(2, 3, 4)
    kind = draw.choice("bell", "mixed", "rational")

    def f(x, a, b):
        if kind == "bell":
            return jnp.exp(-a * x**2) * jnp.cos(b * x)
        if kind == "mixed":
            return jnp.tanh(a * x) * jnp.log1p(x**2) + b * jax.nn.sigmoid(x)
        return (a + x**3) / (1 + b * x**2 + x**4)

    def fun(x, a, b):
        all_, g = [f], f
        for _ in range(most):
            g = jax.grad(g)
            all_.append(g)
        values = [jax.vmap(one, (0, None, None))(x, a, b) for one in all_]
        h, series, factor = 0.05, 0.0, 1.0
        for order, value in enumerate(values):
            factor = factor * max(order, 1)
            series = series + value * h**order / factor
        return jnp.stack(values, draw_axis), jnp.abs(series - f(x + h, a, b)).max()

    draw_axis = draw.choice(0, 1)
    a, b = (draw.leaf((), "float32", lambda r, s: r.uniform(0.5, 1.5, s)) for _ in range(2))
    return fun, (draw.normal(n), a, b)


@template
def curvatures_of_surfaces(draw: Draw):
    """Normals and curvatures of implicit surfaces at many points, from gradients and Hessians."""
    n, shape = draw.size(40000, 1200000), draw.choice("torus", "gyroid", "blend")
    smooth = draw.number(2, 10)

    def field(p, a):
        x, y, z = p
        if shape == "torus":
            return jnp.sqrt((jnp.sqrt(x**2 + y**2 + 1e-6) - 1) ** 2 + z**2 + 1e-6) - a
        if shape == "gyroid":
            s, c = jnp.sin(3 * p), jnp.cos(3 * p)
            return s[0] * c[1] + s[1] * c[2] + s[2] * c[0] - a
        spheres = jnp.stack([jnp.sqrt(((p - k) ** 2).sum() + 1e-6) - a for k in (-0.4, 0.0, 0.5)])
        return -jax.nn.logsumexp(-smooth * spheres) / smooth

    def one(p, a):
        g, h = jax.grad(field)(p, a), jax.hessian(field)(p, a)
        size = jnp.sqrt((g**2).sum() + 1e-9)
        normal = g / size
        mean = (jnp.trace(h) - normal @ h @ normal) / (2 * size)
        adjoint = jnp.stack(
            [jnp.cross(h[1], h[2]), jnp.cross(h[2], h[0]), jnp.cross(h[0], h[1])], 1
        )
        gauss = normal @ adjoint.T @ normal / size**2
        root = jnp.sqrt(jnp.maximum(mean**2 - gauss, 0))
        return p - field(p, a) * normal / size, normal, jnp.stack([mean + root, mean - root])

    def fun(p, a):
        return jax.vmap(one, in_axes=(0, None))(p, a)

    return fun, (draw.normal(n, 3), draw.leaf((), "float32", lambda r, s: r.uniform(0.2, 0.5, s)))


@template
def bent_space(draw: Draw):
    """Paths in a bent space: the metric's derivatives, its inverse, accelerations and energies."""
    n, metric = draw.size(10000, 200000), draw.choice("hole", "sphere", "learned")

    def g(x, w):
        if metric == "hole":
            r = 3 + jax.nn.softplus(x[1])
            f = 1 - w[0, 0] ** 2 / r
            sine = jnp.sin(1 + 0.3 * jnp.tanh(x[2])) ** 2
            return jnp.diag(jnp.stack([-f, 1 / f, r**2, r**2 * sine]))
        if metric == "sphere":
            return 4 * jnp.eye(4) / (1 + (x**2).sum()) ** 2
        a = jnp.tanh((w @ x)[:, None] * w)
        return jnp.eye(4) + a @ a.T

    def one(x, v, w):
        d = jax.jacfwd(g)(x, w)
        first = 0.5 * (d + d.transpose(0, 2, 1) - d.transpose(2, 0, 1))
        lowered = jnp.einsum("ijk,j,k->i", first, v, v)
        here = g(x, w)
        if metric == "learned":
            root = jnp.linalg.cholesky(here)
            a = -jax.scipy.linalg.cho_solve((root, True), lowered)
        else:
            a = -lowered / jnp.diagonal(here)
        return x + 0.01 * v, v + 0.01 * a, v @ here @ v

    def fun(x, v, w):
        return jax.vmap(one, in_axes=(0, 0, None))(x, v, w)

    return fun, (draw.normal(n, 4), draw.normal(n, 4), draw.normal(4, 4, scale=0.5))


@template
def norms_of_each_gradient(draw: Draw):
    """The gradient of every example alone: norms, a clipped sum, the diagonal of their products."""
    rows, c, width, classes = (
        *(draw.size(256, 2048), draw.size(16, 96)),
        *(draw.choice(32, 64), draw.size(3, 20)),
    )
    limit, weighted = draw.number(0.1, 2), draw.choice(True, False)

    def loss(layers, x, y):
        return -jax.nn.log_softmax(_dense(layers, x, jax.nn.gelu))[y]

    def fun(layers, x, y, weight):
        grads = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(layers, x, y)
        square = sum((g.reshape(rows, -1) ** 2).sum(1) for g in jax.tree.leaves(grads))
        norm = jnp.sqrt(square + 1e-12)
        factor = jnp.minimum(1, limit / norm) * (weight if weighted else 1)
        clipped = jax.tree.map(lambda g: jnp.einsum("n...,n->...", g, factor), grads)
        fisher = jax.tree.map(lambda g: (g**2).mean(0), grads)
        return clipped, fisher, norm, (norm > limit).mean()

    args = (draw.layers(c, width, classes), draw.normal(rows, c), draw.integers(rows, high=classes))
    return fun, (*args, draw.uniform(rows))


@template
def learned_hamiltonians(draw: Draw):
    """Motions from the gradient of a learned energy; the loss is differentiated once more."""
    n, d, width = draw.size(2000, 40000), draw.choice(1, 2, 6), draw.choice(32, 64, 128)
    split, friction = draw.choice(True, False), draw.number(0, 0.2)

    def loss(layers, state, velocity):
        def energy(s):
            if split:
                q, p = jnp.split(s, 2)
                return 0.5 * (p**2).sum() + _dense(layers, jnp.concatenate([q, q**2]))[0]
            return _dense(layers, s)[0]

        def motion(s):
            by_q, by_p = jnp.split(jax.grad(energy)(s), 2)
            return jnp.concatenate([by_p, -by_q - friction * by_p])

        error = ((jax.vmap(motion)(state) - velocity) ** 2).sum(-1)
        return error.mean() + 1e-4 * (jax.vmap(energy)(state) ** 2).mean(), error

    args = (draw.layers(2 * d, width, width, 1), draw.normal(n, 2 * d), draw.normal(n, 2 * d))
    return jax.value_and_grad(loss, has_aux=True), args
