"""What compiling would take of measured schedules, on made-up times."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp

from benchmarks import neighbours
from benchmarks.neighbours import Point
from fusionstitch.codegen.drafts import Draft
from fusionstitch.codegen.search.compared import SHARE
from fusionstitch.codegen.settings import CodegenOptions
from fusionstitch.costmodel.devices import device
from tests.codegen.regions import whole_of

DEFAULT = Point(cost=20.0, first=21.0, second=22.0, compared=False)


def test_what_is_taken() -> None:
    """Another schedule that compiling compares, if it is faster by a share."""
    faster = replace(DEFAULT, cost=20.0 * SHARE - 0.1, compared=True)
    nearly = replace(DEFAULT, cost=20.0 * SHARE + 0.1, compared=True)
    unknown = replace(DEFAULT, cost=1.0)
    assert neighbours.taken([DEFAULT, nearly, faster, unknown]) is faster
    assert neighbours.taken([DEFAULT, nearly, unknown]) is DEFAULT
    assert neighbours.taken([DEFAULT]) is DEFAULT


def test_the_default_is_the_default(host_compiler: str) -> None:
    def two(x: jax.Array) -> jax.Array:
        scaled = x / jnp.max(x)
        return jnp.sin(scaled) / jnp.max(scaled, axis=0)

    graph = whole_of(two, jax.ShapeDtypeStruct((512, 640), jnp.float32), name="two")
    found = neighbours.default(graph, device("h200"))
    assert isinstance(found, Draft)
    assert found.default_us is None
    offered = [one.template for one in neighbours.offered(found)]
    assert offered
    assert found.scheduled.template not in offered
    again = Draft.of(found.scheduled, CodegenOptions(), device("h200"))
    assert again.kernel().source == found.kernel().source
