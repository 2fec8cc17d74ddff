"""Every entry of the expression table, compiled once for the host and once for GPUs.

Reference: XLA's CPU backend over edge cases. It flushes subnormals to zero while it runs, so the
inputs here have none and subnormal results count as zero.
"""

import dataclasses
import functools
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from fusionstitch import codegen
from fusionstitch.codegen.text.expressions import (
    APPROXIMATE,
    DIRECTIONS,
    EXPRESSIONS,
    FUNCTORS,
    STRICT,
    Operator,
    Spelt,
    combine,
    expression,
    literal,
    spelt_number,
    supported,
)
from fusionstitch.codegen.text.types import C_TYPES, c_type
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.evaluate import evaluate_op
from fusionstitch.hlo.graph import FLOATS, FLOATS8, INTEGERS, UNSIGNED, Op, Shape
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.semantics import SEMANTICS, Kind
from fusionstitch.runtime import nvrtc
from tests.codegen.small_kernels import Launch, on_emulator, on_gpu, translation_unit

#: Floats of one byte are computed as f32 and rounded: see test_types.py.
TYPES = [dtype for dtype in C_TYPES if dtype not in FLOATS8]
FLOAT_EDGES = [0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 0.1, 7.3, 88.5, 127.9, 255.5, 300.0, 3e4, 1e-4]
INTEGER_EDGES = [0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 100, 127, 128, 255, 40_000]


def edges(dtype):
    """Values at which arithmetic of `dtype` is interesting, without subnormals."""
    kind = NUMPY_DTYPES[dtype]
    if dtype == "pred":
        return np.array([False, True])
    if dtype in INTEGERS:
        info = np.iinfo(kind)
        wanted = [*INTEGER_EDGES, *(-v for v in INTEGER_EDGES), info.min, info.min + 1, info.max]
        return np.array(sorted({v for v in wanted if info.min <= v <= info.max}), kind)
    info = ml_dtypes.finfo(kind)
    wide = {"f32": [2.0**31, 1e19, 1e20, 1e30], "f64": [2.0**31, 1e19, 1e20, 1e300]}
    positive = [*FLOAT_EDGES, *wide.get(dtype, []), float(info.max), float(info.tiny), np.inf]
    return np.array([*positive, *(-v for v in positive), np.nan]).astype(kind)


