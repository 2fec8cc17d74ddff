"""HLO arithmetic as C expressions: one table, opcode by class of element type.

Arguments and results have the compute type of their op (`codegen/text/types.py`). Where C and HLO
disagree (overflow, division by zero, shifts, NaN, narrow integers) the entry calls a helper of
"fusionstitch.cuh".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.text.types import c_type
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import FLOATS, FLOATS8, INTEGERS, SIGNED, Op
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.rewrite import splat

#: The classes of each element type, the most specific first: an opcode's entry is looked up in
#: this order. Integers of 32 bits and more need no cast back to their type.
CLASSES: Mapping[str, tuple[str, ...]] = {
    "pred": ("pred", "any"),
    **dict.fromkeys(("s8", "s16"), ("narrow", "signed", "integer", "any")),
    **dict.fromkeys(("u8", "u16"), ("narrow", "unsigned", "integer", "any")),
    **dict.fromkeys(("s32", "s64"), ("wide", "signed", "integer", "any")),
    **dict.fromkeys(("u32", "u64"), ("wide unsigned", "wide", "unsigned", "integer", "any")),
    **dict.fromkeys(("f16", "bf16", "f32", *sorted(FLOATS8)), ("single", "float", "any")),
    "f64": ("double", "float", "any"),
}


class Operator(str):
    """An entry of the tables that is no call: an operator is outside of its parentheses."""

    __slots__ = ()


def _libm(name: str) -> dict[str, str]:
    return {"single": f"{name}f({{0}})", "double": f"{name}({{0}})"}


def _libm2(name: str) -> dict[str, str]:
    return {"single": f"{name}f({{0}}, {{1}})", "double": f"{name}({{0}}, {{1}})"}


def _bitwise(operator: str, pred: str) -> dict[str, str]:
    plain = Operator(f"{{0}} {operator} {{1}}")
    return {"pred": Operator(f"{{0}} {pred} {{1}}"), "wide": plain, "narrow": f"{{T}}({plain})"}


#: opcode -> class -> C expression. {0}, {1}, ... are the arguments, {T} the compute type.
EXPRESSIONS: Mapping[str, Mapping[str, str]] = {
    "add": {
        "pred": Operator("{0} || {1}"),
        "wide unsigned": Operator("{0} + {1}"),
        "integer": "fs_add({0}, {1})",
        "float": Operator("{0} + {1}"),
    },
    "subtract": {
        "wide unsigned": Operator("{0} - {1}"),
        "integer": "fs_sub({0}, {1})",
        "float": Operator("{0} - {1}"),
    },
    "multiply": {
        "pred": Operator("{0} && {1}"),
        "wide unsigned": Operator("{0} * {1}"),
        "integer": "fs_mul({0}, {1})",
        "float": Operator("{0} * {1}"),
    },
    "divide": {
        "integer": "fs_div({0}, {1})",
        "single": "fs_divide({0}, {1})",
        "double": Operator("{0} / {1}"),
    },
    "remainder": {"integer": "fs_rem({0}, {1})", **_libm2("fmod")},
    "power": {"integer": "fs_pow({0}, {1})", **_libm2("pow")},
    "maximum": {"pred": Operator("{0} || {1}"), "any": "fs_max({0}, {1})"},
    "minimum": {"pred": Operator("{0} && {1}"), "any": "fs_min({0}, {1})"},
    "clamp": {"any": "fs_clamp({0}, {1}, {2})"},
    "select": {"any": Operator("{0} ? {1} : {2}")},
    "abs": {"unsigned": "{0}", "signed": "fs_abs({0})", **_libm("fabs")},
    "negate": {"integer": "fs_neg({0})", "float": Operator("-{0}")},
    "sign": {"integer": "fs_sign({0})", "float": "fs_sign({0})"},
    "and": _bitwise("&", "&&"),
    "or": _bitwise("|", "||"),
    "xor": _bitwise("^", "!="),
    "not": {"pred": Operator("!{0}"), "wide": Operator("~{0}"), "narrow": "{T}(~{0})"},
    "shift-left": {"integer": "fs_shift_left({0}, {1})"},
    "shift-right-logical": {"integer": "fs_shift_right_logical({0}, {1})"},
    "shift-right-arithmetic": {"integer": "fs_shift_right_arithmetic({0}, {1})"},
    "popcnt": {"integer": "fs_popcount({0})"},
    "count-leading-zeros": {"integer": "fs_leading_zeros({0})"},
    "copy": {"any": "{0}"},
    "floor": _libm("floor"),
    "ceil": _libm("ceil"),
    "round-nearest-afz": _libm("round"),
    "round-nearest-even": _libm("rint"),
    "sqrt": {"single": "fs_sqrt({0})", "double": "sqrt({0})"},
    "rsqrt": _libm("rsqrt"),
    "cbrt": _libm("cbrt"),
    "exponential": _libm("exp"),
    "exponential-minus-one": _libm("expm1"),
    "log": _libm("log"),
    "log-plus-one": _libm("log1p"),
    "logistic": {"float": "fs_logistic({0})"},
    "tanh": _libm("tanh"),
    "sine": _libm("sin"),
    "cosine": _libm("cos"),
    "tan": _libm("tan"),
    "erf": _libm("erf"),
    "inverse-erf": _libm("erfinv"),
    "atan2": _libm2("atan2"),
}

#: What strict numerics computes instead: correctly rounded where hardware can.
STRICT: Mapping[str, Mapping[str, str]] = {
    "divide": {"single": Operator("{0} / {1}")},
    "sqrt": {"single": "sqrtf({0})"},
    "logistic": {"single": Operator("1.0f / (1.0f + expf(-{0}))")},
}

_SMALL = ("bf16", "f16")

#: Functions of f32 with fewer correct bits, and the result types that keep no more of them: those
#: use it unless numerics are strict, f32 where they are "fast".
APPROXIMATE: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "exponential": ("fs_approximate_exp({0})", _SMALL),
    "log": ("fs_approximate_log({0})", ("bf16",)),
    "logistic": ("fs_approximate_logistic({0})", _SMALL),
    "tanh": ("fs_approximate_tanh({0})", ("bf16",)),
    "divide": ("fs_approximate_divide({0}, {1})", ("f16",)),
}

#: direction -> C operator of `compare`.
DIRECTIONS: Mapping[str, str] = {
    "EQ": "==",
    "NE": "!=",
    "LT": "<",
    "LE": "<=",
    "GT": ">",
    "GE": ">=",
}

#: reducer -> functor of "fusionstitch.cuh".
FUNCTORS: Mapping[str, str] = {
    "add": "FsAdd",
    "multiply": "FsMultiply",
    "maximum": "FsMaximum",
    "minimum": "FsMinimum",
    "and": "FsAnd",
    "or": "FsOr",
    "xor": "FsXor",
}

#: Opcodes whose results need no rounding: they pick or re-sign one of their arguments, or give
#: an integer no wider than the argument.
_EXACT = frozenset(
    {
        "maximum",
        "minimum",
        "clamp",
        "select",
        "abs",
        "negate",
        "sign",
        "copy",
        "floor",
        "ceil",
        "round-nearest-afz",
        "round-nearest-even",
        "bitcast-convert",
        "reduce-precision",
        "member",
    }
)

#: Exponent and mantissa bits of the floating-point types.
_FLOAT_BITS: Mapping[str, tuple[int, int]] = {
    "f16": (5, 10),
    "bf16": (8, 7),
    "f32": (8, 23),
    "f64": (11, 52),
}

#: Products that no addition is joined with.
_ROUNDED_PRODUCTS: Mapping[str, str] = {"float": "__fmul_rn", "double": "__dmul_rn"}

#: Types of which both floats of 16 bits hold every number.
_NARROW = frozenset({"pred", "s8", "u8", *FLOATS8})

_ROUNDERS: Mapping[str, str] = {
    "f16": "fs_round_f16",
    "bf16": "fs_round_bf16",
    **{dtype: f"fs_round<{dtype}>" for dtype in sorted(FLOATS8)},
}


@dataclass(frozen=True)
class Spelt:
    """C text, and whether it binds tighter than any operator: that of a name, a literal without a
    sign, an index or a call."""

    text: str
    tight: bool = True

    @property
    def atom(self) -> str:
        """The text as an operand of any operator."""
        return self.text if self.tight else f"({self.text})"


def spelt_number(text: str) -> Spelt:
    """A literal."""
    return Spelt(text, not text.startswith("-"))


def expression(op: Op, args: Sequence[Spelt], numerics: str = "default") -> Spelt:
    """The C expression of an elementwise op over C expressions `args`, one per operand.

    The result has the compute type of `op`. With numerics="strict" a result of fewer bits than a
    float is rounded to its type, and division is IEEE's. Otherwise a result of 16 bits by which
    nothing is decided keeps the excess precision of float, as in XLA:GPU's fusions. If its type
    holds few bits, its function computes few. Raises CodegenError where the table has no entry.
    """
    atoms = [arg.atom for arg in args]
    special = _special(op, numerics)
    if special:
        found = _filled(special, op, atoms)
    else:
        found = _BUILDERS.get(op.opcode, _from_table)(op, atoms)
    rounded = op.opcode not in _EXACT and is_rounded(op, numerics)
    return Spelt(settled(found.text, op, numerics)) if rounded else found


def rotation(op: Op) -> tuple[Op, int] | None:
    """(x, n) of (x << n) | (x >> 32 - n): x rotated left by n, from 1 to 31, one instruction."""
    if op.opcode != "or" or op.dtype != "u32":
        return None
    for left, right in (op.operands, op.operands[::-1]):
        if (left.opcode, right.opcode) == ("shift-left", "shift-right-logical"):
            by, back = splat(left.operands[1]), splat(right.operands[1])
            if left.operands[0] is right.operands[0] and by is not None and back is not None:
                return (left.operands[0], int(by)) if by + back == 32 and by and back else None
    return None


def supported(op: Op) -> bool:
    """Whether `expression` has an entry for this op and its element types."""
    try:
        expression(op, [Spelt("x")] * len(op.operands))
    except CodegenError:
        return False
    return True


def settled(text: str, op: Op, numerics: str) -> str:
    """`text`, rounded to the type of `op` where that may not wait."""
    return f"{_ROUNDERS[op.dtype]}({text})" if is_rounded(op, numerics) else text


def is_rounded(op: Op, numerics: str) -> bool:
    """Whether floats are rounded to the type of `op` at once. They are under strict numerics, where
    something is decided by them (`codegen/rewrite/roundings.py`), and always to floats of one byte,
    since programs convert to those only for their rounding."""
    now = numerics == "strict" or op.dtype in FLOATS8 or annotations_of(op).rounded
    return now and op.dtype in _ROUNDERS


def is_excessive(op: Op) -> bool:
    """Whether an op that strict numerics round may give more bits than its type has."""
    if op.dtype not in _SMALL or op.opcode in _EXACT:
        return False
    return op.opcode != "convert" or op.operands[0].dtype not in _NARROW


def preserves_value(op: Op, numerics: str) -> bool:
    """Whether the C expression of an op of one operand is that operand's."""
    return expression(op, [Spelt("x")], numerics).text == "x"


