"""The text of an explanation, as a REPL and a notebook show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusionstitch.hlo import cards

if TYPE_CHECKING:
    from fusionstitch.compiler.stitched import Stitched

#: The explanation of a program that was compiled under backend="xla".
OFF = "Nothing was stitched: backend='xla' (FUSIONSTITCH_BACKEND) asks for jax.jit alone."


class Explained(str):
    """A `str` of several lines; a REPL prints it, a notebook folds its parts."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        head, *parts = self.split("\n\n")
        title, *lines = head.split("\n")
        shown = [cards.note(line) for line in lines]
        for number, part in enumerate(parts):
            first, _, rest = part.partition("\n")
            shown.append(cards.folded(first, rest, opened=number == len(parts) - 1))
        return cards.card(title, *shown)


def explained(
    stitched: Stitched | None, what: str | None = None, rejected: bool = False
) -> Explained:
    """All of a plan, with the rejected candidates if asked for, or what became of the ops that
    `what` names. Raises TargetError if it names none."""
    if what is None or stitched is None:
        from fusionstitch.reports.explain import explain

        return Explained(explain(stitched, rejected))
    from fusionstitch.reports.answered import answered
    from fusionstitch.reports.questions import Question

    return Explained(answered(stitched, Question(what=what)))
