"""Elements of large values that another loop sums up: picked by the loop that has the values."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fusionstitch.codegen.generate import plan_kernel
from fusionstitch.codegen.loops.once import materialized
from fusionstitch.codegen.loops.picked import picked
from fusionstitch.codegen.search.stored import restored, stored
from fusionstitch.codegen.settings import CodegenOptions, Settings
from fusionstitch.hlo.graph import Graph
from tests.codegen.regions import H200, Case, build, whole_of


def loss(logits: Any, label: Any) -> Any:
    """That of classes at four times as many rows and columns as there are logits, and its
    gradient there."""
    large = jax.image.resize(logits, (*label.shape, logits.shape[3]), "linear")
    weight = jnp.where(label > 2, 1.0, 2.0)
    every = weight.sum()

    def mean(large: Any) -> Any:
        mine = jnp.take_along_axis(jax.nn.log_softmax(large), label[..., None], 3)[..., 0]
        return (mine * weight).sum() / every

    return jax.value_and_grad(mean)(large)


def given(images: int, rows: int, columns: int, classes: int) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    logits = random.standard_normal((images, rows, columns, classes)).astype(np.float32)
    return logits, random.integers(0, classes, (images, 4 * rows, 4 * columns)).astype(np.int32)


def region(*args: Any) -> Graph:
    return whole_of(loss, *args)


def test_a_sum_reads_what_was_picked() -> None:
    """The product of what is picked and its weight; without a larger value in memory, nothing."""
    graph = region(*given(2, 12, 12, 9))
    stored = materialized(graph)
    [value] = picked(graph, stored)
    assert graph.ops[value].opcode == "multiply"
    assert not picked(graph, stored | {value})
    assert not picked(graph, {i for i in stored if graph.ops[i].shape.size < 2 * 48 * 48 * 9})


def test_elements_of_inputs_are_not_picked_before() -> None:
    def taken(x: Any, label: Any) -> Any:
        return (jnp.take_along_axis(x, label[:, :12, :12, None], 3) * 2).sum()

    graph = whole_of(taken, *given(2, 12, 12, 9))
    assert not picked(graph, materialized(graph))


def test_what_they_are_picked_from_stays_with_its_loop(host_compiler: str) -> None:
    args = given(2, 12, 12, 9)
    graph = region(*args)
    own = plan_kernel(graph, H200)
    large = next(op for op in own.graph if op.opcode == "add" and op.dims == (2, 48, 48, 9))
    ids = stored(own) | {large.id}
    [value] = picked(own.graph, ids)
    one = restored(own, ids | {value}, Settings.of(H200, CodegenOptions()))
    group = next(g.group for g in one.plan.groups if large in [s.op for s in g.group.stages])
    assert own.graph.ops[value] in [stage.op for stage in group.stages]
    case = Case(graph, args, options=CodegenOptions(template=one.template))
    build([case]).check(case, "random", 7)