def combine(reducer: str, dtype: str) -> tuple[str, str]:
    """The identity of a reduction as a C literal, and the name of its functor.

    Raises CodegenError for a reducer that is none of `FUNCTORS` or does not apply to `dtype`.
    """
    bitwise = reducer in ("and", "or", "xor")
    if reducer not in FUNCTORS or (bitwise and dtype in FLOATS | FLOATS8):
        raise CodegenError(f"A reduction of {dtype} by {reducer} has no functor: leave it to XLA.")
    return literal(identity(reducer, dtype), dtype), FUNCTORS[reducer]


def identity(reducer: str, dtype: str) -> bool | int | float:
    """The number that changes nothing when `reducer` combines it with values of `dtype`."""
    lowest, highest = _limits(dtype)
    table: dict[str, bool | int | float] = {
        "add": 0,
        "or": 0,
        "xor": 0,
        "multiply": 1,
        "maximum": lowest,
        "minimum": highest,
        "and": -1 if dtype in SIGNED else highest,
    }
    return table[reducer]


def _limits(dtype: str) -> tuple[bool | int | float, bool | int | float]:
    if dtype == "pred":
        return False, True
    if dtype in FLOATS8:  # some of them have no infinity
        bounds = ml_dtypes.finfo(NUMPY_DTYPES[dtype])
        infinite = np.isinf(np.asarray(np.inf, NUMPY_DTYPES[dtype]))
        return (-np.inf, np.inf) if infinite else (float(bounds.min), float(bounds.max))
    if dtype in FLOATS:
        return -np.inf, np.inf
    bits = 8 * c_type(dtype).bytes
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype in SIGNED else (0, (1 << bits) - 1)


