"""The inverse error function, in the polynomials that XLA is given for it.

    w = -log1p(-x * x)    p = a polynomial of w - 2.5, or of sqrt(w) - 3    p * x

Normal random numbers are made by it. It is recognized by its values: any function of x by such ops,
with one comparison that chooses the polynomial, that equals the inverse error function at all
sample points.
"""

from __future__ import annotations

import numpy as np

from fusionstitch.hlo.evaluate import evaluate_op
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.numeric import ELEMENTWISE
from fusionstitch.hlo.rewrite import splat

#: Ops that it takes at most.
MOST_OPS = 100
#: The sample points: numbers at increasing logarithms, which choose the polynomial.
_SAMPLES = np.sqrt(-np.expm1(-np.array([1e-12, 1e-4, *np.arange(0.1, 16.5, 0.2)])))
_EDGES = np.array([0, 1e-30, 1e-7, 1.001, 2, np.inf, np.nan])
_ARGUMENTS = np.concatenate([-_SAMPLES, _SAMPLES, -_EDGES, _EDGES]).astype(np.float32)
_ENDS = np.array([-1, 1], np.float32)
_FAR = 1e-5
#: What it is made of.
_OPS = frozenset(
    ["add", "compare", "log-plus-one", "multiply", "negate", "select", "sqrt", "subtract"]
)


def inverse_erf_of(op: Op) -> Op | None:
    """The x of which a select gives the inverse error function, in f32; None of another one."""
    if op.dtype != "f32" or op.operands[0].opcode != "compare":
        return None
    at_end, end, between = op.operands
    size, one = at_end.operands
    if at_end.attrs["direction"] != "EQ" or size.opcode != "abs" or splat(one) != 1:
        return None
    x = size.operands[0]
    found, ends = _values(between, x, _ARGUMENTS), _values(end, x, _ENDS)
    if found is None or ends is None or list(ends) != [-np.inf, np.inf]:
        return None
    with np.errstate(invalid="ignore"):
        todo = ELEMENTWISE["inverse-erf"](_ARGUMENTS)
    return x if np.allclose(found, todo, rtol=_FAR, atol=0, equal_nan=True) else None


def _values(op: Op, x: Op, given: np.ndarray) -> np.ndarray | None:
    """What an op makes of x; None if it is made of more."""
    values: dict[Op, np.ndarray] = {x: given}
    todo = [op]
    while todo and len(values) <= MOST_OPS:
        one = todo[-1]
        constant = splat(one)
        if constant is not None:
            values[one] = np.asarray(constant)
        elif one.opcode not in _OPS:
            return None
        left = [o for o in one.operands if o not in values] if constant is None else []
        if not left:
            if one not in values:
                values[one] = np.asarray(evaluate_op(one, [values[o] for o in one.operands]))
            todo.pop()
        todo += left
    compared = sum(one.opcode == "compare" for one in values)
    return values.get(op) if compared <= 1 else None
