"""What is inside of statements and expressions, and the same with parts changed.

Both are trees of frozen dataclasses, whose fields hold other nodes, tuples of them, or constants.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from typing import Any, get_args

from fusionstitch.codegen.ir.expressions import Expr, Integer, Name, Named
from fusionstitch.codegen.ir.statements import (
    Branch,
    Fill,
    For,
    Function,
    Statement,
    Store,
    StoreVector,
    Swap,
    While,
)

_TYPES = ("Type", "IndexType", "Scalar | Record", "Scalar | Record | Raw")
#: Types of fields, as the nodes' files write them, that hold no nodes.
_CONSTANTS = frozenset(
    {"str", "int", "bool", "int | None", "Op", "Index", "Scope", "Intrinsic", "Template", *_TYPES}
)
NODES = frozenset((*get_args(Statement), *get_args(Expr), Branch, Function))
#: Fields that hold no nodes are skipped: most nodes are walked through many times.
_INNER = {
    node: tuple(field.name for field in fields(node) if field.type not in _CONSTANTS)
    for node in NODES
}


def parts(node: Any) -> list[Any]:
    """The nodes right inside of a node, in the order of its fields."""
    found: list[Any] = []
    for name in _INNER[type(node)]:
        value = getattr(node, name)
        if type(value) is tuple:
            _gather(value, found)
        elif type(value) in NODES:
            found.append(value)
    return found


def _gather(values: tuple[Any, ...], found: list[Any]) -> None:
    for value in values:
        if type(value) is tuple:
            _gather(value, found)
        elif type(value) in NODES:
            found.append(value)


def every(nodes: Iterable[Any]) -> Iterator[Any]:
    """The nodes and all inside of them, each before what is inside of it."""
    stack = list(nodes)
    stack.reverse()
    while stack:
        node = stack.pop()
        yield node
        if _INNER[type(node)]:
            stack += reversed(parts(node))


def mapped(node: Any, new: Callable[[Any], Any]) -> Any:
    """The node with each node inside of it replaced: `new` gets one whose own parts are replaced
    already."""
    changed: dict[str, Any] = {}
    for name in _INNER[type(node)]:
        value = getattr(node, name)
        found = _mapped_value(value, new)
        if found is not value:
            changed[name] = found
    return new(replace(node, **changed) if changed else node)


def _mapped_value(value: Any, new: Callable[[Any], Any]) -> Any:
    """The value of a field with the nodes in it replaced; the same one if they stay."""
    kind = type(value)
    if kind is tuple:
        found = tuple(_mapped_value(one, new) for one in value)
        return value if all(map(operator.is_, found, value)) else found
    return mapped(value, new) if kind in NODES else value


def names(node: Any) -> Iterator[str]:
    """The variables, arrays and buffers that a statement or an expression names, each as often as
    it does; not those that it declares."""
    for one in every([node]):
        if isinstance(one, Name):
            yield one.name
        elif isinstance(one, Integer):
            yield from (variable.name for variable in one.index.variables)
        elif isinstance(one, Named):
            yield from filter(str.isidentifier, one.pieces)
        elif isinstance(one, Fill):
            yield one.array
        elif isinstance(one, (Store, StoreVector)):
            yield one.buffer
            if isinstance(one, StoreVector):
                yield one.values
        elif isinstance(one, Swap):
            yield from (one.left, one.right)


def own_names(statement: Statement) -> Iterator[str]:
    """The names in a statement, without those in the statements inside of it."""
    if isinstance(statement, For):
        yield from names(statement.start)
        yield from names(statement.stop)
    elif not isinstance(statement, While):
        yield from names(statement)


def mentions(statements: Iterable[Statement], name: str) -> bool:
    """Whether statements read or write what is called `name`."""
    return any(name in names(one) for one in statements)
