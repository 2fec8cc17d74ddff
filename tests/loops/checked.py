"""A grown program under fs.jit beside jax.jit: are integers equal, and floats as near float64?"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

import fusionstitch as fs
from fusionstitch.accuracy import FLOORS, limit, reference, relative_error
from fusionstitch.hlo.errors import CodegenError, PassError
from fusionstitch.runtime import emulate
from tests.loops.growth import Grown

#: As StableHLO writes them. An intermediate may be rounded to 16 bits, or not.
NARROW = {"xf16>": FLOORS["float16"], "<f16>": FLOORS["float16"], "bf16>": FLOORS["bfloat16"]}


@dataclass
class Checked:
    """What came of a program.

    Attributes:
        wrong: what differs, what was raised; empty where all is well
        rounding: whether rounding explains all that differs: integers that differ from XLA's in a
            float64 run, too, and floats by no more than 16 bits allow that the program has inside
        loops: loops in kernels, by form
        left: loops that are XLA's, by reason
        kernels: all kernels
        runs: times that it ran
    """

    wrong: str = ""
    rounding: bool = False
    loops: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    kernels: int = 0
    runs: int = 0
    #: the error that the narrowest floats of the program allow
    narrow: float = 0.0


def check(grown: Grown, options: fs.Options, seeds: Sequence[int]) -> Checked:
    """Runs a program once for each seed, which says in what order the emulator's threads run."""
    found = Checked()
    with grown.width(), swallowed() as defects:
        try:
            found.wrong = _compared(grown, options, seeds, found)
        except Exception as error:
            found.wrong = f"{type(error).__name__}: {error}"
    found.wrong = found.wrong or "; ".join(defects)
    return found


def _compared(grown: Grown, options: fs.Options, seeds: Sequence[int], found: Checked) -> str:
    lowered = jax.jit(grown.fun, keep_unused=True).lower(*grown.args)
    theirs = _arrays(lowered.compile()(*grown.args))
    compiled = fs.jit(grown.fun, options=options).lower(*grown.args).compile()
    found.kernels = len(compiled.kernels)
    for kernel in compiled.kernels:
        if kernel.template.startswith("loop "):
            found.loops[kernel.template.split()[1].rstrip(";")] += 1
    for plan in compiled.plan:
        found.left.update(one.reason for one in plan.rejected if one.rule == "loop")
    if defects := [reason for reason in found.left if "Defect in" in reason]:
        return defects[0]
    first: list[np.ndarray] = []
    for seed in seeds:
        if options.backend == "emulate":
            emulate.set_order("random", seed)
        ours = _arrays(compiled(*grown.args))
        found.runs += 1
        if not first:
            first = ours
            hlo = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
            found.narrow = max(
                (n for t, n in NARROW.items() if t in lowered.as_text()), default=0.0
            )
            if wrong := _differences(ours, theirs, hlo, grown, found):
                return wrong
        elif any(a.tobytes() != b.tobytes() for a, b in zip(ours, first, strict=True)):
            return f"in the order {seed} another result than in {seeds[0]}"
    return ""


def _differences(
    ours: list[np.ndarray], theirs: list[np.ndarray], hlo: bytes, grown: Grown, found: Checked
) -> str:
    """What of ours is wrong by the rule of the project, output by output."""
    if [(x.dtype, x.shape) for x in ours] != [(x.dtype, x.shape) for x in theirs]:
        return f"the types {[(x.dtype, x.shape) for x in ours]}"
    pairs = [(n, a, b) for n, (a, b) in enumerate(zip(ours, theirs, strict=True))]
    pairs = [(n, a, b) for n, a, b in pairs if a.tobytes() != b.tobytes()]
    if not pairs:
        return ""
    expected = reference(hlo, grown.args)
    printed, explained = [], []
    for n, own, xla in pairs:
        if limit(own.dtype, 0.0) == 0.0:
            at = np.argwhere(own != xla)[0].tolist()
            printed.append(f"output {n} at {at} is {own[*at]}, not {xla[*at]}")
            explained.append(expected is not None and not np.array_equal(expected[n], xla))
            continue
        right = xla if expected is None else expected[n]
        error, theirs_error = relative_error(own, right), relative_error(xla, right)
        if not error <= limit(own.dtype, theirs_error):
            printed.append(f"output {n} is off by {error:.1e}, XLA's by {theirs_error:.1e}")
            explained.append(error <= found.narrow)
    found.rounding = bool(printed) and all(explained)
    return ", ".join(printed)


def _arrays(outputs: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(outputs)]


@contextmanager
def swallowed() -> Iterator[list[str]]:
    """The defects that cost a kernel and no program: they are logged where they are caught."""
    found: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            error = record.exc_info[1] if record.exc_info else None
            refused = isinstance(error, CodegenError) and not isinstance(error, PassError)
            if error is not None and not refused:
                found.append(f"{record.getMessage()}: {type(error).__name__}: {error}")

    logger, handler = logging.getLogger("fusionstitch"), Kept()
    level, passes = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel("DEBUG")
    logger.propagate = False
    try:
        yield found
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = passes
