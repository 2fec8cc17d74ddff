"""What statements compute with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from fusionstitch.codegen.index_maps.index import Index
from fusionstitch.codegen.ir.intrinsic import Intrinsic, Template
from fusionstitch.codegen.ir.intrinsics import MINIMUM
from fusionstitch.codegen.ir.types import Record, Scalar, Type
from fusionstitch.codegen.text.expressions import Spelt, expression
from fusionstitch.hlo.graph import Op

#: The name of a variable, an array or a buffer, as the field of a node that declares it, and of one
#: that reads or writes what is called so (`walk.py`, `renaming.py`).
Declared = str
Used = str


@dataclass(frozen=True)
class Name:
    """A variable, an array, a buffer, or what hardware calls a thread and its block."""

    name: Used


@dataclass(frozen=True)
class Number:
    """A constant, as C spells it (`text/expressions.py: literal`)."""

    text: str

    @property
    def integer(self) -> int | None:
        """The integer that it is, if it is spelled as one."""
        return int(self.text) if self.text.lstrip("-").isdigit() else None


@dataclass(frozen=True)
class Integer:
    """Arithmetic of integers: where in a buffer, an array or a loop something is."""

    index: Index


@dataclass(frozen=True)
class Named:
    """An `Integer` some of whose constants have names, as in a function of several groups: its C
    text, part by part."""

    parts: tuple[str, ...]


@dataclass(frozen=True)
class Element:
    """An element of an array of this thread, or of a vector it loaded."""

    array: Expr
    at: Expr


@dataclass(frozen=True)
class Load:
    """An element of memory, in the type in which it is stored. `buffer` may be a pointer that the
    kernel computed, or a call that says of one how it is aligned."""

    buffer: Expr
    at: Expr


@dataclass(frozen=True)
class LoadVector:
    """`width` neighbouring elements of a type, loaded at once."""

    type: Scalar | Record
    width: int
    buffer: Expr
    at: Expr


@dataclass(frozen=True, eq=False)
class Arithmetic:
    """An elementwise op of the semantics table; `numerics` as in `CodegenOptions`. Ops are the same
    that have the same entry in the table of C expressions."""

    op: Op
    arguments: tuple[Expr, ...]
    numerics: str

    @cached_property
    def entry(self) -> str:
        """What the op does to operands x0, x1 and so on."""
        operands = [Spelt(f"x{number}") for number in range(len(self.arguments))]
        return expression(self.op, operands, self.numerics).text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Arithmetic):
            return NotImplemented
        return self.entry == other.entry and self.arguments == other.arguments

    def __hash__(self) -> int:
        return hash((self.entry, self.arguments))


@dataclass(frozen=True)
class Apply:
    """An intrinsic that is called for its result, with these template arguments."""

    intrinsic: Intrinsic
    template: Template
    arguments: tuple[Expr, ...]


@dataclass(frozen=True)
class Cast:
    """A value as one of another type."""

    type: Type
    value: Expr


@dataclass(frozen=True)
class Not:
    """Whether a condition does not hold."""

    condition: Expr


@dataclass(frozen=True)
class Infix:
    """Operands with one C operator between them, from left to right."""

    operator: str
    operands: tuple[Expr, ...]


@dataclass(frozen=True)
class Choice:
    """The value of the first condition that holds, else `otherwise`."""

    cases: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr


@dataclass(frozen=True)
class Address:
    """A pointer to an element of a buffer."""

    buffer: Expr
    at: Expr


@dataclass(frozen=True)
class Pointer:
    """A buffer of elements of another type."""

    type: Type
    start: Expr


Expr = (
    Name
    | Number
    | Integer
    | Named
    | Element
    | Load
    | LoadVector
    | Arithmetic
    | Apply
    | Cast
    | Not
    | Infix
    | Choice
    | Address
    | Pointer
)

THREAD, BLOCK = Name("threadIdx.x"), Name("blockIdx.x")
#: Where the shared memory of a kernel begins.
SHARED = Name("shared_memory")


def number(value: int) -> Number:
    """An integer."""
    return Number(str(value))


def apply(intrinsic: Intrinsic, *arguments: Expr, template: Template = ()) -> Apply:
    """An intrinsic of its arguments."""
    return Apply(intrinsic, template, arguments)


def infix(operator: str, *operands: Expr | int) -> Infix:
    """Operands and an operator; integers stand for themselves."""
    return Infix(operator, tuple(number(o) if isinstance(o, int) else o for o in operands))


def least(type_: Type | None, a: Expr | int, b: Expr | int) -> Apply:
    """The lesser of two integers, as one of a type (None where both are of one)."""
    both = (number(x) if isinstance(x, int) else x for x in (a, b))
    return Apply(MINIMUM, (type_,) if type_ else (), tuple(both))


def all_of(conditions: Iterable[Expr | None]) -> Expr | None:
    """What holds where all conditions do; None, which always holds, among them."""
    found = [condition for condition in conditions if condition is not None]
    return found[0] if len(found) == 1 else Infix("&&", tuple(found)) if found else None


def element(array: str, at: Index) -> Element:
    """An element of the array of that name."""
    return Element(Name(array), Integer(at))


def pointer_at(buffer: Expr, at: Index) -> Expr:
    """A pointer `at` elements after a buffer's begin."""
    return Infix("+", (buffer, Integer(at)))
