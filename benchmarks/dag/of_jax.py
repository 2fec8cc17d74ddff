"""Three programs of a JAX user: calls of jitted functions with work of other kinds beside them.

Each runs as a JAX user has it today, and with its functions and kernels given to a scheduler.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fusionstitch as fs
from benchmarks.dag.program import _code
from benchmarks.dag.six import milliseconds
from benchmarks.measuring import in_turns
from benchmarks.paired import ratios

#: Rounds of all versions, at least and at most.
_LEAST, _MOST = 5, 40
_IMAGE = {
    "blur": "const pointer float, inout pointer float, sint32, const pointer float, sint32",
    "sobel": "const pointer float, inout pointer float, sint32",
}
#: A run, and what it gives.
Run = Callable[[], np.ndarray]


def rows(backend: str, seconds: float) -> Iterator[dict[str, Any]]:
    """One row for each program."""
    small = backend == "emulate"
    for make in (two_models, simulation, pipeline):
        row: dict[str, Any] = {"section": "JAX", "benchmark": make.__name__}
        try:
            row |= _measured(make(fs.dag.Scheduler(backend=backend), small), seconds / 3)
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"
        yield row


def _measured(versions: dict[str, Run], seconds: float) -> dict[str, Any]:
    versions = {**versions, "jax again": versions["jax"]}
    results = {name: run() for name, run in versions.items()}
    wanted = results["jax"]
    takers = {name: functools.partial(milliseconds, run) for name, run in versions.items()}
    times = in_turns(takers, _LEAST, seconds, _MOST)
    return {
        "rounds": len(times["jax"]),
        "ms": {name: statistics.median(taken) for name, taken in times.items()},
        "speedup": _ratio(times["jax"], times["async"]),
        "jax over itself": _ratio(times["jax"], times["jax again"]),
        "error of results": {
            name: float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
            for name, found in results.items()
        },
    }


def _ratio(slow: list[float], fast: list[float]) -> list[float]:
    """The median of the ratios of runs beside each other, and its interval of 95%."""
    found = ratios(slow, fast)
    return [found.median, found.low, found.high]


def two_models(d: Any, small: bool) -> dict[str, Run]:
    """Two models are evaluated on the same rows, new ones each time, for one decision."""
    import jax
    import jax.numpy as jnp

    rows, width = (16, 8) if small else (8192, 1024)
    draw = np.random.default_rng(0)
    host = draw.random((rows, width), np.float32)
    weights = [[draw.random((width, width), np.float32) / width for _ in "ab"] for _ in "xy"]

    @jax.jit
    def model(x: Any, first: Any, second: Any) -> Any:
        return jax.nn.softmax(jnp.tanh(x @ first) @ second)

    @jax.jit
    def decide(a: Any, b: Any) -> Any:
        return (a + b).argmax(1)

    on_device = jax.device_put(weights)

    def by_jax() -> np.ndarray:
        x = jax.device_put(host)
        return np.asarray(decide(model(x, *on_device[0]), model(x, *on_device[1])))

    ours = [[d.array(w) for w in pair] for pair in weights]
    evaluate, decision = d.function(model, name="model"), d.function(decide, name="decide")

    def by_scheduler() -> np.ndarray:
        x = jax.device_put(host)
        return np.asarray(decision(evaluate(x, *ours[0]), evaluate(x, *ours[1])))

    return {"jax": by_jax, "async": by_scheduler}


def simulation(d: Any, small: bool) -> dict[str, Run]:
    """Steps of a simulation; each state is analysed by a kernel and goes to the host."""
    import jax
    import jax.numpy as jnp

    side, steps = (16, 3) if small else (4096, 8)
    start = np.random.default_rng(0).random((side, side), np.float32)

    @jax.jit
    def step(x: Any) -> Any:
        def once(x: Any, _: Any) -> tuple[Any, None]:
            around = sum(jnp.roll(x, by, axis) for by in (1, -1) for axis in (0, 1))
            return x + 0.1 * (around - 4 * x), None

        return jax.lax.scan(once, x, length=10)[0]

    @jax.jit
    def edges(x: Any) -> Any:
        x = jnp.pad(x, 1, mode="edge")
        down = x[2:] + 0 - x[:-2]
        right = x[:, 2:] - x[:, :-2]
        dy = down[:, :-2] + 2 * down[:, 1:-1] + down[:, 2:]
        dx = right[:-2] + 2 * right[1:-1] + right[2:]
        return jnp.sqrt(dx * dx + dy * dy)

    def by_jax() -> np.ndarray:
        x, seen = jax.device_put(start), []
        for _ in range(steps):
            x = step(x)
            seen.append((np.asarray(x)[0, 0], np.asarray(edges(x)).max()))
        return np.array(seen)

    advance = d.function(step, name="step")
    grid, block = (-(-side // 32), -(-side // 8)), (32, 8)
    analyse = d.kernel(_code("img"), "sobel", _IMAGE["sobel"])(grid, block)
    first = d.array(start, name="start")
    sizes = [d.array((side, side), name=f"size {i}") for i in range(steps)]

    def by_scheduler() -> np.ndarray:
        x, states = first, []
        for size in sizes:  # all of it is on its way before the host reads
            x = advance(x)
            analyse(x, size, side)
            states.append(x)
        return np.array(
            [
                (np.asarray(state)[0, 0], np.asarray(size).max())
                for state, size in zip(states, sizes, strict=True)
            ]
        )

    return {"jax": by_jax, "async": by_scheduler}


def pipeline(d: Any, small: bool) -> dict[str, Run]:
    """Images are scaled by a jitted function, blurred and searched for edges by kernels, joined."""
    import jax
    import jax.numpy as jnp

    side, images = (16, 2) if small else (4096, 4)
    hosts = [np.random.default_rng(i).random((side, side), np.float32) for i in range(images)]
    window = np.full(9, 1 / 9, np.float32)

    @jax.jit
    def scaled(x: Any) -> Any:
        return (x - x.min()) / (x.max() - x.min())

    @jax.jit
    def joined(blurred: Any, edges: Any) -> Any:
        return (blurred * jnp.minimum(edges, 1)).sum()

    @jax.jit
    def blur(x: Any) -> Any:
        padded = jnp.pad(x, 1, mode="edge")
        return sum(padded[i : i + side, j : j + side] for i in range(3) for j in range(3)) / 9

    @jax.jit
    def sobel(x: Any) -> Any:
        x = jnp.pad(x, 1, mode="edge")
        down, right = x[2:] - x[:-2], x[:, 2:] - x[:, :-2]
        dy = down[:, :-2] + 2 * down[:, 1:-1] + down[:, 2:]
        dx = right[:-2] + 2 * right[1:-1] + right[2:]
        return jnp.sqrt(dx * dx + dy * dy)

    def by_jax() -> np.ndarray:
        found = []
        for x in [jax.device_put(host) for host in hosts]:
            x = scaled(x)
            found.append(joined(blur(x), sobel(x)))
        return np.array([float(value) for value in found])

    scale, join = d.function(scaled, name="scaled"), d.function(joined, name="joined")
    grid, block = (-(-side // 32), -(-side // 8)), (32, 8)
    blurring = d.kernel(_code("img"), "blur", _IMAGE["blur"])(grid, block)
    edging = d.kernel(_code("img"), "sobel", _IMAGE["sobel"])(grid, block)
    weights = d.array(window, name="window")
    made = [[d.array((side, side)) for _ in "be"] for _ in hosts]

    def by_scheduler() -> np.ndarray:
        found = []
        inputs = [jax.device_put(host) for host in hosts]
        for x, (blurred, edges) in zip(inputs, made, strict=True):
            image = scale(x)
            blurring(image, blurred, side, weights, 3)
            edging(image, edges, side)
            found.append(join(blurred, edges))
        return np.array([float(value) for value in found])

    return {"jax": by_jax, "async": by_scheduler}
