"""What is inside of statements and expressions, and the same with parts changed.

Both are trees of frozen dataclasses, whose fields hold other nodes, tuples of them, or constants.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, get_args

from fusionstitch.codegen.ir.expressions import Expr, Integer, Named
from fusionstitch.codegen.ir.statements import (
    Body,
    Branch,
    For,
    Frame,
    Function,
    Group,
    If,
    Statement,
    While,
)

_TYPES = ("Type", "IndexType", "Scalar | Record", "Scalar | Record | Raw")
#: Types of fields, as the nodes' files write them, that hold no nodes.
_CONSTANTS = frozenset(
    {"str", "Declared", "Used", "int", "bool", "int | None", "Op", "Index", "Scope"}
    | {"Intrinsic", "Template", "tuple[str, ...]", "tuple[tuple[Type, str], ...]", *_TYPES}
)
NODES = frozenset((*get_args(Statement), *get_args(Expr), Branch, Function))
FRAMES = (Group, For, While, If)


def fields_of(node: type, kind: str) -> tuple[str, ...]:
    """The fields of a node whose type the node's file writes so."""
    return tuple(field.name for field in fields(node) if field.type == kind)


#: Fields that hold no nodes are skipped: most nodes are walked through many times.
_INNER = {
    node: tuple(field.name for field in fields(node) if field.type not in _CONSTANTS)
    for node in NODES
}


#: The fields that are names which a node declares, and those that are names it uses.
DECLARED = {node: fields_of(node, "Declared") for node in NODES}
USED = {node: fields_of(node, "Used") for node in NODES}


def _used(used: tuple[str, ...]) -> Callable[[Any], Iterable[str]]:
    return lambda node: [getattr(node, name) for name in used]


#: The names that a node uses by itself, by its type where there are any.
_NAMES: dict[type, Callable[[Any], Iterable[str]]] = {
    **{node: _used(used) for node, used in USED.items() if used},
    Integer: lambda node: (variable.name for variable in node.index.variables),
    Named: lambda node: filter(str.isidentifier, node.parts),
}


Parts = Callable[[Any], Sequence[Any]]


def _reader(node: type) -> Parts:
    """What gives the nodes right inside of one of a type. Most have but expressions, or a tuple of
    them."""
    kinds = {field.name: field.type for field in fields(node) if field.name in _INNER[node]}
    read = operator.attrgetter(*kinds)
    if set(kinds.values()) == {"Expr"}:
        return read if len(kinds) > 1 else lambda node: (read(node),)
    if list(kinds.values()) in (["tuple[Expr, ...]"], ["tuple[Statement, ...]"]):
        return read
    return lambda node: _gathered(map(node.__getattribute__, kinds))


def _gathered(values: Iterable[Any]) -> list[Any]:
    """The nodes among values, and in tuples of them."""
    found: list[Any] = []
    for value in values:
        if type(value) is tuple:
            found += _gathered(value)
        elif type(value) in NODES:
            found.append(value)
    return found


_PARTS = {node: _reader(node) for node in NODES if _INNER[node]}


def parts(node: Any) -> Sequence[Any]:
    """The nodes right inside of a node, in the order of its fields."""
    read = _PARTS.get(type(node))
    return () if read is None else read(node)


def every(nodes: Iterable[Any]) -> Iterator[Any]:
    """The nodes and all inside of them, each before what is inside of it."""
    stack = list(nodes)
    stack.reverse()
    while stack:
        node = stack.pop()
        yield node
        read = _PARTS.get(type(node))
        if read is not None:
            stack += reversed(read(node))


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
        used = _NAMES.get(type(one))
        if used is not None:
            yield from used(one)


def declared(node: Any) -> tuple[str, ...]:
    """The names that a node declares, without what is inside of it."""
    return tuple(getattr(node, name) for name in DECLARED[type(node)])


def conditions(one: Frame) -> list[Expr]:
    """What decides about the statements inside of a frame."""
    if isinstance(one, For):
        return [one.start, one.stop]
    if isinstance(one, If):
        return [one.condition, *(other.condition for other in one.others if other.condition)]
    return []


def inside(one: Frame) -> list[Statement]:
    """The statements right inside of a frame."""
    if isinstance(one, If):
        given = [one.given] if one.given else []
        return [*given, *one.body, *(inner for other in one.others for inner in other.body)]
    return list(one.body)


def statements(body: Iterable[Statement]) -> Iterator[Statement]:
    """The statements and those inside of them, in the order of the program."""
    stack = [*body]
    stack.reverse()
    while stack:
        one = stack.pop()
        yield one
        if isinstance(one, FRAMES):
            stack += reversed(inside(one))


def in_order(body: Iterable[Statement]) -> Iterator[Statement]:
    """The statements of a frame: those of groups are its own."""
    for one in body:
        if isinstance(one, Group):
            yield from in_order(one.body)
        else:
            yield one


def with_bodies(one: Statement, new: Callable[[Body], Body]) -> Statement:
    """A statement with what is inside of it replaced, each body as a whole."""
    if isinstance(one, If):
        others = tuple(replace(other, body=new(other.body)) for other in one.others)
        return replace(one, body=new(one.body), others=others)
    return replace(one, body=new(one.body)) if isinstance(one, FRAMES) else one


def mentions(statements: Iterable[Statement], name: str) -> bool:
    """Whether statements read or write what is called `name`."""
    return any(name in names(one) for one in statements)