def literal(value: Any, dtype: str) -> str:
    """The C literal, of the compute type, that is exactly `value` (a Python or numpy scalar)."""
    compute = c_type(dtype).compute
    if dtype == "pred":
        return "true" if value else "false"
    if dtype in INTEGERS:
        return _integer(int(value), dtype, compute)
    return _single(np.float32(value)) if compute == "float" else _double(np.float64(value))


def _integer(value: int, dtype: str, compute: str) -> str:
    if value in (-(1 << 31), -(1 << 63)):  # C has no negative literals
        text = f"{value + 1} - 1"
        return f"({text})" if dtype == "s32" else f"{compute}({text})"
    if dtype in ("s32", "u32"):
        return f"{value}u" if dtype == "u32" else f"{value}"
    return f"{compute}({value}{'u' if dtype == 'u64' else ''})"


def _single(value: np.float32) -> str:
    if np.isnan(value):
        return f"fs_bitcast<float>(0x{int(value.view(np.uint32)):08x}u)"
    if np.isinf(value):
        return f"{'-' if value < 0 else ''}fs_limits<float>::highest()"
    text = repr(float(str(value)))
    # A compiler may read the decimal as double first: only where both readings agree is it exact.
    exact = text if np.float32(float(text)) == value else float(value).hex()
    return f"{exact}f"


