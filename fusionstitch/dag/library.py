"""Calls of libraries: functions that launch work on device arrays, scheduled like kernels."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from fusionstitch.dag.element import Element, Storage
from fusionstitch.dag.engine import Engine
from fusionstitch.dag.kernel import bound
from fusionstitch.dag.signature import Parameter


class Library:
    """A function that a scheduler calls in its order; made by `Scheduler.library`."""

    def __init__(
        self,
        name: str,
        parameters: Sequence[Parameter],
        fun: Callable[..., Any],
        engine: Engine,
        access: Any,
        settable: bool,
        priority: int,
    ) -> None:
        self.name = name
        self.parameters = tuple(parameters)
        self.access = access
        self._fun = fun
        self._engine = engine
        self._settable = settable
        self._priority = priority

    def __call__(self, *arguments: Any) -> None:
        """Calls the function with device arrays, CuPy's or on the emulator NumPy's, and numbers.

        Raises LaunchError for arguments that do not fit the signature, and what the function raises
        where it is called at once.
        """
        values, uses = bound(self, arguments)
        frame = sys._getframe(1)
        backend = self._engine.backend

        def begin(stream: Any, element: Element) -> None:
            given = [v.device if type(v) is Storage else v for v in values]
            if not self._settable:
                backend.drain()
            backend.call(self._fun, given, stream, element)
            if not self._settable:
                backend.drain()

        site = (frame.f_code.co_filename, frame.f_lineno)
        self._engine.submit(self, uses, begin, site, self._priority)

    def __repr__(self) -> str:
        return f"Library {self.name}({', '.join(map(str, self.parameters))})"
