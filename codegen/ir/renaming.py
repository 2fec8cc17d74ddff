"""The same statements under other names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fusionstitch.codegen.ir.expressions import Integer, Name, Named
from fusionstitch.codegen.ir.statements import (
    Array,
    Fill,
    For,
    Let,
    Shared,
    Store,
    StoreVector,
    Table,
)
from fusionstitch.codegen.ir.walk import mapped
from fusionstitch.codegen.places.index import pieces

#: The fields of statements that are names.
_FIELDS: dict[type, tuple[str, ...]] = {
    **dict.fromkeys((Let, Array, Shared, Table, Name), ("name",)),
    Store: ("buffer",),
    StoreVector: ("buffer", "values"),
    Fill: ("array",),
    For: ("variable",),
}


def renamed(node: Any, new: Callable[[str], str]) -> Any:
    """A statement or expression with every name in it replaced, those that it declares, too."""

    def piece(text: str) -> str:
        return new(text) if text.isidentifier() else text

    def one(part: Any) -> Any:
        if isinstance(part, Integer):
            return Named(tuple(piece(str(p)) for p in pieces(part.index)))
        if isinstance(part, Named):
            return Named(tuple(map(piece, part.pieces)))
        fields = _FIELDS.get(type(part), ())
        return replace(part, **{name: new(getattr(part, name)) for name in fields})

    return mapped(node, one)
