"""What a REPL shows of our objects: one line that says what it is and the counts that matter.

A plan, a kernel or a report holds thousands of ops, texts and bytes. To see those, read a field,
print the object, or call `explain()`.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, TypeVar

from fusionstitch.hlo import foreign

T_co = TypeVar("T_co", covariant=True)

#: Characters of a `repr`, the brackets apart.
MOST = 240
#: Elements of a tuple that a notebook shows.
CARDS = 10


def brief(text: str) -> str:
    """`text` as a `repr`, whoever wrote what it quotes."""
    return f"<{foreign.line(text, MOST)}>"


def count(things: Sized | int, noun: str) -> str:
    """Such as "1 op", "7 ops"."""
    number = things if isinstance(things, int) else len(things)
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class Listed(tuple[T_co, ...]):
    """A tuple that a REPL shows by its length and its first element, unless all of it is short."""

    __slots__ = ()

    def __repr__(self) -> str:
        shown, length = [], 0
        for one in self:
            shown.append(repr(one))
            length += len(shown[-1]) + 2
            if length > MOST:
                return f"({foreign.line(shown[0], MOST)}, ... {len(self):,} in all)"
        return f"({', '.join(shown)}{',' * (len(shown) == 1)})"

    def _repr_html_(self) -> str | None:
        """The first elements' cards, one below the other, where a notebook has cards for them."""
        cards = [one._repr_html_() for one in self[:CARDS] if hasattr(one, "_repr_html_")]
        if not cards:
            return None
        more = len(self) - CARDS
        return "".join(map(str, cards)) + (f"<div>and {more:,} more</div>" if more > 0 else "")


class Facts(dict[str, Any]):
    """A dict of which a REPL shows collections by their lengths and texts by their beginnings."""

    __slots__ = ()

    def __repr__(self) -> str:
        return (
            f"{{{foreign.line(', '.join(f'{k!r}: {_value(v)}' for k, v in self.items()), MOST)}}}"
        )


def _value(value: object) -> str:
    if isinstance(value, (list, tuple, dict)):
        return f"({len(value):,})"
    return repr(value) if not isinstance(value, str) else repr(foreign.line(value, 60))


def listed(instance: object, *names: str) -> None:
    """Makes tuples of a frozen dataclass `Listed`, in its `__post_init__`."""
    for name in names:
        object.__setattr__(instance, name, Listed(getattr(instance, name)))
