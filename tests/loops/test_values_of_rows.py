"""Loops that carry a value per row or column which several threads read and one of them writes:
every form on the emulator, which looks for races."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fusionstitch.runtime import emulate
from tests.loops.forms import cases, run, wholes
from tests.loops.growth import Grown

pytestmark = pytest.mark.usefixtures("host_compiler")


def means(x: Any, m: Any) -> Any:
    return lax.fori_loop(0, 7, lambda i, m: m * 0.5 + jnp.tanh(x * m[:, None]).mean(1), m)


def selected(x: Any, m: Any) -> Any:
    def step(i: Any, m: Any) -> Any:
        r = jnp.tanh(x * m[:, None]).mean(1)
        return jnp.where(r > m, m + 1, r - m)

    return lax.fori_loop(0, 7, step, m)


def bisected(x: Any, m: Any) -> Any:
    return lax.fori_loop(0, 7, lambda i, m: m - jax.nn.sigmoid(x - m[:, None]).mean(1) * 4, m)


def beside_a_matrix(x: Any, m: Any) -> Any:
    def step(i: Any, s: Any) -> Any:
        r = (s[0] - s[1][:, None]).mean(1)
        moved = s[0] * 0.9 + r[:, None] * s[1][:, None]
        return moved, jnp.where(r > 0, s[1] * 0.5 + r, s[1])

    return lax.fori_loop(0, 7, step, (x, m))


def counted(x: Any, m: Any) -> Any:
    """Rows that are scaled while their sums are large, and how often that was."""

    def step(i: Any, s: Any) -> Any:
        large = s[0].sum(1) > 1
        return jnp.where(large[:, None], s[0] * 0.9, s[0]), jnp.where(large, s[1] + 1, s[1])

    return lax.fori_loop(0, 7, step, (x, m.astype(jnp.int32)))


def columns(x: Any, m: Any) -> Any:
    """A value per column: x is turned, so that there are as many as values."""
    step = lambda i, m: m * 0.5 + jnp.tanh(x.T * m[None]).mean(0)  # noqa: E731
    return lax.fori_loop(0, 7, step, m)


@pytest.mark.parametrize("shape", [(8, 16), (4, 100), (16, 64), (3, 600)])
@pytest.mark.parametrize("fun", [means, selected, bisected, beside_a_matrix, counted, columns])
def test_every_form_waits_for_what_its_threads_share(
    fun: Callable[..., Any], shape: tuple[int, int]
) -> None:
    draw = np.random.default_rng(0)
    args = draw.standard_normal(shape, np.float32), np.ones(shape[0], np.float32)
    [whole] = wholes(Grown(fun, args, fun.__name__))
    found = list(cases(whole, "132 multiprocessors"))
    assert {"block", "grid"} & {case.form for case in found}
    artifacts = emulate.build([case.kernel for case in found], checked=True)
    for case, artifact in zip(found, artifacts, strict=True):
        for seed in range(3):
            assert not run(case, artifact, seed), case.kernel.template
