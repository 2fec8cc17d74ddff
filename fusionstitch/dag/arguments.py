"""Arguments of a call, checked against the parameters of the callee."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fusionstitch.dag.access import Access
from fusionstitch.dag.array import Array
from fusionstitch.dag.element import Storage
from fusionstitch.dag.errors import ArrayError, LaunchError
from fusionstitch.dag.signature import Parameter


class Arguments:
    """Checks calls with these parameters, whose arrays belong to one scheduler."""

    def __init__(self, name: str, parameters: Sequence[Parameter], access: Access) -> None:
        self.parameters = tuple(parameters)
        self._name = name
        self._access = access
        numbered = list(enumerate(self.parameters))
        # looked up once for each launch: the positions of arrays with their requirements, and for
        # each number its last value and what that was converted to
        self._arrays = [(i, p.scalar, p.const) for i, p in numbered if p.pointer]
        self._array_positions = [i for i, _, _ in self._arrays]
        self._numbers = {i: (_NOTHING, _NOTHING) for i, p in numbered if not p.pointer}

    def bound(self, arguments: Sequence[Any]) -> tuple[list[Any], dict[Storage, bool]]:
        """Storages and numbers in the order of the parameters, and how each array is used.

        An array passed twice counts as read-only if both parameters are const. Raises LaunchError
        and ArrayError.
        """
        if len(arguments) != len(self.parameters):
            raise LaunchError(
                f"{self._name} has {len(self.parameters)} parameters ({self}) and was called with "
                f"{len(arguments)} arguments."
            )
        values = list(arguments)
        uses: dict[Storage, bool] = {}
        access = self._access
        for i, scalar, const in self._arrays:
            array = values[i]
            if type(array) is not Array or array.access is not access:
                raise self._no_array(i, array)
            values[i] = storage = array.storage
            if storage.kind is not scalar or storage.readonly:
                self._check(i, storage)
            if not const or storage not in uses:
                uses[storage] = const
        for i, (given, made) in self._numbers.items():
            value = values[i]
            if value is not given:
                made = self._number(i, value)
                self._numbers[i] = value, made
            values[i] = made
        return values, uses

    def devices(self, values: list[Any]) -> list[Any]:
        """The result of `bound`, with device arrays instead of storages."""
        given = values.copy()
        for i in self._array_positions:
            given[i] = given[i].device
        return given

    def _number(self, i: int, value: Any) -> Any:
        parameter = self.parameters[i]
        scalar = parameter.scalar
        try:
            if not isinstance(value, _NUMBERS):
                raise TypeError(f"it is a {type(value).__name__}")
            made = scalar(value)
            # an integer that would be truncated is an error; a number that is rounded is not
            if made.dtype.kind in "iub" and made != value:
                raise ValueError("the value would change")
        except (TypeError, ValueError, OverflowError) as error:
            raise LaunchError(
                f"{self._name}: {parameter.name} is {parameter}, and {value!r} does not fit: "
                f"{error}."
            ) from None
        return made

    def _no_array(self, i: int, value: Any) -> Exception:
        parameter = self.parameters[i]
        if type(value) is Array:
            return ArrayError(
                f"{self._name}: {parameter.name} is an array of another scheduler. Exchange it "
                "with `from_dlpack`, or make both with one scheduler."
            )
        what = f"a {type(value).__name__}" if not isinstance(value, np.ndarray) else "a NumPy array"
        return LaunchError(
            f"{self._name}: {parameter.name} is {parameter}, and was given {what}. Make an array "
            "of the scheduler of it: `d.array(value)`."
        )

    def _check(self, i: int, storage: Storage) -> None:
        parameter = self.parameters[i]
        if parameter.scalar not in (None, storage.kind):
            raise LaunchError(
                f"{self._name}: {parameter.name} is {parameter}, and {storage.label} has elements "
                f"of {storage.dtype}."
            )
        if storage.readonly and (not parameter.const or storage.given_away):
            raise ArrayError(
                f"{self._name}: {parameter.name} is {parameter}, and {storage.label} cannot be "
                f"used this way: {storage.readonly}."
            )

    def __str__(self) -> str:
        return ", ".join(map(str, self.parameters))


_NUMBERS = (int, float, np.number, np.bool_)
_NOTHING: Any = object()
