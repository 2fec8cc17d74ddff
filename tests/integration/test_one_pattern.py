"""One pattern's way through planning and code generation: what is done, and how often."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchmarks.figures.traced import profiled
from fusionstitch.codegen import assembly, drafts
from fusionstitch.compiler import builders, core
from fusionstitch.options import Options

ROOT = Path(__file__).parents[2]
FLOORS = tuple(f"{ROOT / name}/" for name in ("fusionstitch", "codegen", "costmodel", "hlo"))
SAID = re.compile(
    r"(\d+) schedules are lowered, each once, and the one that\s+is taken is verified once\. "
    r"It enters (\d+) files\."
)


def both_ways(x: Any, scale: Any, shift: Any, dy: Any) -> Any:
    """A layer norm with its gradient."""

    def norm(x: Any, scale: Any, shift: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-6) * scale + shift

    y, back = jax.vjp(norm, x, scale, shift)
    return y, *back(dy)


@dataclass(eq=False)
class Traced:
    """What threads entered while it was on, and how often schedules were lowered and verified."""

    files: set[str] = field(default_factory=set)
    lowered: Counter[str] = field(default_factory=Counter)
    verified: int = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(FLOORS) and frame.f_code.co_name != "<module>":
            self.files.add(name)


def traced(monkeypatch: pytest.MonkeyPatch) -> Traced:
    found = Traced()
    lower, verify = drafts.written, assembly.verify

    def lowered(scheduled: Any, numerics: str) -> Any:
        found.lowered[scheduled.template] += 1
        return lower(scheduled, numerics)

    def verified(kernel: Any) -> None:
        found.verified += 1
        verify(kernel)

    monkeypatch.setattr(drafts, "written", lowered)
    monkeypatch.setattr(assembly, "verify", verified)
    row = jax.ShapeDtypeStruct((1024,), jnp.float32)
    rows = jax.ShapeDtypeStruct((4096, 1024), jnp.float32)
    module = jax.jit(both_ways).lower(rows, row, row, rows).compiler_ir("hlo")
    options = Options(backend="auto", device="h200")
    with profiled(found):
        stitched = core.stitch(
            module.as_serialized_hlo_module_proto(), options, builders.profile(options), None
        )
    assert len(stitched.stitches) == 1
    return found


def test_a_schedule_is_lowered_once_and_verified_if_it_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = traced(monkeypatch)
    assert set(found.lowered.values()) == {1}
    assert found.verified == 1
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    [(schedules, files)] = SAID.findall(page)
    assert int(schedules) == len(found.lowered)
    assert abs(int(files) - len(found.files)) <= 10
