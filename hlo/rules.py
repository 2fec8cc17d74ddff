"""Rules of arithmetic, tuples and constants. Results are those XLA's own simplifier accepts."""

from __future__ import annotations

from typing import Any

import numpy as np

from fusionstitch.hlo.evaluate import evaluate_op
from fusionstitch.hlo.graph import FLOATS, INTEGERS, Op
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.progressions import computed
from fusionstitch.hlo.rewrite import Make, RuleBook, is_positive_zero, splat
from fusionstitch.hlo.rules_movement import MOVEMENT
from fusionstitch.hlo.semantics import Kind, spec_of
from fusionstitch.hlo.tuples import is_invariant

ALGEBRA = RuleBook()
rule = ALGEBRA.rule

#: The float types each one holds exactly (bits of exponent and mantissa are not fewer).
_HOLDS = {
    "f32": {"f16", "bf16"},
    "f64": {"f16", "bf16", "f32"},
    "f16": {"f8e5m2", "f8e4m3fn", "f8e4m3"},
    "bf16": {"f8e5m2", "f8e4m3fn", "f8e4m3"},
}
_WIDTH = {name: int(name[1:]) for name in INTEGERS}


def _either(op: Op, unit: Any) -> Op | None:
    """The other operand of a commutative op when one is the splat that `unit` accepts."""
    x, y = op.operands
    if unit(splat(y)):
        return x
    return y if unit(splat(x)) else None


@rule("multiply")
def times_one(op: Op) -> Op | None:
    """x * 1 -> x"""
    return _either(op, lambda c: c is not None and c == 1)


@rule("multiply")
def times_zero(op: Op) -> Op | None:
    """x * 0 -> 0, for integers"""
    if op.dtype not in INTEGERS:
        return None
    zero = [x for x in op.operands if is_positive_zero(splat(x))]
    return zero[0] if zero else None


@rule("divide")
def over_one(op: Op) -> Op | None:
    """x / 1 -> x"""
    divisor = splat(op.operands[1])
    return op.operands[0] if divisor is not None and divisor == 1 else None


@rule("add")
def plus_zero(op: Op) -> Op | None:
    """x + 0 -> x; for floats only x + -0.0, as -0.0 + 0.0 is 0.0"""
    if op.dtype in INTEGERS:
        return _either(op, is_positive_zero)
    if op.dtype in FLOATS:
        return _either(op, lambda c: c is not None and c == 0 and not is_positive_zero(c))
    return None


@rule("subtract")
def minus_zero(op: Op) -> Op | None:
    """x - 0 -> x; for floats only x - +0.0"""
    x, y = op.operands
    return x if op.dtype in FLOATS | INTEGERS and is_positive_zero(splat(y)) else None


def _extreme(dtype: str, lowest: bool) -> Any:
    if dtype in FLOATS:
        return -np.inf if lowest else np.inf
    limits = np.iinfo(NUMPY_DTYPES[dtype])
    return limits.min if lowest else limits.max


@rule("maximum", "minimum")
def beyond_all(op: Op) -> Op | None:
    """maximum(x, lowest) -> x; minimum(x, highest) -> x"""
    if op.dtype not in FLOATS | INTEGERS:
        return None
    bound = _extreme(op.dtype, op.opcode == "maximum")
    return _either(op, lambda c: c is not None and c == bound)


@rule("maximum", "minimum", "and", "or")
def with_itself(op: Op) -> Op | None:
    """op(x, x) -> x"""
    return op.operands[0] if op.operands[0] is op.operands[1] else None


@rule("or", "xor")
def no_bits(op: Op) -> Op | None:
    """x | 0 -> x; x ^ 0 -> x"""
    return _either(op, is_positive_zero)


@rule("and")
def all_bits(op: Op) -> Op | None:
    """x & ~0 -> x"""
    return _either(op, lambda c: c is not None and ~c == 0)


@rule("shift-left", "shift-right-logical", "shift-right-arithmetic")
def shift_by_zero(op: Op) -> Op | None:
    """x << 0 -> x; the same to the right"""
    return op.operands[0] if is_positive_zero(splat(op.operands[1])) else None


@rule("negate", "not")
def twice(op: Op) -> Op | None:
    """op(op(x)) -> x"""
    inner = op.operands[0]
    return inner.operands[0] if inner.opcode == op.opcode else None


@rule("power")
def small_powers(op: Op) -> Op | Make | None:
    """power(x, 1) -> x; power(x, 2) -> x * x"""
    x, exponent = op.operands[0], splat(op.operands[1])
    if exponent is None or exponent not in (1, 2):
        return None
    return x if exponent == 1 else Make("multiply", (x, x))


@rule("convert")
def convert_to_itself(op: Op) -> Op | None:
    """convert(x: T): T -> x"""
    return op.operands[0] if op.operands[0].dtype == op.dtype else None


