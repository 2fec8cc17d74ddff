"""Layers of rows: one kernel for chains of products, forward and with sums over all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusionstitch.codegen.generate import CodegenOptions, compared, draft, generate, neighbours
from fusionstitch.codegen.layers.columns import Columns
from fusionstitch.codegen.layers.found import find_layers
from fusionstitch.codegen.layers.generate import Layered
from fusionstitch.codegen.layers.thin import are_layers, rows_of_layer
from fusionstitch.codegen.layers.values import Role
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph
from tests.codegen.layer_cases import CASES, f32, of, perceptron
from tests.codegen.regions import H200, ORDERS, ROUNDING, Built, Case, build, whole_of

Array = Any
SMALL, LARGE = (
    CodegenOptions(template=f"layers warps {n} blocks 1 held {worth}")
    for n, worth in ((4, 4), (8, 24))
)


def _values(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    """Matrices that keep values near 1, and small integers."""
    rng = np.random.default_rng(seed)
    found = []
    for p in graph.parameters:
        if p.dtype == "s32":
            found.append(rng.integers(0, 10, p.dims, dtype=np.int32))
            continue
        scale = 1 / np.sqrt(p.dims[0]) if len(p.dims) == 2 and p.dims[0] < 90 else 1.0
        dtype = {"bf16": jnp.bfloat16, "f16": np.float16}.get(p.dtype, np.float32)
        found.append((scale * rng.standard_normal(p.dims)).astype(dtype))
    return found


def _limit(graph: Graph) -> float:
    """Products of 16 bits are exact, what is between them may be rounded: as XLA's may be."""
    narrow = any(p.dtype in ("bf16", "f16") for p in graph.parameters)
    return 2e-2 if narrow else 3e-6


def case_of(name: str) -> Case:
    """A case with values, in small blocks."""
    fun, args = CASES[name]
    graph = whole_of(fun, *args)
    return Case(graph, _values(graph), H200, SMALL, _limit(graph))


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return {name: case_of(name) for name in CASES}


@pytest.fixture(scope="module")
def built(cases: dict[str, Case]) -> Built:
    return build(cases.values())


@pytest.mark.parametrize("name", CASES)
def test_each_case_is_one_kernel_near_float64_in_all_orders(
    name: str, cases: dict[str, Case], built: Built
) -> None:
    for order, seed in ORDERS:
        built.check(cases[name], order, seed)


def test_no_case_accesses_what_it_must_not(cases: dict[str, Case], built: Built) -> None:
    checked = built.checked()
    for case in cases.values():
        checked.run(case)


def test_blocks_of_other_sizes_give_the_same(cases: dict[str, Case], built: Built) -> None:
    others = {
        name: Case(case.graph, case.args, H200, LARGE, case.limit) for name, case in cases.items()
    }
    larger = build(others.values())
    for name, case in cases.items():
        for one, other in zip(built.run(case), larger.run(others[name]), strict=True):
            scale = np.abs(one.astype(np.float64)).max() + 1e-30
            apart = np.abs(one.astype(np.float64) - other.astype(np.float64)).max()
            assert apart <= scale * (case.limit or 0), name


def test_results_are_the_same_in_all_orders_bit_by_bit(
    cases: dict[str, Case], built: Built
) -> None:
    case = cases["gradient"]
    runs = [built.run(case, order, seed) for order, seed in ORDERS]
    for other in runs[1:]:
        assert all(a.tobytes() == b.tobytes() for a, b in zip(runs[0], other, strict=True))


# ---- which values are what -----------------------------------------------------------------------


def _roles(fun: Callable[..., Any], *args: Any) -> dict[Role, int]:
    found = find_layers(whole_of(fun, *args))
    return {role: len(found.with_role(role)) for role in Role if found.with_role(role)}


def test_a_gradient_has_products_and_sums_of_products_for_each_matrix() -> None:
    fun, args = CASES["gradient"]
    roles = _roles(fun, *args)
    assert roles[Role.PRODUCT] == 3 + 2  # the input has no gradient
    assert roles[Role.SUM] == 3
    assert roles[Role.TOTAL] == 3 + 1  # biases, and the loss


