"""The identifiers of a kernel: no two are the same."""

from __future__ import annotations

from collections.abc import Iterable

from fusionstitch.codegen.text.source import identifier


class Names:
    """C identifiers that are in use, and new ones beside them."""

    def __init__(self, used: Iterable[str] = ()) -> None:
        self._times = dict.fromkeys(used, 1)

    def copied(self) -> Names:
        """The same identifiers in use; those that are named from here on are its own."""
        copy = Names()
        copy._times = dict(self._times)
        return copy

    def new(self, hint: str) -> str:
        """A C identifier like `hint` that is not in use yet."""
        name = identifier(hint)
        while count := self._times.get(name, 0):
            self._times[name] = count + 1
            name = f"{name}_{count}"
        self._times[name] = 1
        return name
