"""A decision as a value: allowed or not, the reason, and the facts it rests on."""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.hlo.brief import brief


@dataclass(frozen=True)
class Verdict:
    """The answer of a legality or cost check: true when it allows.

    Attributes:
        ok: whether it allows
        reason: a full sentence for a user
        facts: names and values that back it, such as ("shared_bytes", 66_560), ("limit", 49_152)
    """

    ok: bool
    reason: str = ""
    facts: tuple[tuple[str, object], ...] = ()

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        return brief(f"Verdict: {'allowed' if self.ok else 'forbidden'}. {self}")

    def __str__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self.facts)
        return f"{self.reason} ({facts})" if facts else self.reason


_ALLOWED = Verdict(True)


def allow(reason: str = "", **facts: object) -> Verdict:
    """A verdict that allows."""
    return Verdict(True, reason, tuple(facts.items())) if reason or facts else _ALLOWED


def forbid(reason: str, **facts: object) -> Verdict:
    """A verdict that forbids, with the reason a user will read in `explain()`."""
    return Verdict(False, reason, tuple(facts.items()))
