"""What grown loops have found, reduced, in every form of kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fusionstitch.runtime import emulate
from tests.loops.forms import DEVICES, cases, run, wholes
from tests.loops.growth import Grown

pytestmark = pytest.mark.usefixtures("host_compiler")


def repeated(x: Any) -> Any:
    """What a condition sums up is written where it is read, while teams without a row of their own
    read it too."""
    start = jnp.broadcast_to(x, (3, 1, 4))
    body = lambda x: jnp.maximum(x % 7, x + 3)  # noqa: E731
    return lax.while_loop(lambda x: jnp.max(x) < 25, body, start)


def shortest(n: Any, x: Any) -> Any:
    """Rows that stop on their own along an axis too short to be dealt: a thread has all of them,
    and goes on while one does."""
    turns = lambda n, x: lax.fori_loop(0, n, lambda i, x: x + 1, x)  # noqa: E731
    return jax.vmap(turns)(n, x)


ROWS = np.asarray([0, 1, 3], np.int32), np.zeros((3, 4, 5, 6, 7), np.int32)


@pytest.mark.parametrize(
    ("fun", "args"),
    [(repeated, (np.asarray(2, np.uint8),)), (shortest, ROWS)],
    ids=["repeated", "shortest"],
)
def test_reduced_loops_give_what_numpy_gives(
    fun: Callable[..., Any], args: tuple[np.ndarray, ...]
) -> None:
    [whole] = wholes(Grown(fun, args))
    found = list(cases(whole, next(iter(DEVICES))))
    artifacts = emulate.build([case.kernel for case in found], checked=True)
    said = [run(case, artifact, 1) for case, artifact in zip(found, artifacts, strict=True)]
    assert said == [""] * len(found)
    assert len(found) > 1
