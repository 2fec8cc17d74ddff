"""Loops that count in integers of every kind, to the ends of their types and around them: how often
they run, in every form of kernel. Not compared with jax.jit: XLA ends some of them too early.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fusionstitch.runtime import emulate
from tests.loops.forms import DEVICES, cases, run, wholes
from tests.loops.growth import Grown

pytestmark = pytest.mark.usefixtures("host_compiler")

Compare = Callable[[Any, Any], Any]

#: Type, start, step, comparison, bound.
COUNTERS: dict[str, tuple[str, int, int, Compare, int]] = {
    "no turn": ("int32", 0, 1, operator.lt, 0),
    "no turn, from above": ("int32", 1, 2, operator.le, 0),
    "one turn": ("int32", 0, 5, operator.lt, 3),
    "to the bound itself": ("int32", 0, 3, operator.le, 9),
    "past the bound": ("int32", 0, 3, operator.le, 10),
    "down": ("int32", 9, -2, operator.gt, 0),
    "down to the bound": ("int32", 9, -3, operator.ge, 0),
    "unsigned, down": ("uint32", 5, -1, operator.ge, 1),
    "unsigned, down by two": ("uint8", 6, -2, operator.gt, 0),
    "unsigned, below nothing": ("uint8", 3, -2, operator.le, 3),
    "unequal": ("int8", -4, 2, operator.ne, 6),
    "to the greatest": ("int8", 100, 9, operator.lt, 127),
    "past the greatest": ("int8", 100, 9, operator.gt, 0),
    "past the greatest, unequal": ("uint8", 250, 3, operator.ne, 4),
    "past the least": ("int8", -100, -9, operator.lt, 0),
    "past the end and back to the bound": ("uint8", 200, 100, operator.ge, 45),
    "16 bits, around": ("uint16", 65530, 4, operator.ge, 7),
    "64 bits, behind 32": ("int64", 2**31 - 3, 1, operator.lt, 2**31 + 2),
    "64 bits, unsigned": ("uint64", 2**63 - 2, 2, operator.le, 2**63 + 2),
    "32 bits, at the end": ("int32", 2**31 - 4, 1, operator.lt, 2**31 - 1),
    "32 bits, without a sign": ("uint32", 2**31 - 2, 1, operator.lt, 2**31 + 2),
}


def _grown(name: str) -> Grown:
    dtype, start, step, compare, bound = COUNTERS[name]
    kind = jnp.dtype(dtype).type
    by = kind(abs(step))

    def fun(x: Any) -> Any:
        def body(s: Any) -> Any:
            i, n, x = s
            return (i + by if step > 0 else i - by), n + 1, x * 0.5 + n.astype(jnp.float32)

        return lax.while_loop(lambda s: compare(s[0], kind(bound)), body, (kind(start), 0, x))

    x = np.linspace(-1, 1, 6, dtype=np.float32)
    return Grown(fun, (x,), name, wide=dtype.endswith("64"))


def _turns(name: str) -> tuple[int, int]:
    """Where the counter ends, and after how many iterations."""
    dtype, at, step, compare, bound = COUNTERS[name]
    limits, iterations = np.iinfo(dtype), 0
    while compare(at, bound):
        at = (at + step - limits.min) % (limits.max - limits.min + 1) + limits.min
        iterations += 1
    return at, iterations


def test_counters_of_all_kinds_turn_as_often_as_they_should() -> None:
    found = []
    for name in COUNTERS:
        [whole] = wholes(_grown(name))
        ends = sorted(int(x) for x in whole.given if x.dtype.kind in "iu")
        assert ends == sorted(_turns(name)), name
        found += list(cases(whole, next(iter(DEVICES))))
    artifacts = emulate.build([case.kernel for case in found], checked=True)
    wrong = [
        f"{case.whole.name}, {case.kernel.template}: {printed}"
        for case, artifact in zip(found, artifacts, strict=True)
        if (printed := run(case, artifact, 1))
    ]
    assert not wrong, "\n".join(wrong)
    assert {case.form for case in found} >= {"rows", "block", "grid"}
