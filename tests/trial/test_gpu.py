"""Planted losers on a GPU: whatever makes a stitched program slower than XLA's, XLA's serves."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.compiler import builders, core
from fusionstitch.execution import programs, variants
from fusionstitch.plan import findings
from fusionstitch.runtime import nvrtc
from fusionstitch.runtime.cache import Store
from fusionstitch.trial import outcome
from tests.trial.conftest import kinds, options

pytestmark = pytest.mark.gpu
DRAW = np.random.default_rng(0)


def drawn(*shape: int) -> jax.Array:
    return jnp.asarray(DRAW.standard_normal(shape), jnp.float32)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = Store(tmp_path)
    monkeypatch.setattr(builders, "store", lambda: store)
    monkeypatch.setattr(outcome, "_known", {})
    monkeypatch.setattr(variants, "_shared", WeakKeyDictionary())


def norm(x: jax.Array, g: jax.Array) -> tuple[jax.Array, jax.Array]:
    m = x.mean(1, keepdims=True)
    y = (x - m) * jax.lax.rsqrt(((x - m) ** 2).mean(1, keepdims=True) + 1e-5) * g
    return y, (y * x).sum(0)


def served(fun: Callable[..., Any], *args: Any, **keywords: Any) -> set[str]:
    """Who serves it, after its results were seen to be those of jax.jit, from call to call."""
    jitted = fs.jit(fun, **{"options": options(), **keywords})
    wanted = jax.jit(fun)(*args)
    found = jitted(*args)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 2e-3, 2e-3), found, wanted)
    for _ in range(5):
        jax.tree.map(np.testing.assert_array_equal, jitted(*args), found)
    return kinds(jitted)


def test_a_winner_serves() -> None:
    assert served(norm, drawn(8192, 1024), drawn(1024)) == {"c0"}


def test_a_slow_kernel_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block waits before it begins. The pattern is made to be believed."""
    compiled = nvrtc.compile

    def slow(source: str, arch: str, options: tuple[str, ...] = ()) -> Any:
        wait = r"\1\n  for (int n = 0; n < 100; ++n) __nanosleep(1000);"
        changed, count = re.subn(r"(__global__ [^{;]*\) \{)", wait, source)
        assert count or "__global__" not in source
        return compiled(changed, arch, options)

    monkeypatch.setattr(nvrtc, "compile", slow)
    believe(monkeypatch)
    # of a kernel that another test has loaded there is an image, which is not slow
    assert served(norm, drawn(4096, 2048), drawn(2048)) == {"xla"}
    assert all(found.times for found in outcome._known.values())


def believe(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a pattern wins alone is not measured."""
    judged = findings.Findings.judged

    def believed(self: Any, pattern: Any, score: Any) -> Any:
        return score if score.gain_us > 0 else judged(self, pattern, score)

    monkeypatch.setattr(findings.Findings, "judged", believed)


def test_slow_work_of_the_host_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    run = programs.Program.__init__

    def init(self: programs.Program, *args: Any, **keywords: Any) -> None:
        run(self, *args, **keywords)
        given = self.run

        def slow(kind: str, compiled: Any) -> Any:
            function = given(kind, compiled)

            def late(*args: Any) -> Any:
                time.sleep(2e-4)
                return function(*args)

            return function if kind == "xla" else late

        self.run = slow

    monkeypatch.setattr(programs.Program, "__init__", init)
    assert served(norm, drawn(8192, 1024), drawn(1024)) == {"xla"}


def price(x: jax.Array) -> jax.Array:
    s, k, t, r, sigma = x
    v = sigma * jnp.sqrt(t)
    d = (jnp.log(s / k) + (r + 0.5 * sigma**2) * t) / v
    cdf = jax.scipy.stats.norm.cdf
    return s * cdf(d) - k * jnp.exp(-r * t) * cdf(d - v)


def test_a_pattern_that_wins_alone_and_keeps_xla_from_dropping_work_loses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of second derivatives, only slices are returned. The pattern is made to be believed."""

    def greeks(x: jax.Array) -> Any:
        h = jax.vmap(jax.hessian(price))(x)
        return h[:, 0, 0], h[:, 0, 4], h[:, 4, 4]

    believe(monkeypatch)
    lows, highs = [80.0, 80.0, 0.3, 0.01, 0.15], [120.0, 120.0, 2.0, 0.06, 0.6]
    x = jnp.asarray(DRAW.uniform(lows, highs, (500_003, 5)), jnp.float32)
    served(greeks, x)
    for found in outcome._known.values():
        for times in found.times:
            assert times.won == (found.serves != "xla")


def test_an_update_that_is_not_in_place_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "in_place", lambda *_: ())

    def step(state: jax.Array, x: jax.Array, n: jax.Array) -> jax.Array:
        row = jax.nn.softmax(x) * (x * x).sum()
        return jax.lax.dynamic_update_slice(state, row[None], (n, 0))

    jitted = fs.jit(step, donate_argnums=0, options=options())
    plain = jax.jit(step, donate_argnums=0)
    state, other, x = drawn(65536, 1024), jnp.zeros((65536, 1024)), drawn(1024)
    other = other + state
    for n in range(3):
        state, other = jitted(state, x, jnp.int32(n)), plain(other, x, jnp.int32(n))
    np.testing.assert_allclose(state, other, 1e-5)
    for found in outcome._known.values():
        assert found.serves == "xla" or found.times[-1].won


def test_both_sides_get_equal_configurations_of_products() -> None:
    """The stitched side is compiled after XLA's, not beside it."""

    def layer(x: jax.Array, w: jax.Array, g: jax.Array) -> tuple[jax.Array, jax.Array]:
        return norm(x @ w, g)

    args = drawn(8192, 1024), drawn(1024, 1024), drawn(1024)
    ours = fs.jit(layer, options=options()).lower(*args).compile()
    ours(*args)
    text = ours.as_text()
    assert text is not None
    theirs = jax.jit(layer).lower(*args).compile().as_text()
    configs = [
        [
            line.split("backend_config=")[-1]
            for line in t.splitlines()
            if "__cublas" in line or "gemm_fusion" in line
        ]
        for t in (text, theirs)
    ]
    assert sorted(configs[0]) == sorted(configs[1])
