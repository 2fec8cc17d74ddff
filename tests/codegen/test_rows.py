"""Which threads of a block work on a row."""

from __future__ import annotations

import pytest

from fusionstitch.codegen.lower.rows import row_loop
from fusionstitch.codegen.schedule.schedule import Teams


@pytest.mark.parametrize(
    ("threads", "header", "live"),
    [
        (1, "if (threadIdx.x == 0)", ""),
        (8, "if (threadIdx.x < 32)", "threadIdx.x / 8 == 0"),
        (32, "if (threadIdx.x < 32)", ""),
        (64, "if (threadIdx.x < 64)", ""),
        (256, "", ""),
    ],
)
def test_a_single_row_has_its_whole_team(threads: int, header: str, live: str) -> None:
    loop = row_loop("row", 1, "1", Teams(threads), 256, "int")
    assert (loop.header, loop.live) == (header, live)
