"""From where to where arrays of a thread take registers: between the first statement that names
them and the last.

An array whose elements are written once, where those of another one are read for the last time,
takes over its registers one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fusionstitch.codegen.ir.expressions import Element, Name
from fusionstitch.codegen.ir.statements import Array, Assign, Statement
from fusionstitch.codegen.ir.walk import every, names


@dataclass
class Lives:
    """Registers of the arrays that the statements of a frame declare, by statement: those first
    live there, those that replace others there, and those last live there."""

    born: list[int]
    moved: list[int]
    dead: list[int]


def lives(body: Sequence[Statement]) -> Lives | None:
    """Those of a frame's statements, which are in order; None if they declare no array."""
    words = {one.name: _words(one) for one in body if isinstance(one, Array)}
    if not words:
        return None
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, statement in enumerate(body):
        own = {statement.name} if isinstance(statement, Array) and statement.zero else set()
        for name in own | words.keys() & set(names(statement)):
            first.setdefault(name, number)
            last[name] = number
    found = Lives(*([0] * len(body) for _ in range(3)))
    for name, number in last.items():
        found.born[first[name]] += words[name]
        found.dead[number] += words[name]
    for number, statement in enumerate(body):
        if found.born[number] and found.dead[number]:
            new = {name for name, begun in first.items() if begun == number}
            once = sum(words[name] for name in new & _written_once(statement))
            old = found.dead[number] - sum(words[n] for n in new if last[n] == number)
            found.moved[number] = max(0, min(once, old))
    return found


def _words(array: Array) -> int:
    """The registers of all its elements."""
    return -(-array.type.bytes // 4) * (array.size or 1)


def _written_once(statement: Statement) -> set[str]:
    """The arrays that a statement writes, and does not read or add to."""
    written = Counter(
        one.target.array.name
        for one in every([statement])
        if isinstance(one, Assign) and not one.operator
        if isinstance(one.target, Element) and isinstance(one.target.array, Name)
    )
    named = Counter(names(statement))
    return {name for name, times in written.items() if named[name] == times}
