"""What is inside of statements and expressions, and the same with parts changed.

Both are trees of frozen dataclasses, whose fields hold other nodes, tuples of them, or constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from fusionstitch.codegen.ir.expressions import Integer, Name, Named
from fusionstitch.codegen.ir.statements import Fill, Statement, Store, StoreVector


def parts(node: Any) -> Iterator[Any]:
    """The nodes right inside of a node, in the order of its fields."""
    for field in fields(node):
        yield from _nodes(getattr(node, field.name))


def _nodes(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        for one in value:
            yield from _nodes(one)
    elif is_node(value):
        yield value


def is_node(value: Any) -> bool:
    """Whether a field holds a statement or an expression; the op of an expression is neither."""
    return is_dataclass(value) and type(value).__module__.startswith(_HERE)


_HERE = f"{__package__}."


def every(nodes: Iterable[Any]) -> Iterator[Any]:
    """The nodes and all inside of them, each before what is inside of it."""
    stack = list(nodes)[::-1]
    while stack:
        node = stack.pop()
        yield node
        stack += list(parts(node))[::-1]


def mapped(node: Any, new: Callable[[Any], Any]) -> Any:
    """The node with each node inside of it replaced: `new` gets one whose own parts are replaced
    already."""

    def value_of(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(value_of, value))
        return mapped(value, new) if is_node(value) else value

    changed = {f.name: value_of(getattr(node, f.name)) for f in fields(node)}
    return new(replace(node, **changed))


def names(node: Any) -> Iterator[str]:
    """The variables, arrays and buffers that a statement or an expression names, each as often as
    it does; not those that it declares."""
    for one in every([node]):
        if isinstance(one, Name):
            yield one.name
        elif isinstance(one, Integer):
            yield from (variable.name for variable in one.index.variables)
        elif isinstance(one, Named):
            yield from one.pieces
        elif isinstance(one, Fill):
            yield one.array
        elif isinstance(one, (Store, StoreVector)):
            yield one.buffer
            if isinstance(one, StoreVector):
                yield one.values


def mentions(statements: Iterable[Statement], name: str) -> bool:
    """Whether statements read or write what is called `name`."""
    return any(name in names(one) for one in statements)
