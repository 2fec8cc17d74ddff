"""Expressions as C text, with parentheses where operators ask for them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from fusionstitch.codegen.index_maps.index import Index, render
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
from fusionstitch.codegen.ir.types import (
    INT,
    IndexType,
    PointerTo,
    Raw,
    Record,
    Scalar,
    Type,
    VectorOf,
)
from fusionstitch.codegen.text.expressions import Spelt, expression, spelt_number
from fusionstitch.codegen.text.types import c_type

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
    return f"{function_text(intrinsic, template)}({', '.join(arguments)})"


@functools.cache
def function_text(intrinsic: Intrinsic, template: Template) -> str:
    """An intrinsic as C calls it."""
    given = [str(one) if isinstance(one, (int, str)) else type_text(one) for one in template]
    if intrinsic.method:
        return f"{given[0]}::{intrinsic.name}"
    return f"{intrinsic.name}<{', '.join(given)}>" if given else intrinsic.name


@functools.cache
def type_text(one: Type) -> str:
    """The C text of a type."""
    if isinstance(one, Scalar):
        return c_type(one.dtype).storage
    if isinstance(one, IndexType):
        return "int" if one == INT else "long long"
    if isinstance(one, Record):
        return f"fs_record<{', '.join(map(type_text, one.members))}>"
    if isinstance(one, VectorOf):
        name = "fs_loaded" if one.loaded else "fs_vec"
        return f"{name}<{type_text(one.element)}, {one.width}>"
    if isinstance(one, PointerTo):
        return f"{'const ' if one.constant else ''}{type_text(one.element)}*"
    return _RAW[one]


_RAW = {Raw.BYTE: "unsigned char", Raw.LOADED: "auto"}


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


def _index(index: Index) -> tuple[str, int]:
    if len(index.terms) + bool(index.const) > 1:
        return render(index), _BINDS["+"]
    if index.terms and abs(index.terms[0][1]) != 1:
        return render(index), _BINDS["*"]
    text = render(index)
    return text, _SIGN if text.startswith("-") else _ATOM


def _number(one: Number) -> tuple[str, int]:
    return one.text, _ATOM if spelt_number(one.text).tight else _SIGN


def _arithmetic(one: Arithmetic) -> tuple[str, int]:
    arguments = ((text, binds) for text, binds in map(_spelt, one.arguments))
    own = [Spelt(text, binds == _ATOM) for text, binds in arguments]
    found = expression(one.op, own, one.numerics)
    return found.text, _ATOM if found.tight else _CHOICE


def _choice(one: Choice) -> tuple[str, int]:
    cases = "".join(f"{spell(condition)} ? {spell(value)} : " for condition, value in one.cases)
    return cases + spell(one.otherwise), _CHOICE


def _load_vector(one: LoadVector) -> tuple[str, int]:
    start = spell(one.buffer) if _is_zero(one.at) else f"{spell(one.buffer)} + {spell(one.at)}"
    return called(LOAD_VECTOR, (one.type, one.width), start), _ATOM


def _cast(one: Cast) -> tuple[str, int]:
    name = type_text(one.type)
    function = f"static_cast<{name}>" if " " in name else name
    return f"{function}({spell(one.value)})", _ATOM


def _is_zero(at: Expr) -> bool:
    return isinstance(at, Integer) and not at.index.terms and not at.index.const


_SPELLINGS: Mapping[type, Callable[[Any], tuple[str, int]]] = {
    Name: lambda one: (one.name, _ATOM),
    Number: _number,
    Integer: lambda one: _index(one.index),
    Named: lambda one: ("".join(one.parts), _BINDS["+"]),
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
    Pointer: lambda one: (f"({type_text(one.type)}*){_pointed(one.start)}", _SIGN),
}


def _pointed(start: Expr) -> str:
    text, binds = _spelt(start)
    return text if binds == _ATOM else f"({text})"
