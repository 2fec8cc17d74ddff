"""Large literals of integers that are progressions: what computes them is known instead.

    s32[300]{0, 4, 8, ...}          ->  4 * iota
    s32[60, 16]{0, 1, ..., 4, ...}  ->  4 * iota + iota, over 60 and 16

NumPy made them, of indices of frames, patches or bands. As ops of positions they cost no traffic,
and what is read or scattered at them is known.
"""

from __future__ import annotations

from typing import Any

from fusionstitch.hlo.algebra import full
from fusionstitch.hlo.graph import INTEGERS, Op, Shape
from fusionstitch.hlo.literals import elements_of, modular
from fusionstitch.hlo.mixed_radix import Affine, affine_boxes, digits_of, extent
from fusionstitch.hlo.rewrite import Make

#: Elements of the largest one, which takes 0.2 s, and the most digits of a position that one is
#: affine in.
MOST_ELEMENTS, MOST_DIGITS = 1 << 20, 6
#: Elements at the begin that nearly always show that a literal is none.
SHOWING = 64


def form_of(literal: Any, shape: Shape) -> Affine | None:
    """How the elements of a LiteralProto follow from their positions in row-major order, if they
    are integers that do; None of all others, and of literals that are taken out."""
    fits = shape.dtype in INTEGERS - {"u64"} and 1 < shape.size <= MOST_ELEMENTS
    if not fits or literal.detached:
        return None
    begin = elements_of(literal, shape, SHOWING)
    if begin is None or digits_of((begin - begin[0])[:, None]) is None:
        return None
    values = elements_of(literal, shape, shape.size)
    if values is None:
        return None
    forms = [form for _, form in affine_boxes(values[:, None])]
    if len(forms) != 1 or len(forms[0].digits[0]) > MOST_DIGITS:
        return None
    return forms[0]


def computed(op: Op, form: Affine) -> Make:
    """The ops that compute a literal of such a form."""
    [digits], [base] = form.digits, form.base
    whole = Shape(op.dtype, tuple(digit.size for digit in digits))
    total = full(modular(base, op.dtype), whole)
    for d, digit in enumerate(digits):
        if any(digit.steps):
            iota = Make("iota", (), {"dimension": d}, whole)
            term = Make(
                "multiply", (iota, full(modular(digit.steps[0], op.dtype), whole)), shape=whole
            )
            total = Make("add", (total, term), shape=whole)
    if extent(digits) > op.shape.size:
        line = Make("reshape", (total,), shape=Shape(op.dtype, (extent(digits),)))
        bounds = {"start": (0,), "limit": (op.shape.size,), "stride": (1,)}
        total = Make("slice", (line,), bounds, Shape(op.dtype, (op.shape.size,)))
    return Make("reshape", (total,))
