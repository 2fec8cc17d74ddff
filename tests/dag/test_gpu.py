"""The scheduler on a GPU."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fusionstitch as fs
from benchmarks.dag.programs import PROGRAMS, TINY
from benchmarks.dag.random_programs import (
    ARRAYS,
    CODE,
    SIGNATURES,
    N,
    random_program,
    scheduled,
    serially,
)
from benchmarks.dag.six import measured
from fusionstitch.dag import LaunchError
from tests.dag.test_random_programs import without_parent
from tests.dag.test_recorded import kernels_of, run

pytestmark = pytest.mark.gpu


@pytest.fixture
def d() -> Iterator[Any]:
    made = fs.dag.Scheduler(backend="cuda", timing=True)
    yield made
    made.synchronize()


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_version_of_a_benchmark_gives_the_same(name: str) -> None:
    row = measured(PROGRAMS[name](TINY[name], 32), "cuda", 1.0)
    assert row["failed"] == {}
    assert max(row["same as serial"].values()) < 1e-4
    assert row["error of results"] < 1e-3


def test_random_programs_with_delays() -> None:
    for seed in range(100):
        program = random_program(seed)
        made = fs.dag.Scheduler(backend="cuda", const=seed % 2 == 0)
        assert scheduled(program, made, ticks=200_000) == serially(program)


def test_a_dropped_edge_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusionstitch.dag.engine.connect", without_parent(-1))
    programs = [random_program(seed) for seed in range(30)]
    made = [fs.dag.Scheduler(backend="cuda") for _ in programs]
    same = [
        scheduled(program, d, ticks=200_000) == serially(program)
        for program, d in zip(programs, made, strict=True)
    ]
    assert not all(same)


def test_urgent_kernels_have_urgent_streams(d: Any) -> None:
    x = [d.array(N, np.int32) for _ in range(2)]
    for priority in (0, -1):
        update = d.kernel(CODE, "update", SIGNATURES["update"], priority=priority)
        update(1, 4)(x[priority], 1, N, 0)
    assert [e.lane.handle.priority for e in d._engine.pending()] == [0, -1]


@pytest.mark.parametrize(
    ("name", "size", "cc", "tc"), [("vec", 20_000_000, 0.0, 0.001), ("img", 4000, 0.1, 0.0)]
)
def test_what_runs_beside_what(name: str, size: int, cc: float, tc: float) -> None:
    """Kernels of VEC run beside copies, those of IMG beside each other; serially nothing does."""
    overlap = measured(PROGRAMS[name](size, 256), "cuda", 0.5)["overlap"]
    assert set(overlap["serial"].values()) == {0.0}
    assert overlap["async"]["cc"] >= cc
    assert overlap["async"]["tc"] >= tc


def test_calls_of_jax_are_joined_with_kernels() -> None:
    """Chains of calls with late kernels before, between and after them, and what is donated."""
    import jax

    d = fs.dag.Scheduler(backend="cuda")
    update = d.kernel(CODE, "update", SIGNATURES["update"])
    double = d.function(jax.jit(lambda a: a * 2))
    step = d.function(jax.jit(lambda a: a + 1, donate_argnums=0), donate=(0,))
    for seed in range(20):
        x, wanted = d.array(np.arange(N, dtype=np.int32)), np.arange(N, dtype=np.int32)
        chance = random.Random(seed)
        read = []
        for _ in range(12):
            which = chance.choice(["kernel", "double", "double", "step", "read"])
            if which == "kernel":
                update(1, 4)(x, 1, N, 100_000)
                wanted = wanted * np.int32(3) + np.int32(1)
            elif which == "double":
                x, wanted = double(x), wanted * np.int32(2)
            elif which == "step":
                x, wanted = step(x), wanted + np.int32(1)
            else:
                read.append((double(x), wanted * np.int32(2)))
        assert np.array_equal(np.asarray(x), wanted)
        assert all(np.array_equal(np.asarray(array), values) for array, values in read)


def test_replays() -> None:
    for seed in range(4):
        ops = kernels_of(seed)
        wanted = run(fs.dag.Scheduler(backend="cuda"), ops, False, 4)
        assert run(fs.dag.Scheduler(backend="cuda"), ops, True, 4) == wanted


def test_functions_of_jax(d: Any) -> None:
    import jax

    update = d.kernel(CODE, "update", SIGNATURES["update"])
    x = d.array(np.arange(N, dtype=np.int32))
    double = d.function(jax.jit(lambda a: a * 2))
    for _ in range(20):
        update(1, 4)(x, 1, N, 100_000)
        y = double(x)
        update(1, 4)(x, 1, N, 100_000)
        update(1, 4)(y, 1, N, 0)
    wanted = np.arange(N, dtype=np.int64)
    for _ in range(20):
        wanted = wanted * 3 + 1
        last = wanted * 2 * 3 + 1
        wanted = wanted * 3 + 1
    assert np.array_equal(np.asarray(y), last.astype(np.int32))
    assert np.array_equal(np.asarray(x), wanted.astype(np.int32))


def test_exchange_with_jax_and_cupy(d: Any) -> None:
    import cupy
    import jax
    import jax.numpy as jnp

    x = d.array(np.ones(4, np.float32))
    add = d.library(lambda a: cupy.add(a, 1, out=a), "pointer", name="add")
    add(x)
    assert cupy.from_dlpack(x).tolist() == [2] * 4
    assert jax.dlpack.from_dlpack(x).tolist() == [2] * 4
    shared = d.from_dlpack(cupy.arange(4, dtype=np.float32))
    add(shared)
    assert np.asarray(shared).tolist() == [1, 2, 3, 4]
    assert np.asarray(d.from_dlpack(jnp.arange(4.0))).tolist() == [0, 1, 2, 3]
    assert np.asarray(d.array(jnp.arange(4.0))).tolist() == [0, 1, 2, 3]


def test_kernels_of_others(d: Any) -> None:
    import cupy
    import jax

    x = d.array(np.ones(4, np.float32))
    raw = cupy.RawKernel(
        'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }', "twice"
    )
    d.kernel(raw, "inout pointer float")(1, 4)(x)
    assert np.asarray(x).tolist() == [2] * 4

    def softmax(a: Any) -> Any:
        return jax.nn.softmax(a, axis=-1)

    host = np.random.default_rng(0).random((64, 512), np.float32)
    compiled = fs.jit(softmax, options=fs.Options(scorer="paper")).lower(host).compile()
    a, b = d.array(host), d.array(host.shape)
    d.kernel(compiled.kernels[0])(a, b)
    np.testing.assert_allclose(np.asarray(b), softmax(host), rtol=1e-5)


def test_a_launch_that_the_driver_refuses(d: Any) -> None:
    update = d.kernel(CODE, "update", SIGNATURES["update"])
    x = d.array(N, np.int32)
    with pytest.raises(LaunchError, match="cannot be launched with"):
        update(1, 2048)(x, 1, N, 0)
    update(1, 4)(x, 1, N, 0)
    assert x[0] == 1


def test_times(d: Any) -> None:
    update = d.kernel(CODE, "update", SIGNATURES["update"])
    x = [d.array(np.zeros(N, np.int32)) for _ in range(ARRAYS)]
    for array in x:
        update(1, 4)(array, 1, N, 2_000_000)
    overlap = d.timeline().overlap()
    assert overlap.cc > 0.1
    assert len(d.history(update)) == ARRAYS
