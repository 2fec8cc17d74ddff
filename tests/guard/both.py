"""A clock for comparisons without a GPU. Both sides run on the CPU, stitched kernels on the
emulator, and must agree; a rule provides the times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from fusionstitch.compiler import builders, core
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.compiler.workpiece import Workpiece
from fusionstitch.costmodel.devices import device
from fusionstitch.errors import MeasureError
from fusionstitch.guard.guard import Doubts, Guard
from fusionstitch.guard.live import Live
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.measure.side_by_side import Sides
from fusionstitch.options import Options
from fusionstitch.plan.findings import Evidence
from fusionstitch.runtime import emulate
from fusionstitch.runtime.cache import Database
from fusionstitch.runtime.portable import as_function

#: Microseconds (ours, XLA's) of a comparison with this number.
Rule = Callable[[int], tuple[float, float]]
H200 = device("h200")


def lowered(fun: Callable[..., Any], *args: Any) -> bytes:
    ir = jax.jit(fun).lower(*args).compiler_ir("hlo")
    data: bytes = ir.as_serialized_hlo_module_proto()
    return data


@dataclass
class Both:
    """Compares by running; `seen` has the sides of each call. A rule that returns no times
    simulates a busy GPU. With `won`, XLA's side takes its modelled time, and ours this much
    less."""

    rule: Rule | None = lambda number: (1.0, 9.0)
    runs: bool = True
    won: float | None = None
    seen: list[Sequence[Sides]] = field(default_factory=list)

    def __call__(self, pairs: Sequence[Sides]) -> list[tuple[float, float]]:
        if self.rule is None:
            raise MeasureError("The GPU is busy.")
        number = sum(map(len, self.seen))
        self.seen.append(pairs)
        for pair in pairs if self.runs else ():
            agree(pair)
        if self.won is not None:
            return [(pair.about_us - self.won, pair.about_us) for pair in pairs]
        return [self.rule(number + n) for n in range(len(pairs))]

    @property
    def count(self) -> int:
        return sum(map(len, self.seen))


def agree(pair: Sides) -> None:
    """Runs both sides on equal inputs."""
    emulate.register()
    with jax.enable_x64(True):  # types are those of the modules
        _agree(pair)


def _agree(pair: Sides) -> None:
    inputs = [p.shape for p in from_proto(pair.theirs).entry.parameters]
    assert [p.shape for p in from_proto(pair.ours).entry.parameters] == inputs
    random = np.random.default_rng(0)
    given = [
        _some(random, shape.dims, NUMPY_DTYPES[shape.dtype], least)
        for shape, least in zip(inputs, pair.below, strict=True)
    ]
    results = [
        [np.asarray(x) for x in jax.tree.leaves(as_function(module, "side")(*given))]
        for module in (pair.theirs, pair.ours)
    ]
    for theirs, ours in zip(*results, strict=True):
        assert (theirs.dtype, theirs.shape) == (ours.dtype, ours.shape)
        close = 2e-4 if theirs.dtype.itemsize > 2 else 3e-2
        np.testing.assert_allclose(
            np.asarray(ours, np.float64), np.asarray(theirs, np.float64), rtol=close, atol=close
        )


def _some(random: np.random.Generator, dims: tuple[int, ...], dtype: Any, least: int) -> np.ndarray:
    if np.issubdtype(dtype, np.integer) or dtype == np.bool_:
        return random.integers(0, least, dims).astype(dtype)
    return random.standard_normal(dims).astype(dtype)


def guarded(
    data: bytes,
    compare: Both,
    database: Database,
    doubts: Doubts = lambda pattern, score: True,
    strong_doubts: Doubts | None = None,
    **options: Any,
) -> Stitched:
    """`core.stitch` with a guard that has these doubts."""
    chosen = Options(**{"scorer": "model", "fallback": "error", **options})

    def judge(work: Workpiece, planners: Any) -> Evidence:
        live = Live(work, chosen, H200, compare, database)
        guard = Guard(doubts, strong_doubts or doubts, live.known, live.measure)
        guard.settle(planners)
        return Evidence(guard.used, live.whole)

    return core.stitch(data, chosen, H200, builders.emulated(), judge=judge)
