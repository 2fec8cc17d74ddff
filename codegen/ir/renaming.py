"""The same statements under other names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fusionstitch.codegen.index_maps.index import text_parts
from fusionstitch.codegen.ir.expressions import Integer, Named
from fusionstitch.codegen.ir.walk import DECLARED, USED, mapped


def renamed(node: Any, new: Callable[[str], str]) -> Any:
    """A statement or expression with every name in it replaced, those that it declares, too."""

    def spelt(text: str) -> str:
        return new(text) if text.isidentifier() else text

    def one(part: Any) -> Any:
        if isinstance(part, Integer):
            return Named(tuple(spelt(str(p)) for p in text_parts(part.index)))
        if isinstance(part, Named):
            return Named(tuple(map(spelt, part.parts)))
        names = (*DECLARED[type(part)], *USED[type(part)])
        return (
            replace(part, **{name: new(getattr(part, name)) for name in names}) if names else part
        )

    return mapped(node, one)