@dataclasses.dataclass(frozen=True)
class Case:
    """One kernel: an op, and the function that gives its reference from the operands' arrays."""

    op: Op
    reference: Callable

    @property
    def name(self):
        attrs = "_".join(str(v) for v in self.op.attrs.values())
        operands = "_".join(o.dtype for o in self.op.operands)
        return f"{self.op.opcode}_{operands}_{self.op.dtype}_{attrs}".replace("-", "_").lower()

    @functools.cached_property
    def inputs(self):
        """Every combination of edge values of the operands, flat."""
        values = [edges(o.dtype) for o in self.op.operands]
        if len(values) == 3:
            values = [v[:: max(1, len(v) // 12)] for v in values]
        return [np.ascontiguousarray(g).ravel() for g in np.meshgrid(*values, indexing="ij")]


def case(opcode, dtypes, result, reference, **attrs):
    operands = tuple(Op("parameter", Shape(d, (1,)), attrs={"index": 0}) for d in dtypes)
    return Case(Op(opcode, Shape(result, (1,)), operands, attrs), reference)


UNARY = {
    "abs": lax.abs, "negate": lax.neg, "sign": lax.sign, "not": lax.bitwise_not,
    "popcnt": lax.population_count, "count-leading-zeros": lax.clz, "floor": lax.floor,
    "ceil": lax.ceil, "sqrt": lax.sqrt, "rsqrt": lax.rsqrt, "cbrt": lax.cbrt,
    "exponential": lax.exp, "exponential-minus-one": lax.expm1, "log": lax.log,
    "log-plus-one": lax.log1p, "logistic": lax.logistic, "tanh": lax.tanh, "sine": lax.sin,
    "cosine": lax.cos, "tan": lax.tan, "erf": lax.erf, "inverse-erf": lax.erf_inv,
    "copy": lambda x: x,
    "round-nearest-afz": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "round-nearest-even": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
}  # fmt: skip
BINARY = {
    "add": lax.add, "subtract": lax.sub, "multiply": lax.mul, "divide": lax.div,
    "remainder": lax.rem, "maximum": lax.max, "minimum": lax.min, "and": lax.bitwise_and,
    "or": lax.bitwise_or, "xor": lax.bitwise_xor, "atan2": lax.atan2, "power": lax.pow,
    "shift-left": lax.shift_left, "shift-right-logical": lax.shift_right_logical,
    "shift-right-arithmetic": lax.shift_right_arithmetic,
}  # fmt: skip
COMPARE = {"EQ": lax.eq, "NE": lax.ne, "LT": lax.lt, "LE": lax.le, "GT": lax.gt, "GE": lax.ge}


def power_of_integers(base, exponent):
    """XLA's integer power by definition: wrapped powers, and 0 or a sign for negative exponents."""
    kind = np.asarray(base).dtype
    bits = 8 * kind.itemsize

    def one(b, e):
        if e < 0:
            return 1 if b == 1 else (-1) ** (e % 2) if b == -1 else 0
        return pow(b, e, 1 << bits)

    powers = [one(int(b), int(e)) % (1 << bits) for b, e in zip(base, exponent, strict=True)]
    return np.array(powers, f"uint{bits}").view(kind)


def total_order(direction):
    """IEEE total order: compares the bits as sign and magnitude."""

    def keys(x):
        bits = np.asarray(x).view(f"int{8 * x.dtype.itemsize}").astype(object)
        lowest = -(1 << 8 * x.dtype.itemsize - 1)
        return np.where(bits < 0, lowest - bits - 1, bits)

    operator = {
        "EQ": np.equal, "NE": np.not_equal, "LT": np.less,
        "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal,
    }[direction]  # fmt: skip
    return lambda a, b: operator(keys(a), keys(b)).astype(bool)


#: What lax refuses to express although HLO has it.
BY_HAND = {
    ("add", "pred"): np.logical_or,
    ("multiply", "pred"): np.logical_and,
    **{("abs", dtype): np.abs for dtype in UNSIGNED},
    **{("power", dtype): power_of_integers for dtype in INTEGERS},
}


def all_cases():
    found = []
    for dtype in TYPES:
        for table, arity in ((UNARY, 1), (BINARY, 2)):
            for opcode, reference in table.items():
                chosen = BY_HAND.get((opcode, dtype), reference)
                found.append(case(opcode, [dtype] * arity, dtype, chosen))
        for direction, reference in COMPARE.items():
            attrs = {"direction": direction, "total_order": False}
            found.append(case("compare", [dtype] * 2, "pred", reference, **attrs))
        for target in TYPES:
            to = functools.partial(lax.convert_element_type, new_dtype=NUMPY_DTYPES[target])
            found.append(case("convert", [dtype], target, to))
            if c_type(dtype).bytes == c_type(target).bytes and "pred" not in (dtype, target):
                as_ = functools.partial(lax.bitcast_convert_type, new_dtype=NUMPY_DTYPES[target])
                found.append(case("bitcast-convert", [dtype], target, as_))
        found.append(case("select", ["pred", dtype, dtype], dtype, lax.select))
        found.append(case("clamp", [dtype] * 3, dtype, lax.clamp))
        if dtype in FLOATS:
            found.append(case("is-finite", [dtype], "pred", lax.is_finite))
            for direction in DIRECTIONS:
                attrs = {"direction": direction, "total_order": True}
                found.append(case("compare", [dtype] * 2, "pred", total_order(direction), **attrs))
            for to in ((5, 10), (8, 7), (4, 3), (5, 0), (8, 23), (11, 52), (5, 2)):
                reduced = functools.partial(
                    lax.reduce_precision, exponent_bits=to[0], mantissa_bits=to[1]
                )
                attrs = {"exponent_bits": to[0], "mantissa_bits": to[1]}
                found.append(case("reduce-precision", [dtype], dtype, reduced, **attrs))
    return {c.name: c for c in found if supported(c.op)}


CASES = all_cases()


def launches():
    """One kernel per case."""
    args = [Spelt(f"fs_load({name}[i])") for name in "abc"]
    texts = {name: expression(c.op, args[: len(c.op.operands)]).text for name, c in CASES.items()}
    return [
        Launch.elementwise(name, texts[name], c.inputs, c.op.dtype) for name, c in CASES.items()
    ]


@pytest.fixture(scope="module")
def results():
    """By case: what the host build computes."""
    return dict(zip(CASES, on_emulator(launches()), strict=True))


@pytest.fixture(scope="module")
def references():
    """By case: what XLA's CPU backend computes, or the definition where lax has no such op."""
    ours = set(BY_HAND.values())
    by_hand = {n for n, c in CASES.items() if c.reference in ours or c.op.attrs.get("total_order")}

    def everything(arrays):
        return {n: CASES[n].reference(*arrays[n]) for n in arrays}

    with jax.enable_x64(True):
        xla = jax.jit(everything)({n: c.inputs for n, c in CASES.items() if n not in by_hand})
        found = {n: np.asarray(a) for n, a in xla.items()}
    return found | {n: CASES[n].reference(*CASES[n].inputs) for n in by_hand}


#: Units in the last place that two good math libraries may differ by; all else is exact.
LIBRARY_ULPS = 4
LIBRARY = {
    "rsqrt", "cbrt", "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic",
    "tanh", "sine", "cosine", "tan", "erf", "inverse-erf", "power", "atan2",
}  # fmt: skip


def ulps(a, b):
    """Distance in representable values; NaN equals NaN, subnormals equal zero."""

    def position(x):
        bits = x.view(f"int{8 * x.dtype.itemsize}").astype(object)
        return np.where(bits < 0, -(1 << 8 * x.dtype.itemsize - 1) - bits, bits)

    tiny = float(ml_dtypes.finfo(a.dtype).tiny)
    small = (np.abs(a) < tiny) & (np.abs(b) < tiny)
    same = (np.isnan(a) & np.isnan(b)) | small
    return np.where(same, 0, np.abs(position(a) - position(b)))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # numpy about bf16 NaN
def test_host_build_against_xla(name, results, references):
    compared(CASES[name], results[name], references[name])


def compared(c, result, reference):
    assert result.dtype == reference.dtype
    if c.op.dtype not in FLOATS:
        np.testing.assert_array_equal(result, reference)
        return
    allowed = LIBRARY_ULPS if c.op.opcode in LIBRARY else 0
    distance = ulps(result, reference)
    worst = int(np.argmax(distance))
    at = [x[worst] for x in c.inputs]
    assert distance[worst] <= allowed, (at, result[worst], reference[worst])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_numpy_against_xla(name, references):
    """What kernels of whole programs are compared with."""
    c, reference = CASES[name], references[name]
    compared(c, evaluate_op(c.op, c.inputs), reference)


def test_every_elementwise_opcode_has_cases():
    elementwise = {o for o, spec in SEMANTICS.items() if spec.kind is Kind.ELEMENTWISE}
    elementwise -= {"record", "member"}  # of code generation's own, see test_monoids.py
    elementwise -= {"real", "imag", "complex"}  # pairs by then, see test_complex.py
    assert {c.op.opcode for c in CASES.values()} == elementwise


def test_which_types_an_opcode_takes():
    def opcodes(dtype):
        return {c.op.opcode for c in CASES.values() if c.op.operands[-1].dtype == dtype}

    anywhere = {"maximum", "minimum", "clamp", "select", "copy", "compare", "convert"}
    bitwise = {"and", "or", "xor", "not"}
    number = {"subtract", "divide", "remainder", "power", "abs", "negate", "sign"}
    number |= {"add", "multiply", "bitcast-convert"}
    assert opcodes("pred") == anywhere | bitwise | {"add", "multiply"}
    shifts = {"shift-left", "shift-right-logical", "shift-right-arithmetic"}
    for dtype in INTEGERS:
        counts = {"popcnt", "count-leading-zeros"}
        assert opcodes(dtype) == anywhere | bitwise | number | shifts | counts
    all_opcodes = set(EXPRESSIONS) | {"compare", "convert", "is-finite", "bitcast-convert"}
    all_opcodes |= {"reduce-precision"}
    for dtype in FLOATS:
        assert opcodes(dtype) == all_opcodes - bitwise - shifts - {"popcnt", "count-leading-zeros"}


def test_what_has_no_entry_says_so():
    with pytest.raises(CodegenError, match="and of f32 has no C expression: leave the op to XLA"):
        expression(case("and", ["f32"] * 2, "f32", None).op, [Spelt("a"), Spelt("b")])
    with pytest.raises(CodegenError, match="sort of s32 has no C expression"):
        expression(case("sort", ["s32"], "s32", None).op, [Spelt("a")])
    with pytest.raises(CodegenError, match="Element type f8e8m0fnu has no CUDA-C type"):
        expression(case("convert", ["f8e8m0fnu"], "f32", None).op, [Spelt("a")])
    with pytest.raises(CodegenError, match="bitcast-convert from f32 to s8 changes the shape"):
        expression(case("bitcast-convert", ["f32"], "s8", None).op, [Spelt("a")])


# ---- text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opcode", "dtype", "args", "text"),
    [
        ("add", "f32", ["a", "b"], "a + b"),
        ("multiply", "f32", [Spelt("a + b", False), "x[i]"], "(a + b) * x[i]"),
        ("negate", "f32", [Spelt("-a", False)], "-(-a)"),
        ("negate", "f32", [Spelt("(a) - (b)", False)], "-((a) - (b))"),
        ("divide", "f32", ["1.0f", "f(a, b)"], "fs_divide(1.0f, f(a, b))"),
        ("divide", "f64", ["1e-08", "fs_load(p[i])"], "1e-08 / fs_load(p[i])"),
        (
            "add",
            "f32",
            ["fs_to_int<int8_t>(a)", spelt_number("-1.0f")],
            "fs_to_int<int8_t>(a) + (-1.0f)",
        ),
        ("add", "f32", ["fs_limits<float>::highest()", "b"], "fs_limits<float>::highest() + b"),
        ("add", "s32", ["a", "b"], "fs_add(a, b)"),
        ("add", "u32", ["a", "b"], "a + b"),
        ("and", "u8", ["a", "b"], "uint8_t(a & b)"),
        ("tanh", "bf16", ["a"], "fs_approximate_tanh(a)"),
        ("tanh", "f16", ["a"], "tanhf(a)"),
        ("tanh", "f32", ["a"], "tanhf(a)"),
        ("tanh", "f64", ["a"], "tanh(a)"),
    ],
)
def test_text(opcode, dtype, args, text):
    own = [arg if isinstance(arg, Spelt) else Spelt(arg) for arg in args]
    assert expression(case(opcode, [dtype] * len(args), dtype, None).op, own).text == text


def test_entries_that_are_no_calls_say_so():
    """By that alone is known where parentheses have to be."""
    entries = [
        entry for table in (EXPRESSIONS, STRICT) for one in table.values() for entry in one.values()
    ]
    entries += [entry for entry, _ in APPROXIMATE.values()]
    assert len(entries) > 80
    for entry in entries:
        called = entry == "{0}" or re.fullmatch(r"[\w{}]+\([^()]*\)", entry) is not None
        assert called is not isinstance(entry, Operator), entry


def test_strict_numerics_rounds_what_a_bf16_op_computes():
    def strict(opcode, source, target, *args):
        op = case(opcode, [source] * len(args), target, None).op
        return expression(op, list(map(Spelt, args)), numerics="strict").text

    assert strict("add", "bf16", "bf16", "a", "b") == "fs_round_bf16(a + b)"
    assert strict("exponential", "f16", "f16", "a") == "fs_round_f16(expf(a))"
    assert strict("convert", "f32", "bf16", "a") == "fs_round_bf16(a)"
    assert strict("add", "f8e5m2", "f8e5m2", "a", "b") == "fs_round<f8e5m2>(a + b)"
    assert strict("maximum", "bf16", "bf16", "a", "b") == "fs_max(a, b)"
    assert strict("add", "f32", "f32", "a", "b") == "a + b"


# ---- literals and reducers ----------------------------------------------------------------------


def test_literals_are_exact():
    rng = np.random.default_rng(0)
    values, kernels = [], []
    for dtype in TYPES:
        kind = NUMPY_DTYPES[dtype]
        found = edges(dtype)
        if dtype in FLOATS:
            bits = rng.integers(0, 1 << 8 * kind.itemsize, 400, f"uint{8 * kind.itemsize}")
            found = np.concatenate([found, bits.view(kind)])
            # the conversion to 16 bits makes signalling NaN quiet
            found = found if kind.itemsize > 2 else found[~np.isnan(found)]
        listed = ", ".join(literal(v, dtype) for v in found)
        stored, compute = c_type(dtype).storage, c_type(dtype).compute
        body = f"  const {compute} values[] = {{{listed}}};\n"
        body += f"  for (int i = 0; i < {found.size}; ++i)"
        body += f" out[i] = fs_store_as<{stored}>(values[i]);"
        values.append(found)
        kernels.append(Launch.of(f"literals_{dtype}", body, [], dtype, found.size))
    for expected, out in zip(values, on_emulator(kernels), strict=True):
        as_bits = f"uint{8 * out.dtype.itemsize}"
        np.testing.assert_array_equal(out.view(as_bits), expected.view(as_bits))


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.1, "f32", "0.1f"),
        (1.0, "bf16", "1.0f"),
        (-0.0, "f32", "-0.0f"),
        (-np.inf, "f32", "-fs_limits<float>::highest()"),
        (np.nan, "f32", "fs_bitcast<float>(0x7fc00000u)"),
        (1 / 3, "f64", "0.3333333333333333"),
        (7, "s32", "7"),
        (-(2**31), "s32", "(-2147483647 - 1)"),
        (7, "u32", "7u"),
        (-3, "s8", "int8_t(-3)"),
        (-(2**63), "s64", "int64_t(-9223372036854775807 - 1)"),
        (2**64 - 1, "u64", "uint64_t(18446744073709551615u)"),
        (True, "pred", "true"),
    ],
)
def test_literal_text(value, dtype, text):
    assert literal(value, dtype) == text


