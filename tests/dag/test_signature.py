"""Signatures in NIDL."""

from __future__ import annotations

import numpy as np
import pytest

from fusionstitch.dag import SignatureError
from fusionstitch.dag.signature import parse


def test_directions_types_and_names() -> None:
    found = parse(
        "x: const pointer float, in pointer, out pointer double, pointer sint32, n: uint64"
    )
    assert [p.name for p in found] == ["x", "argument 1", "argument 2", "argument 3", "n"]
    assert [p.pointer for p in found] == [True, True, True, True, False]
    assert [p.const for p in found[:4]] == [True, True, False, False]
    assert [p.scalar for p in found] == [np.float32, None, np.float64, np.int32, np.uint64]


def test_nothing_is_no_parameter() -> None:
    assert parse("  ") == ()


def test_what_is_printed_is_read_again() -> None:
    found = parse("const pointer float, inout pointer, sint32")
    assert parse(", ".join(map(str, found))) == found


@pytest.mark.parametrize(
    ("signature", "why"),
    [
        ("pointer float,, sint32", "Parameter 1 .* it is empty"),
        ("pointer flaot", "'flaot' is not a type"),
        ("int", "'int' is not a type"),
        ("const float", "'const' is for arrays"),
        ("constant pointer", "'constant' is not a direction"),
        ("const inout pointer", "'const inout' is not a direction"),
        ("pointer float double", "'float double' is not a type"),
        ("float*", "no.*list of words"),
    ],
)
def test_what_cannot_be_read_is_said(signature: str, why: str) -> None:
    with pytest.raises(SignatureError, match=why):
        parse(signature)
