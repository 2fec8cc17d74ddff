"""Rows in order, and the largest elements of rows: all results are equal bit by bit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from benchmarks.instances.instance import Instance


def programs() -> dict[str, Instance]:
    """By name."""
    import jax.numpy as jnp
    from jax import lax

    def order(*dims: int, axis: int = 1) -> Instance:
        return Instance(functools.partial(jnp.argsort, axis=axis), (dims,))

    def in_order(*dims: int, dtype: str = "float32") -> Instance:
        return Instance(functools.partial(jnp.sort, axis=1), (dims,), dtype)

    def best(k: int, *dims: int) -> Instance:
        fun: Callable[[Any], Any] = lambda x: lax.top_k(x, k)  # noqa: E731
        return Instance(fun, (dims,))

    return {
        "argsort of 12": order(262_144, 12),
        "argsort of 32": order(206_352, 32),
        "argsort of 100": order(65_536, 100),
        "argsort of 512": order(8192, 512),
        "argsort of 1,000": order(4096, 1000),
        "argsort of 4,096": order(512, 4096),
        "argsort of 20,000": order(200, 20_000),
        "argsort of 30,000 along axis 0": order(30_000, 256, axis=0),
        "sort of 64": in_order(65_536, 64),
        "sort of 512, bf16": in_order(8192, 512, dtype="bfloat16"),
        "sort of 4,096": in_order(512, 4096),
        "sort of 119,760": in_order(51, 119_760),
        "sort of 2 ** 20": in_order(4, 2**20),
        "median of 99": Instance(lambda x: jnp.median(x, 1), ((40_000, 99),)),
        "largest 2 of 8": best(2, 1_000_000, 8),
        "largest 5 of 1,000": best(5, 8192, 1000),
        "largest 8 of 4,096": best(8, 512, 4096),
        "largest 50 of 128,256": best(50, 64, 128_256),
        "largest 200 of 42,367": best(200, 184, 42_367),
    }
