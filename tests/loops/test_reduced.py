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


def test_reduced_loops_give_what_numpy_gives() -> None:
    [whole] = wholes(Grown(repeated, (np.asarray(2, np.uint8),)))
    found = list(cases(whole, next(iter(DEVICES))))
    artifacts = emulate.build([case.kernel for case in found], checked=True)
    said = [run(case, artifact, 1) for case, artifact in zip(found, artifacts, strict=True)]
    assert said == [""] * len(found)
    assert len(found) > 1
