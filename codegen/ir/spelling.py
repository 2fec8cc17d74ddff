"""Expressions as C text, with parentheses where operators ask for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fusionstitch.codegen.ir.expressions import (
    Address,
    Apply,
    Arithmetic,
    Cast,
    Choice,
    Element,
    Expr,
    Infix,
    Integer,
    Load,
    LoadVector,
    Name,
    Named,
    Not,
    Number,
    Pointer,
)
from fusionstitch.codegen.ir.intrinsic import Intrinsic, Template
from fusionstitch.codegen.ir.intrinsics import LOAD_VECTOR
from fusionstitch.codegen.places.index import Index, render
from fusionstitch.codegen.text.expressions import expression, is_atom

#: How tightly operators bind.
_BINDS = {
    **dict.fromkeys(("*", "/", "%"), 5),
    **dict.fromkeys(("+", "-"), 4),
    **dict.fromkeys(("<", "<=", ">", ">="), 3),
    **dict.fromkeys(("==", "!="), 2),
    "&&": 1,
}
_CHOICE, _SIGN, _ATOM = 0, 6, 7
#: Operators whose right operand may be of the same kind without parentheses. Left ones may, but few
#: know what a * b % c is.
_ASSOCIATIVE = frozenset({"+", "&&"})


def spell(expr: Expr) -> str:
    """The C text of an expression."""
    return _SPELLINGS[type(expr)](expr)[0]


def called(intrinsic: Intrinsic, template: Template, *arguments: str) -> str:
    """The C text of a call."""
    return f"{intrinsic.spelled(template)}({', '.join(arguments)})"


def _spelt(expr: Expr) -> tuple[str, int]:
    return _SPELLINGS[type(expr)](expr)


def _infix(one: Infix) -> tuple[str, int]:
    binds, texts = _BINDS[one.operator], []
    for number, operand in enumerate(one.operands):
        text, own = _spelt(operand)
        alone = one.operator not in _ASSOCIATIVE if number else one.operator == "%"
        least = binds + alone
        texts.append(text if own >= least else f"({text})")
    return f" {one.operator} ".join(texts), binds


def _place(index: Index) -> tuple[str, int]:
    if len(index.terms) + bool(index.const) > 1:
        return render(index), _BINDS["+"]
    if index.terms and abs(index.terms[0][1]) != 1:
        return render(index), _BINDS["*"]
    text = render(index)
    return text, _SIGN if text.startswith("-") else _ATOM


def _number(one: Number) -> tuple[str, int]:
    return one.text, _SIGN if one.text.startswith("-") else _ATOM


def _arithmetic(one: Arithmetic) -> tuple[str, int]:
    text = expression(one.op, [spell(a) for a in one.arguments], one.numerics)
    return text, _ATOM if is_atom(text) else _CHOICE


def _choice(one: Choice) -> tuple[str, int]:
    cases = "".join(f"{spell(condition)} ? {spell(value)} : " for condition, value in one.cases)
    return cases + spell(one.otherwise), _CHOICE


def _load_vector(one: LoadVector) -> tuple[str, int]:
    start = spell(one.buffer) if _is_zero(one.at) else f"{spell(one.buffer)} + {spell(one.at)}"
    return called(LOAD_VECTOR, (one.kind, one.width), start), _ATOM


def _cast(one: Cast) -> tuple[str, int]:
    function = f"static_cast<{one.kind}>" if " " in one.kind else one.kind
    return f"{function}({spell(one.value)})", _ATOM


def _is_zero(at: Expr) -> bool:
    return isinstance(at, Integer) and not at.index.terms and not at.index.const


_SPELLINGS: Mapping[type, Callable[[Any], tuple[str, int]]] = {
    Name: lambda one: (one.name, _ATOM),
    Number: _number,
    Integer: lambda one: _place(one.index),
    Named: lambda one: ("".join(one.pieces), _BINDS["+"]),
    Element: lambda one: (f"{spell(one.array)}[{spell(one.at)}]", _ATOM),
    Load: lambda one: (f"{spell(one.buffer)}[{spell(one.at)}]", _ATOM),
    LoadVector: _load_vector,
    Arithmetic: _arithmetic,
    Apply: lambda one: (called(one.intrinsic, one.template, *map(spell, one.arguments)), _ATOM),
    Cast: _cast,
    Not: lambda one: (f"!({spell(one.condition)})", _ATOM),
    Infix: _infix,
    Choice: _choice,
    Address: lambda one: (f"&{spell(one.buffer)}[{spell(one.at)}]", _SIGN),
    Pointer: lambda one: (f"({one.kind}*){_pointed(one.start)}", _SIGN),
}


def _pointed(start: Expr) -> str:
    text, binds = _spelt(start)
    return text if binds == _ATOM else f"({text})"
