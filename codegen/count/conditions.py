"""Conditions of a kernel, and iterations of its loops, as weights of executions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fusionstitch.codegen.count.axes import MOST, Array, Part, spread, union
from fusionstitch.codegen.count.factors import Factor, product
from fusionstitch.codegen.count.progressions import Progression
from fusionstitch.codegen.count.values import UNKNOWN, Large, Points, Sum, Unknown, Value, at

#: Axes shorter than this are not looked at for neighbours that are alike.
SHORT = 64


@dataclass(frozen=True, eq=False)
class Chance:
    """A condition, or a weight, that is evaluated at points only."""

    weigh: Callable[[Points], Array]


Condition = bool | Factor | Chance | Unknown


def both(conditions: Iterable[Condition]) -> Condition:
    """Where all of several conditions hold."""
    found = [one for one in conditions if one is not True]
    if len(found) < 2:
        return found[0] if found else True
    if any(one is False for one in found):
        return False
    if any(isinstance(one, Unknown) for one in found):
        return UNKNOWN
    if all(isinstance(one, Factor) for one in found):
        joined = product([one for one in found if isinstance(one, Factor)])
        if joined is not None:
            return joined
    chances = [chance_of(one) for one in found]
    return Chance(lambda points: np.prod([one.weigh(points) for one in chances], axis=0))


def chance_of(condition: Condition) -> Chance:
    """A condition as one that is evaluated at points."""
    if isinstance(condition, Chance):
        return condition
    assert isinstance(condition, Factor)
    factor = condition

    def weigh(points: Points) -> Array:
        positions = tuple(
            points[axis] if starts is None else starts.searchsorted(points[axis], "right") - 1
            for axis, starts in zip(factor.axes, factor.starts, strict=True)
        )
        found: Array = factor.weights[positions]
        return found

    return Chance(weigh)


def below_zero(value: Value) -> Condition:
    """Where a value is negative."""
    return _where(value, _is_negative)


def is_zero(value: Value) -> Condition:
    """Where a value is nothing."""
    return _where(value, _is_nothing)


def _is_negative(array: Any) -> Any:
    return array < 0


def _is_nothing(array: Any) -> Any:
    return array == 0


def iterations(distance: int | Sum | Large, step: int) -> int | Factor | Chance:
    """How many iterations a loop takes over a distance, by steps: a weight."""
    if isinstance(distance, int):
        return max(0, -(-distance // step))
    table = _table(distance, (1 - step, distance.ends[1])) if isinstance(distance, Sum) else None
    if table is None:
        return Chance(lambda points: np.maximum(0, -(-at(distance, points) // step)))
    return Factor(table.axes, table.starts, np.maximum(0, -(-table.weights // step)))


def negated(condition: Condition) -> Condition:
    """Where a condition does not hold."""
    if isinstance(condition, Factor):
        return condition.opposite
    if isinstance(condition, Chance):
        return Chance(lambda points: 1 - condition.weigh(points))
    return condition if isinstance(condition, Unknown) else not condition


def _where(value: Value, holds: Callable[[Any], Any]) -> Condition:
    if isinstance(value, int):
        return bool(holds(value))
    if isinstance(value, Unknown):
        return UNKNOWN
    if isinstance(value, Large):
        return Chance(lambda points: np.asarray(holds(at(value, points))).astype(np.int64))
    if len(value.parts) > 1:
        return _of_sum(value, holds)
    made, key = value.parts[0].made, (holds, value.const)
    found: Condition | None = made.get(key)
    if found is None:
        found = made[key] = _of_sum(value, holds)
    return found


def _of_sum(value: Sum, holds: Callable[[Any], Any]) -> Condition:
    low, high = value.ends
    if high < 0 or low > 0:
        return bool(holds(low))
    if low == 0 and not holds(0):
        return False
    table = _table(value, (-1, 1))
    if table is None:
        return Chance(lambda points: np.asarray(holds(at(value, points))).astype(np.int64))
    return Factor(table.axes, table.starts, holds(table.weights).astype(np.int64))


def _table(value: Sum, range_: tuple[int, int]) -> Factor | None:
    """A value for each combination of its axes, neighbours that are alike as one; what lies outside
    of the range `range_` may be any other value on the same side of it."""
    low, high = value.ends
    parts = [
        _shortened(part, range_[0] - (high - part.ends[1]), range_[1] - (low - part.ends[0]))
        for part in value.parts
    ]
    if len(parts) == 1:
        only = parts[0]
        return Factor(only.axes, only.starts, only.weights + value.const)
    axes = union(part.axes for part in parts)
    size = 1
    for part in parts:
        size *= part.weights.size
    if size > MOST:
        return None
    starts = {a: s for part in parts for a, s in zip(part.axes, part.starts, strict=True)}
    weights = spread(parts[0].weights, parts[0].axes, axes) + value.const
    for part in parts[1:]:
        weights = weights + spread(part.weights, part.axes, axes)
    return Factor(axes, tuple(starts[axis] for axis in axes), weights)


def _shortened(part: Part, low: int, high: int) -> Factor:
    """A part with its elements brought into a range, neighbours that are then alike as one."""
    if isinstance(part.given, Progression) and part.given.extent >= SHORT:
        begin = part.given.begins(low, high)
        if 2 * (len(begin) - 1) < part.given.extent:
            few = part.given.at(begin).clip(low, high)
            return Factor(part.axes, (begin,), few)
    array, starts = part.array, list[Array | None]()
    if array.size < SHORT:
        return Factor(part.axes, (None,) * len(part.axes), array)
    least, greatest = part.ends
    if least < low or greatest > high:
        array = np.minimum(np.maximum(array, low), high)
    for dim, axis in enumerate(part.axes):
        if axis.extent < SHORT and array.ndim == 1:
            starts.append(None)
            continue
        moved = np.moveaxis(array, dim, 0) if dim else array
        differ = moved[1:] != moved[:-1]
        if differ.ndim > 1:
            differ = differ.any(axis=tuple(range(1, differ.ndim)))
        (changes,) = differ.nonzero()
        if 2 * len(changes) >= axis.extent:
            starts.append(None)
            continue
        begin = np.empty(len(changes) + 1, np.int64)
        begin[0], begin[1:] = 0, changes + 1
        starts.append(begin)
        array = array.take(begin, axis=dim)
    return Factor(part.axes, tuple(starts), array)