def _double(value: np.float64) -> str:
    if np.isnan(value):
        return f"fs_bitcast<double>(0x{int(value.view(np.uint64)):016x}ull)"
    if np.isinf(value):
        return f"{'-' if value < 0 else ''}fs_limits<double>::highest()"
    return repr(float(value))


def _entry(op: Op, dtype: str) -> str:
    by_class = EXPRESSIONS.get(op.opcode, {})
    for name in CLASSES.get(dtype, ()):
        if name in by_class:
            return by_class[name]
    raise CodegenError(f"{op.opcode} of {dtype} has no C expression: leave the op to XLA.")


def _special(op: Op, numerics: str) -> str | None:
    """The expression that numerics and the op's own type choose over the table's."""
    if numerics == "strict":
        by_class = STRICT.get(op.opcode, {})
        return next((by_class[c] for c in CLASSES.get(op.dtype, ()) if c in by_class), None)
    return APPROXIMATE[op.opcode][0] if is_approximate(op, numerics) else None


def is_approximate(op: Op, numerics: str) -> bool:
    """Whether an op is computed with fewer correct bits."""
    if numerics == "strict" or op.opcode not in APPROXIMATE:
        return False
    fast = numerics == "fast" and op.dtype in (*_SMALL, "f32")
    return fast or op.dtype in APPROXIMATE[op.opcode][1]


def _from_table(op: Op, args: Sequence[str]) -> Spelt:
    return _filled(_entry(op, op.dtype), op, args)


def _filled(entry: str, op: Op, args: Sequence[str]) -> Spelt:
    text = entry.format(*args, T=c_type(op.dtype).compute)
    return Spelt(text, not isinstance(entry, Operator))


