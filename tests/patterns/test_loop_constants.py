"""Large constants of loops' bodies: loops carry them, and become kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from benchmarks.loops.forced import taken
from fusionstitch.compiler import builders, core
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.verify import verify_module
from fusionstitch.patterns import loop_constants
from fusionstitch.patterns.loop_rules import formed
from tests.nearness import assert_near
from tests.patterns.edits import module_of

draw = np.random.default_rng(0)
WIDTH = 16
WEIGHTS = draw.standard_normal((WIDTH, WIDTH), np.float32) * np.float32(0.3)
TABLE = draw.integers(0, 99, 200)
X = draw.standard_normal((5, WIDTH), np.float32)


def repeated(x: Any) -> Any:
    return lax.fori_loop(0, 5, lambda i, x: jnp.tanh(x @ WEIGHTS) + WEIGHTS[0], x)


def until(x: Any) -> Any:
    """Nobody says how often, and there are two constants."""

    def step(s: Any) -> Any:
        x, i = s
        return jnp.tanh(x @ WEIGHTS) * 0.5, i + jnp.asarray(TABLE)[i] % 3 + 1

    return lax.while_loop(lambda s: jnp.max(s[0]) > 0.01, step, (x, 0))


def nested(x: Any) -> Any:
    inner = lambda j, x: jnp.tanh(x @ WEIGHTS)  # noqa: E731
    step = lambda c, _: (lax.fori_loop(0, 3, inner, c) + WEIGHTS[1], c.sum())  # noqa: E731
    return lax.scan(step, x, None, length=3)


PROGRAMS: dict[str, Callable[[Any], Any]] = {"once": repeated, "until": until, "nested": nested}


def constants(module: Any) -> list[str]:
    """The graphs with large constants that something reads."""
    return [
        graph.name
        for graph in module.graphs
        for op in graph
        if op.opcode == "opaque-constant" and graph.users[op.id]
    ]


@pytest.mark.parametrize("name", PROGRAMS)
def test_constants_stand_before_the_outermost_loop(name: str) -> None:
    module = module_of(PROGRAMS[name], X)
    assert any(graph != module.entry.name for graph in constants(module))
    after = formed(module, device("h200"))
    verify_module(after.proto.SerializeToString())
    assert set(constants(after)) == {after.entry.name}


@pytest.mark.parametrize("form", ["block", "grid"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_such_a_loop_is_a_kernel(host_compiler: str, name: str, form: str) -> None:
    fun = PROGRAMS[name]
    options = fs.Options(backend="emulate", fallback="error", numerics="strict")
    with taken(form), jax.default_matmul_precision("highest"):
        found = fs.jit(fun, options=options).lower(X).compile()
        assert [kernel.template.split()[1] for kernel in found.kernels] == [form]
        assert_near(found(X), jax.jit(fun)(X), 2e-6, rough=2e-2)


def test_the_largest_constants_stay_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_constants, "MOST_BYTES", WEIGHTS.nbytes - 1)
    module = module_of(repeated, X)
    assert formed(module, device("h200")) is module
    options = fs.Options(backend="emulate")
    data = module.proto.SerializeToString()
    found = core.stitch(data, options, builders.profile(options), None)
    assert [r.reason for r in found.rejected if r.rule == "loop"]