REDUCERS = [
    (reducer, dtype)
    for reducer in FUNCTORS
    for dtype in TYPES
    if dtype not in FLOATS or reducer not in ("and", "or", "xor")
]


def test_reducers_have_an_identity_on_both_sides():
    kernels = []
    for reducer, dtype in REDUCERS:
        same, functor = combine(reducer, dtype)
        also = f"{functor}::identity<{c_type(dtype).compute}>()"
        text = f"{functor}::apply({also}, {functor}::apply(fs_load(a[i]), {same}))"
        kernels.append(Launch.elementwise(f"{reducer}_{dtype}", text, [edges(dtype)], dtype))
    for (_, dtype), out in zip(REDUCERS, on_emulator(kernels), strict=True):
        wide = np.float64 if dtype in FLOATS else out.dtype
        np.testing.assert_array_equal(out.astype(wide), edges(dtype).astype(wide))


def test_a_reducer_without_functor_is_refused():
    with pytest.raises(CodegenError, match="A reduction of f32 by xor has no functor"):
        combine("xor", "f32")
    with pytest.raises(CodegenError, match="A reduction of s32 by divide has no functor"):
        combine("divide", "s32")


# ---- GPUs ---------------------------------------------------------------------------------------


@pytest.mark.skipif(not nvrtc.available(), reason=nvrtc.available().reason)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_the_table_compiles_for_gpus_without_warnings(arch):
    compiled = nvrtc.compile(translation_unit(launches()), arch)
    assert len(compiled.resources) == len(CASES)
    assert "warning" not in compiled.log


