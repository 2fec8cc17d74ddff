"""Ops that move elements to places known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from jax import lax

from tests.coverage.table import EVERY, FLOAT8, add, draw, finished

FAMILY = "movement"
_ZERO = lambda x: jnp.zeros((), x.dtype)  # noqa: E731

#: op -> form -> (shape, function): every form of every op in float32, and each type in some form.
MOVES: Mapping[str, Mapping[str, tuple[tuple[int, ...], Callable[[Any], Any]]]] = {
    "broadcast_in_dim": {
        "scalar": ((), lambda x: jnp.broadcast_to(x, (3, 7))),
        "rows": ((13,), lambda x: lax.broadcast_in_dim(x, (5, 13), (1,))),
        "columns": ((5,), lambda x: lax.broadcast_in_dim(x, (5, 13), (0,))),
        "ones": ((1, 7), lambda x: jnp.broadcast_to(x, (6, 7))),
        "middle": ((3, 5), lambda x: lax.broadcast_in_dim(x, (3, 4, 5), (0, 2))),
        "rank 8": ((2, 3), lambda x: lax.broadcast_in_dim(x, (2, 1, 2, 1, 3, 2, 1, 2), (0, 4))),
    },
    "reshape": {
        "flat": ((3, 5, 7), lambda x: x.reshape(-1)),
        "split": ((105,), lambda x: x.reshape(5, 3, 7)),
        "regroup": ((4, 15), lambda x: x.reshape(10, 6)),
        "ones": ((6, 5), lambda x: x.reshape(1, 6, 1, 5)),
        "scalar": ((1, 1), lambda x: x.reshape(())),
        "rank 8": ((16, 12), lambda x: x.reshape(2, 2, 4, 1, 2, 3, 1, 2)),
    },
    "transpose": {
        "matrix": ((17, 5), lambda x: x.T),
        "square": ((33, 33), lambda x: x + x.T),
        "batched": ((3, 5, 7), lambda x: x.transpose(0, 2, 1)),
        "cycle": ((2, 3, 4, 5), lambda x: x.transpose(3, 0, 1, 2)),
        "rank 8": ((2, 1, 3, 2, 1, 2, 2, 3), lambda x: x.transpose(7, 2, 5, 0, 3, 1, 6, 4)),
    },
    "slice": {
        "inside": ((9, 14), lambda x: x[2:7, 3:]),
        "stride": ((101,), lambda x: x[3:97:4]),
        "strides": ((8, 9, 10), lambda x: x[::2, 1::3, ::-1]),
        "one": ((5, 6), lambda x: x[2, 3]),
    },
    "pad": {
        "edges": ((5, 9), lambda x: lax.pad(x, _ZERO(x), ((1, 2, 0), (0, 3, 0)))),
        "interior": ((11,), lambda x: lax.pad(x, _ZERO(x), ((2, 1, 2),))),
        "negative": ((13, 7), lambda x: lax.pad(x, _ZERO(x), ((-2, -3, 0), (-1, 0, 0)))),
        "all": ((6, 5), lambda x: lax.pad(x, _ZERO(x), ((-1, 2, 1), (3, -2, 2)))),
        "value": ((7, 3), lambda x: lax.pad(x, x[0, 0], ((0, 4, 1), (1, 0, 0)))),
    },
    "concatenate": {
        "rows": ((4, 7), lambda x: jnp.concatenate([x, x[:2], x])),
        "columns": ((4, 7), lambda x: jnp.concatenate([x, x[:, ::-1]], 1)),
        "many": ((5,), lambda x: jnp.concatenate([x] * 9)),
        "stack": ((3, 4), lambda x: jnp.stack([x, x[::-1]], 1)),
    },
    "reverse": {
        "one": ((23,), lambda x: lax.rev(x, (0,))),
        "some": ((3, 5, 7), lambda x: lax.rev(x, (0, 2))),
        "all": ((4, 4), lambda x: lax.rev(x, (0, 1))),
    },
    "roll": {"one": ((19, 3), lambda x: jnp.roll(x, 5, 0))},
    "tile": {"both": ((3, 5), lambda x: jnp.tile(x, (2, 3)))},
    "repeat": {"rows": ((4, 3), lambda x: jnp.repeat(x, 3, 0))},
    "tri": {"lower": ((9, 11), jnp.tril)},
    "diagonal": {"matrix": ((9, 9), jnp.diagonal)},
    "expand and squeeze": {"rank": ((3, 1, 5), lambda x: x.squeeze(1)[..., None])},
}
for op, forms in MOVES.items():
    for number, (form, (dims, fun)) in enumerate(forms.items()):
        for place, dtype in enumerate((*EVERY, *FLOAT8)):
            if dtype == "float32" or place % len(forms) == number:
                if dtype == "bool" and form == "square":
                    continue
                add(FAMILY, op, dtype, finished(fun), draw(dims, dtype), note=form)
for op, dims, fun in (
    ("slice", (0, 3), lambda x: x[:, 1:]),
    ("concatenate", (0, 3), lambda x: jnp.concatenate([x, jnp.ones((2, 3), x.dtype)])),
    ("pad", (0,), lambda x: lax.pad(x, _ZERO(x), ((1, 2, 0),))),
):
    add(FAMILY, op, "float32", finished(fun), draw(dims, "float32"), note="empty")
