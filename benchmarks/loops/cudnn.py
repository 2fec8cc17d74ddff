"""The LSTM of `recurrent.py` beside cuDNN's, which JAX calls: python -m benchmarks.loops.cudnn

    python -m benchmarks.loops.cudnn [--json FILE] [--repeats N]

A training step and a forward pass at several sizes: under XLA (a scan), under fusionstitch, and
with `jax.experimental.rnn.lstm`, whose kernels are those of cuDNN that PyTorch's LSTM calls, too.
Weights lie as each side wants them, batch first for cuDNN: nothing is packed or turned meanwhile.

Microseconds of a call by the GPU's clock (`spans.py`); the sum of cuDNN's kernels beside it is what
a CUDA graph without any gap would take. `off` is how far the losses lie apart.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.environment import describe
from benchmarks.loops.table import Loop, Program

#: Hidden width and steps, for 128 sequences.
SIZES = ((64, 20), (64, 200), (128, 100), (256, 50), (512, 20))
BATCH = 128


def packed(params: Any) -> Any:
    """The weights of `recurrent._lstm` as cuDNN has them: transposed, two biases, those of the
    forget gate one larger."""
    import jax.numpy as jnp

    hidden = params["u"].shape[0]
    bias = params["b"].at[hidden : 2 * hidden].add(1.0)
    parts = (params["w"].T, params["u"].T, bias, jnp.zeros_like(bias))
    return {"flat": jnp.concatenate([part.ravel() for part in parts]), "out": params["out"]}


def programs(hidden: int, steps: int) -> dict[str, dict[str, Program]]:
    """By implementation a forward pass and a training step, each of (params, xs, labels)."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import rnn

    from benchmarks.loops.recurrent import _lstm, classifying, lstm_train

    params, xs, labels = jax.tree.map(jnp.asarray, lstm_train(BATCH, hidden, steps)[1])
    lengths = jnp.full((BATCH,), steps, jnp.int32)
    zero = jnp.zeros((1, BATCH, hidden))

    def cudnn(params: Any, xs: Any) -> Any:
        given = xs, zero, zero, params["flat"], lengths
        return rnn.lstm(*given, hidden, hidden, 1, 0.0, False)[1][0]

    def both(last: Callable[[Any, Any], Any], *args: Any) -> dict[str, Program]:
        def forward(params: Any, xs: Any, labels: Any) -> Any:
            return last(params, xs)

        return {"forward": (forward, args), "train": (classifying(last), args)}

    scan = both(_lstm, params, xs, labels)
    theirs = both(cudnn, packed(params), jnp.swapaxes(xs, 0, 1), labels)
    return {"xla": scan, "fusionstitch": scan, "cudnn": theirs}


def compared(hidden: int, steps: int, repeats: int) -> dict[str, Any]:
    """Microseconds by implementation, of a forward pass and of a training step."""
    import jax
    import numpy as np

    import fusionstitch as fs
    from benchmarks.loops.spans import spans_us
    from benchmarks.loops.worker import Side
    from benchmarks.profiling import profile

    found: dict[str, Any] = {"hidden": hidden, "steps": steps, "batch": BATCH}
    losses: dict[str, float] = {}
    for name, kinds in programs(hidden, steps).items():
        for kind, program in kinds.items():
            loop = Loop(kind, "recurrent", "rows", partial(tuple, program), {}, {})
            side = Side(loop, fs.jit if name == "fusionstitch" else jax.jit, {})
            spans = spans_us(side.module(), jax.tree.leaves(side.args), repeats)
            side.calls(3)
            traced = profile(side.calls, 3)
            found[f"{kind}_{name}"] = {
                "us": round(statistics.median(spans), 2),
                "kernels_us": traced and round(traced["gpu_us"], 2),
                "kernels": traced and traced["kernels"],
            }
        losses[name] = float(np.asarray(side.run(*side.args)[1]))
    found["off"] = {n: abs(loss / losses["xla"] - 1.0) for n, loss in losses.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeats", type=int, default=15)
    asked = parser.parse_args()
    rows = []
    for hidden, steps in SIZES:
        row = compared(hidden, steps, asked.repeats)
        rows.append(row)
        for kind in ("forward", "train"):
            times = {n: row[f"{kind}_{n}"] for n in ("xla", "fusionstitch", "cudnn")}
            said = "  ".join(f"{n} {t['us']} ({t['kernels_us']})" for n, t in times.items())
            print(f"{kind} hidden {hidden} steps {steps}: {said}  off {row['off']}", flush=True)
        if asked.json:
            command = f"python -m benchmarks.loops.cudnn {' '.join(sys.argv[1:])}".strip()
            said = {"command": command, **describe(), "programs": rows}
            asked.json.write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
