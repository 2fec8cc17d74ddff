"""The paper's Figure 1 in one kernel: 9 elementwise ops, 2 reductions and 2 batched GEMMs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import figure1
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.codegen.generate import CodegenOptions, draft, generate
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph
from tests.codegen.regions import ORDERS, Case, build, whole_of

ROWS, DEPTH = figure1.ROWS, 2
SCORES = ROWS * ROWS * 4  # bytes of one batch entry's [94, 94]
#: The paper's schedule: a loop for each op, scores and exponentials in shared memory.
PAPER = """
cta_size=256;
dot_general.2[GRID,CTA,CTA,THREAD]S;
reduce_max.7[GRID,WARP,CTA];
exp.1[GRID,WARP,CTA]S;
reduce_sum.7[GRID,WARP,CTA]S;
log.1[GRID,WARP];
dot_general.3[GRID,CTA,CTA,THREAD];
div.7[GRID,CTA,CTA];
mul.5[GRID,CTA,CTA];
sub.9[GRID,CTA,CTA];
"""


def whole_accesses(size: int) -> int:
    """Bytes of shared memory that a kernel requests, where its values take `size`."""
    return -(-size // 16) * 16


def pattern(batch: int) -> Graph:
    q = jax.ShapeDtypeStruct((batch, ROWS, DEPTH), jnp.float32)
    bias = jax.ShapeDtypeStruct((ROWS, ROWS), jnp.float32)
    return whole_of(figure1.pattern, q, q, q, bias, q, name="figure1")


@cache
def at_the_papers_size(sharing: bool = True) -> Kernel:
    options = CodegenOptions(sharing=sharing, template=PAPER)
    return generate(pattern(16_384), device("h200"), options)


def test_scores_stay_in_registers_from_dot_to_dot() -> None:
    kernel = generate(pattern(16_384), device("h200"))
    assert kernel.grid == 16_384
    assert kernel.shared_bytes == 0
    assert "__syncthreads();" not in kernel.source
    assert kernel.source.count("expf(") == 1
    assert dict(kernel.facts)["scope"] == "warp"
    assert dict(kernel.facts)["groups"] == 1


def test_one_block_per_batch_entry_and_no_grid_barrier() -> None:
    kernel = at_the_papers_size()
    assert kernel.grid == 16_384
    assert not kernel.cooperative
    assert kernel.scratch == ()
    assert dict(kernel.facts)["scope"] == "block"
    assert dict(kernel.facts)["groups"] == 1


def test_shared_memory_is_that_of_the_paper() -> None:
    """A second [94, 94] reuses the first: Table 4's 36 KB where 72 KB were requested."""
    shared, unshared = at_the_papers_size(), at_the_papers_size(sharing=False)
    assert shared.shared_bytes == whole_accesses(SCORES + ROWS * 4)
    assert unshared.shared_bytes == whole_accesses(2 * SCORES + ROWS * 4)
    facts = dict(shared.facts)
    assert facts["unshared_bytes"] == unshared.shared_bytes
    assert (facts["shared_requests"], facts["shared_allocations"]) == (3, 2)


def test_off_chip_traffic_is_that_of_inputs_and_outputs() -> None:
    graph = pattern(16_384)
    border = (*graph.parameters, *graph.root.operands)
    found = draft(graph, device("h200")).cost
    assert found.outside == sum(op.shape.bytes for op in border)
    assert graph.root.shape.bytes < 50e6  # where the scores alone would be 552 MiB


def test_each_op_keeps_its_own_loop_with_barriers_between() -> None:
    kernel = at_the_papers_size()
    assert kernel.source.count("__syncthreads();") == 2
    assert kernel.source.count("expf(") == 1
    assert kernel.source.count("[GRID") == 9


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("THREAD]S;\nreduce_max", "THREAD];\nreduce_max", "dot_general.2 is read by another loop"),
        ("exp.1[GRID,WARP,CTA]S", "exp.1[GRID,WARP,CTA]", "exp.1 is read by another loop"),
        ("reduce_sum.7[GRID,WARP,CTA]S", "reduce_sum.7[GRID,WARP,CTA]", "reduce_sum.7 is read by"),
        ("exp.1[GRID,WARP,CTA]S;\nreduce_sum.7", "reduce_sum.7", "exp.1 stands after"),
        ("cta_size=256;", "cta_size=256;\ncta_num=20000;", "cta_num=20000: there are tiles"),
        ("exp.1[GRID,WARP,CTA]", "exp.1[GRID,CTA,WARP]", "cannot be followed"),
        ("div.7[GRID,CTA,CTA]", "div.7[GRID,CTA,THREAD]", "cannot be followed"),
        ("div.7[GRID,CTA,CTA]", "div.7[GRID,CTA,GRID]", "div.7: a dim of extent 2 cannot be GRID"),
        ("div.7[GRID,CTA,CTA]", "div.7[CTA,CTA,CTA]", "their GRID dims must agree"),
    ],
)
def test_what_the_papers_schedule_says_is_done_or_refused(
    before: str, after: str, message: str
) -> None:
    assert before in PAPER
    template = PAPER.replace(before, after, 1)
    if before.startswith("exp.1[GRID,WARP,CTA]S;"):
        template = template.replace("log.1[", "exp.1[GRID,WARP,CTA]S;\nlog.1[")
    with pytest.raises(CodegenError, match=message):
        generate(pattern(16_384), device("h200"), CodegenOptions(template=template))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("cta_size=256;", "cta_size=128;"),
        ("cta_size=256;", "cta_size=256;\ncta_num=16000;"),
        ("cta_size=256;", "cta_size=256;\ncta_per_sm=4;"),
        ("log.1[GRID,WARP];", "log.1[GRID,WARP]S;"),
        (
            "dot_general.2[GRID,CTA,CTA,THREAD]",
            "split reduce_sum.7 into 1;\ndot_general.2[GRID,WARP,WARP,CTA]",
        ),
    ],
)
def test_another_schedule_is_another_kernel(before: str, after: str) -> None:
    assert before in PAPER
    template = PAPER.replace(before, after, 1)
    kernel = generate(pattern(16_384), device("h200"), CodegenOptions(template=template))
    assert kernel.source != at_the_papers_size().source


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """Batch 9: one multiprocessor is filled by blocks of a batch entry; many are by its rows."""
    rng = np.random.default_rng(0)
    graph = pattern(9)
    args = [rng.standard_normal(p.dims).astype(np.float32) for p in graph.parameters]
    one = replace(device("emulated"), sm_count=1)
    paper = CodegenOptions(template=PAPER)
    return [
        Case(graph, args, one, paper),
        Case(graph, args, one, replace(paper, sharing=False)),
        Case(graph, args, one),
        Case(graph, args),
    ]


def test_results_in_every_order(cases: list[Case], host_compiler: str) -> None:
    built = build(cases)
    shared, unshared, held, by_rows = (built.kernels[c] for c in cases)
    assert (shared.grid, shared.shared_bytes) == (9, at_the_papers_size().shared_bytes)
    assert (unshared.grid, unshared.shared_bytes) == (9, whole_accesses(2 * SCORES + ROWS * 4))
    assert (held.grid, held.shared_bytes) == (9, 0)
    assert by_rows.grid > 9, "a big device spreads the rows of a small batch as well"
    for case in cases:
        for order, seed in ORDERS:
            built.check(case, order, seed)
