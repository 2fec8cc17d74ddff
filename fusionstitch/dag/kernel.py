"""Users' kernels: `k(grid, block)(x, y, n)` checks its arguments and launches."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from fusionstitch.dag.access import Access
from fusionstitch.dag.arguments import Arguments
from fusionstitch.dag.backends.backend import Function, Sizes
from fusionstitch.dag.element import Element, Work
from fusionstitch.dag.engine import Engine
from fusionstitch.dag.errors import LaunchError
from fusionstitch.dag.signature import Parameter

Size = int | tuple[int, ...]


class UserKernel:
    """A kernel that a scheduler launches; made by `Scheduler.kernel`.

    `kernel(grid, block, shared=0)` returns a launch. `grid` is the number of blocks and `block` the
    number of threads per block, each an int or a tuple of up to three; `shared` is dynamic shared
    memory in bytes. Calling the launch with one argument per parameter launches the kernel, without
    waiting.
    """

    def __init__(
        self,
        name: str,
        parameters: Sequence[Parameter],
        function: Function,
        engine: Engine,
        access: Access,
        priority: int,
    ) -> None:
        self.name = name
        self.priority = priority
        self.function = function
        self.arguments = Arguments(name, parameters, access)
        self.engine = engine
        self._launches: dict[tuple[Size, Size, int], Launch] = {}

    def __call__(self, grid: Size, block: Size, shared: int = 0) -> Launch:
        key = (grid, block, shared)
        launch = self._launches.get(key)
        if launch is None:
            launch = self._launches[key] = Launch(self, *key)
        return launch

    def __repr__(self) -> str:
        return f"Kernel {self.name}({self.arguments})"


class Launch(Work):
    """A kernel with sizes; call it with arguments."""

    def __init__(self, kernel: UserKernel, grid: Size, block: Size, shared: int) -> None:
        self.name = kernel.name
        self.priority = kernel.priority
        self._kernel = kernel
        self._sizes = Sizes(_size(kernel, "grid", grid), _size(kernel, "block", block), shared)
        self._function = kernel.function
        self._bound, self._devices = kernel.arguments.bound, kernel.arguments.devices
        self._submit = kernel.engine.submit

    @property
    def kernel(self) -> UserKernel:
        return self._kernel

    def __call__(self, *arguments: Any) -> None:
        """Launches the kernel after everything that its arrays depend on.

        Arrays must belong to the scheduler; numbers are converted to the type of the parameter.
        Raises LaunchError for arguments that do not fit the signature, ArrayError for an array that
        cannot be used, and KernelError for work that failed before.
        """
        values, uses = self._bound(arguments)
        frame = sys._getframe(1)
        self._submit(Element(self, values, uses, (frame.f_code, frame.f_lasti)))

    def begin(self, element: Element, stream: Any) -> None:
        self._function(self._sizes, self._devices(element.arguments), stream, element)


def _size(kernel: UserKernel, which: str, given: Size) -> tuple[int, ...]:
    sizes = given if isinstance(given, tuple) else (given,)
    if not 1 <= len(sizes) <= 3 or not all(
        isinstance(size, int | np.integer) and size >= 1 for size in sizes
    ):
        raise LaunchError(
            f"{kernel.name}: {given!r} is not a valid size of a {which}. It must be a positive "
            "int, or a tuple of up to three."
        )
    return tuple(int(size) for size in sizes)
