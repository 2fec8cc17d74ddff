"""The constants inside addresses, in which programs differ that do the same at other addresses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fusionstitch.codegen.index_maps.index import text_parts
from fusionstitch.codegen.ir.expressions import (
    Address,
    Element,
    Integer,
    Load,
    LoadVector,
    Named,
    Number,
)
from fusionstitch.codegen.ir.statements import Store, StoreVector
from fusionstitch.codegen.ir.walk import mapped

#: What has an address, and the field that it is.
_FIELDS = {
    **dict.fromkeys((Element, Load, LoadVector, Address), "at"),
    **dict.fromkeys((Store, StoreVector), "address"),
}


def written_out(node: Any) -> Any:
    """An integer part by part, in which variables are equal that have the same name."""
    return Named(tuple(map(str, text_parts(node.index)))) if isinstance(node, Integer) else node


def readdressed(node: Any, new: Callable[[str], str]) -> Any:
    """A statement or expression with each constant inside of an address spelled as `new` says.

    `new` is called in program order. An address inside another one is handled once.
    """

    def constant(part: Any) -> Any:
        if isinstance(part, Integer):
            found = [new(str(p)) if isinstance(p, int) else p for p in text_parts(part.index)]
            return Named(tuple(found))
        return Number(new(part.text)) if isinstance(part, Number) else part

    def addressed(part: Any) -> Any:
        field = _FIELDS.get(type(part))
        if field is None:
            return part
        return replace(part, **{field: mapped(getattr(part, field), constant)})

    return mapped(node, addressed)
