"""The guard inside XLA's own compile, on a GPU."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.compiler import builders
from fusionstitch.measure import buffers, gpu

pytestmark = pytest.mark.gpu

#: As a program of a user would: its module is compiled by whoever runs it.
PROGRAM = """
import jax, jax.numpy as jnp
import fusionstitch as fs
from fusionstitch.compiler import core

planned, plain = [], core.stitch
core.stitch = lambda *args, **keywords: planned.append(args) or plain(*args, **keywords)

def mixed(x):
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)

x = jnp.ones((4096, 1000))
compiled = fs.jit(mixed, options=fs.Options(scorer="measured")).lower(x).compile()
print(len(planned), compiled(x).shape)
print(compiled.explain())
"""


def normed(x: jax.Array, y: jax.Array) -> jax.Array:
    m = x.mean(-1, keepdims=True)
    v = ((x - m) ** 2).mean(-1, keepdims=True)
    return ((jax.nn.gelu((x - m) * jax.lax.rsqrt(v + 1e-5)) - y) ** 2).mean()


def test_what_is_chosen_was_measured_and_the_user_s_switches_are_the_user_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FUSIONSTITCH_CACHE_DIR", str(tmp_path))
    builders.store.cache_clear()
    fun = jax.grad(normed)
    x, y = (jax.random.normal(jax.random.key(n), (4096, 768)) for n in range(2))
    jitted = fs.jit(fun, options=fs.Options(scorer="measured", fallback="error"))
    with (
        jax.transfer_guard("disallow"),
        jax.debug_nans(True),
        jax.check_tracer_leaks(True),
        jax.log_compiles(True),
        caplog.at_level(logging.WARNING),
    ):
        compiled = jitted.lower(x, y).compile()
        with jax.transfer_guard("allow"):  # debug_nans looks at results itself
            result = compiled(x, y)
    builders.store.cache_clear()
    names = {r.getMessage().split("jit(")[1].split(")")[0]
             for r in caplog.records if "jit(" in r.getMessage()}  # fmt: skip
    assert names <= {"normed", "grad", fun.__name__}
    stitched = compiled.stitched
    assert stitched is not None
    assert stitched.evidence.comparisons
    assert stitched.evidence.whole
    for plan in stitched.plans:
        for one in plan.chosen:
            assert one.measured is not None
            assert one.measured.ours_us < one.measured.xla_us
    np.testing.assert_allclose(result, jax.jit(fun)(x, y), rtol=1e-4, atol=1e-7)


def test_a_second_process_plans_nothing(tmp_path: Path) -> None:
    env = dict(os.environ, FUSIONSTITCH_CACHE_DIR=str(tmp_path), JAX_COMPILATION_CACHE_DIR="")
    told = []
    for _ in range(2):
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        told.append(done.stdout.splitlines())
    assert [lines[0] for lines in told] == ["1 (4096, 1000)", "0 (4096, 1000)"]
    assert told[0][1:] == told[1][1:]
    assert any("measured" in line for line in told[0])


def test_copies_of_inputs_are_other_memory() -> None:
    from fusionstitch.hlo.graph import Shape

    one, other = buffers.inputs([buffers.Operand(Shape("f32", (1000, 100)))] * 2, jax.devices()[0])
    assert one.unsafe_buffer_pointer() != other.unsafe_buffer_pointer()
    assert (one == other).all()


def test_memory_that_others_need_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing is measured, and nothing fails."""
    monkeypatch.setattr(gpu, "MEMORY_SHARE", 0.0)
    x = jnp.linspace(0, 1, 1024 * 515).reshape(1024, 515)

    def fun(x: Any) -> Any:
        s = jax.nn.softmax(x)
        return s * (s * x).sum(0)

    compiled = fs.jit(fun, options=fs.Options(scorer="measured")).lower(x).compile()
    assert compiled.stitched is not None
    assert not compiled.stitched.evidence.whole
    assert not compiled.kernels
    np.testing.assert_allclose(compiled(x), jax.jit(fun)(x), rtol=1e-5)
