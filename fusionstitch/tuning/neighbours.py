"""The neighbourhood of a schedule: what differs from it in one choice."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fusionstitch.codegen.schedule.tuning import Tuning
from fusionstitch.costmodel.devices import Device

#: Values tried per choice, besides the default.
VALUES: Mapping[str, Sequence[Any]] = {
    "block": (64, 128, 256, 512, 1024),
    "team": (4, 8, 16, 32, 64, 128, 1024),
    "tile": (0.25, 0.5, 2.0, 4.0, 8.0),
    "blocks_per_sm": (1, 2, 3, 4, 6, 8, 16),
    "persistent": (True,),
    "row_registers": (0, 24, 96, 192),
    "vector_bytes": (4, 8),
    "columns": (8, 16, 32, 64),
    "parts": (0.0, 0.5, 2.0, 4.0),
    "cluster": (1, 2, 4, 8),
    "merge": (False,),
    "once": (True,),
}


def neighbours(tuning: Tuning, device: Device) -> Iterator[Tuning]:
    """Every schedule with one choice changed, the default of a choice among its values."""
    defaults = {field.name: field.default for field in dataclasses.fields(Tuning)}
    for name, values in VALUES.items():
        for value in (defaults[name], *values):
            if value != getattr(tuning, name):
                changed = dataclasses.replace(tuning, **{name: value})
                if possible(changed, device):
                    yield changed


def combined(base: Tuning, better: Sequence[Tuning]) -> Iterator[Tuning]:
    """`base` with the changes of two or more of `better` at once, where they do not contradict."""
    changes = [_changes(base, one) for one in better]
    for first in range(len(changes)):
        together = dict(changes[first])
        for other in changes[first + 1 :]:
            if not together.keys() & other.keys():
                together |= other
                yield dataclasses.replace(base, **together)


def possible(tuning: Tuning, device: Device) -> bool:
    """Whether any kernel could run so on the device."""
    block = tuning.block or device.warp_size
    if block > device.max_threads_per_block:
        return False
    if tuning.cluster is not None and tuning.cluster > device.cluster_limit:
        return False
    blocks = tuning.blocks_per_sm or 1
    return blocks <= device.max_blocks_per_sm and blocks * block <= device.max_threads_per_sm


def _changes(base: Tuning, other: Tuning) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(Tuning)]
    return {n: getattr(other, n) for n in names if getattr(other, n) != getattr(base, n)}
