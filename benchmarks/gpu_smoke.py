"""The CUDA backend on a GPU with handwritten kernels: does it run, and what does a launch cost?

python -m benchmarks.gpu_smoke [--quick] [--json FILE] [--device h200]

Programs call placeholders, custom calls that name a kernel; the pass gives them their kernels, and
turns every f32 tanh into a kernel, as the real one does with patterns. Each check prints one line;
times are medians. Exits with 1 when a check fails.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.smoke_kernels import (
    KERNELS,
    TOKEN,
    bare_kernel,
    define,
    many_kernel,
    place,
    ring_kernel,
    scale_kernel,
    softmax_kernel,
    stitched,
    stitcher,
)
from fusionstitch.costmodel.devices import Device, device
from fusionstitch.runtime import cuda, nvrtc, xla_pass
from fusionstitch.runtime.artifact import TARGET
from fusionstitch.runtime.cache import Store

# ---- checks -------------------------------------------------------------------------------------

RESULTS: dict[str, Any] = {}
FAILURES: list[str] = []


def check(name: str, body: Callable[[], Any]) -> None:
    """Runs `body`, prints and keeps what it returns, or counts its failure."""
    started = time.perf_counter()
    try:
        RESULTS[name] = body()
        verdict = "ok"
    except Exception as error:
        traceback.print_exc()
        RESULTS[name] = f"{type(error).__name__}: {error}"[:2000]
        FAILURES.append(name)
        verdict = "FAILED"
    seconds = time.perf_counter() - started
    print(f"{name:22s} {verdict:7s} {seconds:6.2f} s  {str(RESULTS[name])[:150]}", flush=True)


def same_as_jit(fun: Callable[..., Any], args: tuple[Any, ...], **keywords: Any) -> Any:
    """Largest difference from jax.jit over two runs, and the number of kernels put in."""
    want = jax.jit(fun)(*jax.tree.map(jnp.copy, args))
    with xla_pass.collect(TOKEN) as events:
        compiled = stitched(fun, **keywords).lower(*args).compile()
    for event in events:
        if event.error is not None:
            raise event.error
    text = compiled.as_text()
    assert xla_pass.find(text, events) is not None, "the event was not found by its keys"
    error = 0.0
    for _ in range(2):
        got = compiled(*jax.tree.map(jnp.copy, args))
        for a, b in zip(jax.tree.leaves(want), jax.tree.leaves(got), strict=True):
            assert a.shape == b.shape
            error = max(error, float(jnp.abs(a - b).max()))
    assert error < 1e-5, f"differs by {error}"
    calls = text.count(f'custom_call_target="{TARGET}"')
    return {"max_difference": error, "calls": calls, "offered": len(events)}


def programs() -> None:
    x = jax.random.normal(jax.random.key(1), (64, 64)) * 0.5
    w = jnp.eye(64) * 0.5
    square = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    scale = scale_kernel(64 * 64)

    def attention(x: Any) -> Any:
        scores = jnp.tanh(jnp.einsum("bqhd,bkhd->bhqk", x, x))
        return jnp.einsum("bhqk,bkhd->bqhd", scores, x)

    def scanned(x: Any, w: Any) -> Any:
        return jax.lax.scan(lambda c, _: (jnp.tanh(c @ w), c.sum()), x, None, length=4)

    def looped(x: Any) -> Any:
        return jax.lax.while_loop(lambda c: jnp.abs(c).sum() > 1.0, lambda c: jnp.tanh(c) * 0.5, x)

    def branched(x: Any) -> Any:
        return jax.lax.cond(x.sum() > 0, lambda x: jnp.tanh(x), lambda x: jnp.tanh(x) * 2, x)

    def printing(x: Any) -> Any:
        jax.debug.callback(lambda value: None, x[0, 0])
        return jnp.tanh(x)

    def others(x: Any) -> Any:
        spd = x @ x.T + jnp.eye(64) * 9
        return jnp.sort(jnp.tanh(x)), jnp.fft.fft(x).real, jnp.linalg.cholesky(spd)

    table: list[tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
        ("plain", lambda x: jnp.tanh(x) * 2, (x,), {}),
        ("transpose", lambda x: (jnp.tanh(x), x.T.ravel(), jnp.tanh(x).T * 2), (x,), {}),
        ("attention", attention, (x.reshape(4, 16, 4, 16),), {}),
        ("scan", scanned, (x, w), {}),
        ("while", looped, (x,), {}),
        ("cond", branched, (x,), {}),
        ("gradient", jax.grad(lambda x: (jnp.tanh(x @ x) ** 2).sum()), (x,), {}),
        ("donated", lambda p, x: (p - jnp.tanh(x), p.sum()), (x + 1, x), {"donate_argnums": 0}),
        ("callback", printing, (x,), {}),
        ("random", lambda x: jnp.tanh(x) + jax.random.normal(jax.random.key(0), x.shape), (x,), {}),
        ("others", others, (x,), {}),
        ("vmap", jax.vmap(lambda r: jnp.tanh(r) @ r), (x,), {}),
    ]
    for name, fun, args, keywords in table:
        check(name, functools.partial(same_as_jit, fun, args, **keywords))

    def in_place() -> Any:
        """A donated buffer overwritten by the kernel: the alias must not cost a copy."""

        def fun(p: Any) -> Any:
            return place(scale, square, p, input_output_aliases={0: 0})

        compiled = stitched(fun, donate_argnums=0).lower(x).compile()
        want = np.asarray(x) * np.float32(1.0625)
        np.testing.assert_array_equal(compiled(jnp.copy(x)), want)
        copies = len(re.findall(r" copy\(", compiled.as_text()))
        assert copies == 0, f"{copies} copies"
        return {"copies": copies}

    check("in place", in_place)


def relative_errors(
    fun: Callable[..., Any], want: Callable[..., Any], inputs: list[Any], **options: Any
) -> list[float]:
    """Errors against `want` of calls that are all in flight, so that no two share an address."""
    program = stitched(fun).lower(*inputs[0]).compile(options)
    results = [program(*args) for args in inputs]
    expected = [want(*(np.asarray(arg, np.float64) for arg in args)) for args in inputs]
    return [
        float(np.linalg.norm(a - b) / np.linalg.norm(b))
        for a, b in zip(results, expected, strict=True)
    ]


def kernels() -> None:
    def softmax(**options: Any) -> Any:
        rows, columns = 300, 50_000  # 200 KB of a row in shared memory
        x = jax.random.normal(jax.random.key(2), (rows, columns))
        name = softmax_kernel(rows, columns)

        def want(x: Any) -> Any:
            powers = np.exp(x - x.max(-1, keepdims=True))
            return powers / powers.sum(-1, keepdims=True)

        inputs = [(x * scale,) for scale in (3, 1, 2, 4)]
        errors = relative_errors(lambda x: place(name, jax.typeof(x), x), want, inputs, **options)
        assert max(errors) < 1e-6, errors
        return {"shared_bytes": KERNELS[name].shared_bytes, "relative_error": max(errors)}

    def many(**options: Any) -> Any:
        inputs = [tuple(jnp.full(32, float(i * j)) for i in range(1000)) for j in (1, 2, 3, 4)]
        name = many_kernel(1000)
        shape = jax.ShapeDtypeStruct((32,), jnp.float32)
        errors = relative_errors(
            lambda *args: place(name, shape, *args),
            lambda *args: np.sum(args, axis=0),
            inputs,
            **options,
        )
        assert max(errors) == 0.0, errors  # whole numbers that f32 holds
        return {"parameter_bytes": 8 * 1001}

    def order(**options: Any) -> Any:
        """Each op takes long beside a launch, and the next one reads all of its result."""
        size = 1 << 24
        x = jax.random.normal(jax.random.key(5), (size,))
        name, shape = scale_kernel(size), jax.typeof(x)

        def fun(x: Any) -> Any:
            for _ in range(10):
                x = jax.lax.optimization_barrier(place(name, shape, x) + 1)
            return x

        def want(x: Any) -> Any:
            for _ in range(10):
                x = x * 1.0625 + 1
            return x

        inputs = [(x * scale,) for scale in range(1, 9)]
        errors = relative_errors(fun, want, inputs, **options)
        assert max(errors) < 1e-6, errors
        return {"relative_error": max(errors)}

    check("softmax, 200 KB", softmax)
    check("1000 inputs", many)
    # and in CUDA graphs, which get other addresses with each call
    of_any_length = {"xla_gpu_graph_min_graph_size": 1}
    check("softmax in a graph", functools.partial(softmax, **of_any_length))
    check("1000 inputs, graph", functools.partial(many, **of_any_length))
    check("order in a graph", functools.partial(order, **of_any_length))


def ring_reference(x: np.ndarray, block: int, rounds: int) -> np.ndarray:
    value = x.astype(np.uint32)
    for _ in range(rounds):
        value = value * np.uint32(3) + np.roll(value, -block)
    return value.astype(np.int32)


def cooperative_program(name: str, before: int = 0) -> Any:
    """Kernel `name`, after `before` small ones so that XLA records a command buffer."""
    grid, block = KERNELS[name].grid, KERNELS[name].block
    size = grid * block
    shape, scratch = (jax.ShapeDtypeStruct((n,), jnp.int32) for n in (size, 2 * size))
    copy = define(
        f"copy_{size}_{block}",
        "const int* x, int* y",
        f"  int i = blockIdx.x * {block} + threadIdx.x;\n  y[i] = x[i];",
        grid,
        block,
    )

    def fun(x: Any) -> Any:
        for _ in range(before):
            x = place(copy, shape, x)
        return place(name, (shape, scratch), x)[0]

    return stitched(fun)


def barriers(timed: bool) -> None:
    for grid, block in ((132, 256), (132, 1024), (264, 256), (528, 256), (1056, 256)):

        def body(grid: int = grid, block: int = block) -> Any:
            x = np.random.default_rng(3).integers(0, 2**31 - 1, grid * block, dtype=np.int32)
            for before in (0, 10):  # alone, and inside a command buffer, replayed
                program = cooperative_program(ring_kernel(grid, block, 100), before)
                want = ring_reference(x, block, 100)
                for _ in range(20):
                    np.testing.assert_array_equal(program(x), want)
            if not timed:
                return {}
            times = race(
                {
                    (kind, rounds): (cooperative_program(make(grid, block, rounds)), x)
                    for kind, make in (("bare", bare_kernel), ("ring", ring_kernel))
                    for rounds in (500, 2500)
                },
                in_flight=1,
            )
            return {
                f"us_{kind}": round((times[kind, 2500] - times[kind, 500]) / 2000, 4)
                for kind in ("bare", "ring")
            }

        check(f"barrier {grid} x {block}", body)


# ---- times --------------------------------------------------------------------------------------


def race(
    programs: dict[Any, tuple[Any, Any]], in_flight: int, rounds: int = 15
) -> dict[Any, float]:
    """Median microseconds per call of each (program, argument), measured in turns.

    Results go into the next call, and the host waits after `in_flight` calls.
    """
    times: dict[Any, list[float]] = {name: [] for name in programs}
    for turn in range(rounds + 2):  # two to warm up
        for name, (program, x) in programs.items():
            value = jnp.array(x)
            value.block_until_ready()
            start = time.perf_counter()
            for _ in range(in_flight):
                value = program(value)
            value.block_until_ready()
            if turn >= 2:
                times[name].append((time.perf_counter() - start) / in_flight * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def launches() -> None:
    size = 4096
    shape = jax.ShapeDtypeStruct((size,), jnp.float32)
    x = jnp.ones(size)
    name = scale_kernel(size)

    def ours(x: Any) -> Any:
        return place(name, shape, x)

    def xlas(x: Any) -> Any:
        return jax.lax.optimization_barrier(x * 1.0625)

    def chain(body: Callable[[Any], Any], count: int) -> Callable[[Any], Any]:
        def fun(x: Any) -> Any:
            for _ in range(count):
                x = body(x)
            return x

        return fun

    def loop(body: Callable[[Any], Any], count: int) -> Callable[[Any], Any]:
        return lambda x: jax.lax.fori_loop(0, count, lambda _, c: body(c), x)

    sides = (("ours", ours, stitched), ("xla", xlas, jax.jit))

    def each(
        make: Callable[..., Any], counts: tuple[int, int], in_flight: int, **options: Any
    ) -> Any:
        few, lots = counts
        times = race(
            {
                (side, n): (wrap(make(body, n)).lower(x).compile(options), x)
                for side, body, wrap in sides
                for n in counts
            },
            in_flight,
        )
        return {
            side: {
                f"us_{few}": round(times[side, few], 1),
                f"us_{lots}": round(times[side, lots], 1),
                "us_each": round((times[side, lots] - times[side, few]) / (lots - few), 3),
            }
            for side, _, _ in sides
        }

    check("chain, graphs", lambda: each(chain, (50, 500), 20))
    check(
        "chain, no graphs", lambda: each(chain, (50, 500), 20, xla_gpu_graph_min_graph_size=10**6)
    )
    check("loop", lambda: each(loop, (100, 1000), 2))


def compiling(profile: Device) -> None:
    def pool() -> Any:
        names = [f"pool_{i}" for i in range(32)]
        for i, name in enumerate(names):
            kernel = KERNELS[softmax_kernel(1, 1000 + i)]
            source = kernel.source.replace(kernel.name, name)
            KERNELS[name] = dataclasses.replace(kernel, name=name, source=source)
        times = {}
        for count in (1, 32):
            start = time.perf_counter()
            cuda.build([KERNELS[name] for name in names[:count]], profile)
            times[f"ms_{count}"] = round((time.perf_counter() - start) * 1e3, 1)
        return {**times, "cores": os.cpu_count()}

    check("NVRTC", pool)


# ---- what fails, and other processes ------------------------------------------------------------


def refused() -> Any:
    """A launch the driver refuses must be an error with its name, and the process live on."""
    name = ring_kernel(100_000, 64, 1)
    shape, scratch = (jax.ShapeDtypeStruct((n,), jnp.int32) for n in (6_400_000, 12_800_000))
    x = jnp.zeros(6_400_000, jnp.int32)
    try:
        stitched(lambda x: place(name, (shape, scratch), x)[0])(x).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        message = str(error)
    else:
        raise AssertionError("the driver took it")
    assert "COOPERATIVE_LAUNCH_TOO_LARGE" in message, message
    y = stitched(lambda x: jnp.tanh(x))(jnp.ones(8))
    assert abs(float(y[0]) - 0.7615942) < 1e-6
    return message[:120]


def persistent() -> Any:
    """XLA's own cache: the second process must neither plan nor build, and still be right."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": folder}
        command = [sys.executable, "-m", "benchmarks.gpu_smoke", "--child"]
        lines = []
        for process in ("first", "second"):
            run = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=120, check=False
            )
            assert run.returncode == 0, f"{process} process: {run.stderr[-2000:]}"
            lines.append(json.loads(run.stdout.splitlines()[-1]))
    first, second = lines
    assert first["offered"] == 1, first
    assert second["offered"] == 0, second
    assert first["keys"] == second["keys"] != [], (first, second)
    assert first["sum"] == second["sum"], (first, second)
    return lines


