"""What one thread has at a time: loads under way, and values in registers.

Loads are under way together from one wait to the next. A thread waits at barriers and exchanges,
for an index or a condition that the data decides, and at the end of a loop that is not fully
unrolled. Arrays have registers as long as they are live (`lives.py`), and loads need registers to
arrive in. The device's profile has the number of registers, and what the compiler does with them.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.codegen.ir.statements import ALL
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.prices import Registers


@dataclass(eq=False)
class Pressure:
    """Where the walk through a kernel stands, and the most that there was so far."""

    device: Registers
    cap: int
    loads: int = 0
    words: int = 0
    far: float = 0.0
    arrays: int = 0
    waits: int = 0
    most_loads: int = 0
    most_words: int = 0
    most_arrays: int = 0

    @classmethod
    def of(cls, device: Device, block: int, per_sm: int) -> Pressure:
        """In a block of so many threads, of which so many have to fit on a multiprocessor."""
        own = device.registers
        unit = own.unit // device.warp_size
        most = device.registers_per_sm // (block * max(1, per_sm)) // unit * unit
        return cls(own, max(own.least, min(own.most, most)))

    @property
    def load_words(self) -> int:
        """Words that may be loaded at once."""
        own = self.device
        return max(own.least_loads, min(own.loads, self.cap - own.beside - self.arrays))

    @property
    def spilled(self) -> float:
        """The share of what arrays hold that has no registers."""
        beyond = max(0, self.device.beside + self.most_arrays - self.cap)
        return min(1.0, beyond / self.most_arrays) if beyond else 0.0

    def load(self, width: int) -> None:
        self.loads += 1
        self.words += -(-width // 4)

    def come(self, share: float) -> None:
        """So much of what was loaded is not in the cache beside the multiprocessor."""
        self.far = max(self.far, share)

    def array(self, words: int) -> None:
        self.arrays += words
        self.most_words = max(self.most_words, self.arrays)
        self.most_arrays = max(self.most_arrays, self.arrays)

    @property
    def arrived(self) -> float:
        """Rounds in which what was loaded since the last wait comes."""
        return max(1.0, self.words / self.load_words) if self.loads else 0.0

    def wait(self) -> None:
        """All that was loaded must be there."""
        self.most_loads = max(self.most_loads, self.loads)
        self.most_words = max(self.most_words, self.arrays + min(self.words, self.device.loads))
        self.loads = self.words = 0
        self.far = 0.0
        self.waits += 1

    def repeated(self, before: tuple[int, int, int], iterations: int, unroll: int) -> None:
        """A loop has ended whose first iteration began with so many loads, words and waits."""
        loads, words, waits = before
        if waits == self.waits:
            written = self._written(iterations, unroll)
            self.loads = loads + (self.loads - loads) * written
            self.words = words + (self.words - words) * written
        if unroll != ALL and iterations > 1:
            self.wait()

    def rounds(
        self, before: tuple[int, int, int], iterations: int, unroll: int, branches: bool
    ) -> float:
        """Rounds of loads that an iteration of such a loop ends with: those of iterations that are
        written out side by side are one."""
        loads, words, waits = before
        if waits != self.waits:
            return self.arrived
        if self.loads == loads or unroll == ALL or not iterations:
            return 0.0
        own, fit = self.device, self.load_words // max(1, self.words - words)
        together = own.branching if branches else max(unroll, min(own.straight, fit))
        return -(-iterations // max(1, min(iterations, together))) / iterations

    @property
    def begun(self) -> tuple[int, int, int]:
        """The arguments of `repeated`."""
        return self.loads, self.words, self.waits

    @property
    def registers(self) -> int:
        """An estimate for a thread, once all statements were met."""
        return min(self.cap, self.device.beside + self.most_words)

    def _written(self, iterations: int, unroll: int) -> int:
        """Iterations of a loop that are written out side by side."""
        return (
            iterations if unroll == ALL else max(1, min(iterations, unroll or self.device.unrolled))
        )
