"""Kernels of users: `k(grid, block)(x, y, n)` checks its arguments and launches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fusionstitch.dag.array import Array
from fusionstitch.dag.backends.backend import Function
from fusionstitch.dag.element import Element, Storage
from fusionstitch.dag.errors import ArrayError, LaunchError
from fusionstitch.dag.signature import Parameter

#: Takes a kernel, its arrays, its work and the place of its call.
Submit = Callable[..., Element]
Sizes = int | tuple[int, ...]


class UserKernel:
    """A kernel that a scheduler launches; made by `Scheduler.kernel`.

    `kernel(grid, block, shared=0)` gives a launch for so many blocks of so many threads, each an
    int or a tuple of up to three, with bytes of dynamic shared memory; calling that with one
    argument for each parameter launches it. Nothing is waited for.
    """

    def __init__(
        self,
        name: str,
        parameters: Sequence[Parameter],
        function: Function,
        submit: Submit,
        access: Any,
        priority: int,
    ) -> None:
        self.name = name
        self.parameters = tuple(parameters)
        self.priority = priority
        self.function = function
        self.submit = submit
        self.access = access
        self._launches: dict[tuple[Sizes, Sizes, int], Launch] = {}

    def __call__(self, grid: Sizes, block: Sizes, shared: int = 0) -> Launch:
        key = (grid, block, shared)
        launch = self._launches.get(key)
        if launch is None:
            launch = self._launches[key] = Launch(self, *key)
        return launch

    def __repr__(self) -> str:
        return f"Kernel {self.name}({', '.join(map(str, self.parameters))})"


class Launch:
    """A kernel with sizes: call it with arguments."""

    def __init__(self, kernel: UserKernel, grid: Sizes, block: Sizes, shared: int) -> None:
        self._kernel = kernel
        self._grid = _sizes(kernel, "grid", grid)
        self._block = _sizes(kernel, "block", block)
        self._shared = shared

    def __call__(self, *arguments: Any) -> None:
        """Launches the kernel after all that its arrays depend on.

        Arrays are those of the scheduler, numbers are converted to the type of the parameter.
        Raises LaunchError for arguments that do not fit the signature, ArrayError for an array that
        cannot be used, KernelError for work that failed before.
        """
        kernel = self._kernel
        values, uses = bound(kernel, arguments)
        frame = sys._getframe(1)

        def begin(stream: Any, element: Element) -> None:
            kernel.function(
                self._grid,
                self._block,
                [v.device if type(v) is Storage else v for v in values],
                self._shared,
                stream,
                element,
            )

        kernel.submit(
            kernel, uses, begin, (frame.f_code.co_filename, frame.f_lineno), kernel.priority
        )


def bound(kernel: Any, arguments: Sequence[Any]) -> tuple[list[Any], dict[Storage, bool]]:
    """Storages and numbers for a kernel's parameters, and how each array is used.

    An array that is passed twice counts as only read if both parameters are const. Raises
    LaunchError and ArrayError.
    """
    parameters = kernel.parameters
    if len(arguments) != len(parameters):
        raise LaunchError(
            f"{kernel.name} has {len(parameters)} parameters "
            f"({', '.join(map(str, parameters))}) and was called with {len(arguments)} arguments."
        )
    values: list[Any] = []
    uses: dict[Storage, bool] = {}
    access = kernel.access
    for parameter, value in zip(parameters, arguments, strict=True):
        scalar = parameter.scalar
        if parameter.pointer:
            if type(value) is not Array or value._access is not access:
                raise _no_array(kernel, parameter, value)
            storage = value.storage
            if storage.readonly or (scalar is not None and storage.kind is not scalar):
                _check_use(kernel, parameter, storage)
            uses[storage] = parameter.const and uses.get(storage, True)
            values.append(storage)
        elif type(value) is scalar:
            values.append(value)
        else:
            values.append(_number(kernel, parameter, value))
    return values, uses


def _number(kernel: Any, parameter: Parameter, value: Any) -> Any:
    scalar = parameter.scalar
    try:
        made = scalar(value)
        # an integer that would be cut off is a mistake, a number that is rounded is not; NumPy
        # refuses an int that does not fit
        if type(value) is not int and made.dtype.kind in "iub" and made != value:
            raise ValueError("the value would change")
    except (TypeError, ValueError, OverflowError) as error:
        raise LaunchError(
            f"{kernel.name}: {parameter.name} is {parameter}, and {value!r} is none: {error}."
        ) from None
    return made


def _no_array(kernel: Any, parameter: Parameter, value: Any) -> Exception:
    if type(value) is Array:
        return ArrayError(
            f"{kernel.name}: {parameter.name} is an array of another scheduler. Exchange it with "
            "`from_dlpack`, or make both with one scheduler."
        )
    what = f"a {type(value).__name__}" if not isinstance(value, np.ndarray) else "a NumPy array"
    return LaunchError(
        f"{kernel.name}: {parameter.name} is {parameter}, and was given {what}. Make an array of "
        "the scheduler of it: `d.array(value)`."
    )


def _check_use(kernel: Any, parameter: Parameter, storage: Storage) -> None:
    if parameter.scalar not in (None, storage.kind):
        raise LaunchError(
            f"{kernel.name}: {parameter.name} is {parameter}, and {storage.label} has elements of "
            f"{storage.dtype}."
        )
    if storage.readonly and (not parameter.const or storage.given_away):
        raise ArrayError(
            f"{kernel.name}: {parameter.name} is {parameter}, and {storage.label} cannot be used "
            f"this way: {storage.readonly}."
        )


def _sizes(kernel: UserKernel, which: str, given: Sizes) -> tuple[int, ...]:
    sizes = given if isinstance(given, tuple) else (given,)
    if not 1 <= len(sizes) <= 3 or not all(
        isinstance(size, int | np.integer) and size >= 1 for size in sizes
    ):
        raise LaunchError(
            f"{kernel.name}: {given!r} is no size of a {which}. It is a positive int, or a tuple "
            "of up to three."
        )
    return tuple(int(size) for size in sizes)
