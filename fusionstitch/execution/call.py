"""A call of a function, as requested."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fusionstitch.hlo.brief import brief

if TYPE_CHECKING:
    from fusionstitch.options import Options


@dataclass(frozen=True, eq=False)
class Call:
    """What was lowered: enough to compile it again, to report on it, or to tune it. `jit` is
    `fs.jit`."""

    fun: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: Options
    jit_keywords: dict[str, Any]
    jit: Callable[..., Any]

    def __repr__(self) -> str:
        return brief(f"Call of {getattr(self.fun, '__name__', type(self.fun).__name__)}")
