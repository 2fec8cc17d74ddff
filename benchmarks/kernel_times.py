"""Which kernel of a compiled program each activity of a trace is.

A trace says the instruction that launched it, unless that was part of a CUDA graph. Then XLA's own
kernels are called after their fusions, and those of libraries run in the order of the schedule;
a call of a library may be several kernels. XLA compiles equal fusions once: of kernels that are
alike those that were not seen are what the others of the name were.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fusionstitch.costmodel.xla_final import Emitter, FinalKernel
from fusionstitch.measure.activity import Activity

#: What XLA does not write: their kernels have names of their own.
FOREIGN = frozenset({Emitter.PRODUCT, Emitter.CONVOLUTION, Emitter.SORT, Emitter.LIBRARY})
_MEMORY = re.compile(r"Mem(cpy|set)", re.IGNORECASE)


@dataclass(frozen=True)
class Times:
    """By the position of a kernel among those of its program, microseconds of one run of it; and
    the microseconds of a call that no kernel is known for."""

    us: dict[int, float]
    unknown_us: float


def times_of(kernels: Sequence[FinalKernel], activities: Sequence[Activity], calls: int) -> Times:
    """What the kernels of a program took in a trace of `calls` calls."""
    walk = _Walk(kernels)
    total: dict[int, float] = {}
    unknown = 0.0
    for one in activities:
        place = walk.place(one)
        if place is None:
            unknown += one.us
        else:
            total[place] = total.get(place, 0.0) + one.us
    each = {n: us / calls / max(1, kernels[n].runs) for n, us in total.items()}
    return Times(_shared(kernels, each), unknown / calls)


class _Walk:
    """Follows the schedule, over and over: loops and further calls begin it anew."""

    def __init__(self, kernels: Sequence[FinalKernel]):
        self.kernels = kernels
        self.launched = [n for n, one in enumerate(kernels) if one.launches]
        self.by_instruction = {kernels[n].name: n for n in self.launched}
        self.by_name: dict[str, int] = {}
        for n in self.launched:
            self.by_name.setdefault(written(kernels[n].name), n)
        #: position in `launched` of what was seen last
        self.at = -1

    def place(self, one: Activity) -> int | None:
        """The kernel that an activity is; None for one that nobody knows."""
        found = self.by_instruction.get(one.instruction)
        if found is None:
            found = self.by_name.get(one.name)
        if found is None:
            found = self.foreign(one)
        if found is not None:
            self.at = self.launched.index(found)
        return found

    def foreign(self, one: Activity) -> int | None:
        """The next call of a library, or copy, if nothing of XLA's own is due before it; else the
        one before goes on."""
        is_copy = _MEMORY.match(one.name) is not None
        for n in self.following():
            if self.is_foreign(n, is_copy):
                return n
            if not is_copy and self.kernels[n].emitter is not Emitter.COPY:
                break
        last = self.launched[self.at] if self.at >= 0 else None
        return last if last is not None and self.is_foreign(last, is_copy) else None

    def following(self) -> Iterator[int]:
        yield from self.launched[self.at + 1 :]
        yield from self.launched[: self.at + 1]

    def is_foreign(self, n: int, is_copy: bool) -> bool:
        emitter = self.kernels[n].emitter
        return emitter in ({Emitter.COPY, Emitter.UPDATE} if is_copy else FOREIGN)


def written(name: str) -> str:
    """What XLA calls the kernel of an instruction."""
    return re.sub(r"[^0-9A-Za-z_]", "_", name)


def _shared(kernels: Sequence[FinalKernel], us: dict[int, float]) -> dict[int, float]:
    """Kernels that are alike take the same: what was seen under one name is all of theirs."""
    alike: dict[tuple[object, ...], list[int]] = {}
    for n, one in enumerate(kernels):
        if one.launches and one.emitter not in FOREIGN:
            key = one.emitter, one.bytes, one.modelled_us, tuple(op.opcode for op in one.ops)
            alike.setdefault(key, []).append(n)
    found = dict(us)
    for group in alike.values():
        seen = [n for n in group if n in us]
        if seen and len(seen) < len(group):
            runs = sum(kernels[n].runs for n in group)
            mean = sum(us[n] * kernels[n].runs for n in seen) / runs
            found.update(dict.fromkeys(group, mean))
    return found
