"""The rules of strength reduction. All but `by_constant`, `half_power`,
`as_logistic`, `as_inverse_erf`, `scaled_repeat` and `sum_of_sums` keep every bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fusionstitch.codegen.annotations import annotations_of, like
from fusionstitch.codegen.rewrite.inverse_erf import inverse_erf_of
from fusionstitch.codegen.rewrite.ranges import at_most, bits
from fusionstitch.codegen.rewrite.scales import moderate
from fusionstitch.codegen.rewrite.strength import Builder, Rule
from fusionstitch.hlo.graph import FLOATS, INTEGERS, Op
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.rewrite import is_positive_zero, splat

RULES: dict[str, tuple[Rule, ...]] = {}
#: Twice the exponents of powers that roots are made of.
_HALVES = (3.0, 5.0, 7.0)


def rule(*opcodes: str) -> Callable[[Rule], Rule]:
    """Declares a rule for some opcodes; its docstring reads `before -> after`."""

    def declare(function: Rule) -> Rule:
        for opcode in opcodes:
            RULES[opcode] = (*RULES.get(opcode, ()), function)
        return function

    return declare


# ---- signs --------------------------------------------------------------------------------------


def _negated(op: Op) -> Op | None:
    """x of -x, for floats."""
    return op.operands[0] if op.opcode == "negate" and op.dtype in FLOATS else None


@rule("negate")
def negate_twice(builder: Builder, op: Op) -> Op | None:
    """-(-x) -> x"""
    return _negated(op.operands[0])


@rule("multiply", "divide")
def sign_of_product(builder: Builder, op: Op) -> Op | None:
    """-x * y -> -(x * y); the same for y, and for x / y"""
    for side in (0, 1):
        positive = _negated(op.operands[side])
        if positive is not None:
            operands = list(op.operands)
            operands[side] = positive
            return builder.make(op, "negate", builder.make(op, op.opcode, *operands))
    return None


@rule("erf", "inverse-erf", "tanh", "sine", "tan")
def odd(builder: Builder, op: Op) -> Op | None:
    """f(-x) -> -f(x)"""
    x = _negated(op.operands[0])
    return None if x is None else builder.make(op, "negate", builder.make(op, op.opcode, x))


@rule("cosine", "abs")
def even(builder: Builder, op: Op) -> Op | None:
    """f(-x) -> f(x)"""
    x = _negated(op.operands[0])
    return None if x is None else builder.make(op, op.opcode, x)


@rule("add")
def turned_sum(builder: Builder, op: Op) -> Op | None:
    """transpose(x) + transpose(y) -> transpose(x + y), for dots, which then add up in one tile"""
    x, y = op.operands
    if not x.opcode == y.opcode == "transpose" or x.attrs != y.attrs:
        return None
    parts = (x.operands[0], y.operands[0])
    if not all(part.opcode in ("dot", "add") for part in parts):
        return None
    total = builder.add(Op("add", parts[0].shape, parts, name=op.name, source=op.source))
    return builder.make(op, "transpose", total, **x.attrs)


@rule("add")
def sum_of_sums(builder: Builder, op: Op) -> Op | None:
    """sum(x) + sum(y) -> sum(x + y), where nothing else reads the two: the gradient of a bias that
    is used again and again is then one reduction"""
    x, y = op.operands
    if builder.exact or op.dtype not in ("f32", "f64") or {x, y} & builder.shared:
        return None
    if not x.opcode == y.opcode == "reduce" or x.attrs != y.attrs or len(x.operands) != 2:
        return None
    if annotations_of(x) != annotations_of(y):
        return None
    parts, starts = zip(x.operands, y.operands, strict=True)
    added = x.attrs.get("reducer") == "add" and all(splat(start) == 0 for start in starts)
    if not added or parts[0].shape != parts[1].shape:
        return None
    total = builder.add(Op("add", parts[0].shape, parts, name=op.name, source=op.source))
    fields = "reduce", op.shape, (total, starts[0]), x.attrs, op.name, None, x.called, op.source
    return builder.add(like(Op(*fields), x))


@rule("add")
def plus_negated(builder: Builder, op: Op) -> Op | None:
    """x + -y -> x - y; -x + y -> y - x"""
    x, y = op.operands
    if (positive := _negated(y)) is not None:
        return builder.make(op, "subtract", x, positive)
    if (positive := _negated(x)) is not None:
        return builder.make(op, "subtract", y, positive)
    return None


@rule("subtract")
def minus_negated(builder: Builder, op: Op) -> Op | None:
    """x - -y -> x + y"""
    x, y = op.operands
    positive = _negated(y)
    return None if positive is None else builder.make(op, "add", x, positive)


# ---- powers of two ------------------------------------------------------------------------------


@rule("multiply")
def scaled_sum(builder: Builder, op: Op) -> Op | None:
    """(x + c) * p -> x * p + c * p and (c - x) * p -> c * p - x * p, one fused multiply-add, for a
    p of 1/2 to 2^-32 and a c that stays far above the subnormal numbers; c may be on either side"""
    for total, factor in (op.operands, op.operands[::-1]):
        scale = splat(factor)
        if scale is None or total.opcode not in _SUMS or op.dtype not in ("f32", "f64", "bf16"):
            continue
        mantissa, exponent = np.frexp(scale)
        if mantissa != 0.5 or not -31 <= exponent <= 0 or total in builder.shared:
            continue
        known = [c for c in map(splat, total.operands) if c is not None]
        if len(known) != 1 or not 1e-3 < abs(float(known[0])) < 1e30:
            continue
        scaled = builder.constant(op, known[0] * scale)
        parts = [
            builder.make(op, "multiply", o, factor) if splat(o) is None else scaled
            for o in total.operands
        ]
        return builder.make(op, total.opcode, *parts)
    return None


_SUMS = frozenset({"add", "subtract"})


@rule("multiply")
def scaled_repeat(builder: Builder, op: Op) -> Op | None:
    """(x * c) * broadcast(y) -> x * (broadcast(y) * c): what repeats is multiplied once"""
    if builder.exact or op.dtype not in FLOATS:
        return None
    for product, repeated in (op.operands, op.operands[::-1]):
        if repeated.opcode != "broadcast" or splat(repeated) is not None:
            continue
        if product.opcode != "multiply" or product in builder.shared:
            continue
        for x, factor in (product.operands, product.operands[::-1]):
            if splat(factor) is not None and moderate(factor) and x.opcode != "broadcast":
                return builder.make(
                    op, "multiply", x, builder.make(op, "multiply", repeated, factor)
                )
    return None


# ---- division -----------------------------------------------------------------------------------


@rule("divide")
def as_logistic(builder: Builder, op: Op) -> Op | None:
    """1 / (1 + exp(-x)) -> logistic(x), where nothing else reads what is between"""
    one, total = op.operands
    if builder.exact or op.dtype not in ("f32", "bf16", "f16") or splat(one) != 1:
        return None
    if total.opcode != "add" or total in builder.shared:
        return None
    for power, other in (total.operands, total.operands[::-1]):
        if power.opcode == "exponential" and splat(other) == 1 and power not in builder.shared:
            x = _negated(power.operands[0])
            return None if x is None else builder.make(op, "logistic", x)
    return None


@rule("select")
def as_inverse_erf(builder: Builder, op: Op) -> Op | None:
    """two polynomials of logarithms of x -> inverse-erf(x)"""
    x = None if builder.exact else inverse_erf_of(op)
    return None if x is None else builder.make(op, "inverse-erf", x)


@rule("divide")
def by_constant(builder: Builder, op: Op) -> Op | None:
    """x / c -> x * (1 / c), as XLA does; exact for powers of two, the only ones for bf16 and f16"""
    x, divisor = op.operands[0], splat(op.operands[1])
    if op.dtype not in FLOATS or op.dtype not in NUMPY_DTYPES or divisor is None:
        return None
    if not np.isfinite(divisor) or divisor == 0:
        return None
    power_of_two = abs(np.frexp(np.float64(divisor))[0]) == 0.5
    if not power_of_two and (builder.exact or op.dtype not in ("f32", "f64")):
        return None
    kind = NUMPY_DTYPES[op.dtype]
    tiny = {"f32": 2.0**-126, "f64": 2.0**-1022, "bf16": 2.0**-126, "f16": 2.0**-14}[op.dtype]
    inverse = (1 / np.float64(divisor)).astype(kind)
    if not np.isfinite(inverse) or min(abs(float(inverse)), abs(float(divisor))) < tiny:
        return None
    return builder.make(op, "multiply", x, builder.constant(op, inverse))


@rule("power")
def half_power(builder: Builder, op: Op) -> Op | None:
    """x ** (n + 1/2) -> sqrt(x) * x ** n; x ** -(n + 1/2) -> |rsqrt(x)| ** (2 n + 1); of minus
    infinity, whose root is no number, infinity or 0"""
    x, exponent = op.operands[0], splat(op.operands[1])
    if builder.exact or op.dtype not in ("f32", "f64") or exponent is None:
        return None
    twice = 2 * float(exponent)
    if abs(twice) not in _HALVES:
        return None
    if twice > 0:
        found, factor = builder.make(op, "sqrt", x), x
    else:
        found = builder.make(op, "abs", builder.make(op, "rsqrt", x))
        factor = builder.make(op, "multiply", found, found)
    for _ in range(int(abs(twice)) // 2):
        found = builder.make(op, "multiply", found, factor)
    lowest = builder.constant(op, -np.inf)
    edge = {"direction": "EQ", "total_order": False}
    is_lowest = builder.make(op, "compare", x, lowest, dtype="pred", **edge)
    limit = builder.constant(op, np.inf if twice > 0 else 0.0)
    return builder.make(op, "select", is_lowest, limit, found)


# ---- integers -----------------------------------------------------------------------------------


@rule("shift-right-logical")
def no_highbits(builder: Builder, op: Op) -> Op | None:
    """x >> c -> 0, for x below 2^c"""
    return builder.constant(op, 0) if at_most(op, builder.bounds) == 0 else None


@rule("add", "or", "xor")
def integer_zero(builder: Builder, op: Op) -> Op | None:
    """x + 0 -> x; the same for | and ^"""
    if op.dtype not in INTEGERS:
        return None
    x, y = op.operands
    if is_positive_zero(splat(y)):
        return x
    return y if is_positive_zero(splat(x)) else None


#: Ops whose low bits depend on the low bits of their operands alone.
_LOW_BITS = frozenset({"add", "subtract", "multiply", "and", "or", "xor", "not", "negate"})
_MOVES = frozenset({"broadcast", "reshape", "transpose"})
#: Ops, counted along every path, that are computed again in a narrower type.
LARGEST_NARROWED = 64


@rule("convert")
def narrow(builder: Builder, op: Op) -> Op | None:
    """convert(f(x)) to a narrower integer -> f(convert(x)); the same for iota and constants"""
    wide = op.operands[0]
    if not (op.dtype in INTEGERS and wide.dtype in INTEGERS):
        return None
    if bits(op.dtype) < 32 or bits(op.dtype) >= bits(wide.dtype):
        return None
    if builder.sizes[wide] > LARGEST_NARROWED:
        return None
    if wide.opcode == "constant" and wide.shape.size == 1:
        low = wide.attrs["value"].reshape(()).astype(NUMPY_DTYPES[op.dtype])
        return builder.constant(op, low)
    if wide.opcode == "iota":
        return builder.make(op, "iota", **wide.attrs)
    if wide.opcode == "convert" and wide.operands[0].dtype in INTEGERS:
        source = wide.operands[0]
        return source if source.dtype == op.dtype else builder.make(op, "convert", source)
    if wide.opcode in _LOW_BITS | _MOVES:
        parts = [builder.make(o, "convert", o, dtype=op.dtype) for o in wide.operands]
        return builder.make(op, wide.opcode, *parts, **wide.attrs)
    return None


# ---- random bits --------------------------------------------------------------------------------

#: Monotonic steps from one f32 to another: a larger value never becomes a smaller one.
_GROWING: Mapping[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


@rule("compare")
def threshold(builder: Builder, op: Op) -> Op | None:
    """f(bits) < c -> bits < t, for the f that makes a uniform float of random bits: some high bits
    as the mantissa of a float, then constants added, subtracted or as bounds. Such an f grows with
    `bits`, so one t says it all; it is found by trying f itself."""
    x, limit = op.operands[0], splat(op.operands[1])
    direction = op.attrs["direction"]
    if x.dtype != "f32" or limit is None or direction not in ("LT", "LE", "GT", "GE"):
        return None
    steps: list[tuple[Callable[..., Any], Any]] = []
    while x.opcode in _GROWING:
        y, by = x.operands
        if splat(by) is None and x.opcode != "subtract":
            y, by = by, y
        if splat(by) is None:
            return None
        steps.insert(0, (_GROWING[x.opcode], splat(by)))
        x = y
    found = _mantissa(x)
    if found is None:
        return None
    bits, shift, exponent = found

    def beyond(mantissa: int) -> bool:
        value = np.uint32(mantissa | exponent).view(np.float32)
        for step, by in steps:
            value = step(value, by)
        return bool(value >= limit if direction in ("LT", "GE") else value > limit)

    first, last = 0, 1 << 32 - shift  # the first mantissa beyond the limit lies between
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if beyond(middle) else (middle + 1, last)
    if not 0 < first < 1 << 32 - shift:
        return None
    below = "LT" if direction in ("LT", "LE") else "GE"
    limits = builder.constant(bits, first << shift)
    return builder.make(op, "compare", bits, limits, direction=below, total_order=False)


def _mantissa(x: Op) -> tuple[Op, int, int] | None:
    """(bits, s, e) if `x` is the positive float whose bits are (bits >> s) | e."""
    word = x.operands[0] if x.opcode == "bitcast-convert" else x
    if word.opcode != "or" or word.dtype != "u32":
        return None
    for shifted, ones in (word.operands, word.operands[::-1]):
        if shifted.opcode != "shift-right-logical":
            continue
        by, exponent = splat(shifted.operands[1]), splat(ones)
        if by is None or exponent is None or not 0 < by < 32:
            continue
        largest = (1 << 32 - int(by)) - 1
        if not int(exponent) & largest and int(exponent) | largest < 0x7F800000:
            return shifted.operands[0], int(by), int(exponent)
    return None
