"""Which earlier elements a new one depends on, by the arrays that both use (G3 and G4).

GrCUDA keeps for each element the set of its arrays on which later work may depend, and goes through
the elements of the frontier. Here each array knows those elements: its last writer and the readers
since. Both give the same edges; this one costs a launch no more when much is pending.
"""

from __future__ import annotations

from fusionstitch.dag.element import Element, Storage

#: Readers of an array are looked through for finished ones when there are so many more of them.
_MANY_READERS = 64


def connect(element: Element, with_const: bool) -> None:
    """Finds the parents of a new element and puts it into the sets of its arrays.

    With the rule of const arguments readers of an array do not depend on each other, and a parent
    that another parent comes after is dropped.
    """
    found: dict[Element, list[str]] = {}
    for storage, const in element.uses.items():
        if with_const and const:
            writer = storage.writer
            if writer is not None and not writer.finished:
                found.setdefault(writer, []).append(storage.label)
            _add_reader(storage, element)
        else:
            for parent in storage.users():
                found.setdefault(parent, []).append(storage.label)
            _leave(storage)
            storage.writer = element
    if not found:
        return
    parents = sorted(found, key=_number)
    if with_const and len(parents) > 1:
        parents = without_ancestors(parents)
    element.parents = parents
    element.edges = [(parent.number, tuple(found[parent])) for parent in parents]


def _number(element: Element) -> int:
    return element.number


def _add_reader(storage: Storage, element: Element) -> None:
    readers = storage.readers
    readers.append(element)
    if len(readers) % _MANY_READERS == 0:
        storage.readers = [reader for reader in readers if not reader.finished]


def _leave(storage: Storage) -> None:
    """Nothing depends on the users of an array any more once it is written again."""
    if storage.writer is not None:
        storage.writer.active -= 1
    for reader in storage.readers:
        reader.active -= 1
    storage.readers = []


def without_ancestors(parents: list[Element]) -> list[Element]:
    """Those of `parents`, given in the order of their numbers, that no other one comes after."""
    wanted = set(parents)
    first = parents[0].number
    stack = [above for parent in parents for above in parent.parents]
    seen: set[Element] = set()
    while stack:
        element = stack.pop()
        if element in seen or element.number < first:
            continue
        seen.add(element)
        stack.extend(element.parents)
    return [parent for parent in parents if parent not in wanted & seen]
