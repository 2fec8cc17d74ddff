"""The first call of a program on a GPU: what runs, what is timed, and who serves it after that."""

from __future__ import annotations

from benchmarks.figures.picture import Picture
from fusionstitch.trial.outcome import ATTEMPTS
from fusionstitch.trial.ratios import BETTER, WORSE
from fusionstitch.trial.sides import MOST_ROUNDS, ROUNDS, SPAN_CALLS, WALL_CALLS, WARM_UPS

LEFT, WIDTH, HEIGHT, GAP = 20, 470, 58, 30
RIGHT = LEFT + WIDTH + 70
#: Of a step: its name, what is done, its colour, and what ends the trial there with its colour.
Step = tuple[str, str, str, str, str]


def steps() -> list[Step]:
    """The steps of a trial, with the numbers of the product."""
    faster, slower = (f"{abs(one - 1):.0%}" for one in (BETTER, WORSE))
    return [
        (
            "XLA's executable",
            f"compiled as under jax.jit, warmed up by {WARM_UPS} runs, timed on the device",
            "xla",
            "outcome already known: no trial",
            "soft",
        ),
        (
            "the stitched executable",
            "planned with XLA's measured time, compiled after it, warmed up",
            "block",
            "nothing stitched: XLA's executable serves",
            "xla",
        ),
        (
            f"both run alternately, {ROUNDS} rounds, up to {MOST_ROUNDS} if undecided",
            f"per round and side: {WALL_CALLS} calls by the host's clock, "
            f"{SPAN_CALLS} by the GPU's",
            "grid",
            "",
            "",
        ),
        (
            f"proven faster by one clock, by more than {faster}?",
            f"and by neither clock more than {slower} slower",
            "panel",
            "yes: the stitched executable serves",
            "block",
        ),
        (
            "no: some of its patterns are dropped",
            f"measured losers, or half; the rest is tried, at most {len(ATTEMPTS) - 1} times",
            "thread",
            "no more attempts: XLA's executable serves",
            "xla",
        ),
    ]


def draw() -> Picture:
    """The steps, one below the other; beside each what may end the trial there."""
    found = steps()
    about = "; ".join(
        f"{name}: {what}" + (f" ({end})" if end else "") for name, what, _, end, _ in found
    )
    height = 20 + len(found) * (HEIGHT + GAP)
    picture = Picture(RIGHT + 330, height, "The first call of a program on a GPU", f"{about}.")
    for n, (name, what, colour, end, served) in enumerate(found):
        y = 20 + n * (HEIGHT + GAP)
        picture.box(
            LEFT, y, WIDTH, HEIGHT, colour, "line" if colour == "panel" else colour, 1.2, 0.14
        )
        picture.text(LEFT + 14, y + 24, name, 13.5, bold=True)
        picture.text(LEFT + 14, y + 44, what, 12, "soft")
        if n:
            picture.line([(LEFT + 60, y - GAP), (LEFT + 60, y)], arrow=True)
        if end:
            middle = y + HEIGHT / 2
            picture.line([(LEFT + WIDTH, middle), (RIGHT, middle)], arrow=True)
            picture.text(RIGHT + 10, middle + 4, end, 12.5, served, bold=served != "soft")
    # the rest goes through the rounds again
    again, last = (20 + n * (HEIGHT + GAP) + HEIGHT / 2 for n in (1, len(found) - 1))
    side = 8
    picture.line([(LEFT, last), (side, last), (side, again), (LEFT, again)], "thread", arrow=True)
    return picture
