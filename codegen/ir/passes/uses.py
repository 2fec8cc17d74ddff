"""What statements read, and which variables change or differ by thread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fusionstitch.codegen.ir.expressions import (
    THREAD,
    Address,
    Element,
    Load,
    LoadVector,
    Name,
)
from fusionstitch.codegen.ir.kernel import Buffer, Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.statements import Assign, Body, For, Let, Swap
from fusionstitch.codegen.ir.walk import every, names, parts


def unread_outputs(kernel: Lowered) -> dict[str, Buffer]:
    """The outputs that a kernel never reads, by name."""
    read: set[str] = set()
    for body in kernel.bodies:
        _add_read(body, read)
    outputs = (one for one in kernel.buffers if one.memory is Memory.OUTPUT)
    return {one.name: one for one in outputs if one.name not in read}


def changing(nodes: Iterable[Any]) -> set[str]:
    """Variables that do not keep their first value."""
    targets = (one.target for one in nodes if isinstance(one, Assign))
    arrays = (one.array if isinstance(one, Element) else one for one in targets)
    return {name for one in arrays for name in names(one)}


def depends_on_thread(nodes: Iterable[Any]) -> set[str]:
    """Variables whose value depends on the thread."""
    own = {THREAD.name}
    for one in nodes:
        if isinstance(one, Let) and not own.isdisjoint(names(one.value)):
            own.add(one.name)
        elif isinstance(one, For) and not own.isdisjoint(names(one.start)):
            own.add(one.variable)
    return own


def _add_read(body: Body, found: set[str]) -> None:
    """Adds the names through which memory is read, or whose address is taken."""
    for one in every(body):
        kind = type(one)
        if kind in (Load, LoadVector, Address):
            found.update(names(one.buffer))
        elif kind is Swap:
            found.update((one.left, one.right))
        elif kind is not Name:
            found.update(part.name for part in parts(one) if type(part) is Name)
