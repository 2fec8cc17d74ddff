"""Long rows between two dots: device functions, the algebra of running sums, what is streamed."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusionstitch.codegen.dots import chains
from fusionstitch.codegen.dots.masks import find_masks, nil_terms
from fusionstitch.codegen.dots.online import FREE, Running, degree
from fusionstitch.codegen.generate import CodegenOptions, generate, plan_kernel
from fusionstitch.codegen.loops.stages import new_stage
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.graph import Graph, Op
from tests.codegen.regions import H200, ORDERS, SMALL, Case, build, lowered, whole, whole_of
from tests.codegen.small_kernels import Launch, on_emulator
from tests.codegen.test_whole_tiles import attention
from tests.conftest import Golden
from tests.graphs import Builder

BF16, F16, F32 = ml_dtypes.bfloat16, np.float16, np.float32
Array = jax.Array

# ---- device functions ----------------------------------------------------------------------------


def _c_type(dtype: Any) -> str:
    return {F32: "float", BF16: "bf16", F16: "f16"}[dtype]


def _along(dtype: Any, a: np.ndarray, b: np.ndarray) -> Launch:
    """a [16, k] b [8, k]^T by one warp, words of four elements a lane (two floats)."""
    each = 16 // np.dtype(dtype).itemsize // 2
    kind = _c_type(dtype)
    body = f"""
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  float c[4] = {{}};
  const {kind}* upper = a + g * {4 * each} + t * {each};
  const {kind}* lower = upper + {8 * 4 * each};
  fs_mma_along<{kind}, 2>(c, c + 2, (const uint32_t*)upper, (const uint32_t*)lower,
                          b + g * {4 * each} + t * {each});
  for (int i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = c[i];"""
    return Launch.of(f"along_{kind}", body, (a, b), "f32", 128, block=32)


def _across(dtype: Any, a: np.ndarray, b: np.ndarray) -> Launch:
    """a [16, k] b [k, 16] by one warp, two columns of the result beside each other in a word."""
    depth, kind = a.shape[1], _c_type(dtype)
    words = 1 if dtype is not F32 else 2
    body = f"""
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  float c[8] = {{}}, part[8];
  const int column[4] = {{2 * t, 2 * t + 1, 2 * t + 8, 2 * t + 9}};
  for (int r = 0; r < 2; ++r)
    for (int i = 0; i < {depth // 4}; ++i)
      part[r * {depth // 4} + i] = fs_load(a[(g + 8 * r) * {depth} + column[i]]);
  uint32_t held[4];
  fs_pack<{kind}, {depth // 2}>(held, part);
  fs_mma_across<{kind}, {words}, 16>(c, c + 4, held, held + 2, b + 2 * t * 16 + g * 2);
  for (int i = 0; i < 8; ++i)
    out[(g + i / 4 * 8) * 16 + (2 * t + i % 2) * 2 + i % 4 / 2] = c[i];"""
    return Launch.of(f"across_{kind}", body, (a, b), "f32", 256, block=32)


@pytest.mark.parametrize(("order", "seed"), ORDERS)
def test_a_warp_multiplies_words_of_every_type(order: Any, seed: int, host_compiler: str) -> None:
    draw = np.random.default_rng(3)
    launches, expected = [], []
    for dtype in (F32, BF16, F16):
        depth = 8 if dtype is F32 else 16
        a = draw.standard_normal((16, depth)).astype(dtype)
        b, c = draw.standard_normal((8, depth)), draw.standard_normal((depth, 16))
        launches += [_along(dtype, a, b.astype(dtype)), _across(dtype, a, c.astype(dtype))]
        left = a.astype(np.float64)
        expected += [left @ b.astype(dtype).astype(np.float64).T]
        expected += [left @ c.astype(dtype).astype(np.float64)]
    for got, right in zip(on_emulator(launches, order, seed), expected, strict=True):
        np.testing.assert_allclose(got, right.ravel(), rtol=1e-5, atol=1e-5)


# ---- the algebra ---------------------------------------------------------------------------------

X = np.zeros((40, 200), F32)


def _sums(fun: Callable[..., Any], *args: Any) -> tuple[Graph, list[Op]]:
    graph = lowered(fun, *args)
    return graph, [op for op in graph if op.opcode in ("reduce", "dot")]


def _degree(fun: Callable[..., Any], *args: Any) -> Any:
    """The degree of what the last reduction sums, all extrema before it running, others late."""
    _, [*before, last] = _sums(fun, *args)
    stage = new_stage(last, 0)
    extrema = {op.id for op in before if op.attrs.get("reducer") == "maximum"}
    late = {op.id for op in before} - extrema
    running = Running(frozenset(extrema), frozenset(late), frozenset(op.id for op in before))
    return degree(last, stage.dims, stage.inner, running)


def _max(x: Array) -> Array:
    return x.max(1, keepdims=True)


def _finite(x: Array) -> Array:
    return jnp.where(jnp.isfinite(_max(x)), _max(x), 0)


@pytest.mark.parametrize(
    ("fun", "coefficient"),
    [
        (lambda x: jnp.exp(x - _max(x)).sum(1), -1),
        (lambda x: (jnp.exp(x - _max(x)) * x).sum(1), -1),
        (lambda x: (jnp.exp(x - _max(x)) * jnp.exp(_max(x) * 0.5)).sum(1), -0.5),
        (lambda x: jnp.exp((x - _max(x)) * 2).sum(1), -2),
        (lambda x: jnp.exp(x - _max(x)).max(1), -1),
        (lambda x: jnp.exp(x - _finite(x)).sum(1), -1),
        (lambda x: jnp.where(x > 0, jnp.exp(x - _max(x)), 0).sum(1), -1),
        (lambda x: jnp.exp(jnp.where(x > 0, x - _max(x), -1e9)).sum(1), -1),
        (lambda x: jnp.exp(x - _max(x)) @ x.T, -1),
        (lambda x: jnp.exp(x - _max(x)).astype(BF16) @ x.astype(BF16).T, -1),
    ],
)
def test_sums_that_follow_a_growing_maximum(fun: Callable[..., Any], coefficient: float) -> None:
    found = _degree(fun, X)
    assert found.kind == "scale"
    assert [c for _, c in found.by] == [coefficient]


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: (x - _max(x)).sum(1),
        lambda x: jnp.tanh(x - _max(x)).sum(1),
        lambda x: (jnp.exp(x - _max(x)) + 1).sum(1),
        lambda x: jnp.where(x > _max(x), x, 0).sum(1),
        lambda x: (jnp.exp(x) / jnp.exp(x).sum(1, keepdims=True)).max(1),
        lambda x: jnp.where(x > 0, jnp.exp(x - _max(x)), 1).sum(1),
        lambda x: jnp.exp((x - _max(x)) * x).sum(1),
        lambda x: jnp.prod(jnp.exp(x - _max(x)), 1),
    ],
)
def test_sums_that_must_wait(fun: Callable[..., Any]) -> None:
    assert _degree(fun, X) is None


def test_a_sum_beside_a_maximum_is_free_of_it() -> None:
    assert _degree(lambda x: (x.max(1), (x * x).sum(1)), X) == FREE


def test_a_mask_by_positions_makes_terms_nil() -> None:
    keep = np.zeros((40, 200), bool)

    def masked(where: Any) -> Any:
        return lambda x, keep: (lambda y: (y.max(1), jnp.exp(y - y.max(1, keepdims=True)).sum(1)))(
            jnp.where(where(keep), x, -1e30)
        )

    def positions(keep: Any) -> Any:
        return jnp.tril(jnp.ones(keep.shape, bool))

    def by_data(keep: Any) -> Any:
        return keep

    found = {}
    for where in (positions, by_data):
        _, [top, total] = _sums(masked(where), X, keep)
        running = Running(frozenset({top.id}), frozenset(), frozenset({top.id, total.id}))
        stage = new_stage(total, 0)
        terms = total, stage.dims, stage.inner
        masks = find_masks(*terms, running.whole)
        found[where] = [nil_terms(*terms, mask, running) for mask in masks]
    assert not found[by_data]
    [[(constant, (value, _))]] = found[positions]
    assert constant == np.float32(-1e30)
    assert value.opcode == "reduce"


# ---- what is streamed ----------------------------------------------------------------------------


def gpt(x: Array, heads: int = 12) -> Array:
    """Causal attention on packed queries, keys and values."""
    batch, length, width = x.shape[0], x.shape[1], x.shape[2] // 3
    q, k, v = (x.reshape(batch, length, 3, heads, width // heads)[:, :, i] for i in range(3))
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (width // heads) ** -0.5
    s = jnp.where(jnp.tril(jnp.ones((length, length), bool)), s.astype(F32), -1e30)
    p = jax.nn.softmax(s).astype(x.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", p, v).reshape(batch, length, width)


def _gpt(dtype: Any = jnp.bfloat16, length: int = 512, width: int = 768) -> Graph:
    packed = jax.ShapeDtypeStruct((8, length, 3 * width), dtype)
    return whole_of(gpt, packed, name="attention")


def test_attention_of_any_length_is_one_kernel_without_memory_in_between() -> None:
    for length in (512, 2048, 500):
        kernel = generate(_gpt(length=length), device("h200"))
        assert not kernel.cooperative
        assert not kernel.scratch
        assert kernel.source.count("fs_mma_along<bf16") == 1
        assert kernel.source.count("fs_mma_across<bf16") == 1
        assert kernel.shared_bytes < 48 * 1024


def test_rows_of_a_few_columns_are_not_streamed() -> None:
    assert "fs_mma_across" in generate(_gpt(length=16), H200).source
    assert "fs_mma_across" not in generate(_gpt(length=12), H200).source


def test_a_single_block_of_columns_has_no_loop_to_go_on_in() -> None:
    for length in (17, 32):
        source = generate(_gpt(length=length), H200).source
        assert "fs_mma_across" in source
        assert "continue" not in source
    assert "continue" in generate(_gpt(length=128), H200).source


def test_few_rows_are_not_streamed() -> None:
    def streams(batch: int) -> bool:
        shapes = [jax.ShapeDtypeStruct((batch, 64, 32), jnp.bfloat16)] * 3
        return "fs_mma_across" in generate(whole_of(attention, *shapes), H200).source

    rows = chains.MANY_ROWS * H200.sm_count
    assert not streams(rows // 64)
    assert streams(rows // 64 + 1)


def test_short_rows_are_streamed_if_that_takes_much_less_than_tiles() -> None:
    """By the estimate, in `generate`; figure 1 of the paper has products of a depth of eight."""
    shapes = [jax.ShapeDtypeStruct((256, 64, 32), jnp.bfloat16)] * 3
    assert "loop stream" in generate(whole_of(attention, *shapes), H200).template
    queries, keys, values = (
        jax.ShapeDtypeStruct((4096, n, d), jnp.float32) for n, d in ((94, 8), (94, 8), (94, 8))
    )
    template = generate(whole_of(attention, queries, keys, values), H200).template
    assert "stream" not in template
    assert "tensor" in template


def test_strict_numerics_and_highest_precision_stream_nothing() -> None:
    strict = CodegenOptions(numerics="strict")
    assert "fs_mma_across" not in generate(_gpt(), device("h200"), strict).source
    q = jax.ShapeDtypeStruct((96, 512, 64), jnp.float32)

    def exact(q: Array, k: Array, v: Array) -> Array:
        s = jnp.einsum("bid,bjd->bij", q, k, precision="highest")
        return jnp.einsum("bij,bjd->bid", jax.nn.softmax(s), v, precision="highest")

    assert "fs_mma_across" not in generate(whole_of(exact, q, q, q), device("h200")).source


def test_rows_that_do_not_fit_into_registers_are_read_again_for_each_block() -> None:
    """Of 64 floats a lane holds those of two rows all the time, of 128 a few."""
    held, read_again = (
        generate(_gpt(jnp.float32, width=width), device("h200")) for width in (768, 1536)
    )
    for kernel, words, loops in ((held, 32, 0), (read_again, 8, 1)):
        [declared] = re.findall(r"uint32_t \w*_words\[(\d+)\];\n *FS_UNROLL", kernel.source)
        assert int(declared) == words
        before = kernel.source.split(f"_words[{declared}]")[0]
        assert len(re.findall(r"for \(int block = ", before)) == loops


def test_what_does_not_depend_on_a_stream_is_not_packed_beside_it() -> None:
    packed = jax.ShapeDtypeStruct((8, 512, 2304), jnp.bfloat16)
    beside = generate(whole_of(lambda x: (gpt(x), x * 2), packed), device("h200"))
    assert "fs_mma_across" not in beside.source


def test_weights_that_are_a_result_take_a_second_walk() -> None:
    q = jax.ShapeDtypeStruct((96, 512, 64), jnp.bfloat16)

    def weights(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
        p = jax.nn.softmax(jnp.einsum("bid,bjd->bij", q, k))
        return p, jnp.einsum("bij,bjd->bid", p, v)

    source = generate(whole_of(weights, q, q, q), device("h200")).source
    assert source.count("fs_mma_along<bf16") == 2


#: What may be a result beside those of a streamed attention.
ELEMENTS: dict[str, Callable[..., Array]] = {
    "scores": lambda scores, weights, total, mixed: scores,
    "weights": lambda scores, weights, total, mixed: weights,
    "rows of scores": lambda scores, weights, total, mixed: scores[:, 1::5, 3:50],
    "a row of weights": lambda scores, weights, total, mixed: weights[:, :1],
    "some totals": lambda scores, weights, total, mixed: total[:, 2:9],
    "columns of results": lambda scores, weights, total, mixed: mixed[..., 4:8],
}


@pytest.mark.parametrize("mask", [False, True])
def test_what_lies_between_the_dots_may_be_a_result(mask: bool, host_compiler: str) -> None:
    make = np.random.default_rng(5)
    dims = (3, 40, 16), (3, 160, 16), (3, 160, 16)
    args = [(make.standard_normal(d) * 0.5).astype(F32) for d in dims]

    def fun(q: Array, k: Array, v: Array, of: Callable[..., Array]) -> tuple[Array, Array]:
        scores = jnp.einsum("bid,bjd->bij", q, k)
        i, j = (jax.lax.broadcasted_iota(jnp.int32, (40, 160), d) for d in (0, 1))
        s = jnp.where(i >= j, scores, -1e30) if mask else scores
        weights = jnp.exp(s - s.max(-1, keepdims=True))
        total = weights.sum(-1)
        mixed = jnp.einsum("bij,bjd->bid", weights, v) / total[..., None]
        return mixed, of(scores, weights, total, mixed)

    graphs = [
        whole(lowered(functools.partial(fun, of=of), *args), f"between_{n}")
        for n, of in enumerate(ELEMENTS.values())
    ]
    built = build([Case(graph, args, SMALL) for graph in graphs])
    for case, kernel in built.kernels.items():
        assert "fs_mma_across" in kernel.source
        for order, seed in ORDERS:
            built.check(case, order, seed)


def test_the_tile_of_a_streamed_nest() -> None:
    [group] = plan_kernel(_gpt(), device("h200")).plan.groups
    [nest] = group.nests
    assert nest.tile is not None
    assert nest.tile.tensor
    assert (nest.rows, nest.inner, nest.tile.columns) == (64, 512, 64)
    assert group.tiles == 8 * 12 * 8


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
def test_attention_compiles_for_hopper_without_spills(nvrtc: Any, dtype: Any) -> None:
    for width, length in ((768, 512), (1536, 512), (768, 197), (768, 577)):
        kernel = generate(_gpt(dtype, length, width), device("h200"))
        [(_, used)] = nvrtc.compile(kernel.source, "sm_90").resources
        # the compiler itself gives up a few registers where another block fits without them
        assert used.spill_store_bytes <= 32 * (used.registers in (128, 168))
        assert used.registers * kernel.block <= 65_536


def _causal(b: Builder) -> Graph:
    """Attention of 96 heads on 512 x 64, made op by op."""
    q, k, v = (b.parameter((96, 512, 64), "bf16") for _ in range(3))
    for op, name in zip((q, k, v), ("queries", "keys", "values"), strict=True):
        op.name = name
    scores = b.dot(q, b.transpose(k, (0, 2, 1)), batch=1)
    scores.name = "scores"
    s = b.op("convert", scores.dims, scores, dtype="f32")
    rows, columns = (b.op("iota", (512, 512), dtype="s32", dimension=d) for d in (0, 1))
    seen = b.op("compare", (512, 512), rows, columns, dtype="pred", direction="GE")
    seen = b.op("broadcast", s.dims, seen, dtype="pred", dimensions=(1, 2))
    scaled, lowest = b.mul(s, b.splat(0.125, s.dims)), b.splat(-1e30, s.dims)
    s = b.op("select", s.dims, seen, scaled, lowest, dtype="f32")
    s.name = "masked"
    top = b.reduce(s, [2], "maximum")
    top.name = "maximum"
    e = b.exp(b.sub(s, b.like(top, s, [2])))
    e.name = "weights"
    total = b.reduce(e, [2])
    total.name = "total"
    p = b.div(e, b.like(total, e, [2]))
    mixed = b.dot(b.op("convert", p.dims, p, dtype="bf16"), v, batch=1)
    mixed.name = "mixed"
    return whole(b.graph(mixed), "attention")


def test_source_of_causal_attention(golden: Golden) -> None:
    golden(generate(_causal(Builder()), device("h200")).source)


# ---- any size ------------------------------------------------------------------------------------

ROWS = st.sampled_from([16, 17, 32, 40, 48, 64, 80])
COLUMNS = st.sampled_from([129, 130, 136, 160, 192, 200])
DEPTHS = st.sampled_from([3, 8, 16, 20, 32, 40])


LOWEST = st.sampled_from([-1e30, -np.inf, float(np.finfo(F32).min)])
#: Which columns a row sees, by both numbers; of the last, some rows see none.
MASKS: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda i, j: j >= 0,
    "causal": lambda i, j: i >= j,
    "late": lambda i, j: j >= i,
    "window": lambda i, j: (i >= j) & (j > i - 20),
    "after": lambda i, j: ~((j < i + 30) | (j >= i + 70)),
    "tril": lambda i, j: jnp.tril(jnp.ones((i.shape[0], j.shape[1]), bool), 3) & (j != i),
    "diagonal": lambda i, j: j == i + 40,
    "few": lambda i, j: (j < i - 30) & (j > i - 40),
}
KINDS = st.sampled_from([*MASKS, "data"])
TYPES = st.sampled_from([F32, BF16, F16])


def _stream(
    rows: int, columns: int, depth: int, results: int, dtype: Any, lowest: float, how: str
) -> Case:
    """Attention masked by positions, by data, or not."""
    make = np.random.default_rng(rows * columns)
    dims = (3, rows, depth), (3, columns, depth), (3, columns, results)
    values = [(make.standard_normal(d) * 0.5).astype(dtype) for d in dims]
    keep = make.random((rows, columns)) > 0.3
    keep[:, 0] = True

    def fun(q: Array, k: Array, v: Array, *keep: Array) -> Array:
        s = jnp.einsum("bid,bjd->bij", q, k).astype(F32)
        i, j = (jax.lax.broadcasted_iota(jnp.int32, (rows, columns), d) for d in (0, 1))
        where = keep[0] if keep else MASKS[how](i, j)
        p = jax.nn.softmax(jnp.where(where, s, lowest))
        return jnp.einsum("bij,bjd->bid", p.astype(v.dtype), v)

    args = [*values, keep] if how == "data" else values
    name = f"s_{rows}_{columns}_{depth}_{results}_{how}"
    return Case(whole(lowered(fun, *args), name), args, SMALL)


@settings(max_examples=2)
@given(
    st.lists(st.tuples(ROWS, COLUMNS, DEPTHS, DEPTHS, TYPES, LOWEST, KINDS), min_size=8, max_size=8)
)
def test_streams_of_any_size_are_near_the_float64_run(
    host_compiler: str, specs: list[tuple[Any, ...]]
) -> None:
    built = build([_stream(*spec) for spec in specs])
    assert any("fs_mma_across" in kernel.source for kernel in built.kernels.values())
    for case in built.kernels:
        for order, seed in ORDERS:
            built.check(case, order, seed)


#: Of blocks of 64 rows, two of an array: at which 32 columns they begin, behind how many they end.
RANGES: dict[str, tuple[str | None, str | None]] = {
    "none": (None, None),
    "causal": (None, "(tile % 2) * 2 + 2"),
    "late": ("(tile % 2) * 2", "9 - first"),
    "window": ("(tile % 2) * 2 - 1", "(tile % 2) * 2 + 2 - first"),
    "after": ("(tile % 2) * 2", "(tile % 2) * 2 + 5 - first"),
    "tril": (None, "(tile % 2) * 2 + 3"),
    "diagonal": ("(tile % 2) * 2 + 1", "(tile % 2) * 2 + 4 - first"),
    "few": (None, "(tile % 2) * 2 + 2"),
}


@pytest.mark.parametrize("how", MASKS)
def test_blocks_of_columns_that_no_row_sees_are_not_loaded(how: str, host_compiler: str) -> None:
    """Unless a row of the block sees none at all, and has no value that masks are far below."""
    cases = [_stream(128, 288, 16, 16, F32, lowest, how) for lowest in (-1e30, -np.inf)]
    built = build(cases)
    first, seen = RANGES[how]
    for case, kernel in built.kernels.items():
        for name, text in (("first", first), ("seen", seen)):
            found = re.search(rf"const int {name} = ([^;]*);", kernel.source)
            assert (found and found[1].partition(" - fs_min<int>")[0]) == text
        for order, seed in ORDERS:
            built.check(case, order, seed)


def grouped(q: Array, k: Array, v: Array) -> Array:
    """Attention in which several queries of a position share a key, as JAX has it."""
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def test_rows_are_the_positions_of_queries_that_share_keys(host_compiler: str) -> None:
    """Not the few queries of one position, which would leave most of a tile empty."""
    draw = np.random.default_rng(5)
    q, k, v = (draw.standard_normal((1, 160, n, 32)).astype(F32) for n in (6, 2, 2))
    case = Case(whole_of(grouped, q, k, v), [q, k, v], SMALL, CodegenOptions(check=True))
    built = build([case])
    for order, seed in ORDERS:
        [got] = built.run(case, order, seed)
        np.testing.assert_allclose(got, grouped(q, k, v), rtol=2e-3, atol=2e-3)
    [group] = plan_kernel(case.graph, SMALL).plan.groups
    [nest] = group.nests
    assert (nest.rows, nest.inner) == (40, 160)


def _narrowed(weights: Callable[[Array], Array]) -> Case:
    """A dot of weights that only their factors bring into the range of f16."""
    make = np.random.default_rng(5)
    q, k = (make.standard_normal((n, 16)).astype(F32) for n in (4352, 160))
    v = make.standard_normal((160, 16)).astype(F16)
    fun = lambda q, k, v: weights(q @ k.T * 0.5 + 14).astype(F16) @ v  # noqa: E731
    return Case(whole(lowered(fun, q, k, v), "narrowed"), [q, k, v], H200)


@pytest.mark.parametrize(
    "weights",
    [
        lambda s: jnp.exp(s) / jnp.exp(s).sum(1, keepdims=True),
        lambda s: jnp.exp(s) * np.float32(1e-8),
        lambda s: (s * 1e5) * np.float32(1e-5),
    ],
    ids=["powers", "a constant", "twice"],
)
def test_weights_are_in_range_before_they_are_narrowed(
    weights: Callable[[Array], Array], host_compiler: str
) -> None:
    case = _narrowed(weights)
    built = build([case])
    built.check(case, *ORDERS[0])


def _divided(s: Array) -> Array:
    """Weights by a sum of numbers that may be of any size."""
    return abs(s) / abs(s).sum(1, keepdims=True)


def test_sums_of_a_stream_stay_in_range(host_compiler: str) -> None:
    """Without the divisor of the weights, what the dot sums is 1e41."""
    make = np.random.default_rng(5)
    q, k = (make.standard_normal((n, 16)).astype(F32) * F32(1e15) for n in (4352, 160))
    v = make.standard_normal((160, 16)).astype(F32) * F32(1e11)
    fun = lambda q, k, v: _divided(q @ k.T) @ v  # noqa: E731
    case = Case(whole(lowered(fun, q, k, v), "divided"), [q, k, v], H200)
    build([case]).check(case, *ORDERS[0])


def test_a_stream_in_f16_may_be_rounded_behind_its_divisor(host_compiler: str) -> None:
    """What the dot sums is beyond 65504, and steps are made of what that is divided by."""
    make = np.random.default_rng(5)
    q, k = (make.standard_normal((n, 16)).astype(F16) for n in (4352, 160))
    v = np.full((160, 16), 30_000, F16)
    fun = lambda q, k, v: jnp.floor(jax.nn.softmax(q @ k.T) @ v / 8192)  # noqa: E731
    case = Case(whole(lowered(fun, q, k, v), "stepped"), [q, k, v], H200)
    assert "fs_mma_across" in case.kernel().source
    build([case]).check(case, *ORDERS[0])
