"""Scatters whose index vectors need no data: which they are, and what stands for them.

What the kernels compute is also checked with the other cases, `known_scatter_cases.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import fusionstitch as fs
from fusionstitch.codegen.invariants import check_region
from fusionstitch.codegen.rewrite.known_integers import MOST_ELEMENTS, steps_to, value_of
from fusionstitch.codegen.rewrite.known_places import Known, known_places
from fusionstitch.codegen.rewrite.known_scatters import expand_known
from fusionstitch.codegen.rewrite.overlap_add import MOST_JOINED, most_joined
from fusionstitch.codegen.rewrite.region import rewrite
from fusionstitch.codegen.rewrite.scatters import expand_scatters, stitchable
from fusionstitch.compiler.core import stitch
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.mixed_radix import Digit, affine_boxes, digits_of
from tests.codegen.regions import lowered, whole

H200 = device("h200")
SEVERAL = "Several updates may write the same element."
DATA = "The data decides where its updates go."
NONE = "The positions of its updates are no arithmetic progressions."


def scatter_of(graph: Graph) -> Op:
    return next(op for op in graph if op.opcode == "scatter")


def places(at: Callable[[], Any], size: int = 40, mode: str = "add") -> Any:
    """What is known of a scatter of elements at these positions."""
    updates = np.zeros(np.shape(at()), np.float32)

    def fun(x: jax.Array, u: jax.Array) -> jax.Array:
        ref = x.at[at()]
        return ref.add(u) if mode == "add" else ref.set(u)

    return known_places(scatter_of(lowered(fun, np.zeros(size, np.float32), updates)))


# ---- digits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "digits"),
    [
        ([0, 2, 4], [(3, 2)]),
        ([0, 0, 1, 1, 2], [(3, 1), (2, 0)]),
        ([0, 1, 2, 5, 6, 7], [(2, 5), (3, 1)]),
        ([0, -1, 3, 2], [(2, 3), (2, -1)]),
        ([0, 1, 4, 5, 20, 21, 24, 25], [(2, 20), (2, 4), (2, 1)]),
        ([0], []),
        ([0, 1, 3, 6], None),
        ([0, 1, 1, 2, 3, 3], None),
    ],
)
def test_positions_are_numbers_of_mixed_radix(line: list[int], digits: Any) -> None:
    found = digits_of(np.array(line)[:, None])
    expected = digits if digits is None else [Digit(n, (step,)) for n, step in digits]
    assert found == expected


def test_what_has_no_such_digits_may_have_them_in_parts() -> None:
    rolled = np.array([4, 0, 1, 2, 3])[:, None]
    parts = [(at, form.sizes, form.base) for at, form in affine_boxes(rolled)]
    assert parts == [((0,), (2,), (4,)), ((2,), (3,), (1,))]
    assert not [*affine_boxes(np.arange(30)[:, None] ** 2)]
    # not a sum of what each dim contributes
    product = np.arange(4)[:, None] * np.arange(5)
    assert not [*affine_boxes(product[..., None])]


def test_few_windows_are_joined_one_by_one() -> None:
    assert most_joined([3, 3]) == 3
    assert most_joined([7, 7]) == 7
    assert most_joined([9, 9]) == 1
    assert most_joined([2, 9, 9]) == 2
    assert most_joined([MOST_JOINED + 1, 4]) == 4
    assert most_joined([]) == 1


# ---- which scatters ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "mode", "reason"),
    [
        (lambda: jnp.arange(9) ** 2, "add", NONE),
        (lambda: jnp.arange(4)[:, None] * jnp.arange(5), "add", NONE),
        (lambda: jnp.arange(8) // 2, "set", SEVERAL),
        (lambda: 3 * jnp.arange(4)[:, None] + jnp.arange(4), "set", SEVERAL),
        (lambda: jnp.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]), "add", NONE),
        (lambda: 90 * jnp.arange(9), "add", "Most of its updates lie outside."),
        (
            lambda: jnp.floor((jnp.arange(8) + 0.5) / 3 * 2).astype(jnp.int32),
            "add",
            "How floats round decides where its updates go.",
        ),
        (lambda: jnp.sin(jnp.arange(8.0)).astype(jnp.int32), "add", DATA),
    ],
)
def test_others_are_left_as_they_are(at: Callable[[], Any], mode: str, reason: str) -> None:
    found = places(at, mode=mode)
    assert not isinstance(found, Known)
    assert found.reason == reason


def test_the_data_is_asked_no_matter_how_little_it_decides() -> None:
    def fun(x: jax.Array, i: jax.Array, u: jax.Array) -> jax.Array:
        return x.at[jnp.arange(5) * 2 + i].add(u)

    graph = lowered(fun, np.zeros(40, np.float32), np.int32(3), np.zeros(5, np.float32))
    found = known_places(scatter_of(graph))
    assert not isinstance(found, Known)
    assert found.reason == DATA
    assert rewrite(whole(graph), expand_known).ops[0].opcode == "parameter"
    assert any(op.opcode == "scatter" for op in rewrite(whole(graph), expand_known))


def test_too_many_positions_are_not_evaluated() -> None:
    [row, long] = (np.zeros(n, np.float32) for n in (9, MOST_ELEMENTS + 1))
    graph = lowered(lambda x, u: x.at[jnp.arange(len(long)) % 9].add(u), row, long)
    assert steps_to(scatter_of(graph).operands[1]) is None


def test_updates_that_differ_may_replace_where_windows_overlap() -> None:
    """Windows 0, 2 and 1, 3, 5: each spans others, and none has an element of another."""
    found = places(lambda: jnp.arange(2)[:, None] + 2 * jnp.arange(3), mode="set")
    assert isinstance(found, Known)
    assert places(lambda: (jnp.arange(7) + 2) % 7, 7, "set").meet
    assert places(lambda: jnp.arange(7)[::-1].reshape(7, 1), 7, "set").everywhere


def test_floats_that_round_alike_everywhere_are_known() -> None:
    def fun(x: jax.Array, u: jax.Array) -> jax.Array:
        scale = jnp.float32(1 / 3)
        at = jnp.maximum(jnp.floor((jnp.arange(12) + 0.5) * scale), 0.0)
        return x.at[at.astype(jnp.int32)].add(u)

    graph = lowered(fun, np.zeros(4, np.float32), np.zeros(12, np.float32))
    steps = steps_to(scatter_of(graph).operands[1])
    assert steps is not None
    np.testing.assert_array_equal(np.ravel(value_of(steps)), np.arange(12) // 3)
    [part] = known_places(scatter_of(graph)).parts
    assert part.still == [3]


# ---- values --------------------------------------------------------------------------------------

REDUCERS = {
    "add": lax.scatter_add,
    "max": lax.scatter_max,
    "min": lax.scatter_min,
    "mul": lax.scatter_mul,
    "set": lax.scatter,
}


@st.composite
def scatters(draw: st.DrawFn) -> tuple[Callable[..., Any], np.ndarray, np.ndarray]:
    """Scatters by sums of progressions: windows, strides of either sign, what lies outside, index
    vectors counted by several dims, or by one that is cut off."""
    dims = tuple(draw(st.lists(st.integers(1, 13), min_size=1, max_size=3)))
    among = st.sets(st.integers(0, len(dims) - 1), min_size=1)
    scattered = tuple(sorted(draw(among)))
    counts = tuple(draw(st.lists(st.integers(1, 5), max_size=3)))
    steps = [[draw(st.integers(-4, 4)) for _ in scattered] for _ in counts]
    if draw(st.booleans()):  # most have no diagonals
        for row in steps:
            own = draw(st.integers(0, len(scattered) - 1))
            row[:] = [step if k == own else 0 for k, step in enumerate(row)]
    base = [draw(st.integers(-4, 9)) for _ in scattered]
    whole_number = math.prod(counts)
    left = draw(st.none() | st.integers(1, whole_number))
    inserted = tuple(d for d in scattered if draw(st.booleans()))
    window = [
        draw(st.integers(1, n)) if d in scattered else n
        for d, n in enumerate(dims)
        if d not in inserted
    ]
    scatter = REDUCERS[draw(st.sampled_from(list(REDUCERS)))]
    batch = counts if left is None else (left,)

    def fun(x: jax.Array, u: jax.Array) -> jax.Array:
        columns = []
        for k, first in enumerate(base):
            at = jnp.full(counts, first, jnp.int32)
            for d, n in enumerate(counts):
                shape = [-1 if e == d else 1 for e in range(len(counts))]
                at = at + steps[d][k] * jnp.arange(n, dtype=jnp.int32).reshape(shape)
            columns.append(at if left is None else at.reshape(-1)[:left])
        rank = len(batch)
        windows = tuple(range(rank, rank + len(window)))
        numbers = lax.ScatterDimensionNumbers(windows, inserted, scattered)
        return scatter(x, jnp.stack(columns, -1), u, numbers, mode="drop")

    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x, u = (rng.standard_normal(n).astype(np.float32) for n in (dims, (*batch, *window)))
    return fun, x, u


@settings(max_examples=150, deadline=None)
@given(scatters())
def test_scatters_by_progressions_are_those_of_xla(made: Any) -> None:
    fun, x, u = made
    graph = whole(lowered(fun, x, u))
    found = rewrite(graph, expand_known)
    if found is graph:
        return
    assert not any(op.opcode == "scatter" for op in found)
    check_region(found, graph)
    [ours], [theirs] = (evaluate(g, [x, u], float64=True) for g in (found, graph))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(ours, jax.jit(fun)(x, u), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "int8"])
@pytest.mark.parametrize("mode", ["add", "max", "min", "multiply"])
def test_elements_without_updates_stay_what_they_are(dtype: str, mode: str) -> None:
    """In all types, zeros of either sign, infinities and all."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = np.array([0.0, -0.0, 1, -1, 3, -2, 1, 0, 1, 1, 0, 1]).astype(kind)

    def fun(x: jax.Array, u: jax.Array) -> jax.Array:
        return getattr(x.at[2 * jnp.arange(3)[:, None] + jnp.arange(3)], mode)(u)

    u = np.ones((3, 3)).astype(kind)
    graph = whole(lowered(fun, x, u))
    found = rewrite(graph, expand_known)
    assert found is not graph
    [ours], [theirs] = (evaluate(g, [x, u]) for g in (found, graph))
    assert ours[7:].tobytes() == x[7:].tobytes()
    np.testing.assert_allclose(
        ours.astype(np.float32), theirs.astype(np.float32), rtol=0.1, atol=0.1
    )


