"""What a launch of a counted kernel did on the emulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Counters:
    """Memory accesses ("input", "output", "scratch" or "shared") by width in bytes; barriers by
    scope ("block", "team", "cluster" or "grid"); and values that threads brought to a "shuffle"."""

    reads: Mapping[tuple[str, int], int]
    writes: Mapping[tuple[str, int], int]
    meetings: Mapping[str, int]


def parse(text: str) -> Counters:
    """Parses the lines that `emulator_counters.h` writes."""
    found: dict[str, dict[tuple[str, int], int]] = {"read": {}, "write": {}, "meet": {}}
    for line in text.splitlines():
        kind, name, width, times = line.split()
        one = found[kind]
        key = name, int(width)
        one[key] = one.get(key, 0) + int(times)
    met = {name: times for (name, _), times in found["meet"].items()}
    return Counters(found["read"], found["write"], met)
