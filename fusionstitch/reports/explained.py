"""The text of an explanation, as a REPL and a notebook show it."""

from __future__ import annotations

from fusionstitch.hlo import cards


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
