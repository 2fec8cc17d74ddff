"""Scheduled graphs with their fusions opened compute what the program computes."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import Graph, ids
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.launches import Opened, backend_configs, opened, trips_of
from fusionstitch.hlo.text import text_to_proto
from tests.costmodel.final_modules import GPU

X = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)


def _normal(x: jax.Array) -> tuple[jax.Array, ...]:
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return scaled, jnp.concatenate([jnp.sin(scaled), jnp.tanh(scaled.T).T]), scaled.sum(0)


def _updates(x: jax.Array) -> tuple[jax.Array, ...]:
    rows = jnp.array([3, 0, 3])
    return x.at[rows].add(1.0), x[rows] @ x.T, jnp.pad(x, 1)[2:, ::2]


def _read(text: str) -> tuple[Graph, Opened]:
    module = from_proto(text_to_proto(text, compiled=True))
    return module.entry, opened(module.entry, backend_configs(module.proto))


@pytest.mark.parametrize("program", [_normal, _updates])
def test_an_opened_graph_computes_the_same(program: Callable[..., tuple[jax.Array, ...]]) -> None:
    compiled = jax.jit(program).lower(X).compile()
    scheduled, found = _read(compiled.as_text() or "")
    assert any(op.opcode == "fusion" for op in scheduled)
    assert not any(op.opcode == "fusion" for op in found.graph)
    pairs = zip(evaluate(found.graph, [X]), compiled(X), strict=True)
    for ours, expected in pairs:
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("program", [_normal, _updates])
def test_every_value_that_is_read_elsewhere_is_written(
    program: Callable[..., tuple[jax.Array, ...]],
) -> None:
    _, found = _read(jax.jit(program).lower(X).compile().as_text() or "")
    written = 0
    for launch in found.launches:
        written |= launch.written
    for launch in found.launches:
        assert launch.written
        assert not launch.written & ~launch.bits
        outside = {
            o.id
            for i in ids(launch.bits)
            for o in found.graph.ops[i].operands
            if not launch.bits >> o.id & 1
        }
        made = [found.graph.ops[i] for i in outside]
        free = ("parameter", "constant", "opaque-constant", "bitcast", "iota")
        assert all(written >> op.id & 1 for op in made if op.opcode not in free)


def test_a_fusion_of_several_results_writes_each() -> None:
    _, found = _read(
        "HloModule m\nf {\n  a = f32[4] parameter(0)\n  s = f32[4] sine(a)\n"
        "  t = f32[4] tanh(s)\n  ROOT r = (f32[4], f32[4]) tuple(s, t)\n}\n"
        "ENTRY e {\n  x = f32[4] parameter(0)\n"
        "  k = (f32[4], f32[4]) fusion(x), kind=kLoop, calls=f\n"
        "  one = f32[4] get-tuple-element(k), index=0\n"
        "  two = f32[4] get-tuple-element(k), index=1\n"
        "  ROOT sum = f32[4] add(one, two)\n}\n"
    )
    first, second = found.launches
    names = [[found.graph.ops[i].name for i in ids(one.written)] for one in (first, second)]
    assert names == [["s", "t"], ["sum"]]
    x = np.linspace(-1, 1, 4, dtype=np.float32)
    [value] = evaluate(found.graph, [x])
    np.testing.assert_allclose(value, np.sin(x) + np.tanh(np.sin(x)), rtol=1e-6)


def test_what_starts_and_ends_is_launched_once() -> None:
    _, found = _read(
        "HloModule m\nf {\n  a = f32[4] parameter(0)\n  ROOT s = f32[4] sine(a)\n}\n"
        "w {\n  b = f32[4] parameter(0)\n"
        "  ROOT k = f32[4] fusion(b), kind=kLoop, calls=f\n}\n"
        "ENTRY e {\n  x = f32[4] parameter(0)\n"
        "  begun = ((f32[4]), f32[4], s32[]) async-start(x), calls=w\n"
        "  ended = f32[4] async-done(begun)\n"
        "  moved = (f32[4], f32[4], u32[]) copy-start(ended)\n"
        "  ROOT there = f32[4] copy-done(moved)\n}\n"
    )
    assert [one.instruction.name for one in found.launches] == ["k", "moved"]
    x = np.ones(4, np.float32)
    np.testing.assert_allclose(evaluate(found.graph, [x])[0], np.sin(x), rtol=1e-6)


def test_the_schedule_is_kept_and_trips_are_known() -> None:
    module = from_proto(text_to_proto(GPU, compiled=True))
    configs = backend_configs(module.proto)
    found = opened(module.entry, configs)
    names = [one.instruction.name for one in found.launches]
    assert names == ["copy-start.1", "while.1", "cublas-gemm.1.0", "input_reduce_fusion.1"]
    [loop] = [op for op in module.entry if op.opcode == "while"]
    assert trips_of(loop, configs) == 10
    assert trips_of(loop, {}) is None
