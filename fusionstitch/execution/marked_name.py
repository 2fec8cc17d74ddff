"""Function names that carry a mark for XLA, but show none to users.

Only the name of a jitted function reaches XLA, as the name of its module. JAX makes the module's
name with a format string; jaxprs, equations and stages keep the function's name unchanged. So users
see the name they gave, if only its `format` has the mark.
"""

from __future__ import annotations

import functools
from typing import Any

import jax

from fusionstitch.execution.original import plain_jit
from fusionstitch.runtime.xla_pass import mark, read_mark


class MarkedName(str):
    """A function's name, equal to the user's, whose `format` has the mark."""

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
    """`name` with the mark `token`. The mark is visible only if this JAX would drop an invisible
    one."""
    marked = mark(str(name), token)  # a name that is already marked formats as such
    return MarkedName(name, marked) if _arrives() else marked


@functools.cache
def _arrives() -> bool:
    """Whether this JAX names modules by the `format` of functions' names."""

    def probe() -> Any:
        return 0

    probe.__name__ = MarkedName("probe", mark("probe", "0"))
    with jax.log_compiles(False):  # the user's logs are for the user's functions
        module = plain_jit()(probe).lower().compiler_ir()
    return read_mark(module.operation.attributes["sym_name"].value) == ("probe", "0")