@rule("convert")
def there_and_back(op: Op) -> Op | None:
    """convert(convert(x: T): U): T -> x, if U holds all values of T"""
    inner = op.operands[0]
    if inner.opcode != "convert" or inner.operands[0].dtype != op.dtype:
        return None
    wide, narrow = inner.dtype, op.dtype
    holds = narrow in _HOLDS.get(wide, ()) or (
        wide in INTEGERS and narrow in INTEGERS and _WIDTH[wide] >= _WIDTH[narrow]
    )
    return inner.operands[0] if holds else None


@rule("select")
def select_known(op: Op) -> Op | None:
    """select(true, x, y) -> x; select(false, x, y) -> y; select(p, x, x) -> x"""
    which, x, y = op.operands
    known = splat(which)
    if known is None:
        return x if x is y else None
    return x if known else y


@rule("compare")
def compare_of_either(op: Op) -> Op | Make | None:
    """select(p, a, b) != c -> p, where that is true of a and false of b; not p the other way
    around; the same of a converted condition"""
    x, y = op.operands
    other = splat(y)
    if x.opcode == "select" and x.operands[0].dims == x.dims:
        condition, values = x.operands[0], [splat(value) for value in x.operands[1:]]
    elif x.opcode == "convert" and x.operands[0].dtype == "pred":
        condition, values = x.operands[0], [np.ones((), bool), np.zeros((), bool)]
    else:
        return None
    if other is None or any(value is None for value in values):
        return None
    dtype = NUMPY_DTYPES[x.dtype]
    of_true, of_false = (
        bool(evaluate_op(op, [np.asarray(value, dtype), np.asarray(other, dtype)]))
        for value in values
    )
    if of_true == of_false:
        return None
    return condition if of_true else Make("not", (condition,))


_UNITS = {"add": 0, "multiply": 1, "or": 0, "xor": 0, "and": -1}


def _is_unit(reducer: str, dtype: str, value: Any) -> bool:
    if reducer in ("maximum", "minimum") and dtype in FLOATS | INTEGERS:
        return bool(value == _extreme(dtype, reducer == "maximum"))
    if dtype == "pred":
        return reducer in ("and", "or") and bool(value) == (reducer == "and")
    return reducer in _UNITS and bool(value == _UNITS[reducer])


@rule("reduce")
def reduce_ones(op: Op) -> Make | None:
    """reduce(x) over dimensions of size 1 from the reducer's unit -> reshape(x)"""
    x, init = op.operands[0], op.operands[-1]
    if op.attrs["reducer"] is None or any(x.dims[d] != 1 for d in op.attrs["dimensions"]):
        return None
    value = splat(init)
    if value is None or not _is_unit(op.attrs["reducer"], x.dtype, value):
        return None
    return Make("reshape", (x,))


@rule("get-tuple-element")
def element_of_tuple(op: Op) -> Op | None:
    """get-tuple-element(tuple(x, y), 0) -> x"""
    inner = op.operands[0]
    return inner.operands[op.attrs["index"]] if inner.opcode == "tuple" else None


@rule("get-tuple-element")
def unchanged_by_loop(op: Op) -> Op | None:
    """get-tuple-element(while(tuple(x, y)), 0) -> x, if the body gives x as it gets it"""
    loop, index = op.operands[0], op.attrs["index"]
    if loop.opcode != "while" or loop.operands[0].opcode != "tuple":
        return None
    return loop.operands[0].operands[index] if is_invariant(loop.called[1], index) else None


@rule("opaque-constant")
def progression(op: Op) -> Make | None:
    """a literal of integers -> what computes it of positions, if that is known"""
    form = op.attrs.get("form")
    return None if form is None else computed(op, form)


@rule("custom-call")
def sharding_of_nothing(op: Op) -> Op | None:
    """Sharding(x) that shards nothing -> x"""
    return op.operands[0] if op.attrs["replicated"] else None


def fold(op: Op) -> Make | None:
    """op(constants) -> constant, for one element and ops that round correctly anywhere"""
    spec = spec_of(op.opcode)
    exact = spec.special == 0 or op.opcode in ("divide", "sqrt")
    if not (spec.kind in (Kind.ELEMENTWISE, Kind.MOVEMENT) and exact and op.operands):
        return None
    if op.shape.size != 1 or any(o.opcode != "constant" for o in op.operands):
        return None
    if any(o.shape.size > 64 for o in op.operands):
        return None
    value = np.array(evaluate_op(op, [o.attrs["value"] for o in op.operands]))
    value.flags.writeable = False
    return Make("constant", (), {"value": value})


#: Every rule by opcode; `fold`, which looks at any opcode, is tried after them.
RULES = {
    opcode: (*MOVEMENT.by_opcode.get(opcode, ()), *ALGEBRA.by_opcode.get(opcode, ()))
    for opcode in {**MOVEMENT.by_opcode, **ALGEBRA.by_opcode}
}
