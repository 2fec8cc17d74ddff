"""Annotations go with the ops of a region, and attributes stay those of HLO."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from fusionstitch.codegen.annotations import Annotations, annotated, annotations_of, like
from fusionstitch.codegen.generate import draft, generate
from fusionstitch.codegen.rewrite.region import rebuilt, rewrite
from fusionstitch.codegen.settings import CodegenOptions
from fusionstitch.codegen.watch import Watch
from fusionstitch.codegen.while_loops.generate import Looped
from fusionstitch.codegen.while_loops.phased import Phased
from fusionstitch.codegen.while_loops.segments import straight_ones
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.graph import Graph, Op
from tests.codegen.regions import whole_of

H200 = device("h200")
NAMES = {field.name for field in fields(Annotations)}
ROWS = jax.ShapeDtypeStruct((4096, 768), jnp.float32)
SMALL = jax.ShapeDtypeStruct((64, 48), jnp.bfloat16)


def last(graph: Graph) -> Op:
    return graph.ops[-2]


def test_a_copy_has_the_annotations_of_its_op() -> None:
    op = last(whole_of(lambda x: jnp.sin(x), SMALL))
    assert annotations_of(op) == Annotations()
    one = annotated(op, rounded=True)
    assert annotations_of(op) == Annotations()  # nothing is changed in place
    assert annotations_of(one) == Annotations(rounded=True)
    both = annotated(one, alike=True)
    assert annotations_of(rebuilt(both, op.operands)) == Annotations(rounded=True, alike=True)
    assert annotations_of(like(op, both)) == annotations_of(both)
    with pytest.raises(FrozenInstanceError):
        annotations_of(one).alike = True  # type: ignore[misc]


def test_annotations_of_what_is_replaced_go_with_it() -> None:
    graph = whole_of(lambda x: jnp.sin(jnp.cos(x)), SMALL)
    graph = rewrite(
        graph, lambda op: None if op.opcode == "parameter" else [annotated(op, alike=True)]
    )
    assert [annotations_of(op).alike for op in graph.ops[1:-1]] == [True, True]

    def rule(op: Op) -> list[Op] | None:
        return [Op("tanh", op.shape, op.operands)] if op.opcode == "sine" else None

    after = rewrite(graph, rule)
    assert [annotations_of(op).alike for op in after.ops[1:-1]] == [True, False]


#: Programs some of whose values are annotated, with the name.
ANNOTATED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "rounded": (lambda x: jnp.sin(x) > 0.5, (SMALL,)),
    "alike": (lambda x: x * x + 1 == (x * x + 1).max(1, keepdims=True), (ROWS,)),
    "matches": (lambda x, i: x.at[i].add(1.0), (ROWS, jax.ShapeDtypeStruct((2,), jnp.int32))),
    "part_of": (lambda x, y: (x.sum(0), y.sum(0)), (ROWS, ROWS)),
}


class Regions(Watch):
    """The ops of all regions on the way of a kernel."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def region(self, graph: Graph, name: str, about: str) -> None:
        self.ops += graph.ops


@pytest.mark.parametrize("name", ANNOTATED)
def test_what_is_found_out_is_no_attribute(name: str) -> None:
    fun, args = ANNOTATED[name]
    seen = Regions()
    generate(whole_of(fun, *args), H200, CodegenOptions(compared=False), seen)
    assert any(getattr(annotations_of(op), name) for op in seen.ops)
    assert not [key for op in seen.ops for key in op.attrs if key in NAMES]


def test_the_number_of_an_iteration_is_no_attribute() -> None:
    def loop(x: Any) -> Any:
        return lax.while_loop(
            lambda c: c[0] < 9, lambda c: (c[0] + 1, c[1][::-1] * c[0]), (jnp.int32(0), x)
        )[1]

    found = draft(whole_of(loop, jax.ShapeDtypeStruct((64,), jnp.float32)), H200)
    assert isinstance(found, Looped)
    assert isinstance(found.form, Phased)
    parameters = [p for one in straight_ones(found.form.segments) for p in one.graph.parameters]
    assert [str(c) for p in parameters if (c := annotations_of(p).counts)] == ["turn"]
    assert not [key for op in parameters for key in op.attrs if key != "index"]
