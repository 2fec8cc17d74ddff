"""Names that reach XLA with a mark and show none where users read them.

Only the name of a jitted function goes all the way to XLA, as that of its module. JAX makes the
module's name with a format string; jaxprs, equations and stages have the function's name as it is.
So a name that only formats as a marked one is, to users, the name that they gave.
"""

from __future__ import annotations

import functools
from typing import Any

import jax

from fusionstitch.execution.original import plain_jit
from fusionstitch.runtime.xla_pass import mark, read_mark


class MarkedName(str):
    """A function's name, equal to the user's, whose `format` is the marked one."""

    marked: str

    def __new__(cls, name: str, marked: str) -> MarkedName:
        made = super().__new__(cls, name)
        made.marked = marked
        return made

    def __reduce__(self) -> tuple[type[MarkedName], tuple[str, str]]:
        return MarkedName, (str(self), self.marked)

    def __format__(self, spec: str) -> str:
        return format(self.marked, spec)


def marked_name(name: str, token: str) -> str:
    """`name` with the mark `token`, which shows only where this JAX drops one that does not."""
    marked = mark(str(name), token)  # a name that is marked already formats as such
    return MarkedName(name, marked) if _arrives() else marked


@functools.cache
def _arrives() -> bool:
    """Whether this JAX gives modules the names that functions' names format as."""

    def probe() -> Any:
        return 0

    probe.__name__ = MarkedName("probe", mark("probe", "0"))
    with jax.log_compiles(False):  # the user's logs tell of the user's functions alone
        module = plain_jit()(probe).lower().compiler_ir()
    return read_mark(module.operation.attributes["sym_name"].value) == ("probe", "0")
