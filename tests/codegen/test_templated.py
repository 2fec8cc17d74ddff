"""Kernels that follow a given template: the paper's three examples, and what cannot be followed."""

from __future__ import annotations

import numpy as np
import pytest

from fusionstitch.codegen.generate import CodegenOptions, generate
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.rewrite.region import region
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph
from fusionstitch.runtime import emulate
from tests.graphs import Builder

DIMS = (256, 3, 5, 40)


def reduction(*dimensions: int) -> Graph:
    b = Builder()
    x = b.parameter(DIMS)
    retained = tuple(e for d, e in enumerate(DIMS) if d not in dimensions)
    zero = b.constant(0.0)
    total = b.op("reduce", retained, x, zero, dimensions=dimensions, reducer="add")
    total.name = "reduce"
    graph = b.graph(total)
    return region("k", [zero, total], [x], [total]) if graph else graph


def followed(template: str, *dimensions: int) -> Kernel:
    options = CodegenOptions(template=template)
    return generate(reduction(*dimensions), device("emulated"), options)


@pytest.mark.parametrize(
    ("template", "dimensions", "grid", "joined"),
    [
        ("reduce[GRID,WARP,WARP,CTA]S;", (3,), 256, "fs_reduce_lanes<32"),
        ("reduce[GRID_128-WARP_2,WARP,WARP,CTA]S;", (3,), 128, "fs_reduce_lanes<32"),
        ("reduce[GRID,CTA,CTA,THREAD];", (3,), 256, None),
        ("cta_size=64; reduce[GRID,WARP,WARP,CTA];", (1, 2, 3), 256, "fs_reduce_block"),
    ],
)
def test_template_is_followed(
    template: str, dimensions: tuple[int, ...], grid: int, joined: str | None
) -> None:
    kernel = followed(template, *dimensions)
    assert kernel.grid == grid
    assert kernel.block == (64 if "cta_size" in template else 256)
    if joined is None:
        assert "fs_reduce" not in kernel.source
    else:
        assert joined in kernel.source
    x = np.random.default_rng(0).standard_normal(DIMS).astype(np.float32)
    (result,) = emulate.run(kernel, [x])
    np.testing.assert_allclose(result, x.sum(dimensions), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("other[GRID,CTA,CTA,THREAD];", "the kernel's loops are: reduce"),
        ("reduce[GRID,CTA,THREAD];", "has 4 dims, but its schedule has 3 attrs"),
        ("reduce[GRID,CTA,CTA,GRID];", "cannot be GRID"),
        ("reduce[GRID_100-WARP_2,WARP,WARP,CTA];", "cannot be tiled|covers 200 elements"),
    ],
)
def test_what_cannot_be_followed_is_refused(template: str, message: str) -> None:
    with pytest.raises(CodegenError, match=message):
        followed(template, 3)


def test_a_result_is_kept_in_shared_memory_where_the_template_says_so() -> None:
    shared = followed("reduce[GRID,WARP,WARP,CTA]S;", 3)
    assert shared.shared_bytes == 16 * 4, "15 results of a block, read by 16 bytes"
    assert followed("reduce[GRID,WARP,WARP,CTA];", 3).shared_bytes == 0


@pytest.mark.parametrize(
    "template", ["reduce[GRID,WARP,WARP,CTA]S;", "reduce[GRID,CTA,CTA,THREAD];"]
)
def test_a_list_of_schedules_becomes_a_whole_template(template: str) -> None:
    """What is printed of it makes the same kernel."""
    kernel = followed(template, 3)
    assert followed(kernel.template, 3) == kernel
    assert "group tile=1;\nloop team=" in kernel.template