def test_pieces_of_rows_that_do_not_begin_at_a_step_go_through_shared_memory() -> None:
    def halves(x: Array, w: Array) -> Array:
        a, b = jnp.split(x @ w, 2, -1)
        return jnp.tanh(a) * b

    def scattered(columns: int) -> list[bool]:
        layers = find_layers(whole_of(halves, f32(100, 8), f32(8, columns)))
        return [value.scattered for value in layers.with_role(Role.PRODUCT)]

    assert scattered(64) == [False]
    assert scattered(12) == [True]


def test_values_of_other_rows_are_computed_where_they_are_read() -> None:
    """As random numbers are, from counters in halves of the array."""

    def noisy(x: Array, w: Array) -> Array:
        h = x @ w
        count = jnp.arange(h.size, dtype=jnp.float32)
        early, late = jnp.split(jnp.sin(count * 0.37), 2)
        noise = jnp.exp(jnp.concatenate([late, early])).reshape(h.shape)
        return jnp.tanh(h + noise) * noise

    graph = whole_of(noisy, f32(100, 8), f32(8, 16))
    assert [v.role for v in find_layers(graph).values] == [Role.PRODUCT, Role.ELEMENTS]
    case = Case(graph, _values(graph), H200, SMALL, 1e-5)
    build([case]).check(case)


def _refusal(fun: Callable[..., Any], *args: Any, **options: Any) -> str:
    template = "layers warps 8 blocks 1 held 4"
    with pytest.raises(CodegenError) as error:
        generate(whole_of(fun, *args), H200, CodegenOptions(template=template, **options))
    return str(error.value)


@pytest.mark.parametrize(
    ("fun", "args", "why"),
    [
        (lambda x, w: x @ w, [f32(300, 8), f32(8, 256)], "too long for the registers"),
        (lambda x, w: x @ w, [f32(600, 513), f32(513, 8)], "more elements than a matrix"),
        (
            lambda x, w: (x @ w) - (x @ w).mean(),
            [f32(300, 8), f32(8, 16)],
            "have other rows",
        ),
        (
            lambda x, w: jnp.argmax(x @ w, -1),
            [f32(100, 8), f32(8, 16)],
            "more than one number",
        ),
        (lambda x, w: (x @ w) * (x @ w)[::-1], [f32(300, 8), f32(8, 16)], "other rows"),
        (lambda x: jnp.tanh(x), [f32(100, 8)], "multiplies no rows"),
        (
            lambda x, w: jnp.matmul(x, w, precision="highest"),
            [f32(300, 32), f32(32, 16)],
            "sums up a part of each row",
        ),
        (lambda x, w: (x @ w).sum(1) @ (x @ w), [f32(300, 8), f32(8, 16)], None),
        (
            lambda x, w, v: jnp.tanh(x @ w)[:50].T @ (x @ v)[:50],
            [f32(100, 8), f32(8, 16), f32(8, 16)],
            "have other rows",
        ),
        (
            jax.vmap(lambda x, w, v: jnp.tanh(x @ w) @ v, (None, 0, 0)),
            [f32(100, 8), f32(3, 8, 32), f32(3, 32, 8)],
            "sums up a part of each row",
        ),
        (lambda x, w: x @ w + 1, [f32(100, 0), f32(0, 8)], "values without elements"),
    ],
)
def test_what_lanes_cannot_have_is_refused_with_the_reason(
    fun: Callable[..., Any], args: Sequence[Any], why: str | None
) -> None:
    if why is None:
        generate(whole_of(fun, *args), H200, LARGE)
    else:
        assert why in _refusal(fun, *args)


def test_indices_beyond_32_bits_are_of_64() -> None:
    graph = whole_of(lambda x, w: jnp.tanh(x @ w), f32(1 << 26, 64), f32(64, 8))
    assert "const long long row " in generate(graph, H200, LARGE).source


def test_strict_numerics_are_refused() -> None:
    args = f32(100, 8), f32(8, 16)
    assert "Strict" in _refusal(lambda x, w: x @ w, *args, numerics="strict")


