"""Attention in one kernel: XLA beside streams of 32 and of 64 columns, each alone on a GPU.

    python -m benchmarks.streamed [--commit COMMIT] [--json FILE]

What `suits_more` of `codegen/dots/streams.py` was decided by:
benchmarks/results/h200-2026-12-01-streamed.txt. Shapes are [batch, length, heads,
size of a head]; masks are causal where a name says so.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp

from benchmarks import results_file
from benchmarks.environment import describe
from fusionstitch.codegen.dots import streams, whole_tiles
from fusionstitch.codegen.generate import draft, generate
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.kernel_time import cost_us
from fusionstitch.measure import gpu
from fusionstitch.runtime import cuda
from tests.codegen.regions import whole_of

Array = jax.Array
DEVICE = device("h200")
#: Whether products have more columns at a time, by the column of the table.
FORMS: dict[str, Callable[[int, int], bool]] = {
    "32 columns": lambda depth, columns: False,
    "64 columns": lambda depth, columns: True,
    "as chosen": streams.suits_more,
}


def attention(q: Array, k: Array, v: Array, cap: float = 0.0) -> Array:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32)
    scores *= q.shape[-1] ** -0.5
    if cap:
        scores = jnp.tanh(scores / cap) * cap
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(v.dtype), v)


def capped(q: Array, k: Array, v: Array) -> Array:
    return attention(q, k, v, 20.0)


def causal(q: Array, k: Array, v: Array) -> Array:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32)
    place = jnp.arange(q.shape[1])
    scores = jnp.where(place[:, None] >= place, scores * q.shape[-1] ** -0.5, -1e30)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(v.dtype), v)


#: bf16 arguments q, k, v.
CASES: tuple[tuple[Callable[..., Array], tuple[int, ...]], ...] = (
    (causal, (4, 2048, 16, 128)),
    (attention, (4, 2048, 16, 128)),
    (causal, (1, 4096, 32, 128)),
    (causal, (8, 956, 6, 96)),
    (attention, (8, 956, 6, 96)),
    (causal, (4, 333, 8, 80)),
    (causal, (8, 1024, 16, 64)),
    (capped, (8, 1024, 16, 64)),
    (causal, (64, 197, 12, 64)),
    (attention, (64, 197, 12, 64)),
    (causal, (64, 77, 12, 64)),
    (causal, (8, 1024, 16, 32)),
    (attention, (8, 1000, 16, 32)),
    (causal, (16, 512, 8, 16)),
)


def rows() -> Iterator[dict[str, Any]]:
    """A row of the table for each case: microseconds, measured and modelled."""
    meter = gpu.meters(DEVICE)[0]
    for fun, dims in CASES:
        args = [jax.ShapeDtypeStruct(dims, jnp.bfloat16)] * 3
        lowered: Any = jax.jit(fun).lower(*args)
        xla = meter.xla_us(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
        region = whole_of(fun, *args)
        row: dict[str, Any] = {"case": f"{fun.__name__} {list(dims)}", "xla_us": round(xla, 1)}
        for form, suits in FORMS.items():
            with (
                patch.object(streams, "suits_more", suits),
                patch.object(whole_tiles, "suits_more", suits),
            ):
                kernel, cost = generate(region, DEVICE), draft(region, DEVICE).cost
            [built] = cuda.build_each([kernel], DEVICE)
            row[form] = round(meter.kernel_us(kernel, built.artifact, 5), 1)
            row[f"{form}, modelled"] = round(cost_us(cost, DEVICE), 1)
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description="Streams of 32 and of 64 columns at a time.")
    parser.add_argument("--commit", default="", help="the commit, where the checkout has no git")
    parser.add_argument("--json", help="where the results go")
    asked = parser.parse_args()
    found = []
    for row in rows():
        found.append(row)
        print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    if asked.json:
        results_file.write(asked.json, {"environment": describe(asked.commit), "rows": found})


if __name__ == "__main__":
    main()
