"""Whether a graph that was read from outside says sensible things about itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fusionstitch.hlo.errors import ImportModuleError, VerifyError
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.numeric import COMPARISONS, ELEMENTWISE
from fusionstitch.hlo.shapes import SHAPE_RULES


def _parameters(function: Callable[..., Any]) -> int:
    if isinstance(function, np.ufunc):
        return function.nin
    if isinstance(function, np.vectorize):
        function = function.pyfunc
    return len(inspect.signature(function).parameters)


#: opcode -> number of operands, where it is fixed.
ARITY: Mapping[str, int] = {
    **{name: _parameters(f) for name, f in ELEMENTWISE.items() if f is not np.where},
    **dict.fromkeys(("parameter", "constant", "opaque-constant", "iota"), 0),
    **dict.fromkeys(("convert", "bitcast-convert", "reduce-precision", "while"), 1),
    **dict.fromkeys(("broadcast", "reshape", "bitcast", "transpose", "reverse", "slice"), 1),
    **dict.fromkeys(("get-tuple-element", "topk"), 1),
    **dict.fromkeys(("compare", "pad", "dot", "gather"), 2),
    "select": 3,
}
#: opcode -> number of parameters of the computation it calls, by its number of operands.
_BODIES: Mapping[str, Callable[[int], int]] = {
    "reduce": lambda operands: operands,
    "reduce-window": lambda operands: operands,
    "scatter": lambda operands: operands - 1,
    "sort": lambda operands: 2 * operands,
    "map": lambda operands: operands,
}
_WRONG = (VerifyError, KeyError, ValueError, IndexError, AttributeError, RuntimeError, TypeError)


def check(graph: Graph) -> None:
    """Raises ImportModuleError for an op whose operands, attributes, body or shape do not fit."""
    for op in graph:
        try:
            _check(op)
        except _WRONG as error:
            why = str(error).partition(": expected ")[2].partition(". This is a defect")[0]
            why = f"expected {why}" if isinstance(error, VerifyError) else repr(error)
            raise ImportModuleError(
                f"{graph.name}: {op!r} is malformed: {why}. Export the module again."
            ) from None
    numbers = [p.attrs["index"] for p in graph.parameters]
    if numbers != list(range(len(numbers))):
        raise ImportModuleError(
            f"{graph.name}: its parameters are numbered {numbers}. Export the module again."
        )


def _check(op: Op) -> None:
    operands = len(op.operands)
    if operands != ARITY.get(op.opcode, operands):
        raise ValueError(f"{ARITY[op.opcode]} operands")
    if (count := _BODIES.get(op.opcode)) is not None:
        [body] = op.called
        if len(body.parameters) != count(operands) or operands == 0:
            raise ValueError(f"{body.name} takes {len(body.parameters)} values")
    if op.opcode == "compare" and op.attrs["direction"] not in COMPARISONS:
        raise ValueError(f"no direction {op.attrs['direction']!r}")
    rule = SHAPE_RULES.get(op.opcode)
    if rule is not None and (shape := rule(op)) != op.shape:
        raise ValueError(f"its shape should be {shape}")
