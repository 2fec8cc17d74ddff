"""One row of a layer: which lane of a warp holds which columns, as a result and as an operand."""

from __future__ import annotations

from benchmarks.figures.picture import Picture
from fusionstitch.codegen.dots.tile import TENSOR_COLUMNS, TENSOR_LANES
from fusionstitch.codegen.index_maps.index import constant
from fusionstitch.codegen.layers.columns import PAIR, Columns

LEFT, CELL, TALL = 250, 34, 30
#: A colour for each of the four lanes of a row.
COLOURS = ("thread", "warp", "block", "cluster")
#: A row of 64 columns, of which a lane has four neighbours in each step.
COLUMNS = Columns.of(64, wide=False)


def placed() -> list[tuple[int, int]]:
    """By place in the results of a step, the lane and the column."""
    found = []
    for tile in range(COLUMNS.lot // PAIR):
        for place in range(TENSOR_COLUMNS):
            column = COLUMNS.result(constant(tile), constant(place)).const
            found.append((place // PAIR, column))
    return found


def draw() -> Picture:
    """The results of two instructions, and the same columns as the next product sums them up."""
    results = placed()
    said = ", ".join(f"lane {lane} has column {column}" for lane, column in results)
    picture = Picture(
        LEFT + COLUMNS.unit * CELL + 20,
        176,
        "A row of a layer stays in its lanes",
        f"Places in the results of two tensor core instructions: {said}. The next product reads "
        f"from each lane its {COLUMNS.lot} neighboring columns, in the order of memory.",
    )
    for row, (title, under) in enumerate(
        (
            ("a product leaves", "two instructions, 8 places each"),
            ("the next one sums up", "the same columns, in order"),
        )
    ):
        y = 24 + row * 76
        picture.text(16, y + 14, title, 13, bold=True)
        picture.text(16, y + 32, under, 11, "soft")
        for place in range(COLUMNS.unit):
            lane, column = results[place] if row == 0 else (place // COLUMNS.lot, place)
            gap = 8 if place >= TENSOR_COLUMNS and row == 0 else 0
            x = LEFT + place * CELL + gap * (row == 0)
            picture.box(x, y, CELL - 4, TALL, COLOURS[lane], COLOURS[lane], opacity=0.25)
            picture.text(x + (CELL - 4) / 2, y + 20, str(column), 12, anchor="middle", mono=True)
    for lane in range(TENSOR_LANES):
        x = LEFT + lane * 110
        picture.box(x, 150, 14, 14, COLOURS[lane], COLOURS[lane], opacity=0.25, round_=3)
        picture.text(x + 20, 162, f"lane {lane}", 11, "soft")
    return picture
