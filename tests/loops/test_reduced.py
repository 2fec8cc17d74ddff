"""What grown loops have found, reduced, in every form of kernel."""

from __future__ import annotations

from typing import Any

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


def tabled(x: Any) -> Any:
    """The last turn of a walk along 33 columns has no element of a table for most of its lanes."""
    table = np.arange(33, dtype=np.int32) % 7

    def body(_: Any, x: Any) -> Any:
        taken = jnp.broadcast_to(x.max(2)[:, table][:, None], x.shape)
        return x * 0.5 + jnp.prod(jnp.tanh(jnp.maximum(taken, x)), 1)[:, None] * 0.5

    return lax.fori_loop(0, 3, body, x)


def moved(x: Any) -> Any:
    """A part of an array is written elsewhere in it: where the data says, and from there."""

    def body(_: Any, s: Any) -> Any:
        x, at = s
        part = lax.dynamic_slice(x, (at, at - 3), (2, 3))
        return lax.dynamic_update_slice(x, part * 0.5, (at - 5, 6 - at)), (at * 3 + 1) % 8

    return lax.fori_loop(0, 5, body, (x, 3))


#: Each with what it is given.
REDUCED = {
    moved: np.linspace(-1, 1, 5 * 7, dtype=np.float32).reshape(5, 7),
    repeated: np.asarray(2, np.uint8),
    tabled: np.linspace(-1, 1, 2 * 7 * 33, dtype=np.float32).reshape(2, 7, 33),
}


@pytest.mark.parametrize("program", REDUCED, ids=lambda program: program.__name__)
def test_reduced_loops_give_what_numpy_gives(program: Any) -> None:
    [whole] = wholes(Grown(program, (REDUCED[program],)))
    found = [case for name in DEVICES for case in cases(whole, name)]
    artifacts = emulate.build([case.kernel for case in found], checked=True)
    said = [run(case, artifact, 1) for case, artifact in zip(found, artifacts, strict=True)]
    assert said == [""] * len(found)
    assert len({case.form for case in found}) > 1
