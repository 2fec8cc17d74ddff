"""Arrays of more than 2^31 elements: their kernels count in 64 bits, and compile. None is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fusionstitch.codegen.generate import CodegenOptions, generate
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.settings import Settings
from fusionstitch.codegen.while_loops.generate import plan_loops
from fusionstitch.runtime import emulate
from tests.codegen.regions import H200, whole_of

MANY = 2**31
WIDE = "const long long"


def _bytes(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, jnp.int8)


def _norm(x: jax.Array) -> jax.Array:
    v = x.astype(jnp.float32)
    return ((v - v.mean(1, keepdims=True)) / (v.var(1, keepdims=True) + 1)).astype(jnp.int8)


def _pool(x: jax.Array) -> jax.Array:
    return lax.reduce_window(x * 2, np.int8(0), lax.add, (1, 3), (1, 1), "VALID")


PROGRAMS: Mapping[str, tuple[Callable[..., Any], tuple[jax.ShapeDtypeStruct, ...]]] = {
    "elementwise": (lambda x: x * 2 + 1, (_bytes(MANY + 64),)),
    "rows": (_norm, (_bytes(2**21 + 1, 1024),)),
    "columns": (lambda x: x.astype(jnp.float32).sum(0), (_bytes(2**22 + 5, 600),)),
    "everything": (lambda x: x.astype(jnp.float32).sum(), (_bytes(MANY + 64),)),
    "place": (lambda x: jnp.argmax(x * 2), (_bytes(MANY + 64),)),
    "gather": (
        lambda x, i: x[i] * 2,
        (_bytes(2**22 + 5, 600), jax.ShapeDtypeStruct((1000,), jnp.int32)),
    ),
    "transpose": (lambda x: x.T + 1, (_bytes(2**16 + 1, 2**15 + 3),)),
    "running": (lambda x: lax.cumsum(x + 1, 1), (_bytes(2**21 + 1, 1030),)),
    "pool": (_pool, (_bytes(2**21 + 1, 1030),)),
    "concatenate": (lambda x, y: jnp.concatenate([x + 1, y]), (_bytes(MANY - 7), _bytes(100))),
    "product": (
        lambda x, y: (x * 2) @ y,
        tuple(jax.ShapeDtypeStruct(dims, jnp.float32) for dims in ((2**23, 257), (257, 4))),
    ),
}


def _floats(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, jnp.float32)


def _path(y: jax.Array, a: jax.Array) -> Any:
    """An ensemble of which each step is kept."""
    return lax.scan(lambda y, _: (y + 0.01 * jnp.sin(a * y),) * 2, y, None, length=3000)


def _recurrent(c: jax.Array, xs: jax.Array, w: jax.Array) -> jax.Array:
    return lax.scan(lambda c, x: (jnp.tanh(c @ w + x), None), c, xs)[0]


def _rolled(c: jax.Array, xs: jax.Array) -> jax.Array:
    return lax.scan(lambda c, x: (jnp.roll(c, 1) + x[:40], None), c, xs)[0]


#: Loops, each in a form that it may have.
LOOPS: Mapping[str, tuple[str, Callable[..., Any], tuple[jax.ShapeDtypeStruct, ...]]] = {
    "rows": ("rows", _path, (_floats(1_000_000),) * 2),
    "dealt": ("dealt", _recurrent, (_floats(256, 64), _floats(150_000, 256, 64), _floats(64, 64))),
    "block": ("block", _rolled, (_floats(40), _floats(300, 8_000_000))),
    "grid": ("grid", _rolled, (_floats(40), _floats(300, 8_000_000))),
}


@pytest.fixture(scope="module")
def loops() -> dict[str, Kernel]:
    settings = Settings(H200, CodegenOptions())
    found = {}
    for name, (form, fun, args) in LOOPS.items():
        graph = whole_of(fun, *args, name=f"k_{name}")
        found[name] = plan_loops(graph, settings, template=f"loop {form}").kernel()
    return found


@pytest.fixture(scope="module")
def kernels() -> dict[str, Kernel]:
    return {
        name: generate(whole_of(fun, *args, name=f"k_{name}"), H200)
        for name, (fun, args) in PROGRAMS.items()
    }


def test_indices_have_64_bits(kernels: dict[str, Kernel]) -> None:
    assert [name for name, kernel in kernels.items() if WIDE not in kernel.source] == []


def test_smaller_arrays_count_in_32_bits() -> None:
    kernel = generate(whole_of(lambda x: x * 2 + 1, _bytes(MANY - 64)), H200)
    assert WIDE not in kernel.source


def test_they_compile_for_gpus(nvrtc: ModuleType, kernels: dict[str, Kernel]) -> None:
    parts = [f"namespace in_{k.name} {{\n{k.source}\n}}" for k in kernels.values()]
    compiled = nvrtc.compile("\n".join(['#include "fusionstitch.cuh"', *parts]), "sm_90")
    assert len(compiled.resources) == len(kernels)


def test_loops_count_in_64_bits(loops: dict[str, Kernel]) -> None:
    for name, kernel in loops.items():
        assert "for (long long turn" in kernel.source, name
        assert "int turn" not in kernel.source, name
        assert "int thread" not in kernel.source, name


def test_loops_compile_for_gpus(nvrtc: ModuleType, loops: dict[str, Kernel]) -> None:
    parts = [f"namespace in_{k.name} {{\n{k.source}\n}}" for k in loops.values()]
    compiled = nvrtc.compile("\n".join(['#include "fusionstitch.cuh"', *parts]), "sm_90")
    assert len(compiled.resources) == len(loops)


def test_loops_compile_on_the_host(host_compiler: str, loops: dict[str, Kernel]) -> None:
    assert len(emulate.build(list(loops.values()))) == len(loops)


def test_they_compile_on_the_host(host_compiler: str, kernels: dict[str, Kernel]) -> None:
    assert len(emulate.build(list(kernels.values()))) == len(kernels)
