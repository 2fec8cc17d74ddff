"""Peak memory: what is measured, what counts as more, and that stitching needs no more."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import fusionstitch as fs
from benchmarks import memory
from fusionstitch.reports.memory import needed_bytes

ROOT = Path(__file__).parents[2]
KB = 1024


def row(**bytes_: int | None) -> dict[str, Any]:
    theirs = {"temp": 0, "peak": 500 * KB, "allocated": 600 * KB}
    return {"target": "a.py:b", "xla": theirs, "fusionstitch": {**theirs, **bytes_}}


def test_what_counts_as_more() -> None:
    assert memory.exceeds(row()) == []
    assert memory.exceeds(row(peak=564 * KB, allocated=100 * KB)) == []
    assert memory.exceeds(row(peak=565 * KB)) == ["peak"]
    assert memory.exceeds(row(allocated=900 * KB)) == ["allocated"]
    assert memory.exceeds(row(allocated=None)) == []
    assert memory.exceeds({"target": "a.py:b", "failure": "xla: no"}) == []


def test_the_table_says_which() -> None:
    lines = memory.table([row(), row(peak=900 * KB), {"target": "c", "failure": "no"}])
    lines = lines.splitlines()[2:]
    assert [line.split("|")[-2].strip() for line in lines] == ["no", "peak", "no"]
    assert "| 0.51 | 0.92 |" in lines[1]


def test_an_example_in_processes_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("FUSIONSTITCH_EXAMPLE_SCALE", "small")
    monkeypatch.setenv("FUSIONSTITCH_BACKEND", "emulate")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    path = tmp_path / "memory.json"
    memory.main(["logistic.py:train_step", "--json", str(path)])
    assert "| logistic.py:train_step |" in capsys.readouterr().out
    assert '"failure"' not in path.read_text()
    assert memory.main(["logistic.py:train_step", "--limit", "0.1"]) == 1
    assert "| xla: longer than 0.1 s |" in capsys.readouterr().out


def test_programs_out_of_the_cache_are_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of the process that compiled, the allocator of the one that did not."""
    processes: list[dict[str, str]] = []
    compiled: list[int] = []

    def run(command: list[str], env: dict[str, str], **_: Any) -> Any:
        number = len(processes)
        processes.append(env)
        found = {"temp": number, "peak": number, "allocated": number, "compiled": compiled[number]}
        return subprocess.CompletedProcess(command, 0, json.dumps(found), "")

    monkeypatch.setattr(subprocess, "run", run)
    [workload] = memory.find(["logistic.py:train_step"])
    compiled = [3, 0, 3, 0]
    found = memory.compare(workload, 9)
    assert found["xla"] == {"temp": 0, "peak": 0, "allocated": 1}
    assert found["fusionstitch"] == {"temp": 2, "peak": 2, "allocated": 3}
    caches = [env["JAX_COMPILATION_CACHE_DIR"] for env in processes]
    assert caches[0] == caches[1] != caches[2] == caches[3]
    assert not any(Path(cache).exists() for cache in caches)
    processes.clear()
    compiled = [3, 1, 3, 0]
    assert memory.compare(workload, 9)["failure"] == (
        "xla: 1 of its programs were not found in JAX's compilation cache"
    )


def softmax(x: jax.Array) -> jax.Array:
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)


def attention(x: jax.Array) -> jax.Array:
    scores = jax.nn.softmax(jnp.einsum("bid,bjd->bij", x, x), -1)
    return jnp.einsum("bij,bjd->bid", scores, x)


def adam(state: Any, g: jax.Array) -> Any:
    m = 0.9 * state["m"] + 0.1 * g
    v = 0.999 * state["v"] + 0.001 * g * g
    return {"w": state["w"] - 0.01 * m / (jnp.sqrt(v) + 1e-8), "m": m, "v": v}


X = jnp.ones((64, 96), jnp.float32)


@pytest.mark.parametrize(
    ("fun", "args"),
    [
        (softmax, (X,)),
        (attention, (jnp.ones((4, 24, 8)),)),
        (adam, ({"w": X, "m": X, "v": X}, X)),
        (jax.grad(lambda x: (softmax(x) ** 2).sum()), (X,)),
    ],
    ids=["softmax", "attention", "adam", "gradient"],
)
def test_no_more_than_xla_plans(
    host_compiler: str, fun: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    ours, theirs = fs.jit(fun, options=options), jax.jit(fun)
    compiled = ours.lower(*args).compile()
    assert compiled.kernels
    limit = needed_bytes(theirs.lower(*args).compile())
    pointers = 8 * sum(len(kernel.outputs) for kernel in compiled.kernels)  # tuples of results
    assert needed_bytes(compiled) <= limit + pointers
