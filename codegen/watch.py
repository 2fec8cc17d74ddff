"""Who looks on while a kernel is generated, such as what writes its dump."""

from __future__ import annotations

from typing import TypeVar

from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.settings import Way
from fusionstitch.hlo.graph import Graph

T = TypeVar("T")


class Watch:
    """Gets each step as it is done, and ignores it. Later steps change the same objects: a subclass
    that needs intermediate states must read them at once."""

    def region(self, graph: Graph, name: str, about: str) -> None:
        """The region after the pass of that name, which does what `about` says; "region" is the
        one that came in."""

    def way(self, way: Way) -> None:
        """A way is tried; what was decided on the one before is void."""

    def refused(self, way: Way, reason: str) -> None:
        """There is no kernel on that way."""

    def lowered(self, kernel: Lowered, name: str, about: str) -> None:
        """The statements of the kernel after the pass of that name, which does what `about` says;
        "lowered" are those that the schedule became."""

    def decided(self, step: str, value: T) -> T:
        """What the step of that name decided; gives it back."""
        return value


NOBODY = Watch()