def test_the_table_compiles_on_the_host_without_warnings(host_compiler):
    command = [host_compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    command += ["-DFUSIONSTITCH_EMULATE", f"-I{Path(codegen.__file__).parent / 'cuda'}"]
    source = translation_unit(launches())
    subprocess.run([*command, "-xc++", "-"], input=source, text=True, check=True)


#: Ops that GPUs approximate unless numerics are strict, as XLA does, and their ulps: the emulator
#: rounds them exactly.
APPROXIMATED = {"divide": 2, "sqrt": 1}


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_gpu_results(results):
    wrong = []
    for (name, c), out in zip(CASES.items(), on_gpu(launches()), strict=True):
        if c.op.dtype not in FLOATS:
            distance = (out != results[name]).astype(int)
        else:
            distance = ulps(out, results[name])
        if c.op.opcode == "bitcast-convert" and c.op.operands[0].dtype in ("f16", "bf16"):
            distance[np.isnan(c.inputs[0])] = 0  # GPUs convert every NaN to the same one
        allowed = LIBRARY_ULPS if c.op.opcode in LIBRARY else 0
        if c.op.dtype == "f32":
            allowed = max(allowed, APPROXIMATED.get(c.op.opcode, 0))
        if distance.max() > allowed:
            at = int(np.argmax(distance))
            wrong.append((name, [x[at] for x in c.inputs], out[at], results[name][at]))
    assert not wrong
