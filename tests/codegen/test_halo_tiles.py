"""Tiles with a halo: which axes have them, what they need, and what comes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import fusionstitch as fs
from fusionstitch.codegen.drafts import Draft
from fusionstitch.codegen.generate import draft, plan_kernel
from fusionstitch.codegen.passes import rewritten
from fusionstitch.codegen.rewrite.halo_tiles import with_halos
from fusionstitch.codegen.rewrite.stencil_axes import stencil_axes
from fusionstitch.codegen.rewrite.tile_needs import MOST_HALO, NO_PINS, Interval, tiles
from fusionstitch.codegen.schedule.parser import parse_template
from fusionstitch.codegen.search.tile_sizes import tile_sizes
from fusionstitch.codegen.settings import CodegenOptions, Settings
from fusionstitch.codegen.watch import NOBODY
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.errors import CodegenError, TemplateSyntaxError
from fusionstitch.hlo.evaluate import evaluate_op
from fusionstitch.hlo.graph import Graph, Op
from tests.codegen.cases import CASES
from tests.codegen.halo_cases import SIZES, blurred, in_tiles, pooled, shifted
from tests.codegen.regions import Case, build, whole_of

H200 = device("h200")


def region(fun: Callable[..., Any], *dims: int) -> Graph:
    """The region of a function of an array, as tiles are made of it."""
    graph = whole_of(fun, jax.ShapeDtypeStruct(dims, jnp.float32))
    return rewritten(graph, Settings.of(H200, CodegenOptions()), None, NOBODY)


def axes(fun: Callable[..., Any], *dims: int) -> list[tuple[int, bool]]:
    return [(axis.extent, axis.periodic) for axis in stencil_axes(region(fun, *dims))]


# ---- axes ----------------------------------------------------------------------------------------


def test_an_axis_is_one_along_which_something_is_shifted() -> None:
    assert axes(lambda x: x[1:] - x[:-1], 20, 30) == [(19, False)]
    assert axes(lambda x: jnp.pad(x, 1) * 2, 20, 30) == [(22, False), (32, False)]
    assert axes(lambda x: jnp.roll(x, 3, 1) - x, 20, 30) == [(30, True)]
    assert axes(lambda x: blurred(x, 2).transpose(2, 0, 1), 4, 20, 30) == [(30, False)]
    assert axes(lambda x: jnp.exp(x) - x.mean(), 20, 30) == []


def test_what_ends_and_goes_on_is_no_axis() -> None:
    def mixed(x):  # type: ignore[no-untyped-def]
        return jnp.roll(x, 1, 0) + shifted(x, 1, 0), shifted(x, 0, 1)

    assert axes(mixed, 20, 30) == [(30, False)]


def test_no_axis_is_crossed_with_itself() -> None:
    assert axes(lambda x: (x + x.T)[1:] * 2, 20, 20) == []


def test_short_axes_stay_whole() -> None:
    assert axes(lambda x: x[:, 1:] - x[:, :-1], 20, 8) == []


# ---- what tiles need -----------------------------------------------------------------------------


def test_the_margin_grows_from_stencil_to_stencil() -> None:
    graph = region(lambda x: pooled(pooled(x, 5, (0,), least=True), 3, (0,)), 64, 8)
    found = tiles(graph, stencil_axes(graph), (16,))
    assert found is not None
    by_op = {
        op.opcode: intervals[NO_PINS][0]
        for op, intervals in found.needs.items()
        if op.opcode in ("minimum", "maximum")
    }
    assert by_op == {"minimum": Interval(-1, 1), "maximum": Interval()}
    # padded by two and one: its element p is that of the input two before
    [pad] = [
        op for op in found.needs if op.opcode == "pad" and op.operands[0].opcode == "parameter"
    ]
    assert found.length(pad, NO_PINS, 0) == 16 + 2 + 4


@pytest.mark.parametrize("far", [MOST_HALO + 1, 200])
def test_what_is_far_away_is_not_needed_by_tiles(far: int) -> None:
    graph = region(lambda x: x[far:] - x[:-far], 300, 8)
    assert tiles(graph, stencil_axes(graph), (32,)) is None
    assert with_halos(graph, (32,)) is graph
    assert not list(tile_sizes(graph))


def test_other_numbers_of_sizes_make_no_tiles() -> None:
    graph = region(lambda x: x[1:] - x[:-1], 300, 8)
    for sizes in ((), (8, 8)):
        assert with_halos(graph, sizes) is graph


def test_sizes_are_about_equal() -> None:
    large = region(lambda x: blurred(blurred(x, 1), 0), 1000, 1000)
    assert list(tile_sizes(large)) == [(16, 64), (33, 33), (33, 64)]
    colours = region(lambda x: blurred(blurred(x, 1), 0), 1000, 1000, 3)
    assert list(tile_sizes(colours)) == [(24, 33), (16, 64)]


def test_a_border_may_be_made_of_anything() -> None:
    """What no rule follows is a view, also of a border that one tile alone reads."""

    def picked(x, i):  # type: ignore[no-untyped-def]
        y = jnp.concatenate(
            [lax.dynamic_slice_in_dim(x, i, 8)[:2], jnp.sin(x), jnp.sort(x[-8:])[:3]]
        )
        return jnp.tanh(y[1:] - y[:-1]) * jnp.exp(y[1:])

    args = np.linspace(0, 3, 60, dtype=np.float32), np.int32(5)
    graph = rewritten(whole_of(picked, *args), Settings.of(H200, CodegenOptions()), None, NOBODY)
    for size in (7, 16, 30):
        tiled = with_halos(graph, (size,))
        assert tiled is not graph
        [got], [expected] = numbers(tiled, args), numbers(graph, args)
        np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: (lambda y: y[1:] - y[:-1])(jnp.pad(jnp.exp(x), (0, 80)))[60:],
        lambda x: (lambda y: y[1:] - y[:-1])(jnp.exp(jnp.pad(x, (60, 0))))[:30],
    ],
)
def test_tiles_may_lie_outside_of_what_is_padded(fun: Callable[..., Any]) -> None:
    graph, x = region(fun, 20), np.linspace(-1, 1, 20, dtype=np.float32)
    tiled = with_halos(graph, (8,))
    assert tiled is not graph
    [got], [expected] = numbers(tiled, [x]), numbers(graph, [x])
    np.testing.assert_array_equal(got, expected)


def test_what_is_read_at_many_places_is_counted_once_an_op() -> None:
    """Each of these halves is read twice: paths double from roll to roll, ops do not."""

    def turned(x):  # type: ignore[no-untyped-def]
        y = x[1:] - x[:-1]
        for _ in range(60):
            y = jnp.concatenate([y[..., 1:], y[..., :1]], 2)
        return y

    graph = region(turned, 40, 30, 4)
    assert with_halos(graph, (8,)) is not graph


# ---- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SIZES)
def test_other_sizes_agree(name: str) -> None:
    program = CASES[name]
    others = [replace(program, options=in_tiles(size)).case() for size in SIZES[name][1:]]
    built = build([program.case(), *others])
    assert len({kernel.source for kernel in built.kernels.values()}) == 1 + len(others)
    for case in others:
        built.check(case)


def numbers(graph: Graph, args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What a region gives, with views of windows."""
    found: dict[Op, Any] = dict(zip(graph.parameters, args, strict=True))
    for op in graph.ops[:-1]:
        if op not in found:
            values = [found[o] for o in op.operands]
            found[op] = _windows(op, *values) if op.opcode == "windows" else evaluate_op(op, values)
    return [found[op] for op in graph.root.operands]


