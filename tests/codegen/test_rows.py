"""Which threads of a block work on a row."""

from __future__ import annotations

import pytest

from fusionstitch.codegen.ir.expressions import THREAD, Expr, infix, number
from fusionstitch.codegen.ir.statements import If
from fusionstitch.codegen.lower.rows import row_loop
from fusionstitch.codegen.schedule.schedule import Teams


@pytest.mark.parametrize(
    ("threads", "frame", "live"),
    [
        (1, If(infix("==", THREAD, 0)), None),
        (8, If(infix("<", THREAD, 32)), infix("==", infix("/", THREAD, 8), 0)),
        (32, If(infix("<", THREAD, 32)), None),
        (64, If(infix("<", THREAD, 64)), None),
        (256, None, None),
    ],
)
def test_a_single_row_has_its_whole_team(threads: int, frame: If | None, live: Expr | None) -> None:
    loop = row_loop("row", 1, number(1), Teams(threads), 256, "int")
    assert (loop.frame, loop.live) == (frame, live)
