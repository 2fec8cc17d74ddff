"""Rows that several blocks share: long ones, few ones, by a tuner's choice. Enters `CASES`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fusionstitch.codegen.generate import CodegenOptions
from fusionstitch.codegen.schedule.tuning import Tuning
from tests.codegen.kernel_cases import BF16, F16, H200, SMALL, VECTORS, add, integers, normal

CLUSTER = "fs_reduce_cluster<"
#: Four rows leave half of it idle, a block for each.
HALF_IDLE = replace(H200, sm_count=8)


def tuned(blocks: int, block: int, **choices: Any) -> CodegenOptions:
    return CodegenOptions(tuning=Tuning(cluster=blocks, block=block, parts=0.0, **choices))


def layer_norm(x, g, b):
    rows = x.astype(np.float32)
    m = rows.mean(-1, keepdims=True)
    v = ((rows - m) ** 2).mean(-1, keepdims=True)
    return ((rows - m) * lax.rsqrt(v + 1e-5) * g + b).astype(x.dtype)


def cross_entropy(x, labels):
    """Losses and gradient; what a label picks every block reads."""
    rows = x.astype(np.float32)
    m = rows.max(-1)
    lse = m + jnp.log(jnp.exp(rows - m[:, None]).sum(-1))
    hot = jnp.arange(x.shape[1]) == labels[:, None]
    picked = jnp.take_along_axis(rows, labels[:, None], axis=-1)[:, 0]
    return lse - picked, (jnp.exp(rows - lse[:, None]) - hot).astype(x.dtype)


def scaled(x):
    """One sum and then the rows again: a cluster's scratch is free once all have read them."""
    return x / (1 + jnp.abs(x).max(-1, keepdims=True))


def without_largest(x):
    """A value and its index reduced together."""
    return jnp.where(jnp.arange(x.shape[1]) == jnp.argmax(x, -1, keepdims=True), 0.0, x)


add("cluster_rows", jax.nn.softmax, normal(3, 40_960), device=SMALL, shows=(CLUSTER, "_row["))
add("cluster_unkept", jax.nn.softmax, normal(2, 98_304, dtype=BF16), device=SMALL,
    shows=(CLUSTER, "for (int column = lane;"))  # fmt: skip
add("cluster_few_rows", jax.nn.softmax, normal(4, 32_768), device=HALF_IDLE, shows=CLUSTER)
add("cluster_few_sums", lambda x: (x * x).sum(-1), normal(4, 40_000), device=HALF_IDLE,
    shows=CLUSTER)  # fmt: skip
add("cluster_norm", layer_norm, normal(5, 4096, dtype=F16), normal(4096), normal(4096),
    options=tuned(4, 128), shows=(CLUSTER, VECTORS))  # fmt: skip
add("cluster_cross_entropy", cross_entropy, normal(6, 2048, dtype=BF16), integers(6, high=2048),
    options=tuned(2, 256), shows=CLUSTER)  # fmt: skip
add("cluster_one_sum", scaled, normal(9, 1031), options=tuned(8, 64), shows=CLUSTER)
add("cluster_loops", scaled, normal(9, 1024), device=SMALL,
    options=tuned(2, 128, blocks_per_sm=4), blocks=4, shows=(CLUSTER, " += 2)"))  # fmt: skip
add("cluster_loops_twice", jax.nn.softmax, normal(9, 1024), device=SMALL,
    options=tuned(2, 128, blocks_per_sm=4), blocks=4, shows=(CLUSTER, " += 2)"))  # fmt: skip
add("cluster_pairs", without_largest, normal(4, 2050), options=tuned(2, 512), shows=CLUSTER)
add("cluster_doubles", jax.nn.softmax, normal(4, 1500, dtype=np.float64), options=tuned(4, 64),
    shows=CLUSTER)  # fmt: skip