def test_a_template_of_layers_says_warps_and_blocks() -> None:
    graph = whole_of(lambda x, w: x @ w, f32(100, 8), f32(8, 16))
    with pytest.raises(CodegenError, match='like "layers warps 4 blocks 2 held 4"'):
        generate(graph, H200, CodegenOptions(template="layers warps many"))
    kernel = generate(graph, H200, SMALL)
    assert kernel.template == SMALL.template
    assert kernel.block == 128


# ---- which regions -------------------------------------------------------------------------------


def test_regions_are_layers_from_the_size_on_that_a_library_has() -> None:
    h200 = device("h200")

    def layers(rows: int, width: int) -> bool:
        args = f32(rows, 16), *of((16, width, 8))
        return are_layers(whole_of(lambda x, *p: perceptron(x, p), *args), h200)

    assert layers(1 << 17, 64)
    assert not layers(1 << 10, 64)  # few rows
    assert not layers(1 << 15, 1024)  # rows and sums that are too long


def test_a_long_input_is_multiplied_but_not_summed_over_the_rows() -> None:
    h200 = device("h200")

    def dots(fun: Callable[..., Any], *args: Any) -> list[int]:
        graph = whole_of(fun, *args)
        return [rows_of_layer(op, h200) for op in graph if op.opcode == "dot"]

    rows = 1 << 15
    assert dots(lambda x, w: x @ w, f32(rows, 300), f32(300, 64)) == [rows]
    assert dots(lambda x, d: x.T @ d, f32(rows, 300), f32(rows, 64)) == [0]
    assert dots(lambda x, d: x.T @ d, f32(rows, 64), f32(rows, 64)) == [rows]


def test_a_draft_of_layers_is_compared_with_all_sizes() -> None:
    h200 = device("h200")
    args = f32(1 << 18, 16), *of((16, 64, 64, 8))
    graph = whole_of(lambda x, *p: perceptron(x, p), *args)
    first = draft(graph, h200)
    assert isinstance(first, Layered)
    assert compared(first, h200) is first
    others = list(neighbours(first))
    assert len({first.template, *(one.template for one in others)}) == 1 + len(others)
    [dot, *_] = [op for op in graph if op.opcode == "dot"]
    assert rows_of_layer(dot, h200) == 1 << 18


def test_large_products_are_rounded_though_something_is_decided_by_them() -> None:
    """As the library's: with `relu` everything is decided."""

    def fun(x: Array, w: Array, v: Array) -> Array:
        return jax.grad(lambda x: (jax.nn.relu(x @ w) @ v).sum())(x)

    graph = whole_of(fun, f32(512, 16), f32(16, 64), f32(64, 64))
    source = generate(graph, ROUNDING, LARGE).source
    assert "fs_mma_along<tf32" in source
    assert "fs_mma_along<float" not in source
    assert "fs_mma_along<float" in generate(graph, H200, LARGE).source


@pytest.mark.parametrize("extent", range(1, 129))
def test_every_column_has_one_place(extent: int) -> None:
    for wide in (False, True):
        columns = Columns.of(extent, wide)
        places = set()
        for member in range(4):
            for step in range(columns.steps):
                for near in range(columns.lot):
                    column = step * columns.unit + member * columns.lot + near
                    places.add(column)
        assert places == set(range(columns.padded))
        assert 0 <= columns.padded - extent < (16 if wide else 12)


# ---- grown programs ------------------------------------------------------------------------------

_ACTS = (jnp.tanh, jax.nn.relu, jax.nn.sigmoid, lambda x: x * x)


@settings(max_examples=20, deadline=None)
@given(
    st.integers(2, 70),
    st.lists(st.integers(1, 40), min_size=2, max_size=4),
    st.sampled_from(range(len(_ACTS))),
    st.booleans(),
    st.booleans(),
)
def test_grown_perceptrons_agree_with_float64(
    rows: int, widths: list[int], act: int, gradient: bool, large: bool
) -> None:
    def forward(p: Sequence[Array], x: Array) -> Array:
        return perceptron(x, p, _ACTS[act])

    def loss(p: Sequence[Array], x: Array) -> Array:
        return (forward(p, x) ** 2).sum()

    graph = whole_of(jax.grad(loss) if gradient else forward, of(widths), f32(rows, widths[0]))
    case = Case(graph, _values(graph, rows), H200, LARGE if large else SMALL, 2e-5)
    build([case]).check(case)
