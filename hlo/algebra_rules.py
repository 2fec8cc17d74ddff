"""The rules of XLA's algebraic simplifier that change values of floats.

They hold for real numbers only. With floats they may make results overflow, become NaN or be
rounded where they were not, or the other way round. `as_xla.py` applies them to programs that XLA
has not seen.

Rules that change no value are not here. Where backends differ, the table has what XLA does for
GPUs: it leaves `x / broadcast(y)`, which XLA:CPU makes x * broadcast(1 / y), and finds masks in
bf16, which XLA:CPU widens before it looks for them. But floats of 16 bits are divided by constants:
for GPUs XLA rounds 1 / c to 16 bits first, so that all quotients are off by as much.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from fusionstitch.hlo.algebra import (
    Table,
    Version,
    full,
    is_constant,
    is_nonnegative,
    scalar,
    spread,
    uniform,
)
from fusionstitch.hlo.graph import Op, Shape
from fusionstitch.hlo.rewrite import Make

XLA = Table()
rule = XLA.rule

#: From these versions of jaxlib on XLA does not take roots of squares, nor exponentials and their
#: logarithms, together, and does not regroup constants.
_ROOTS: Version = (0, 11, 1)
_POWERS: Version = (0, 11, 2)
_REGROUPS: Version = (0, 12)


@rule("add")
def plus_any_zero(op: Op) -> Op | None:
    """x + 0 -> x, which may be -0"""
    return next((x for x, zero in _both_ways(op) if uniform(zero) == 0), None)


@rule("subtract")
def minus_any_zero(op: Op) -> Op | None:
    """x - 0 -> x, which may be -0"""
    x, zero = op.operands
    return x if uniform(zero) == 0 else None


@rule("add", "subtract", before=_REGROUPS)
def constants_summed(op: Op) -> Make | None:
    """(x + c) + d -> x + (c + d); (c - x) + d -> (c + d) - x; -d like +d, and c like d"""
    for inner, positive, d, plus_d in _shifted(op):
        if not positive:
            continue
        for x, plus_x, c, plus_c in _shifted(inner):
            total = _total((c, plus_c), (d, plus_d), op.shape)
            if total is not None and not is_constant(x):
                return Make("add", (x, total)) if plus_x else Make("subtract", (total, x))
    return None


@rule("add", alone=(0, 1))
def power_of_two_factored(op: Op) -> Make | None:
    """x * c + y * c -> (x + y) * c, for c a power of two, where nothing else reads the products"""
    if any(o.opcode != "multiply" for o in op.operands):
        return None
    left, right = op.operands
    for x, c in _both_ways(left):
        for y, same in _both_ways(right):
            if same is c and _is_power_of_two(uniform(c)):
                return Make("multiply", (Make("add", (x, y)), c))
    return None


@rule("multiply")
def mask_selects(op: Op) -> Make | None:
    """convert(p: pred) * x -> select(p, x, 0)"""
    for x, mask in _both_ways(op):
        if _is_mask(mask):
            return Make("select", (mask.operands[0], x, full(0, op.shape)))
    return None


@rule("multiply", before=_REGROUPS)
def constants_of_both_multiplied(op: Op) -> Make | None:
    """(x * c) * (y * d) -> (x * y) * (c * d), for constants that are not broadcast"""
    if any(o.opcode != "multiply" for o in op.operands):
        return None
    left, right = op.operands
    for x, c in _both_ways(left):
        for y, d in _both_ways(right):
            if is_constant(c) and is_constant(d) and not (is_constant(x) or is_constant(y)):
                return Make("multiply", (Make("multiply", (x, y)), _product(c, d, op.shape)))
    return None


@rule("multiply", before=_REGROUPS)
def constants_multiplied(op: Op) -> Make | None:
    """(x * c) * d -> x * (c * d)"""
    for x, c, d in _scaled(op):
        if _are_alike(c, d):
            return Make("multiply", (x, _product(c, d, op.shape)))
    return None


@rule("multiply", before=_REGROUPS)
def constant_into_broadcast(op: Op) -> Make | None:
    """(x * c) * broadcast(y) -> x * broadcast(y * c), for y that is no constant"""
    for x, c, outer in _scaled(op):
        value = uniform(c)
        if outer.opcode != "broadcast" or uniform(outer) is not None or value is None:
            continue
        [y] = outer.operands
        if not is_constant(y):
            scaled = Make("multiply", (y, full(value, y.shape)), shape=y.shape)
            return Make("multiply", (x, Make("broadcast", (scaled,), outer.attrs)))
    return None


@rule("multiply", before=_POWERS)
def exponentials_multiplied(op: Op) -> Make | None:
    """exp(x) * exp(y) -> exp(x + y)"""
    x, y = op.operands
    if x.opcode != "exponential" or y.opcode != "exponential":
        return None
    return Make("exponential", (Make("add", (x.operands[0], y.operands[0])),))


@rule("divide", before=_POWERS)
def exponentials_divided(op: Op) -> Make | None:
    """exp(x) / exp(y) -> exp(x - y)"""
    x, y = op.operands
    if x.opcode != "exponential" or y.opcode != "exponential":
        return None
    return Make("exponential", (Make("subtract", (x.operands[0], y.operands[0])),))


@rule("divide", before=_POWERS)
def over_exponential(op: Op) -> Make | None:
    """x / exp(y) -> x * exp(-y)"""
    x, divisor = op.operands
    if divisor.opcode != "exponential":
        return None
    return Make("multiply", (x, Make("exponential", (Make("negate", divisor.operands),))))


@rule("divide")
def over_power(op: Op) -> Make | None:
    """x / pow(y, z) -> x * pow(y, -z)"""
    x, divisor = op.operands
    if divisor.opcode != "power":
        return None
    y, z = divisor.operands
    return Make("multiply", (x, Make("power", (y, Make("negate", (z,))))))


@rule("divide", alone=(1,))
def over_root(op: Op) -> Make | None:
    """x / sqrt(y) -> x * rsqrt(y); x / rsqrt(y) -> x * sqrt(y), if nothing else reads it"""
    x, divisor = op.operands
    inverse = {"sqrt": "rsqrt", "rsqrt": "sqrt"}.get(divisor.opcode)
    return Make("multiply", (x, Make(inverse, divisor.operands))) if inverse else None


@rule("divide")
def over_constant(op: Op) -> Make | None:
    """x / c -> x * (1 / c), but for floats of 16 bits"""
    x, c = op.operands
    if op.dtype not in ("f32", "f64"):
        return None
    inverse = None if is_constant(x) or uniform(x) == 1 else _inverse(c, op.shape)
    return Make("multiply", (x, inverse)) if inverse else None


@rule("divide")
def quotient_over_quotient(op: Op) -> Make | None:
    """(x / y) / (z / w) -> (x * w) / (y * z)"""
    if any(o.opcode != "divide" for o in op.operands):
        return None
    (x, y), (z, w) = (o.operands for o in op.operands)
    return Make("divide", (Make("multiply", (x, w)), Make("multiply", (y, z))))


@rule("divide")
def quotient_divided(op: Op) -> Make | None:
    """(x / y) / z -> x / (y * z)"""
    quotient, z = op.operands
    if quotient.opcode != "divide":
        return None
    x, y = quotient.operands
    return Make("divide", (x, Make("multiply", (y, z))))


@rule("divide")
def over_quotient(op: Op) -> Make | None:
    """x / (y / z) -> (x * z) / y"""
    x, quotient = op.operands
    if quotient.opcode != "divide":
        return None
    y, z = quotient.operands
    return Make("divide", (Make("multiply", (x, z)), y))


@rule("divide")
def mask_divided(op: Op) -> Make | None:
    """convert(p: pred) / broadcast(y: scalar) -> broadcast(1 / y) * convert(p)"""
    mask, divisor = op.operands
    if not _is_mask(mask) or divisor.opcode != "broadcast" or divisor.operands[0].shape.rank:
        return None
    [y] = divisor.operands
    inverse = Make("divide", (full(1, y.shape), y), shape=y.shape)
    return Make("multiply", (Make("broadcast", (inverse,), divisor.attrs), mask))


@rule("power", before=_POWERS)
def exponential_to_a_power(op: Op) -> Make | None:
    """pow(exp(x), y) -> exp(x * y)"""
    base, y = op.operands
    if base.opcode != "exponential":
        return None
    return Make("exponential", (Make("multiply", (base.operands[0], y)),))


@rule("power")
def constant_power(op: Op) -> Make | None:
    """pow(x, 3) -> x * (x * x); pow(x, -1) -> 1 / x; pow(x, 0.5) -> sqrt(x), for x >= 0"""
    x, exponent = op.operands[0], uniform(op.operands[1])
    if exponent == 3:
        return Make("multiply", (x, Make("multiply", (x, x))))
    if exponent == -1:
        return Make("divide", (full(1, op.shape), x))
    return Make("sqrt", (x,)) if exponent == 0.5 and is_nonnegative(x) else None


@rule("sqrt", before=_ROOTS)
def root_of_square(op: Op) -> Make | None:
    """sqrt(x * x) -> abs(x)"""
    [square] = op.operands
    if square.opcode != "multiply" or square.operands[0] is not square.operands[1]:
        return None
    return Make("abs", square.operands[:1])


@rule("log", before=_ROOTS)
def logarithm_of_exponential(op: Op) -> Op | None:
    """log(exp(x)) -> x"""
    [inner] = op.operands
    return inner.operands[0] if inner.opcode == "exponential" else None


@rule("log")
def logarithm_of_power(op: Op) -> Make | None:
    """log(pow(x, y)) -> select(y == 0, 0, log(abs(x)) * y)"""
    [power] = op.operands
    if power.opcode != "power":
        return None
    x, y = power.operands
    zero = full(0, op.shape)
    is_zero = Make(
        "compare",
        (y, zero),
        {"direction": "EQ", "total_order": False},
        Shape("pred", op.dims),
    )
    return Make("select", (is_zero, zero, Make("multiply", (Make("log", (Make("abs", (x,)),)), y))))


@rule("log")
def logarithm_of_root(op: Op) -> Make | None:
    """log(sqrt(x)) -> log(x) * 0.5; log(rsqrt(x)) -> log(x) * -0.5"""
    [root] = op.operands
    factor = {"sqrt": 0.5, "rsqrt": -0.5}.get(root.opcode)
    return (
        Make("multiply", (Make("log", root.operands), full(factor, op.shape))) if factor else None
    )


#: What compares numbers that are 0 or more with 0, and what of it XLA takes for certain.
_CERTAIN = {("GE", False): True, ("LT", False): False, ("LE", True): True, ("GT", True): False}


@rule("compare")
def compared_with_zero(op: Op) -> Make | None:
    """x >= 0 -> true; x < 0 -> false, for x >= 0, also where it is NaN; the same from the right"""
    if op.attrs["total_order"]:
        return None
    for swapped, (x, zero) in enumerate(_both_ways(op)):
        known = _CERTAIN.get((op.attrs["direction"], bool(swapped)))
        if known is not None and uniform(zero) == 0 and is_nonnegative(x):
            return full(known, op.shape)
    return None


def _both_ways(op: Op) -> tuple[tuple[Op, Op], tuple[Op, Op]]:
    x, y = op.operands
    return (x, y), (y, x)


def _is_mask(op: Op) -> bool:
    return op.opcode == "convert" and op.operands[0].dtype == "pred"


def _is_power_of_two(value: Any) -> bool:
    return value is not None and abs(math.frexp(float(value))[0]) == 0.5


def _are_alike(one: Op, other: Op) -> bool:
    """Whether both are constants of one value each, or both are arrays."""
    if uniform(one) is not None and uniform(other) is not None:
        return True
    return is_constant(one) and is_constant(other)


def _scaled(op: Op) -> Iterator[tuple[Op, Op, Op]]:
    """The (x, c, y) of products (x * c) * y, in any order."""
    for inner, y in _both_ways(op):
        if inner.opcode == "multiply":
            for x, c in _both_ways(inner):
                if not is_constant(x):
                    yield x, c, y


def _shifted(op: Op) -> Iterator[tuple[Op, bool, Op, bool]]:
    """The x and c of sums and differences of them, and whether each is added."""
    if op.opcode == "add":
        for x, c in _both_ways(op):
            yield x, True, c, True
    if op.opcode == "subtract":
        x, c = op.operands
        yield x, True, c, False
        yield c, False, x, True


def _product(c: Op, d: Op, shape: Shape) -> Make:
    return _joined("multiply", (_part(c), _part(d)), shape)


def _total(one: tuple[Op, bool], other: tuple[Op, bool], shape: Shape) -> Make | None:
    """The sum of two constants, each with its sign, if they are alike."""
    if not _are_alike(one[0], other[0]):
        return None
    parts = [_part(c) if plus else _negated(_part(c)) for c, plus in (one, other)]
    return _joined("add", tuple(parts), shape)


def _part(c: Op) -> Op | Make:
    """What is computed with instead of a constant: its only element, if it has but one."""
    value = uniform(c)
    return c if value is None else scalar(value, c.dtype)


def _negated(part: Op | Make) -> Make:
    return Make("negate", (part,), shape=part.shape)


def _joined(opcode: str, parts: tuple[Op | Make, ...], shape: Shape) -> Make:
    """Constants taken together. The result is no constant before the next sweep, as in XLA, so that
    ((x * a) * b) * c is (x * (a * b)) * c until then."""
    if any(isinstance(part, Op) for part in parts):
        return Make(opcode, parts)
    return spread(Make(opcode, parts, shape=Shape(shape.dtype)), shape)


def _inverse(c: Op, shape: Shape) -> Make | None:
    """1 / c of a constant, which may be broadcast."""
    value = uniform(c)
    if value is not None:
        with np.errstate(all="ignore"):
            return full(np.ones_like(value) / value, shape)
    inner = c.operands[0] if c.opcode == "broadcast" else c
    if not is_constant(inner):
        return None
    inverse = Make("divide", (full(1, inner.shape), inner), shape=inner.shape)
    return inverse if inner is c else Make("broadcast", (inverse,), c.attrs)
