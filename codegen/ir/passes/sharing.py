"""Functions that do the same, but for where in their buffers they read and write, become one.

    part(work, x, out);              part(work, x, out, 0);
    part_1(work - 8, y, out_1);      part(work - 8, y, out_1, 96);

An optimiser step over hundreds of parameters packs hundreds of groups of loops into one launch; the
layers of a network and the steps of an unrolled loop are phases that follow each other. Written out
one by one they would overflow the instruction cache and take minutes to compile. As calls of a few
functions, the code stays about as small as that of one tensor, layer or step. Which groups have a
function is decided in the schedule (`schedule/outlining.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from fusionstitch.codegen.ir.addresses import readdressed, written_out
from fusionstitch.codegen.ir.expressions import Expr, Name, Number
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.names import Names
from fusionstitch.codegen.ir.renaming import under_names
from fusionstitch.codegen.ir.statements import Body, Function, Group, Invoke, Let, Statement
from fusionstitch.codegen.ir.types import PointerTo, index_type
from fusionstitch.codegen.ir.walk import declared, mapped, mentions, statements, with_bodies

#: Constants inside addresses in which functions that become one may differ.
MOST_CONSTANTS = 8

#: What a call of a function becomes: that of another one with these arguments, too.
Calls = Mapping[str, tuple[str, tuple[Number, ...]]]


def share_functions(kernel: Lowered, names: Names) -> Lowered:
    """The kernel with one function for all that do the same, and with what a function does where it
    is called if no other one does that."""
    if not kernel.functions:
        return kernel
    alike: dict[object, list[Function]] = {}
    numbers: dict[str, list[str]] = {}
    for function in kernel.functions:
        frame, numbers[function.name] = _frame(function.body)
        alike.setdefault((frame, function.parameters), []).append(function)
    shared: list[Function] = []
    alone: dict[str, Function] = {}
    calls: dict[str, tuple[str, tuple[Number, ...]]] = {}
    for some in alike.values():
        varying = _differing([numbers[one.name] for one in some])
        if len(some) == 1 or len(varying) > MOST_CONSTANTS:
            alone |= {one.name: one for one in some}
            continue
        shared.append(_with_parameters(some, varying, numbers))
        for one in some:
            given = tuple(Number(numbers[one.name][which]) for which in varying)
            calls[one.name] = some[0].name, given
    body = tuple(_called(kernel.body, calls, alone, names))
    return replace(kernel, functions=tuple(shared), body=body)


def _frame(body: Body) -> tuple[Body, list[str]]:
    """Statements with the constants of addresses taken out, and these."""
    numbers: list[str] = []

    def taken(text: str) -> str:
        numbers.append(text)
        return "#"

    bare = (readdressed(one, taken) for one in body)
    return tuple(mapped(one, written_out) for one in bare), numbers


def _differing(numbers: Sequence[Sequence[str]]) -> list[int]:
    """Which of the constants are not the same in all functions."""
    columns = zip(*numbers, strict=True)
    return [which for which, values in enumerate(columns) if len(set(values)) > 1]


def _with_parameters(
    some: Sequence[Function], varying: Sequence[int], numbers: Mapping[str, Sequence[str]]
) -> Function:
    """The first of some functions, with the constants in which they differ as parameters."""
    first = some[0]
    own = [name for _, name in first.parameters]
    own += [name for one in statements(first.body) for name in declared(one)]
    named = Names(own)
    given = {which: named.new(f"at_{n}") for n, which in enumerate(varying)}
    kinds = [index_type(int(numbers[one.name][which]) for one in some) for which in varying]
    number = count()

    def spelt(text: str) -> str:
        return given.get(next(number), text)

    body = tuple(readdressed(one, spelt) for one in first.body)
    parameters = (*first.parameters, *zip(kinds, given.values(), strict=True))
    return replace(first, parameters=parameters, body=body)


def _called(
    body: Body, calls: Calls, alone: Mapping[str, Function], names: Names
) -> Iterator[Statement]:
    """Statements with the functions that are called, or what these do."""
    for one in body:
        if not isinstance(one, Invoke):
            yield with_bodies(one, lambda own: tuple(_called(own, calls, alone, names)))
        elif one.function in alone:
            yield from _in_place(alone[one.function], one.arguments, names)
        else:
            function, given = calls[one.function]
            yield Invoke(function, (*one.arguments, *given))


def _in_place(function: Function, arguments: Sequence[Expr], names: Names) -> Iterator[Statement]:
    """What a function does, with variables for the integers that it is given."""
    stands: dict[str, str] = {}
    for (kind, name), argument in zip(function.parameters, arguments, strict=True):
        if isinstance(argument, Name) and isinstance(kind, PointerTo):
            stands[name] = argument.name
        elif mentions(function.body, name):
            stands[name] = names.new(name)
            yield Let(kind, stands[name], argument)
    own = (name for one in statements(function.body) for name in declared(one))
    stands |= {name: names.new(name) for name in own if name not in stands}
    yield from under_names(Group(function.body), stands).body
