"""Statements that repeat with other buffers, taken as one."""

from __future__ import annotations

from fusionstitch.codegen.lower.repeats import repeat_of, runs

TYPES = {"a": "float", "b": "float", "c": "float", "n": "int"}


def test_buffers_and_places_in_addresses_may_differ() -> None:
    repeat = repeat_of(("x_1 = a[i * 4 + 7];", "x_2 = b[i * 4 + 9];"), TYPES)
    assert repeat is not None
    assert repeat.text == "x_1 = a[i * 4 + at_0];"
    assert repeat.buffers == {"a": ["a", "b"]}
    assert repeat.places == {"at_0": ("7", "9")}


def test_what_is_the_same_everywhere_stays() -> None:
    repeat = repeat_of(("s += a[3] * c[3];", "s += b[3] * c[3];"), TYPES)
    assert repeat is not None
    assert repeat.buffers == {"a": ["a", "b"]}
    assert not repeat.places


def test_other_differences_keep_texts_apart() -> None:
    assert repeat_of(("s += a[0];", "s -= b[0];"), TYPES) is None
    assert repeat_of(("s = a[0] * 2;", "s = b[0] * 3;"), TYPES) is None  # no address
    assert repeat_of(("s = a[0];", "s = n[0];"), TYPES) is None  # another type
    assert repeat_of(("s = a[0] + a[1];", "s = b[0] + c[1];"), TYPES) is None  # two roles of one
    assert repeat_of(("s = a[0];", "s = a[0] + 1;"), TYPES) is None


def test_runs_are_the_longest_stretches() -> None:
    texts = ["s += a[0];", "s += b[1];", "t = 1;", "s += c[2];", "s += a[3];", "s += b[4];"]
    assert list(runs(texts, TYPES)) == [(0, 2), (2, 3), (3, 6)]
