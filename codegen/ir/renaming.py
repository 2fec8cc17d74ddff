"""The same statements under other names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fusionstitch.codegen.index_maps import index as indices
from fusionstitch.codegen.index_maps.index import text_parts
from fusionstitch.codegen.ir.expressions import Integer, Named
from fusionstitch.codegen.ir.walk import DECLARED, USED, mapped


def renamed(node: Any, new: Callable[[str], str]) -> Any:
    """A statement or expression with every name in it replaced, those that it declares, too;
    integers become their text, part by part."""

    def spelt(text: str) -> str:
        return new(text) if text.isidentifier() else text

    def one(part: Any) -> Any:
        if isinstance(part, Integer):
            return Named(tuple(spelt(str(p)) for p in text_parts(part.index)))
        if isinstance(part, Named):
            return Named(tuple(map(spelt, part.parts)))
        return _with_names(part, new)

    return mapped(node, one)


def under_names(node: Any, names: Mapping[str, str]) -> Any:
    """A statement or expression under these names, where it has others: integers stay what they
    are."""

    def spelt(text: str) -> str:
        return names.get(text, text)

    def one(part: Any) -> Any:
        if isinstance(part, Integer):
            return Integer(indices.renamed(part.index, names))
        if isinstance(part, Named):
            return Named(tuple(map(spelt, part.parts)))
        return _with_names(part, spelt)

    return mapped(node, one)


def _with_names(part: Any, new: Callable[[str], str]) -> Any:
    """A node with the names that it declares and uses by itself replaced."""
    own = (*DECLARED[type(part)], *USED[type(part)])
    return replace(part, **{name: new(getattr(part, name)) for name in own}) if own else part