def child(profile: Device) -> None:
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    start_up(profile)
    x = jnp.linspace(-1, 1, 4096).reshape(64, 64)
    with xla_pass.collect(TOKEN) as events:
        compiled = stitched(lambda x: jnp.tanh(jnp.tanh(x) @ x)).lower(x).compile()
    total = float(compiled(x).sum())
    keys = xla_pass.keys_in(compiled.as_text())
    print(json.dumps({"offered": len(events), "keys": keys, "sum": total}))


def start_up(profile: Device) -> None:
    for verdict in (nvrtc.available(), cuda.register_launcher(Store())):
        print(verdict, file=sys.stderr)
    registered = xla_pass.register(stitcher(profile, Store()))
    if not registered:
        sys.exit(str(registered))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", help="write all results to this file")
    parser.add_argument("--device", default="h200", help="device profile")
    parser.add_argument("--quick", action="store_true", help="check only, without times")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    # What does not fit is for the driver to refuse here, not for the builder.
    profile = dataclasses.replace(device(options.device), sm_count=10**6)
    if options.child:
        child(profile)
        return
    start_up(profile)
    RESULTS["environment"] = {
        "gpu": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "nvrtc": nvrtc.version(),
    }
    programs()
    kernels()
    barriers(timed=not options.quick)
    if not options.quick:
        launches()
        compiling(profile)
    check("persistent cache", persistent)
    check("refused launch", refused)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(RESULTS, file, indent=1)
    print(f"{len(RESULTS) - 1} checks, failed: {', '.join(FAILURES) or 'none'}")
    sys.exit(bool(FAILURES))


if __name__ == "__main__":
    main()
