"""Library calls: functions that launch work on device arrays, scheduled like kernels."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from fusionstitch.dag.access import Access
from fusionstitch.dag.arguments import Arguments
from fusionstitch.dag.element import Element, Work
from fusionstitch.dag.engine import Engine
from fusionstitch.dag.signature import Parameter


class Library(Work):
    """A function that a scheduler calls in order; made by `Scheduler.library`."""

    def __init__(
        self,
        name: str,
        parameters: Sequence[Parameter],
        fun: Callable[..., Any],
        engine: Engine,
        access: Access,
        settable: bool,
        priority: int,
    ) -> None:
        self.name = name
        self.priority = priority
        self._arguments = Arguments(name, parameters, access)
        self._fun = fun
        self._engine = engine
        self._settable = settable

    def __call__(self, *arguments: Any) -> None:
        """Calls the function with numbers and device arrays (CuPy's; NumPy's on the emulator).

        Raises LaunchError for arguments that do not fit the signature, and what the function raises
        if it is called immediately.
        """
        values, uses = self._arguments.bound(arguments)
        frame = sys._getframe(1)
        site = (frame.f_code, frame.f_lasti)
        self._engine.submit(Element(self, values, uses, site))

    def begin(self, element: Element, stream: Any) -> None:
        backend = self._engine.backend
        if not self._settable:
            backend.drain()
        backend.call(self._fun, self._arguments.devices(element.arguments), stream, element)
        if not self._settable:
            backend.drain()

    def __repr__(self) -> str:
        return f"Library {self.name}({self._arguments})"