def _windows(op: Op, x: np.ndarray) -> np.ndarray:
    along, rank = op.attrs["along"], x.ndim
    size = tuple(op.dims[rank:])
    views = np.lib.stride_tricks.sliding_window_view(x, size, along)
    return views[tuple(slice(None, None, step) for step in op.attrs["stride"])]


Step = tuple[str, int, int]
STEPS = st.tuples(
    st.sampled_from(["shift", "pad", "roll", "pool", "slice", "tanh", "where", "mean", "keep"]),
    st.integers(-2, 2),
    st.integers(0, 1),
)
MODES = ("edge", "reflect", "symmetric", "constant")


def grown(steps: Sequence[Step], periodic: bool) -> Callable[[Any], Any]:
    """A program of such steps: each takes the value before it, and an axis; some use a value that
    was kept."""

    def fun(x):  # type: ignore[no-untyped-def]
        retained, outputs = x, []
        for number, (kind, by, axis) in enumerate(steps):
            if kind in ("shift", "pad", "roll") and periodic:
                x = x - jnp.roll(x, by, axis)
            elif kind == "shift":
                offsets = (by, 0) if axis else (0, by)
                x = jnp.maximum(x, shifted(x, *offsets, mode=MODES[number % 4]))
            elif kind == "pad":
                x = x + blurred(x, axis)
            elif kind == "pool" and not periodic:
                x = pooled(x, 3, (axis,)) - x
            elif kind == "slice" and not periodic:
                n = x.shape[axis] - abs(by)
                x = lax.slice_in_dim(x, abs(by), None, axis=axis)
                x = x * lax.slice_in_dim(x, 0, n, axis=axis) if not by else x
            elif kind == "where":
                x = jnp.where(lax.broadcasted_iota(jnp.int32, x.shape, axis) % 3 == 0, -x, x)
            elif kind == "mean":
                x = x - x.mean(axis, keepdims=True)
            elif kind == "keep":
                if retained.shape == x.shape:
                    x = x * retained
                retained = x
                outputs.append(x.sum(axis))
            else:
                x = jnp.tanh(x)
        return (x, *outputs)

    return fun


