"""Every name is declared before it is used, in a frame around its use, and once there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusionstitch.codegen.ir.expressions import BLOCK, SHARED, THREAD
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.statements import (
    Array,
    Branch,
    Fill,
    For,
    Group,
    If,
    Let,
    Shared,
    Statement,
    Table,
    While,
)
from fusionstitch.codegen.ir.verifier.fault import Fault
from fusionstitch.codegen.ir.walk import names, own_names


def check(kernel: Lowered) -> None:
    """Raises Fault for a name that is not known where it is used."""
    known = {THREAD.name, BLOCK.name} | {buffer.name for buffer in kernel.buffers}
    if kernel.shared:
        known.add(SHARED.name)
    _body(kernel.body, [known])
    tables = {b.name for b in kernel.buffers}
    for function in kernel.functions:
        own = {name for _, name in function.parameters}
        _body(function.body, [own | {THREAD.name, BLOCK.name} | tables])


def _body(body: Sequence[Statement], scopes: list[set[str]]) -> None:
    scopes.append(set())
    for one in body:
        _statement(one, scopes)
    scopes.pop()


def _statement(one: Statement, scopes: list[set[str]]) -> None:
    if isinstance(one, Group):  # no frame of its own in C
        for inner in one.body:
            _statement(inner, scopes)
        return
    if isinstance(one, If):
        scopes.append(set())
        if one.given:
            _statement(one.given, scopes)
        _used(names(one.condition), one, scopes)
        _body(one.body, scopes)
        for other in one.others:
            _branch(other, one, scopes)
        scopes.pop()
        return
    _used(own_names(one), one, scopes)
    if isinstance(one, For):
        scopes.append({one.variable})
        _body(one.body, scopes)
        scopes.pop()
    elif isinstance(one, While):
        _body(one.body, scopes)
    elif isinstance(one, (Let, Array, Shared, Table)):
        if one.name in scopes[-1]:
            raise Fault(f"{one.name} is declared twice", one)
        scopes[-1].add(one.name)


def _branch(other: Branch, one: If, scopes: list[set[str]]) -> None:
    if other.condition is not None:
        _used(names(other.condition), one, scopes)
    _body(other.body, scopes)


def _used(found: Iterable[str], at: Statement, scopes: Sequence[set[str]]) -> None:
    for name in found:
        if isinstance(at, Fill) and name == "i":
            continue
        if not any(name in scope for scope in scopes):
            raise Fault(f"{name} is not known", at)
