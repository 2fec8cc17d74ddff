"""What a launch of a counted kernel did on the emulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Counters:
    """Accesses of memory ("input", "output", "scratch" or "shared") by their width in bytes, how
    often those of a "block", "team", "cluster" or "grid" met at a barrier, and how often a thread
    brought a value to a "shuffle"."""

    reads: Mapping[tuple[str, int], int]
    writes: Mapping[tuple[str, int], int]
    meetings: Mapping[str, int]


def parse(text: str) -> Counters:
    """What the lines of `emulator_counters.h` say."""
    found: dict[str, dict[tuple[str, int], int]] = {"read": {}, "write": {}, "meet": {}}
    for line in text.splitlines():
        kind, name, width, times = line.split()
        one = found[kind]
        key = name, int(width)
        one[key] = one.get(key, 0) + int(times)
    met = {name: times for (name, _), times in found["meet"].items()}
    return Counters(found["read"], found["write"], met)
