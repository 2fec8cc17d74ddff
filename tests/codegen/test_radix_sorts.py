"""Sorts that XLA's GPU compiler hands to CUB and to its kernel of largest elements, in kernels.

The modules are what passes are shown on a GPU."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from fusionstitch.codegen.generate import generate
from fusionstitch.codegen.settings import CodegenOptions
from fusionstitch.compiler import core
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.importer import from_proto, parse
from fusionstitch.hlo.parted_results import part_results
from fusionstitch.hlo.text import text_to_proto
from fusionstitch.options import Options
from fusionstitch.patterns.fusible import fusible
from tests.codegen.regions import ORDERS, Case, build, whole
from tests.codegen.test_sorts import CHECKED, STRICT, alike, special

H200 = device("h200")
CUB = "xla.gpu.ext.cub_sort_unassigned_scratch_size"
OLDER = "__cub$DeviceRadixSortUnassignedScratchSize"
UNSIGNED = {"f32": ("u32", 2**31), "f16": ("u16", 2**15), "bf16": ("u16", 2**15)}
NUMPY = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def call(
    results: str, operands: str, descending: bool, target: str = CUB, name: str = "call"
) -> str:
    """A custom call of CUB."""
    config = f'backend_config={{"descending":{str(descending).lower()}}}'
    target = f'custom_call_target="{target}"'
    return f"  {name} = ({results}, u8[1]) custom-call({operands}), {target}, {config}\n"


def floats_as_integers(float_: str, dims: str) -> str:
    """What XLA makes of floats before it has CUB sort them."""
    bits, top = UNSIGNED[float_]
    return f"""  unequal = pred[{dims}] compare(x, x), direction=NE
  one_nan = {float_}[] constant(nan)
  nan = {float_}[{dims}] broadcast(one_nan), dimensions={{}}
  one_zero = {float_}[] constant(0)
  zero = {float_}[{dims}] broadcast(one_zero), dimensions={{}}
  is_zero = pred[{dims}] compare(x, zero), direction=EQ
  positive = {float_}[{dims}] select(is_zero, zero, x)
  canonical = {float_}[{dims}] select(unequal, nan, positive)
  below = pred[{dims}] compare(canonical, zero), direction=LT
  bits = {bits}[{dims}] bitcast-convert(canonical)
  inverted = {bits}[{dims}] not(bits)
  one_top = {bits}[] constant({top})
  top = {bits}[{dims}] broadcast(one_top), dimensions={{}}
  flipped = {bits}[{dims}] xor(top, bits)
  keys = {bits}[{dims}] select(below, inverted, flipped)
"""


def sorted_floats(float_: str, dims: str, target: str = CUB) -> str:
    """`jnp.sort`."""
    bits, _ = UNSIGNED[float_]
    return (
        f"HloModule m\nENTRY e {{\n  x = {float_}[{dims}] parameter(0)\n"
        + floats_as_integers(float_, dims)
        + call(f"{bits}[{dims}], {float_}[{dims}]", "keys, x", False, target)
        + f"  ROOT r = {float_}[{dims}] get-tuple-element(call), index=1\n}}\n"
    )


def order_of_floats(float_: str, rows: int, n: int) -> str:
    """`jnp.argsort`, and the elements."""
    bits, _ = UNSIGNED[float_]
    dims = f"{rows},{n}"
    return (
        f"HloModule m\nENTRY e {{\n  x = {float_}[{dims}] parameter(0)\n"
        + floats_as_integers(float_, dims)
        + f"""  raw = {bits}[{dims}] bitcast-convert(x)
  high = u64[{dims}] convert(raw)
  one_width = u64[] constant(32)
  width = u64[{dims}] broadcast(one_width), dimensions={{}}
  shifted = u64[{dims}] shift-left(high, width)
  numbers = s32[{dims}] iota(), iota_dimension=1
  unsigned = u32[{dims}] bitcast-convert(numbers)
  low = u64[{dims}] convert(unsigned)
  words = u64[{dims}] or(shifted, low)
"""
        + call(f"{bits}[{dims}], u64[{dims}]", "keys, words", False)
        + f"""  moved = u64[{dims}] get-tuple-element(call), index=1
  found = u32[{dims}] convert(moved)
  order = s32[{dims}] bitcast-convert(found)
  above = u64[{dims}] shift-right-logical(moved, width)
  element = {bits}[{dims}] convert(above)
  y = {float_}[{dims}] bitcast-convert(element)
  ROOT t = (s32[{dims}], {float_}[{dims}]) tuple(order, y)
}}
"""
    )


def pairs(keys: str, values: str, dims: str, descending: bool, both: bool = True) -> str:
    """Keys with what belongs to them, as they are: numbers of elements, or a second operand."""
    dim = dims.count(",")
    given = f"iota(), iota_dimension={dim}" if values == "s32" else "parameter(1)"
    shapes = f"{keys}[{dims}], {values}[{dims}]"
    parts = f"""  a = {keys}[{dims}] get-tuple-element(call), index=0
  b = {values}[{dims}] get-tuple-element(call), index=1
  ROOT t = ({shapes}) tuple(a, b)
