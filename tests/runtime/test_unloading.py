"""Loaded images are unloaded with the last program that holds them."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from fusionstitch.runtime import emulate, emulated_call, emulator
from tests.runtime.test_emulated_call import N, X, negate_kernel, stitch

ROOT = Path(__file__).parents[2]

#: The images that are loaded, as the launcher and as the system counts them.
COUNTS = """
import gc, json, os, jax, numpy as np
import jax.numpy as jnp
import fusionstitch as fs
from fusionstitch.runtime import cuda, emulator

EMULATED = os.environ["FUSIONSTITCH_BACKEND"] == "emulate"
PAPER = fs.Options(scorer="paper", fallback="error")

def counts():
    gc.collect()
    if not EMULATED:
        return [cuda.image_count()] * 2
    with open("/proc/self/maps") as maps:
        mapped = {line.split()[4] for line in maps if "memfd:fusionstitch " in line}
    return [emulator.image_count(), len(mapped)]

def total(x):
    return jnp.exp(x - x.max(-1, keepdims=True)).sum(-1)

X = [np.random.default_rng(n).normal(size=(4, 24 * n)).astype(np.float32) for n in range(1, 4)]
found = {}
"""
MANY_SHAPES = """
f = fs.jit(total, options=PAPER)
first = [np.asarray(f(x)) for x in X]
found["loaded"] = counts()
found["same"] = all(np.array_equal(f(x), y) for x, y in zip(X, first))
jax.clear_caches()
found["cleared"] = counts()
found["again"] = all(np.array_equal(f(x), y) for x, y in zip(X, first))
found["loaded again"] = counts()
del f
jax.clear_caches()
found["left"] = counts()
print(json.dumps(found))
"""
CACHED = """
f = fs.jit(total, options=PAPER)
found["right"] = bool(np.allclose(f(X[0]), total(X[0])))
jax.clear_caches()
found["cleared"] = counts()
np.asarray(f(X[1]))
found["loaded"] = counts()
del f
jax.clear_caches()
found["left"] = counts()
print(json.dumps(found))
"""


#: On a GPU XLA captures the kernels of this one between the products into a graph.
GRAPHS = """
def deep(x, w):
    for _ in range(6):
        s = jax.nn.softmax(x @ w)
        x = s * (s * x).sum(-1, keepdims=True)
    return x

x, w = np.ones((64, 64), np.float32), np.eye(64, dtype=np.float32)
expected = np.asarray(jax.jit(deep)(x, w))
for n in range(3):
    f = fs.jit(deep, options=PAPER)
    results = [f(x, w) for _ in range(20)]
    del f
    jax.clear_caches()  # while the last runs may go on
    found[n] = [counts(), all(np.allclose(r, expected, rtol=1e-4) for r in results)]
print(json.dumps(found))
"""
BACKENDS = ["emulate", pytest.param("cuda", marks=pytest.mark.gpu)]


def run(code: str, backend: str, cache: Path | None = None) -> dict[str, Any]:
    platform = "cpu" if backend == "emulate" else "cuda"
    environment = {
        **os.environ,
        "JAX_PLATFORMS": platform,
        "FUSIONSTITCH_BACKEND": backend,
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    if cache is not None:
        environment |= {
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
    done = subprocess.run(
        [sys.executable, "-c", COUNTS + code],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("backend", BACKENDS)
def test_images_go_with_their_programs(host_compiler: str, backend: str) -> None:
    assert run(MANY_SHAPES, backend) == {
        "loaded": [3, 3],
        "same": True,
        "cleared": [0, 0],
        "again": True,
        "loaded again": [3, 3],
        "left": [0, 0],
    }


@pytest.mark.parametrize("backend", BACKENDS)
def test_programs_out_of_the_cache_let_go_as_well(
    host_compiler: str, tmp_path: Path, backend: str
) -> None:
    files: list[set[Path]] = []
    for _ in range(2):
        found = run(CACHED, backend, tmp_path)
        assert found == {"right": True, "cleared": [0, 0], "loaded": [1, 1], "left": [0, 0]}
        files.append({path for path in tmp_path.iterdir() if path.name.endswith("-cache")})
    assert files[0] == files[1] != set()


@pytest.mark.gpu
def test_images_go_while_graphs_were_captured() -> None:
    assert run(GRAPHS, "cuda") == {str(n): [[0, 0], True] for n in range(3)}


def test_an_image_is_shared_and_lives_until_the_last_program_goes(host_compiler: str) -> None:
    def loaded() -> int:
        gc.collect()
        return emulator.image_count()

    program = emulated_call.lower(jax.jit(lambda x: -x), (X,))
    hlo = stitch(program.hlo)
    before = loaded()
    first = emulated_call.stitched(program, hlo).lower(X).compile()
    second = emulated_call.stitched(program, hlo).lower(X).compile()
    assert loaded() == before + 1
    del first
    assert loaded() == before + 1
    np.testing.assert_array_equal(second(X), -X)
    del second
    assert loaded() == before


def test_an_image_that_fails_to_load_leaves_nothing(host_compiler: str) -> None:
    program = emulated_call.lower(jax.jit(lambda x: -x), (X,))
    [artifact] = emulate.build([negate_kernel((4, N))])
    before = emulator.image_count()
    broken = dataclasses.replace(artifact, key="broken", image=b"\x7fELF no")
    for _ in range(3):
        with pytest.raises(Exception, match="kernel image cannot be loaded"):
            np.asarray(emulated_call.stitched(program, stitch(program.hlo, broken))(X))
    assert emulator.image_count() == before


def test_kernels_that_run_by_themselves_stay_unloaded(host_compiler: str) -> None:
    before = emulator.image_count()
    [out] = emulate.run(negate_kernel((4, N)), [X])
    np.testing.assert_array_equal(out, -X)
    assert emulator.image_count() == before
