"""The LSTM and the GRU of `recurrent.py` beside cuDNN's: python -m benchmarks.loops.cudnn

    python -m benchmarks.loops.cudnn [--json FILE] [--repeats N] [--cells lstm gru] [--math fma]

A training step and a forward pass at several sizes: under XLA (a scan), under fusionstitch, and
with cuDNN, whose kernels PyTorch calls, too. Its LSTM is that of `jax.experimental.rnn`, with
weights as each side wants them, batch first for cuDNN: nothing is packed or turned meanwhile. JAX
has no GRU of cuDNN: `cudnn_gru.py` calls it. Its `train` has no dense layer, loss and update, and
is a lower bound of a step.

Microseconds of a call by the GPU's clock (`spans.py`); the sum of cuDNN's kernels beside it is what
a CUDA graph without any gap would take. cuDNN's GRU is timed in graphs of several calls, by the
algorithm that is fastest there. `off` is how far the losses lie apart; for cuDNN's GRU it is the
worst relative L2 error of its states and gradients against the scan's in full float32, and
`off_scan` those of XLA's scan by default.
`--math` is of the GRU: by default cuDNN, as PyTorch and XLA, may round what it multiplies to TF32.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import results_file
from benchmarks.environment import describe
from benchmarks.loops.cudnn_gru import ALGORITHMS, MATHS, Cudnn, Gru
from benchmarks.loops.table import Loop, Program
from benchmarks.unseen.inputs import Draw
from fusionstitch.accuracy import relative_error
from fusionstitch.errors import MeasureError

#: Hidden width and steps, for 128 sequences.
SIZES = ((64, 20), (64, 200), (128, 100), (256, 50), (512, 20))
BATCH = 128
#: Relative L2 error above which an algorithm of cuDNN does not count.
WRONG = 0.02


def packed(params: Any) -> Any:
    """The weights of `recurrent._lstm` as cuDNN has them: transposed, two biases, those of the
    forget gate one larger."""
    import jax.numpy as jnp

    hidden = params["u"].shape[0]
    bias = params["b"].at[hidden : 2 * hidden].add(1.0)
    parts = (params["w"].T, params["u"].T, bias, jnp.zeros_like(bias))
    return {"flat": jnp.concatenate([part.ravel() for part in parts]), "out": params["out"]}


def both(last: Callable[[Any, Any], Any], *args: Any) -> dict[str, Program]:
    """A forward pass and a training step, of (params, xs, labels)."""
    from benchmarks.loops.recurrent import classifying

    def forward(params: Any, xs: Any, labels: Any) -> Any:
        return last(params, xs)

    return {"forward": (forward, args), "train": (classifying(last), args)}


def lstm_programs(hidden: int, steps: int) -> dict[str, dict[str, Program]]:
    """By implementation."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import rnn

    from benchmarks.loops.recurrent import _lstm, lstm_train

    params, xs, labels = jax.tree.map(jnp.asarray, lstm_train(BATCH, hidden, steps)[1])
    lengths = jnp.full((BATCH,), steps, jnp.int32)
    zero = jnp.zeros((1, BATCH, hidden))

    def cudnn(params: Any, xs: Any) -> Any:
        given = xs, zero, zero, params["flat"], lengths
        return rnn.lstm(*given, hidden, hidden, 1, 0.0, False)[1][0]

    scan = both(_lstm, params, xs, labels)
    theirs = both(cudnn, packed(params), jnp.swapaxes(xs, 0, 1), labels)
    return {"xla": scan, "fusionstitch": scan, "cudnn": theirs}


def gru_programs(hidden: int, steps: int) -> dict[str, dict[str, Program]]:
    """By implementation, without cuDNN."""
    from benchmarks.loops.recurrent import _last_gru, _weights

    draw = Draw(57)
    params = {**_weights(draw, hidden, hidden, 3), "out": draw.weight(hidden, 10)}
    xs, labels = draw.normal(steps, BATCH, hidden), draw.integers(BATCH, high=10)
    scan = both(_last_gru, params, xs, labels)
    return {"xla": scan, "fusionstitch": scan}


