"""Statements that repeat with other buffers, taken as one."""

from __future__ import annotations

import pytest

from fusionstitch.codegen.index_maps.index import Index, constant, variable
from fusionstitch.codegen.ir.expressions import Integer, Load, Name, Number, infix
from fusionstitch.codegen.ir.printer import text
from fusionstitch.codegen.ir.statements import Assign, Group, Let
from fusionstitch.codegen.ir.types import FLOAT, INT
from fusionstitch.codegen.lower.repeats import repeat_of, repeats

TYPES = {"a": FLOAT, "b": FLOAT, "c": FLOAT, "n": INT}
PLACE = variable("i", 8) * 4


def at(buffer: str, place: int | Index) -> Load:
    return Load(Name(buffer), Integer(constant(place) if isinstance(place, int) else place))


def let(name: str, buffer: str, place: int | Index) -> Group:
    return Group((Let(FLOAT, name, at(buffer, place)),))


def add(*factors: Load | Number, operator: str = "+") -> Group:
    return Group((Assign(Name("s"), infix("*", *factors), operator),))


def test_buffers_and_places_in_addresses_may_differ() -> None:
    repeat = repeat_of((let("x_1", "a", PLACE + 7), let("x_2", "b", PLACE + 9)), TYPES)
    assert repeat is not None
    assert text([repeat.body]) == "const float x_1 = a[i * 4 + at_0];"
    assert repeat.buffers == {"a": ("a", "b")}
    assert repeat.places == {"at_0": ("7", "9")}


def test_what_is_the_same_everywhere_stays() -> None:
    repeat = repeat_of((add(at("a", 3), at("c", 3)), add(at("b", 3), at("c", 3))), TYPES)
    assert repeat is not None
    assert repeat.buffers == {"a": ("a", "b")}
    assert not repeat.places


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (add(at("a", 0)), add(at("b", 0), operator="-")),
        (add(at("a", 0), Number("2")), add(at("b", 0), Number("3"))),  # no address
        (add(at("a", 0)), add(at("n", 0))),  # another type
        (add(at("a", 0), at("a", 1)), add(at("b", 0), at("c", 1))),  # two roles of one
        (add(at("a", 0)), add(at("a", 0), Number("1"))),
    ],
)
def test_other_differences_keep_statements_apart(one: Group, other: Group) -> None:
    assert repeat_of((one, other), TYPES) is None


def test_runs_are_the_longest_stretches() -> None:
    apart = Group((Assign(Name("t"), Number("1")),))
    bodies = [add(at("a", 0)), add(at("b", 1)), apart]
    bodies += [add(at("c", 2)), add(at("a", 3)), add(at("b", 4))]
    assert [(first, end) for first, end, _ in repeats(bodies, TYPES)] == [(0, 2), (2, 3), (3, 6)]