def _multiply(op: Op, args: Sequence[str]) -> Spelt:
    """Means are rounded before they are used, as they are where a separate kernel computes them.
    Otherwise x - mean as one fused operation would subtract an unrounded mean, and the deviations
    of equal numbers from their mean would not be 0. The same goes for products that every loop has
    to round alike (`codegen/rewrite/comparisons.py`)."""
    kind, both_ways = c_type(op.dtype).compute, (op.operands, op.operands[::-1])
    if kind in _ROUNDED_PRODUCTS and (
        annotations_of(op).alike or any(_is_sum(x) and _is_inexact(splat(y)) for x, y in both_ways)
    ):
        return Spelt(f"{_ROUNDED_PRODUCTS[kind]}({args[0]}, {args[1]})")
    return _from_table(op, args)


def _is_sum(x: Op) -> bool:
    while x.opcode in ("broadcast", "reshape", "convert"):
        x = x.operands[0]
    return x.opcode == "reduce" and x.attrs["reducer"] == "add"


def _is_inexact(factor: Any) -> bool:
    """Whether products with a constant need rounding."""
    return factor is not None and abs(np.frexp(np.float64(factor))[0]) != 0.5


def _compare(op: Op, args: Sequence[str]) -> Spelt:
    a, b = args
    if op.attrs.get("total_order") and op.operands[0].dtype in FLOATS | FLOATS8:
        a, b = f"fs_total_order({a})", f"fs_total_order({b})"
    return Spelt(f"{a} {DIRECTIONS[op.attrs['direction']]} {b}", tight=False)


def _is_finite(op: Op, args: Sequence[str]) -> Spelt:
    return Spelt(f"fs_is_finite({args[0]})")


def _convert(op: Op, args: Sequence[str]) -> Spelt:
    source, target = op.operands[0].dtype, op.dtype
    compute = c_type(target).compute
    if c_type(source).compute == compute:
        return Spelt(args[0])
    if target == "pred":
        return Spelt(f"{args[0]} != 0", tight=False)
    if source in FLOATS | FLOATS8 and target in INTEGERS:
        return Spelt(f"fs_to_int<{compute}>({args[0]})")
    return Spelt(f"{compute}({args[0]})")


def _bitcast_convert(op: Op, args: Sequence[str]) -> Spelt:
    """Exact, but a NaN of bf16 or f16 becomes the GPU's own: values travel as float."""
    source, target = c_type(op.operands[0].dtype), c_type(op.dtype)
    if source.bytes != target.bytes:
        raise CodegenError(
            f"bitcast-convert from {op.operands[0].dtype} to {op.dtype} changes the shape: "
            "leave the op to XLA."
        )
    bits = f"fs_bitcast<{target.storage}>({_to_storage(args[0], source.storage)})"
    return Spelt(bits if target.storage == target.compute else f"fs_load({bits})")


def _reduce_precision(op: Op, args: Sequence[str]) -> Spelt:
    exponent, mantissa = _FLOAT_BITS[op.dtype]
    to = (op.attrs["exponent_bits"], op.attrs["mantissa_bits"])
    kind = c_type(op.dtype)
    bits = f"fs_bitcast<uint{8 * kind.bytes}_t>({_to_storage(args[0], kind.storage)})"
    reduced = f"fs_reduce_bits<{exponent}, {mantissa}, {to[0]}, {to[1]}>({bits})"
    return Spelt(f"fs_load(fs_bitcast<{kind.storage}>({reduced}))")


def _to_storage(arg: str, storage: str) -> str:
    return f"fs_store_as<{storage}>({arg})" if storage in _ROUNDERS else arg


def _record(op: Op, args: Sequence[str]) -> Spelt:
    return Spelt(f"{c_type(op.dtype).compute}{{{', '.join(args)}}}", tight=False)


def _member(op: Op, args: Sequence[str]) -> Spelt:
    return Spelt(f"fs_get<{op.attrs['index']}>({args[0]})")


#: Opcodes whose expression depends on attributes or on the operands.
_BUILDERS = {
    "multiply": _multiply,
    "compare": _compare,
    "is-finite": _is_finite,
    "convert": _convert,
    "bitcast-convert": _bitcast_convert,
    "reduce-precision": _reduce_precision,
    "record": _record,
    "member": _member,
}
