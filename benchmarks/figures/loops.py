"""One loop in four forms of its kernel: who runs an iteration, and where the state lives."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.figures.cases import case
from benchmarks.figures.picture import Picture
from fusionstitch.codegen.while_loops.summary import Loops

NAMES = ("rows", "dealt", "one_block", "whole_grid")
#: The colour of the narrowest place that holds the state.
COLOURS = {"rows": "thread", "dealt": "block", "block": "block", "grid": "grid"}
PANEL, HIGH = 450, 236
SIDE, TALL = 170, 120


@dataclass(frozen=True)
class Form:
    """A kernel of the loop: what is told of it, the shape of its state, its launch."""

    loops: Loops
    shape: str
    place: str
    blocks: int
    threads: int
    shared: int
    template: str
    modelled_us: float
    xla_us: float


def form(name: str) -> Form:
    """What became of the loop at the size of that name."""
    one = case(name)
    loops = dict(one.kernel.facts)["loops"]
    assert isinstance(loops, Loops)
    [loop] = loops.loops
    [state] = [e for e in loop.elements if e.role == "state"]
    kernel = one.kernel
    return Form(
        loops,
        state.shape,
        state.place,
        kernel.grid,
        kernel.block,
        kernel.shared_bytes,
        kernel.template,
        one.chosen.modelled_us,
        one.chosen.xla_us,
    )


def owners(one: Form) -> tuple[int, int, list[str]]:
    """How many parts the state is drawn in (down, across), and what is said of one of them."""
    if one.loops.form == "rows":
        said = [f"{one.loops.axes[0]:,} threads,", "each runs one row"]
        return 8, 1, said
    if one.loops.form == "dealt":
        return 8, 1, [f"{one.blocks} blocks of {one.threads} threads,", "each runs one row"]
    if one.loops.form == "block":
        return 1, 1, [f"{one.blocks} block of {one.threads:,} threads,", "all elements"]
    return 1, 8, [f"{one.blocks} blocks of {one.threads} threads,", "tile by tile"]


def meetings(one: Form) -> str:
    """What separates an iteration from the next."""
    return {
        "rows": "no waiting",
        "dealt": "a block barrier",
        "block": "a block barrier",
        "grid": "a grid barrier",
    }[one.loops.form]


def draw() -> Picture:
    """A panel for each form."""
    forms = [form(name) for name in NAMES]
    told = "; ".join(
        f"{f.loops.form}: {f.shape}, {f.loops.workers}, in {f.place}, {meetings(f)}" for f in forms
    )
    picture = Picture(
        2 * PANEL, 2 * HIGH, "One loop in four forms", f"The heat equation on rings. {told}."
    )
    for n, one in enumerate(forms):
        _panel(picture, PANEL * (n % 2) + 20, HIGH * (n // 2) + 28, one)
    return picture


def _panel(picture: Picture, x: float, y: float, one: Form) -> None:
    colour = COLOURS[one.loops.form]
    picture.text(x, y, one.loops.form, 15, bold=True)
    picture.text(x + 64, y, one.shape, 12, "soft", mono=True)
    down, across, said = owners(one)
    tall = TALL if down > 1 else 40
    top = y + 24 + (TALL - tall) / 2
    for i in range(down):
        for j in range(across):
            first = i == j == 0
            picture.box(
                x + SIDE / across * j,
                top + tall / down * i,
                SIDE / across,
                tall / down,
                colour,
                colour,
                1.4 if first else 0.8,
                0.4 if first else 0.12,
                0,
            )
    where = one.place if one.loops.form != "grid" else f"{one.place}, in global memory"
    lines = [*said, f"state: {where}", f"between iterations: {meetings(one)}"]
    for n, line in enumerate(lines):
        picture.text(x + SIDE + 18, y + 44 + 20 * n, line, 12)
    picture.text(x, y + TALL + 50, one.template, 11, mono=True)
    if one.shared:
        shared = f"{one.shared:,} bytes of shared memory per block"
        picture.text(x, y + TALL + 70, shared, 11, "soft")