def test_sums_of_narrow_floats_are_wide_unless_each_is_to_be_rounded() -> None:
    x, u = np.zeros(40, ml_dtypes.bfloat16), np.ones((4, 8), ml_dtypes.bfloat16)

    def sums(x: jax.Array, u: jax.Array) -> jax.Array:
        return x.at[4 * jnp.arange(4)[:, None] + jnp.arange(8)].add(u)

    graph = whole(lowered(sums, x, u))
    floats = [op.dtype for op in expand_scatters(graph) if op.opcode == "add" and "f" in op.dtype]
    assert set(floats) == {"f32"}
    assert any(op.opcode == "scatter" for op in rewrite(graph, lambda op: expand_known(op, True)))
    apart = whole(lowered(lambda x, u: x.at[8 * jnp.arange(4)].add(u[:, 0]), x, u))
    exact = rewrite(apart, lambda op: expand_known(op, exact=True))
    assert [op.dtype for op in exact if op.opcode == "add" and "f" in op.dtype] == ["bf16"]


# ---- plans ---------------------------------------------------------------------------------------


def overlap_add(frames: jax.Array, window: jax.Array) -> jax.Array:
    """The end of an inverse STFT."""
    count, width = frames.shape[1:]
    at = width // 4 * jnp.arange(count)[:, None] + jnp.arange(width)
    total = jnp.zeros((len(frames), width // 4 * (count - 1) + width), frames.dtype)
    return total.at[:, at].add(frames * window) / 2


def planned(fun: Callable[..., Any], *args: Any, **options: Any) -> Any:
    module = jax.jit(fun).lower(*args).compiler_ir("hlo").as_serialized_hlo_module_proto()
    return stitch(module, fs.Options(**options), H200, None)


def test_an_overlap_add_is_one_kernel_with_what_is_around() -> None:
    frames, window = (jax.ShapeDtypeStruct(d, jnp.float32) for d in ((16, 400, 1024), (1024,)))
    found = planned(overlap_add, frames, window)
    assert len(found.kernels) == 1
    assert "atomic" not in found.kernels[0].source
    assert sum(p.modelled_us for p in found.plans) < 0.8 * sum(p.xla_us for p in found.plans)


def test_an_embedding_s_gradient_is_left_to_xla() -> None:
    def fun(x: jax.Array, i: jax.Array, up: jax.Array) -> jax.Array:
        return jax.vjp(lambda x: x[i], x)[1](up)[0]

    x, i, up = (
        jax.ShapeDtypeStruct((32000, 512), jnp.float32),
        jax.ShapeDtypeStruct((8192,), jnp.int32),
        jax.ShapeDtypeStruct((8192, 512), jnp.float32),
    )
    assert not stitchable(scatter_of(lowered(fun, x, i, up)))
    assert not planned(fun, x, i, up).kernels


@pytest.mark.parametrize("numerics", ["default", "strict"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "complex64"])
def test_programs_give_what_jax_gives(host_compiler: str, dtype: str, numerics: str) -> None:
    """Under strict numerics sums of narrow floats stay with XLA."""
    rng = np.random.default_rng(3)
    frames = jnp.asarray(4 * rng.standard_normal((2, 6, 16))).astype(dtype)

    def fun(frames: jax.Array) -> jax.Array:
        at = 4 * jnp.arange(6)[:, None] + jnp.arange(16)
        return jnp.zeros((2, 36), frames.dtype).at[:, at].add(frames * 2) * 3

    options = fs.Options(backend="emulate", scorer="paper", numerics=numerics)
    ours, theirs = fs.jit(fun, options=options)(frames), jax.jit(fun)(frames)
    assert ours.dtype == theirs.dtype
    wide = np.complex128 if dtype == "complex64" else np.float64
    bound = 3e-2 if dtype == "bfloat16" else 2e-6
    np.testing.assert_allclose(
        np.asarray(ours).astype(wide), np.asarray(theirs).astype(wide), rtol=bound, atol=5 * bound
    )


def red_and_black(x: jax.Array, b: jax.Array) -> jax.Array:
    """Relaxation of every second point, then of the others."""

    def around(x: jax.Array) -> jax.Array:
        wide = jnp.pad(x, 1)
        return (wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:] + b) / 4

    def body(_: Any, x: jax.Array) -> jax.Array:
        for first in (0, 1):
            found = around(x)
            for row in (0, 1):
                own = np.s_[row::2, (row + first) % 2 :: 2]
                x = x.at[own].set(found[own])
        return x

    return lax.fori_loop(0, 5, body, x)


def frames_in_a_loop(frames: jax.Array, scale: jax.Array) -> jax.Array:
    """Overlap-add and framing in turns, as phases are estimated (Griffin and Lim)."""
    at = 4 * jnp.arange(6)[:, None] + jnp.arange(8)

    def body(frames: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array]:
        total = jnp.zeros(28, frames.dtype).at[at].add(frames)
        return jnp.tanh(total[at]) * scale, total.max()

    return lax.scan(body, frames, scale)


@pytest.mark.parametrize(
    ("fun", "dims"), [(red_and_black, [(12, 14)] * 2), (frames_in_a_loop, [(6, 8), (5,)])]
)
def test_loops_with_known_scatters_are_kernels(host_compiler: str, fun: Any, dims: Any) -> None:
    rng = np.random.default_rng(5)
    args = [jnp.asarray(rng.standard_normal(n), jnp.float32) for n in dims]
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    compiled = fs.jit(fun, options=options).lower(*args).compile()
    assert len(compiled.kernels) == 1
    for ours, theirs in zip(
        *(jax.tree.leaves(f(*args)) for f in (compiled, jax.jit(fun))), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.uint8, jnp.uint16, jnp.uint32, jnp.int8])
def test_indices_of_any_integers(dtype: Any, host_compiler: str) -> None:
    def fun(x: Any) -> Any:
        windows = jax.vmap(lambda i: lax.dynamic_slice(x, (i,), (3,)))(jnp.arange(10, dtype=dtype))
        return (windows**2).sum()

    x = np.arange(40, dtype=np.float32)
    ours = fs.jit(jax.grad(fun), options=fs.Options(backend="emulate", fallback="error"))(x)
    np.testing.assert_allclose(ours, jax.jit(jax.grad(fun))(x))
