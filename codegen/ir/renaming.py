"""The same statements under other names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fusionstitch.codegen.index_maps.index import pieces
from fusionstitch.codegen.ir.expressions import Integer, Named
from fusionstitch.codegen.ir.walk import DECLARED, USED, mapped


def renamed(node: Any, new: Callable[[str], str]) -> Any:
    """A statement or expression with every name in it replaced, those that it declares, too."""

    def piece(text: str) -> str:
        return new(text) if text.isidentifier() else text

    def one(part: Any) -> Any:
        if isinstance(part, Integer):
            return Named(tuple(piece(str(p)) for p in pieces(part.index)))
        if isinstance(part, Named):
            return Named(tuple(map(piece, part.pieces)))
        names = (*DECLARED[type(part)], *USED[type(part)])
        return (
            replace(part, **{name: new(getattr(part, name)) for name in names}) if names else part
        )

    return mapped(node, one)
