"""The C text inside of statements: what statements compute with, in the order of the program."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from fusionstitch.codegen.ir.statements import Barrier, Branch, Note, Statement, Store

#: What no compiler reads.
_SAID = (Note, Barrier)


@dataclass(frozen=True)
class Leaf:
    """A piece of C text; `address` where it is a place in a buffer."""

    text: str
    address: bool = False


def leaves(statement: Statement | Branch) -> Iterator[Leaf]:
    """The leaves of a statement and of those inside of it."""
    if isinstance(statement, _SAID):
        return
    for field in fields(statement):
        value = getattr(statement, field.name)
        address = isinstance(statement, Store) and field.name == "address"
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, str):
                yield Leaf(part, address)
            elif hasattr(part, "__dataclass_fields__"):
                yield from leaves(part)


def with_leaves(statement: Any, texts: Iterator[str]) -> Any:
    """The statement with other leaves, as many of them."""
    if isinstance(statement, _SAID):
        return statement

    def part(one: Any) -> Any:
        if isinstance(one, str):
            return next(texts)
        return with_leaves(one, texts) if hasattr(one, "__dataclass_fields__") else one

    changed = {}
    for field in fields(statement):
        value = getattr(statement, field.name)
        changed[field.name] = tuple(map(part, value)) if isinstance(value, tuple) else part(value)
    return replace(statement, **changed)


def frame(statement: Any) -> Any:
    """What is left of a statement without leaves: equal for those that differ in these alone."""
    return with_leaves(statement, itertools.repeat(""))


def mentions(statements: Iterable[Statement], name: str) -> bool:
    """Whether statements read the variable `name`."""
    word = re.compile(rf"\b{name}\b")
    return any(word.search(leaf.text) for one in statements for leaf in leaves(one))
