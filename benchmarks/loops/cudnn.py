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
from pathlib import Path
from typing import Any

from benchmarks.environment import describe

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


def programs(
    hidden: int, steps: int
) -> dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]]:
    """By implementation a forward pass and a training step, and what both are called with."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import rnn

    from benchmarks.loops.recurrent import _lstm, lstm_train

    train, given = lstm_train(BATCH, hidden, steps)
    params, xs, labels = jax.tree.map(jnp.asarray, given)
    lengths = jnp.full((BATCH,), steps, jnp.int32)
    zero = jnp.zeros((1, BATCH, hidden))

    def forward(params: Any, xs: Any, labels: Any) -> Any:
        return _lstm(params, xs)

    def last(params: Any, xs: Any) -> Any:
        given = xs, zero, zero, params["flat"], lengths
        return rnn.lstm(*given, hidden, hidden, 1, 0.0, False)[1][0]

    def cudnn_forward(params: Any, xs: Any, labels: Any) -> Any:
        return last(params, xs)

    def loss(params: Any, xs: Any, labels: Any) -> Any:
        log_p = jax.nn.log_softmax(last(params, xs) @ params["out"])
        return -jnp.mean(jnp.take_along_axis(log_p, labels[:, None], axis=1))

    def cudnn_train(params: Any, xs: Any, labels: Any) -> Any:
        value, slope = jax.value_and_grad(loss)(params, xs, labels)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, slope), value

    ours = forward, train, (params, xs, labels)
    theirs = cudnn_forward, cudnn_train, (packed(params), jnp.swapaxes(xs, 0, 1), labels)
    return {"xla": ours, "fusionstitch": ours, "cudnn": theirs}


def compared(hidden: int, steps: int, repeats: int) -> dict[str, Any]:
    """Microseconds by implementation, of a forward pass and of a training step."""
    import jax
    import numpy as np

    import fusionstitch as fs
    from benchmarks.loops.spans import spans_us
    from benchmarks.profiling import profile

    found: dict[str, Any] = {"hidden": hidden, "steps": steps, "batch": BATCH}
    losses: dict[str, float] = {}
    for name, (forward, train, args) in programs(hidden, steps).items():
        jit: Any = fs.jit if name == "fusionstitch" else jax.jit
        for kind, fun in (("forward", forward), ("train", train)):
            run = jit(fun, keep_unused=True).lower(*args).compile()
            if stitched := getattr(run, "stitched", None):
                module = bytes(stitched.module)
            else:
                lowered: Any = jax.jit(fun, keep_unused=True).lower(*args)
                module = bytes(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
            spans = spans_us(module, jax.tree.leaves(args), repeats)

            def calls(count: int, run: Any = run, args: Any = args) -> None:
                for _ in range(count):
                    result = run(*args)
                jax.block_until_ready(result)

            calls(3)
            traced = profile(calls, 3)
            found[f"{kind}_{name}"] = {
                "us": round(statistics.median(spans), 2),
                "kernels_us": traced and round(traced["gpu_us"], 2),
                "kernels": traced and traced["kernels"],
            }
            if kind == "train":
                losses[name] = float(np.asarray(run(*args)[1]))
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
