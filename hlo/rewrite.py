"""What simplification rules are made of: declared functions of one op, looked up by opcode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fusionstitch.hlo.graph import Op, Shape


@dataclass(frozen=True, slots=True)
class Make:
    """What an op becomes: same value and shape, so it keeps the op's origin, name and source.

    Every operand is one that the op depended on, or is made of such. Only dependences on constants
    may be dropped: in the proto the op keeps its old operands, and no cycle may arise there.
    """

    opcode: str
    operands: tuple[Op | Make, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    #: of an operand that is made, too, where it is not that of what reads it
    shape: Shape | None = None


#: None: no match; an Op of equal value and shape: read that instead; a Make: become that.
Rule = Callable[[Op], Op | Make | None]


class RuleBook:
    """Rules by the opcode they apply to, in the order of their declaration."""

    def __init__(self) -> None:
        self.by_opcode: dict[str, tuple[Rule, ...]] = {}

    def rule(self, *opcodes: str) -> Callable[[Rule], Rule]:
        """Declares a rule for some opcodes; its docstring reads `before -> after`."""

        def declare(function: Rule) -> Rule:
            for opcode in opcodes:
                self.by_opcode[opcode] = (*self.by_opcode.get(opcode, ()), function)
            return function

        return declare


def splat(op: Op) -> Any | None:
    """The one value all elements of a constant expression have, as a numpy scalar, else None."""
    while op.opcode in ("broadcast", "reshape"):
        op = op.operands[0]
    if op.opcode != "constant" or op.shape.size != 1:
        return None
    return op.attrs["value"].reshape(())[()]


def is_positive_zero(value: Any) -> bool:
    """Whether a splat is 0 of an integer or +0.0."""
    return bool(value is not None and value == 0 and not np.signbit(np.float64(value)))
