"""Statements that repeat with other buffers, taken as one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fusionstitch.codegen.index_maps.index import Index, constant, variable
from fusionstitch.codegen.ir.expressions import Integer, Load, Name, Number, infix
from fusionstitch.codegen.ir.kernel import Buffer, Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.names import Names
from fusionstitch.codegen.ir.passes.rolling import repeat_of, repeats, roll_terms
from fusionstitch.codegen.ir.printer import text
from fusionstitch.codegen.ir.statements import (
    Assign,
    Function,
    Group,
    Invoke,
    Let,
    Statement,
    Store,
)
from fusionstitch.codegen.ir.types import FLOAT, INT, PointerTo
from fusionstitch.codegen.ir.verifier import verify

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
    assert repeat.constants == {"at_0": ("7", "9")}


def test_what_is_the_same_everywhere_stays() -> None:
    repeat = repeat_of((add(at("a", 3), at("c", 3)), add(at("b", 3), at("c", 3))), TYPES)
    assert repeat is not None
    assert repeat.buffers == {"a": ("a", "b")}
    assert not repeat.constants


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


# ---- the pass ------------------------------------------------------------------------------------


def kernel(*body: Statement, functions: tuple[Function, ...] = ()) -> Lowered:
    buffers = tuple(Buffer(name, FLOAT, 64, Memory.INPUT) for name in "abcd")
    out = Buffer("out", FLOAT, 64, Memory.OUTPUT)
    return Lowered("k", (*buffers, out), functions, body, 32, 1, 1, 0)


def terms(*indices: tuple[str, int], term: bool = True) -> list[Statement]:
    start = Let(FLOAT, "s", Number("0.0f"), changes=True)
    return [start, *(replace(add(at(buffer, place)), term=term) for buffer, place in indices)]


FOUR = (("a", 0), ("b", 3), ("c", 3), ("d", 3))
STORE = Store("out", Integer(constant(0)), Name("s"))


def test_terms_of_a_sum_become_a_loop_over_their_buffers() -> None:
    rolled = roll_terms(kernel(*terms(*FOUR), STORE), Names(["term"]))
    assert text(rolled.body).splitlines() == [
        "float s = 0.0f;",
        "const float* const a_terms[4] = {a, b, c, d};",
        "const int at_0_terms[4] = {0, 3, 3, 3};",
        "FS_UNROLL_BY(2) for (int term_1 = 0; term_1 < 4; ++term_1) {",
        "  const float* const a = a_terms[term_1];",
        "  const int at_0 = at_0_terms[term_1];",
        "  s += a[at_0];",
        "}",
        "out[0] = s;",
    ]
    verify(rolled)


def test_few_terms_and_other_statements_stay() -> None:
    few = kernel(*terms(*FOUR[:3]), STORE)
    assert text(roll_terms(few, Names()).body) == text(few.body)
    others = kernel(*terms(*FOUR, term=False), STORE)
    assert roll_terms(others, Names()) is others


def test_functions_have_names_of_their_own() -> None:
    parameters = tuple((PointerTo(FLOAT, constant=True), name) for name in ("x", "y", "z", "w"))
    indices = tuple((name, 0) for _, name in parameters)
    own = Function("part", (*parameters, (PointerTo(FLOAT), "out")), (*terms(*indices), STORE))
    call = Invoke("part", tuple(map(Name, ("a", "b", "c", "d", "out"))))
    rolled = roll_terms(kernel(call, functions=(own,)), Names(["term"]))
    assert rolled.body == (call,)
    assert "x_terms[term]" in text(rolled.functions[0].body)


def test_large_places_have_a_wide_type() -> None:
    rolled = roll_terms(kernel(*terms(*FOUR[:3], ("d", 1 << 31)), STORE), Names())
    assert "const long long at_0_terms[4]" in text(rolled.body)


def test_buffers_that_terms_choose_are_their_own() -> None:
    def chosen(name: str, buffer: str) -> Group:
        declared = Let(PointerTo(FLOAT, constant=True), name, Name(buffer))
        return Group((declared, *add(at(name, 0)).body), term=True)

    start = Let(FLOAT, "s", Number("0.0f"), changes=True)
    found = [chosen(f"from_{n}", buffer) for n, buffer in enumerate("abcd")]
    rolled = roll_terms(kernel(start, *found, STORE), Names())
    assert text(rolled.body).splitlines()[1:-1] == [
        "const float* const a_terms[4] = {a, b, c, d};",
        "FS_UNROLL_BY(2) for (int term = 0; term < 4; ++term) {",
        "  const float* const a = a_terms[term];",
        "  const float* const from_0 = a;",
        "  s += from_0[0];",
        "}",
    ]
    verify(rolled)