def compared(cell: str, hidden: int, steps: int, repeats: int, math: str) -> dict[str, Any]:
    """Microseconds by implementation, of a forward pass and of a training step."""
    import jax

    import fusionstitch as fs
    from benchmarks.loops.spans import spans_us
    from benchmarks.loops.worker import Side
    from benchmarks.profiling import profile

    row: dict[str, Any] = {"cell": cell, "hidden": hidden, "steps": steps, "batch": BATCH}
    losses: dict[str, float] = {}
    programs = {"lstm": lstm_programs, "gru": gru_programs}[cell](hidden, steps)
    for name, kinds in programs.items():
        for kind, program in kinds.items():
            loop = Loop(kind, "recurrent", "rows", partial(tuple, program), {}, {})
            side = Side(loop, fs.jit if name == "fusionstitch" else jax.jit, {})
            spans = spans_us(side.module(), jax.tree.leaves(side.args), repeats)
            side.calls(3)
            traced = profile(side.calls, 3)
            row[f"{kind}_{name}"] = {
                "us": round(statistics.median(spans), 2),
                "kernels_us": traced and round(traced["gpu_us"], 2),
                "kernels": traced and traced["kernels"],
            }
        losses[name] = float(np.asarray(side.run(*side.args)[1]))
    row["off"] = {n: abs(loss / losses["xla"] - 1.0) for n, loss in losses.items()}
    if cell == "gru":
        params, xs, _ = programs["xla"]["train"][1]
        dy = Draw(58).normal(*xs.shape[:2], hidden)
        wanted = scanned(params, xs, dy, "highest")
        row["off_scan"] = off(scanned(params, xs, dy), wanted)
        for kind in ("forward", "train"):
            row[f"{kind}_cudnn"] = found = by_cudnn(kind, (params, xs, dy), wanted, repeats, math)
        row["off"]["cudnn"] = max(found["off"].values()) if "off" in found else None
    return row


def scanned(params: Any, xs: Any, dy: Any, precision: str | None = None) -> dict[str, np.ndarray]:
    """What `Gru.results` gives of training, by XLA; `precision` is that of its products."""
    import jax

    from benchmarks.loops.recurrent import _gru

    def run(weights: Any, xs: Any, dy: Any) -> Any:
        states, back = jax.vjp(_gru, weights, xs)
        return states, *back(dy)

    with jax.default_matmul_precision(precision):
        states, slopes, dx = jax.jit(run)({name: params[name] for name in "wub"}, xs, dy)
    return {n: np.asarray(value) for n, value in {"states": states, **slopes, "xs": dx}.items()}


def off(found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The relative L2 error of each array found."""
    return {name: relative_error(value, wanted[name]) for name, value in found.items()}


def by_cudnn(kind: str, given: Any, wanted: Any, repeats: int, math: str) -> dict[str, Any]:
    """`forward` or `train` of cuDNN's GRU on (params, xs, dy): microseconds by the algorithm that
    is fastest, and what became of each. Without a `us` there is an `error`."""
    try:
        cudnn = Cudnn()
    except MeasureError as error:
        return {"error": str(error)}
    every = {name: _by(cudnn, kind, name, math, given, wanted, repeats) for name in ALGORITHMS}
    best = min(every, key=lambda name: every[name].get("us", float("inf")))
    about = {"algorithm": best, "math": math, "cudnn": cudnn.version, "algorithms": every}
    return {**every[best], **about}


def _by(
    cudnn: Cudnn, kind: str, name: str, math: str, given: Any, wanted: Any, repeats: int
) -> dict[str, Any]:
    import cupy

    from fusionstitch.measure import replay

    try:
        with ExitStack() as stack:
            gru = Gru(cudnn, stack, ALGORITHMS[name], MATHS[math], given)
            launch = getattr(gru, kind)
            launch()
            found = {"off": off(gru.results(kind), wanted)}
            if not all(error <= WRONG for error in found["off"].values()):  # nor is NaN
                return {"error": "Its results are not the scan's.", **found}
            return {"us": round(replay.graph_us(lambda _: launch(), 1, repeats), 2), **found}
    except (MeasureError, cupy.cuda.runtime.CUDARuntimeError) as error:
        return {"error": str(error)}


def said(time: Mapping[str, Any]) -> str:
    """One implementation's time in a line."""
    if "us" not in time:
        return time["error"]
    about = f"{time['algorithm']}, {time['math']} math" if "algorithm" in time else ""
    return f"{time['us']} ({about or time['kernels_us']})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--cells", nargs="+", choices=("lstm", "gru"), default=("lstm", "gru"))
    parser.add_argument("--math", choices=MATHS, default="default")
    asked = parser.parse_args()
    rows = []
    for cell, (hidden, steps) in itertools.product(asked.cells, SIZES):
        row = compared(cell, hidden, steps, asked.repeats, asked.math)
        rows.append(row)
        for kind in ("forward", "train"):
            sides = ("xla", "fusionstitch", "cudnn")
            line = "  ".join(f"{name} {said(row[f'{kind}_{name}'])}" for name in sides)
            print(
                f"{cell} {kind} hidden {hidden} steps {steps}: {line}  off {row['off']}", flush=True
            )
        if asked.json:
            command = f"python -m benchmarks.loops.cudnn {' '.join(sys.argv[1:])}".strip()
            about = {"command": command, **describe(), "programs": rows}
            results_file.write(asked.json, about)


if __name__ == "__main__":
    main()
