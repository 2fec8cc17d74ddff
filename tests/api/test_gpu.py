"""fs.jit inside XLA on a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.commands import cli

pytestmark = pytest.mark.gpu

DRAW = np.random.default_rng(0)


def mixed(x: jax.Array) -> jax.Array:
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)


def data() -> jax.Array:
    return jnp.asarray(DRAW.standard_normal((256, 384), np.float32))


def close(ours: object, theirs: object) -> None:
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-6)


def test_call_and_stages() -> None:
    x, jitted = data(), fs.jit(mixed)
    want = jax.jit(mixed)(x)
    close(jitted(x), want)
    compiled = jitted.lower(x).compile()
    assert "fusionstitch_launch" in compiled.as_text()
    assert compiled.fallbacks == ()
    assert "__global__" in compiled.kernels[0].source
    assert "pattern 0" in compiled.explain()
    close(compiled(x), want)


def test_layouts_donation_and_transformations() -> None:
    x, p = data(), data()

    def step(p: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return p - 0.1 * mixed(x.T).T, (p * x).sum(0)

    want = jax.jit(step)(p, x)
    jitted = fs.jit(step, donate_argnums=0)
    close(jitted(p, x), want)
    assert p.is_deleted()
    plain = jax.jit(mixed)
    close(jax.vmap(fs.jit(mixed))(jnp.stack([x, x + 1])), jax.vmap(plain)(jnp.stack([x, x + 1])))

    def squared(x: jax.Array) -> jax.Array:
        return (fs.jit(mixed)(x) ** 2).sum()

    gradient = jax.grad(squared)
    close(fs.jit(gradient)(x), jax.jit(gradient)(x))


def test_scan_and_callbacks() -> None:
    seen: list[float] = []

    def fun(x: jax.Array) -> jax.Array:
        jax.debug.callback(lambda v: seen.append(float(v)), x[0, 0])
        return jax.lax.scan(lambda c, _: (mixed(c) + x, None), x, None, length=4)[0]

    x = data()
    close(fs.jit(fun)(x), jax.jit(fun)(x))
    jax.effects_barrier()
    assert len(seen) == 2


def test_install() -> None:
    before = jax.jit
    assert fs.install()
    try:
        assert jax.jit(mixed).lower(data()).compile().kernels
    finally:
        fs.uninstall()
    assert jax.jit is before


def test_report_is_measured(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import jax, jax.numpy as jnp\n"
        "def mixed(x):\n"
        "    s = jax.nn.softmax(x)\n"
        "    return s * (s * x).sum(0)\n"
        "def target(): return mixed, (jnp.ones((256, 384)),)\n"
    )
    path = tmp_path / "out.json"
    assert cli.main(["report", f"{program}:target", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert found["backend"] == "cuda"
    assert all(value > 0 for value in found["time_us"].values())
    assert 0 < found["kernels"]["fusionstitch"] < found["kernels"]["unfused"]
    assert found["patterns"][0]["registers"] > 0
    assert all(2 * 4 * 256 * 384 <= value < 1 << 24 for value in found["memory_bytes"].values())
    assert found["max_rel_error"] < 1e-6


_CACHED = """
import sys, jax, jax.numpy as jnp
import fusionstitch as fs
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
def mixed(x):
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)
from fusionstitch.runtime import xla_pass
with xla_pass.collect() as events:
    compiled = fs.jit(mixed).lower(jnp.ones((256, 384))).compile()
jax.block_until_ready(compiled(jnp.ones((256, 384))))
names = [kernel.name for kernel in compiled.kernels]
print(len(events), names, "pattern 0" in compiled.explain())
"""


def test_plans_are_found_again_after_a_hit_in_xlas_cache(tmp_path: Path) -> None:
    run = [sys.executable, "-c", _CACHED, str(tmp_path)]
    first, second = (
        subprocess.run(run, capture_output=True, text=True, check=True).stdout for _ in range(2)
    )
    assert first.startswith("1 [")
    assert second == first.replace("1 [", "0 [", 1)
    assert second.strip().endswith("True")