@given(
    st.lists(STEPS, min_size=2, max_size=7),
    st.booleans(),
    st.tuples(st.integers(17, 40), st.integers(17, 40)),
    st.tuples(st.integers(4, 20), st.integers(4, 40)),
)
@settings(max_examples=60, deadline=None)
def test_tiles_have_the_values_of_the_whole(
    steps: list[Step], periodic: bool, dims: tuple[int, int], sizes: tuple[int, int]
) -> None:
    graph = region(grown(steps, periodic), *dims)
    found = stencil_axes(graph)
    tiled = with_halos(graph, sizes[: len(found)])
    x = np.random.default_rng(len(steps)).standard_normal(dims).astype(np.float32)
    for got, expected in zip(numbers(tiled, [x]), numbers(graph, [x]), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)


# ---- schedules -----------------------------------------------------------------------------------


def chain(x):  # type: ignore[no-untyped-def]
    return x - pooled(pooled(x, 5, (0, 1), least=True), 5, (0, 1))


def drafted(*dims: int) -> Draft:
    graph = whole_of(chain, jax.ShapeDtypeStruct(dims, jnp.float32))
    found = draft(graph, H200)
    assert isinstance(found, Draft)
    return found


def test_a_chain_of_stencils_is_one_launch_without_a_grid_barrier() -> None:
    found = drafted(2048, 2048)
    assert found.scheduled.halo
    assert len(found.scheduled.plan.phases) == 1
    assert found.scheduled.scope == "block"
    assert not found.scheduled.plan.cooperative


def test_a_template_has_the_sizes() -> None:
    found = drafted(2048, 2048)
    sizes = " ".join(map(str, found.scheduled.halo))
    assert f"halo {sizes};" in found.template
    requested = draft(found.scheduled.before, H200, CodegenOptions(template=found.template))
    assert isinstance(requested, Draft)
    assert requested.template == found.template
    assert requested.kernel().source == found.kernel().source


def test_tiles_that_there_are_none_of_are_said_nowhere() -> None:
    flat = whole_of(lambda x: jnp.exp(x) * 2, jax.ShapeDtypeStruct((300, 20), jnp.float32))
    own = plan_kernel(flat, H200, in_tiles((8,)))
    assert not own.halo
    assert "halo" not in own.template
    requested = CodegenOptions(template="halo 8;\n" + "multiply[GRID,GRID];")
    with pytest.raises(CodegenError, match="nothing is shifted along 1 axes"):
        plan_kernel(flat, H200, requested)


def test_templates_are_read() -> None:
    text = "cta_size=256;\nsink concatenates;\nhalo 16 64;\na[CTA];"
    assert parse_template(text).halo == (16, 64)
    assert str(parse_template(text)) == text
    assert parse_template("a[CTA];").halo == ()
    for wrong in ("halo; a[CTA];", "halo 0; a[CTA];", "halo 16, 64; a[CTA];"):
        with pytest.raises(TemplateSyntaxError, match="expected"):
            parse_template(wrong)


def test_threads_take_runs_of_neighbours() -> None:
    """Four elements of a column are loaded with eight, not twenty."""
    [group] = drafted(2048, 2048).scheduled.plan.groups
    runs = [nest.walk.run for nest in group.nests]
    assert all(run.length > 1 for run in runs)
    along_columns = [run for run in runs if run.apart > 1]
    assert len(along_columns) == len(runs)


def compared_with_mean(x, y):  # type: ignore[no-untyped-def]
    """Values that the loop of runs reads where it stores others: one may not lie over the other."""

    def mean(x):  # type: ignore[no-untyped-def]
        return blurred(blurred(x, 0), 1)

    a, b = mean(x), mean(y)
    apart = mean(x * x) - a * a + mean(y * y) - b * b
    return ((2 * a * b + 0.1) * (2 * mean(x * y) - 2 * a * b + 0.2) / (apart + 1)).mean()


def test_runs_do_not_overwrite_what_others_read() -> None:
    args = [np.random.default_rng(n).random((32, 48), np.float32) for n in range(2)]
    for size in ((16, 24), (8, 48), (32, 16)):
        case = Case(whole_of(compared_with_mean, *args), args, options=in_tiles(size))
        build([case]).checked().check(case, "random", 3)


def test_users_get_the_values_of_jit(host_compiler: str) -> None:
    x = np.random.default_rng(0).standard_normal((96, 96), np.float32)
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    compiled = fs.jit(chain, options=options).lower(x).compile()
    assert len(compiled.kernels) == 1
    np.testing.assert_array_equal(compiled(x), chain(x))
