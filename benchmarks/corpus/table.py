"""The templates of the corpus, filled by the files beside it, one per kind."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.corpus.drawing import Draw

KINDS = (
    *("vision", "language", "speech", "graphs", "recommendation", "generative", "reinforcement"),
    *("physics", "statistics", "finance", "hashing", "processing", "optimizers", "derivatives"),
)

#: A template: what is drawn becomes a function and its arguments, a tree of `drawing.Leaf`.
Make = Callable[[Draw], tuple[Callable[..., Any], tuple[Any, ...]]]


@dataclass(frozen=True)
class Program:
    """`fun(*args())`, drawn from a template; `leaves` are its arguments before they are made."""

    name: str
    kind: str
    fun: Callable[..., Any]
    leaves: tuple[Any, ...]

    def args(self) -> tuple[Any, ...]:
        """The arguments as NumPy arrays, the same ones every time."""
        import jax

        return jax.tree.map(lambda leaf: leaf.make(), self.leaves)

    def shapes(self) -> tuple[Any, ...]:
        """The arguments as jax.ShapeDtypeStruct."""
        import jax

        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), self.leaves)

    @property
    def nbytes(self) -> int:
        """Bytes of all arguments."""
        import jax

        return sum(leaf.nbytes for leaf in jax.tree.leaves(self.leaves))


@dataclass(frozen=True)
class Template:
    """Programs of one form, by the name of the function that makes them."""

    name: str
    kind: str
    make: Make

    def program(self, seed: int, small: bool = False, times: int = 1) -> Program:
        """The program of a seed: for a GPU, or `small` for a test; of so many `times` the batch."""
        fun, leaves = self.make(Draw(seed, self.name, small, times))
        return Program(self.name, self.kind, fun, leaves)


_TEMPLATES: dict[str, Template] = {}


def template(make: Make) -> Make:
    """Puts the decorated function into the table under its own name."""
    name, kind = make.__name__, make.__module__.rpartition(".")[2]
    assert name not in _TEMPLATES, name
    _TEMPLATES[name] = Template(name, kind, make)
    return make


def templates() -> dict[str, Template]:
    """All of them, by name, kind after kind."""
    for kind in KINDS:
        importlib.import_module(f"benchmarks.corpus.{kind}")
    return dict(sorted(_TEMPLATES.items(), key=lambda found: KINDS.index(found[1].kind)))


def find(
    names: Sequence[str] = (),
    kinds: Sequence[str] = (),
    among: Mapping[str, Template] | None = None,
) -> list[Template]:
    """Those of these names and of these kinds, in the table's order; all for neither. They are
    ours, or `among` others.

    Raises ValueError for a name or a kind that there is not.
    """
    known = templates() if among is None else among
    there_are = tuple(dict.fromkeys(one.kind for one in known.values()))
    for what, asked, there in (("template", names, known), ("kind", kinds, there_are)):
        for one in asked:
            if one not in there:
                raise ValueError(f"No {what} is called {one}. There are: {', '.join(there)}.")
    return [
        one
        for one in known.values()
        if not (names or kinds) or one.name in names or one.kind in kinds
    ]
