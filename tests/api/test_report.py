"""fs.report and Compiled.report: keys, counts, errors, fallbacks."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import re
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch import accuracy
from fusionstitch.errors import (
    FusionStitchError,
    FusionStitchWarning,
    OptionError,
    TargetError,
)
from fusionstitch.hlo import trips
from fusionstitch.hlo.graph import Graph
from fusionstitch.reports import counting
from fusionstitch.reports.text import pattern_rows
from fusionstitch.reports.trial import _hlo
from tests.kept import kept_sort

EMULATE = fs.Options(backend="emulate")
X = jnp.asarray(np.random.default_rng(0).standard_normal((16, 24), np.float32))


def mixed(x: jax.Array) -> jax.Array:
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)


def test_it_explains_a_plan_for_a_gpu_that_is_not_there() -> None:
    shape = jax.ShapeDtypeStruct((256, 384), jnp.float32)
    report = fs.report(mixed, shape, device="h200", options=fs.Options(backend="auto"))
    assert "1 pattern in 1 kernel" in report.explain()
    assert report.patterns[0]["kernel"] in report.explain("mixed")
    with pytest.raises(TargetError, match="mixed"):
        report.explain("mixd")
    with pytest.raises(FusionStitchError, match="copy of a report"):
        copy.deepcopy(report).explain()


def test_of_a_function() -> None:
    report = fs.report(mixed, X, options=EMULATE)
    data = report.to_dict()
    assert data["workload"] == "mixed"
    assert data["kernels"]["fusionstitch"] == 1
    assert data["time_us"]["xla"] is None
    assert data["memory_bytes"] == {"xla": None, "fusionstitch": None}
    assert data["speedup_vs_xla"] is None
    traffic = data["traffic_bytes"]
    assert 0 < traffic["fusionstitch"] < traffic["xla"] < traffic["unfused"]
    assert 0 < data["max_rel_error"] < 1e-6
    assert data["compile_s"]["xla"] > 0
    assert data["compile_s"]["plan"] > 0
    assert "times fewer than XLA" in str(report)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (
            (None, None),
            r"won \(modelled\): .* times as fast\), .*: 1 kernel instead of 4 and .* DRAM",
        ),
        (
            (9.0, 3.0),
            r"won \(measured\): 6.0 us \(3.00 times as fast\), 3.0 us a call, 9.0 us",
        ),
        ((9.0, 9.05), r"won \(measured\): nothing, 9.1 us a call, 9.0 us under XLA"),
        ((9.0, 12.0), r"lost \(measured\): 3.0 us, 12.0 us a call, 9.0 us under XLA"),
    ],
)
def test_the_last_line_says_what_was_won(
    times: tuple[float | None, float | None], said: str
) -> None:
    shape = jax.ShapeDtypeStruct((256, 384), jnp.float32)
    report = fs.report(mixed, shape, options=fs.Options(device="h200"))
    xla_us, ours_us = times
    time_us = {"unfused": None, "xla": xla_us, "fusionstitch": ours_us}
    last = str(dataclasses.replace(report, time_us=time_us)).splitlines()[-1]
    assert re.match(said, last), last
    left = dataclasses.replace(report, patterns=())
    assert str(left).splitlines()[-1].startswith("won: nothing, since no pattern")


def test_a_column_without_a_value_is_left_out() -> None:
    head, *_ = pattern_rows(fs.report(mixed, X, options=EMULATE))
    assert {"pattern", "modelled", "wins"} <= set(head)
    assert not {"measured", "registers", "runs"} & set(head)


@pytest.mark.parametrize("scorer", ["model", "paper"])
def test_what_the_patterns_win_is_what_the_program_wins(scorer: str) -> None:
    def several(x: jax.Array) -> jax.Array:
        for _ in range(3):
            x = kept_sort(mixed(x), axis=0)
        return x

    shape = jax.ShapeDtypeStruct((256, 384), jnp.float32)
    report = fs.report(several, shape, device="h200", options=fs.Options(scorer=scorer))
    wins = [pattern["wins_us"] for pattern in report.patterns]
    assert len(wins) > 1
    assert sum(wins) == pytest.approx(report.modelled_xla_us - report.modelled_us)
    assert all(f"{us:.1f} us" in str(report) for us in wins)


def test_patterns_in_a_loop_count_as_often_as_they_run() -> None:
    def looped(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 7, lambda _, y: kept_sort(mixed(y), axis=0), mixed(x))

    shape = jax.ShapeDtypeStruct((256, 384), jnp.float32)
    options = fs.Options(scorer="paper", device="h200")
    report = fs.report(looped, shape, options=options)
    assert {pattern["runs"] for pattern in report.patterns} == {1, 7}
    wins = sum(pattern["wins_us"] for pattern in report.patterns)
    assert wins == pytest.approx(report.modelled_xla_us - report.modelled_us)
    long = jnp.tile(X, (3, 1))
    with_loop = fs.jit(looped, options=EMULATE).lower(long).compile().explain()
    assert "in each of 7 runs a call" in with_loop


@pytest.mark.parametrize(("ours", "said"), [(1 << 20, False), (3 << 20, True)])
def test_says_where_stitching_takes_memory(ours: int, said: bool) -> None:
    plain = fs.report(mixed, X, options=EMULATE)
    memory: dict[str, int | None] = {"xla": 1 << 20, "fusionstitch": ours}
    shown = str(dataclasses.replace(plain, memory_bytes=memory))
    assert "device memory" in shown
    assert ("note: it needs 2.1 MB more device memory than XLA's program" in shown) == said


def test_of_a_jitted_function_with_static_arguments() -> None:
    def power(x: jax.Array, n: int, *, flip: bool) -> jax.Array:
        assert isinstance(n, int)
        return mixed(-x if flip else x) ** n

    jitted = fs.jit(power, static_argnums=1, static_argnames="flip", options=EMULATE)
    report = fs.report(jitted, X, 2, flip=True)
    assert report.workload == "power"
    assert report.max_rel_error is not None
    assert report.max_rel_error < 1e-6


class Scaled:
    def __init__(self, n: int) -> None:
        self.n = n

    @functools.partial(jax.jit, static_argnums=(0, 2))
    def by_jax(self, x: jax.Array, k: int) -> jax.Array:
        assert isinstance(k, int)
        return self.n * k * mixed(x)

    @functools.partial(fs.jit, static_argnums=(0, 2), options=EMULATE)
    def by_us(self, x: jax.Array, k: int) -> jax.Array:
        assert isinstance(k, int)
        return self.n * k * mixed(x)


def test_what_jax_jit_calls_static_is_not_traced() -> None:
    def power(x: jax.Array, n: int, scale: float, kind: str, *, flip: bool = False) -> jax.Array:
        assert isinstance(n, int)
        assert kind == "plain"
        assert isinstance(scale, jax.Array)
        assert isinstance(flip, bool)
        return scale * mixed(-x if flip else x) ** n

    numbers = jax.jit(power, static_argnums=(1, 3), static_argnames="flip")
    names = jax.jit(power, static_argnames=("flip", "n", "kind"))
    for jitted in (numbers, names):
        for keywords in ({}, {"flip": True}):
            report = fs.report(jitted, X, 2, 3.0, "plain", options=EMULATE, **keywords)
            assert report.workload == "power"
            assert report.max_rel_error is not None
            assert report.max_rel_error < 1e-6
    report = fs.report(names, X, n=2, scale=3.0, kind="plain", flip=True, options=EMULATE)
    assert report.kernels["fusionstitch"] == 1
    for method in (Scaled(3).by_jax, Scaled(3).by_us):
        assert fs.report(method, X, 2, options=EMULATE).kernels["fusionstitch"] == 1


def test_a_question_is_a_text() -> None:
    compiled = fs.jit(mixed, options=EMULATE).lower(X).compile()
    for wrong, why in ((5, "such as the name of an op .* not 5"), (" ", "empty question")):
        with pytest.raises(TargetError, match=why):
            compiled.explain(wrong)  # type: ignore[arg-type]


def test_of_a_compiled_function() -> None:
    jitted = fs.jit(lambda p, x: p * mixed(x), donate_argnums=0, options=EMULATE)
    compiled = jitted.lower(X, jax.ShapeDtypeStruct((16, 24), jnp.float32)).compile()
    assert compiled.report().kernels["fusionstitch"] == 1
    assert not X.is_deleted()


def test_what_overflows_float32_is_ready_for_json() -> None:
    options = fs.Options(backend="emulate", scorer="paper")
    report = fs.report(lambda x: jnp.exp(x).sum(), jnp.arange(100.0), options=options)
    assert report.max_rel_error == report.max_rel_error_xla == np.inf
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert data["max_rel_error"] == data["max_rel_error_xla"] == "inf"


def test_a_device_that_this_nvrtc_does_not_know(
    nvrtc: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc, "architectures", lambda: ("sm_75",))
    monkeypatch.setattr(nvrtc, "compile", None)
    report = fs.report(mixed, X, device="v100", options=fs.Options(scorer="paper"))
    assert (report.kernels["fusionstitch"], report.fallbacks) == (1, ())
    assert report.patterns[0]["registers"] is None


def test_what_jax_lowers_for_the_host_alone() -> None:
    def fun(x: jax.Array) -> jax.Array:
        jax.debug.print("{}", x.sum())
        return jax.nn.softmax(x) * 2

    report = fs.report(fun, jnp.ones((8, 16)), device="h200")
    note = "lowered for the host, as JAX does not for CUDA here: ValueError: the platform for"
    assert report.notes[0].startswith(note)


def test_random_bits_are_the_programs_own() -> None:
    def noisy(key: jax.Array, x: jax.Array) -> jax.Array:
        return mixed(x) + jax.random.uniform(key, x.shape)

    report = fs.report(noisy, jax.random.key(1), X, options=EMULATE)
    assert report.max_rel_error is not None
    assert report.max_rel_error < 1e-6


def test_fallbacks_are_listed() -> None:
    def fun(x: jax.Array) -> jax.Array:
        def body(c: jax.Array, i: jax.Array) -> tuple[jax.Array, None]:
            jax.debug.callback(lambda _: None, c[0, 0] * i)
            return jnp.sin(c), None

        return mixed(jax.lax.scan(body, x, jnp.arange(3))[0])

    with pytest.warns(FusionStitchWarning, match="in part"):
        report = fs.report(fun, X, options=EMULATE)
    [fallback] = report.to_dict()["fallbacks"]
    assert fallback["ops"] == ["scan"]
    assert "callback" in fallback["reason"]
    assert report.patterns


def test_absent_backends_are_refused() -> None:
    if jax.default_backend() == "gpu":
        pytest.skip("there is a GPU")
    with pytest.raises(OptionError, match="no GPU to stitch for"):
        fs.report(mixed, X, options=fs.Options(backend="cuda"))


def test_loops_count_as_often_as_they_run() -> None:
    def entry(length: int) -> Graph:
        def scan(x: jax.Array) -> jax.Array:
            return jax.lax.scan(lambda c, _: (jnp.tanh(c) * 2, None), x, None, length=length)[0]

        return counting.entry(_hlo(jax.jit(scan).lower(X)))

    [loop] = [op for op in entry(5) if op.opcode == "while"]
    found = trips.counted(loop)
    assert found is not None
    assert found.trips == 5
    # each iteration: tanh, multiply, the counter's add and its comparison
    assert counting.unfused(entry(7)).kernels - counting.unfused(entry(5)).kernels == 2 * 4

    def dynamic(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda c: c.sum() < 9.0, lambda c: c + 1, x)

    program = counting.entry(_hlo(jax.jit(dynamic).lower(X)))
    [loop] = [op for op in program if op.opcode == "while"]
    assert trips.counted(loop) is None


def test_relative_errors() -> None:
    wanted = np.array([3.0, 4.0])
    assert accuracy.relative_error(np.array([3.0, 4.5], np.float32), wanted) == 0.1
    assert accuracy.relative_error(np.array([np.nan, 4.0]), wanted) == float("inf")
    special = np.array([np.nan, np.inf, 1.0])
    assert accuracy.relative_error(special.astype(np.float32), special) == 0.0
    assert accuracy.relative_error(np.array([1, 2]), np.array([1, 2])) == 0.0
    assert accuracy.relative_error(np.array([1, 2]), np.array([1, 3])) == float("inf")
    # as a function that casts its result gives it in float64, too
    half = np.array([3.0, 4.5]).astype(jnp.bfloat16)
    assert accuracy.relative_error(half, wanted.astype(jnp.bfloat16)) == 0.1
    assert accuracy.limit(np.dtype(np.float32), 1e-7) == 1e-6
    assert accuracy.limit(np.dtype(np.float32), 1e-3) == 2e-3
    assert accuracy.limit(np.dtype(jnp.bfloat16), 0.0) == 4e-3
    assert accuracy.limit(np.dtype(np.int32), 0.0) == 0.0


def test_a_few_elements_may_fall_to_the_other_side() -> None:
    one = np.linspace(1, 2, 2_000_000, dtype=np.float32)
    other = one.copy()
    other[[3, 70_000]] = 0, np.nan
    assert accuracy.relative_error(one, other.astype(np.float64)) > 1e-4
    assert accuracy.difference(one, other) == 0.0
    other[9] = 0
    assert accuracy.difference(one, other) > 1e-4
    assert accuracy.difference(one[:100], other[:100]) > 1e-2, "of few elements, none may"