"""
    alone = f"  ROOT b = {values}[{dims}] get-tuple-element(call), index=1\n"
    return (
        f"HloModule m\nENTRY e {{\n  x = {keys}[{dims}] parameter(0)\n"
        f"  y = {values}[{dims}] {given}\n"
        + call(shapes, "x, y", descending)
        + (parts if both else alone)
        + "}\n"
    )


def graph_of(text: str) -> Graph:
    return from_proto(text_to_proto(text)).entry


def sort_of(graph: Graph) -> Op:
    return next(op for op in graph if op.opcode in ("radix-sort", "topk"))


def ranked(x: np.ndarray, descending: bool = False) -> np.ndarray:
    """The order of elements as NumPy has it, NaN last."""
    if descending:
        return x.shape[-1] - 1 - np.argsort(x[..., ::-1], -1, kind="stable")[..., ::-1]
    return np.argsort(x, -1, kind="stable")


def run(text: str, *args: np.ndarray, options: CodegenOptions = CHECKED) -> list[np.ndarray]:
    """A module as one kernel, by several orders of threads; it has the values of the reference."""
    graph = graph_of(text)
    assert fusible(sort_of(graph), H200)
    case = Case(whole(graph), args, options=options)
    built = build([case])
    expected = evaluate(graph, args)
    for order, seed in ORDERS:
        got = built.run(case, order, seed)
        assert all(map(alike, got, expected)), order
    return list(got)


@pytest.mark.parametrize("float_", UNSIGNED)
@pytest.mark.parametrize("n", [5, 40, 300])
def test_floats_are_sorted_by_their_bits(float_: str, n: int, host_compiler: str) -> None:
    x = special(7, n, dtype=NUMPY[float_])
    [got] = run(sorted_floats(float_, f"7,{n}"), x, options=STRICT)
    assert alike(got, np.take_along_axis(x, ranked(x.astype(np.float32)), -1))


def test_nothing_else_goes_with_them() -> None:
    """The integers are the keys that a kernel makes itself, and no element has a number."""
    source = generate(whole(graph_of(sorted_floats("f32", "4096,100"))), H200).source
    assert "uint64_t" not in source


def test_other_signs_of_zero_come_in_their_order_by_default(host_compiler: str) -> None:
    x = special(7, 40)
    graph = graph_of(sorted_floats("f32", "7,40"))
    case = Case(whole(graph), [x], options=CHECKED)
    [got], [wanted] = build([case]).run(case), evaluate(graph, [x])
    np.testing.assert_array_equal(got, wanted)
    zeros = np.signbit(got[got == 0])
    assert zeros.any()
    assert not zeros.all()


@pytest.mark.parametrize("float_", UNSIGNED)
@pytest.mark.parametrize("n", [5, 40, 1030])
def test_words_have_elements_and_numbers(float_: str, n: int, host_compiler: str) -> None:
    x = special(7, n, dtype=NUMPY[float_])
    order, y = run(order_of_floats(float_, 7, n), x)
    wanted = ranked(x.astype(np.float32))
    np.testing.assert_array_equal(order, wanted)
    assert alike(y, np.take_along_axis(x, wanted, -1))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("n", [6, 70])
@pytest.mark.parametrize("dtype", ["s32", "u32", "s16", "u8"])
def test_integers_are_sorted_by_value(
    dtype: str, n: int, descending: bool, host_compiler: str
) -> None:
    own = np.dtype({"s": "int", "u": "uint"}[dtype[0]] + dtype[1:])
    low = np.iinfo(own).min
    x = np.random.default_rng(n).integers(low, low + 20, (9, n)).astype(own)
    y = special(9, n)
    for values in ("s32", "f32"):
        given = (x, y) if values == "f32" else (x,)
        keys, moved = run(pairs(dtype, values, f"9,{n}", descending), *given)
        order = ranked(x, descending)
        np.testing.assert_array_equal(keys, np.take_along_axis(x, order, -1))
        wanted = np.take_along_axis(y, order, -1) if values == "f32" else order
        np.testing.assert_array_equal(moved, wanted)


@pytest.mark.parametrize("float_", ["f32", "bf16"])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("n", [6, 70, 600])
def test_zeros_are_equal_to_cub(float_: str, both: bool, n: int, host_compiler: str) -> None:
    """Floats as they are, by which XLA finds largest elements: only NaN has its bits."""
    draw = np.random.default_rng(n)
    x = draw.choice(np.array([0.0, -0.0, 1.0, -np.inf, 2.5]), (5, n)).astype(NUMPY[float_])
    *keys, order = run(pairs(float_, "s32", f"5,{n}", True, both), x)
    wanted = ranked(x.astype(np.float32), descending=True)
    np.testing.assert_array_equal(order, wanted)
    for got in keys:
        sorted_ = np.take_along_axis(x, wanted, -1)
        assert alike(got, sorted_)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(sorted_))


def test_nan_has_its_bits_to_cub(host_compiler: str) -> None:
    run(pairs("f32", "s32", "7,40", True), special(7, 40))


@pytest.mark.parametrize("target", [CUB, OLDER, "__cub$DeviceRadixSort"])
def test_each_name_of_the_target_is_known(target: str) -> None:
    assert sort_of(graph_of(sorted_floats("f32", "3,20", target))).opcode == "radix-sort"


TOP_K = """HloModule m
more {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=GT, type=TOTALORDER
}
ENTRY e {
  x = f32[6,1100] parameter(0)
  y = f32[6,1100] negate(x)
  ROOT call = (f32[6,8], s32[6,8]) custom-call(y), custom_call_target="__gpu$TopK", \
api_version=API_VERSION_TYPED_FFI, called_computations={more}, backend_config={is_stable = true}
}
"""


def parted(text: str) -> Graph:
    proto = parse(text_to_proto(text))
    part_results(proto)
    return from_proto(proto.SerializeToString()).entry


def test_largest_elements_are_a_topk(host_compiler: str) -> None:
    graph = parted(TOP_K)
    assert sort_of(graph).opcode == "topk"
    assert graph.root.opcode == "tuple"
    x = special(6, 1100)
    case = Case(whole(graph), [x], options=CHECKED)
    for got, expected in zip(build([case]).run(case), evaluate(graph, [x]), strict=True):
        assert alike(got, expected)


SORT = """HloModule m
less {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}
ENTRY e {
  x = s32[4096,60] parameter(0)
  y = f32[4096,60] parameter(1)
  ROOT s = (s32[4096,60], f32[4096,60]) sort(x, y), dimensions={1}, to_apply=less
}
"""


@pytest.mark.parametrize("text", [TOP_K, SORT])
def test_what_is_returned_as_a_whole_is_stitched(text: str) -> None:
    stitched = core.stitch(text_to_proto(text), Options(scorer="paper"), H200, None)
    [kernel] = stitched.kernels
    assert [shape.rank for shape in kernel.outputs] == [2, 2]
    assert not stitched.fallbacks


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("u32[7,40], s32[7,40], u8[1]", "u32[7,40], u8[1], u8[1]"),
        ("s32[7,40], u8[1]", "s32[7,41], u8[1]"),
        (f'"{CUB}"', '"xla.gpu.other"'),
    ],
)
def test_other_calls_are_left_to_xla(before: str, after: str) -> None:
    """Of other results, and of other names."""
    text = pairs("u32", "s32", "7,40", False)
    root = (
        text[: text.index("  a = ")] + "  ROOT a = u32[7,40] get-tuple-element(call), index=0\n}\n"
    )
    opcodes = {op.opcode for op in graph_of(root)}
    assert "radix-sort" in opcodes
    assert "custom-call" in {op.opcode for op in graph_of(root.replace(before, after))}


@pytest.mark.parametrize(
    "changed",
    [
        ("direction=NE", "direction=EQ"),
        ("constant(nan)", "constant(1)"),
        ("direction=LT", "direction=GT"),
        (f"constant({2**31})", f"constant({2**30})"),
        ("not(bits)", "negate(bits)"),
        ("xor(top, bits)", "or(top, bits)"),
    ],
)
def test_other_integers_are_sorted_as_integers(
    changed: tuple[str, str], host_compiler: str
) -> None:
    x = special(7, 40)
    run(sorted_floats("f32", "7,40").replace(*changed), x, options=STRICT)


@pytest.mark.parametrize(
    "changed",
    [
        ("constant(32)", "constant(24)"),
        ("or(shifted, low)", "xor(shifted, low)"),
        ("convert(raw)", "convert(bits)"),
        ("direction=NE", "direction=EQ"),
    ],
)
def test_other_words_are_moved_as_they_are(changed: tuple[str, str], host_compiler: str) -> None:
    x = special(7, 40)
    text = order_of_floats("f32", 7, 40).replace(*changed)
    run(text, x, options=STRICT)


def test_keys_of_64_bits_are_left_to_xla() -> None:
    verdict = fusible(sort_of(graph_of(pairs("u64", "f32", "7,40", False))), H200)
    assert "of this type" in verdict.reason


def test_what_is_not_stitched_stays_as_it_was() -> None:
    """A row that is too long."""
    text = sorted_floats("f32", "2,2000000")
    stitched = core.stitch(text_to_proto(text), Options(), H200, None)
    instructions = [i for c in parse(stitched.module).computations for i in c.instructions]
    [call_] = [i for i in instructions if i.custom_call_target == CUB]
    assert bytes(call_.backend_config) == b'{"descending":false}'
