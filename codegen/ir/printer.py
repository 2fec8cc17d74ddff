"""Statements as C text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fusionstitch.codegen.ir.expressions import SHARED, Address, Name, Pointer, infix
from fusionstitch.codegen.ir.intrinsics import (
    BLOCK_BARRIER,
    CLUSTER_BARRIER,
    GRID_ARRIVE,
    GRID_BARRIER,
    GRID_WAIT,
    STORE_ALL,
    STORE_VECTOR,
    STORE_VECTOR_ALL,
    SWAP,
    TEAM_BARRIER,
)
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.spelling import called, spell, type_text
from fusionstitch.codegen.ir.statements import (
    ALL,
    FILLED,
    Array,
    Arrive,
    Assign,
    Barrier,
    Blank,
    Call,
    Fill,
    For,
    Function,
    Group,
    If,
    Invoke,
    Leave,
    Let,
    Note,
    Shared,
    Skip,
    Statement,
    Store,
    StoreVector,
    Swap,
    Table,
    Wait,
    While,
)
from fusionstitch.codegen.ir.types import PointerTo, Raw, Type


def text(body: Sequence[Statement]) -> str:
    """The statements, a line or more each."""
    return "\n".join(lines(body, 0))


def lines(body: Sequence[Statement], depth: int) -> Iterator[str]:
    """The lines of statements that stand in `depth` blocks."""
    for statement in body:
        if isinstance(statement, Group):
            yield from lines(statement.body, depth)
        elif isinstance(statement, For):
            yield from _block(_for(statement), statement.body, depth)
        elif isinstance(statement, While):
            yield from _block("while (true)", statement.body, depth)
        elif isinstance(statement, If):
            yield from _if(statement, depth)
        else:
            line = _LINES[type(statement)](statement)
            yield "  " * depth + line if line else ""


def function(one: Function) -> Iterator[str]:
    """The lines of a function of the kernel's own, and an empty one."""
    parameters = ",\n    ".join(map(parameter_text, one.parameters))
    yield f"static __device__ __noinline__ void {one.name}(\n    {parameters}) {{"
    yield from lines(one.body, 1)
    yield "}\n"


def parameter_text(parameter: tuple[Type, str]) -> str:
    """A parameter of such a function, which keeps its value."""
    kind, name = parameter
    pointer = isinstance(kind, PointerTo)
    return f"{type_text(kind) if pointer else _constant(kind)} {name}"


def _block(header: str, body: Sequence[Statement], depth: int) -> Iterator[str]:
    yield "  " * depth + header + " {"
    yield from lines(body, depth + 1)
    yield "  " * depth + "}"


def _if(one: If, depth: int) -> Iterator[str]:
    given = f"{_let(one.given)} " if one.given else ""
    yield from _block(f"if ({given}{spell(one.condition)})", one.body, depth)
    for other in one.others:
        header = f"else if ({spell(other.condition)})" if other.condition else "else"
        yield from _block(header, other.body, depth)


def _for(loop: For) -> str:
    name = loop.variable
    unroll = {0: "", ALL: "FS_UNROLL "}.get(loop.unroll, f"FS_UNROLL_BY({loop.unroll}) ")
    compare, advance = "<", f"++{name}" if loop.step == 1 else f"{name} += {loop.step}"
    if loop.down:
        compare, advance = ">=", f"--{name}"
    first = f"{type_text(loop.type)} {name} = {spell(loop.start)}"
    return f"{unroll}for ({first}; {name} {compare} {spell(loop.stop)}; {advance})"


def _let(one: Let) -> str:
    kind = type_text(one.type) if one.changes else _constant(one.type)
    return f"{kind} {one.name} = {spell(one.value)};"


def _constant(kind: Type) -> str:
    text = type_text(kind)
    return f"{text} const" if isinstance(kind, PointerTo) else f"const {text}"


def _table(one: Table) -> str:
    kind, values = _constant(one.type), ", ".join(map(spell, one.values))
    return f"{kind} {one.name}[{len(one.values)}] = {{{values}}};"


def _array(one: Array) -> str:
    size = "" if one.size is None else f"[{one.size}]"
    return f"{type_text(one.type)} {one.name}{size}{' = {}' if one.zero else ''};"


def _shared(one: Shared) -> str:
    pointer = infix("+", SHARED, one.offset) if one.offset else SHARED
    bytes_ = one.type is Raw.BYTE  # as which the kernel declares all of it
    value = pointer if bytes_ else Pointer(one.type, pointer)
    return _let(Let(PointerTo(one.type), one.name, value, one.changes))


def _store(one: Store) -> str:
    if one.blocks > 1:
        pointer = infix("+", Name(one.buffer), one.address)
        return f"{called(STORE_ALL, (one.blocks,), spell(pointer), spell(one.value))};"
    return f"{one.buffer}[{spell(one.address)}] = {spell(one.value)};"


def _store_vector(one: StoreVector) -> str:
    pointer = f"{one.buffer} + {spell(one.address)}"
    store = called(STORE_VECTOR, (), pointer, one.values)
    if one.blocks > 1:
        store = called(STORE_VECTOR_ALL, (one.blocks,), pointer, one.values)
    return f"if ({spell(one.condition)}) {store};" if one.condition else f"{store};"


def _barrier(one: Barrier) -> str:
    call = called(_BARRIERS[one.scope], (one.threads,) if one.scope is Scope.TEAM else ())
    return f"{call};  // {one.why}" if one.why else f"{call};"


_BARRIERS = {
    Scope.TEAM: TEAM_BARRIER,
    Scope.BLOCK: BLOCK_BARRIER,
    Scope.CLUSTER: CLUSTER_BARRIER,
    Scope.GRID: GRID_BARRIER,
}


def _arrive(one: Arrive) -> str:
    counter = spell(Address(Name(one.counter), one.index))
    return f"{called(GRID_ARRIVE, (), counter)};"


def _wait(one: Wait) -> str:
    counter = spell(Address(Name(one.counter), one.index))
    return f"{called(GRID_WAIT, (), counter, spell(one.value))};"


_LINES: Mapping[type, Callable[[Any], str]] = {
    Note: lambda one: one.text,
    Blank: lambda one: "",
    Let: _let,
    Array: _array,
    Table: _table,
    Assign: lambda one: f"{spell(one.target)} {one.operator}= {spell(one.value)};",
    Store: _store,
    StoreVector: _store_vector,
    Fill: lambda one: (
        f"FS_UNROLL for (int {FILLED} = 0; {FILLED} < {one.size}; ++{FILLED}) "
        f"{one.array}[{FILLED}] = {spell(one.value)};"
    ),
    Call: lambda one: f"{called(one.intrinsic, one.template, *map(spell, one.arguments))};",
    Invoke: lambda one: f"{one.function}({', '.join(map(spell, one.arguments))});",
    Barrier: _barrier,
    Arrive: _arrive,
    Wait: _wait,
    Shared: _shared,
    Skip: lambda one: f"if ({spell(one.condition)}) continue;",
    Leave: lambda one: f"if ({spell(one.condition)}) break;",
    Swap: lambda one: f"{called(SWAP, (), one.left, one.right)};",
}
