"""The result of code generation: one kernel as text, and the numbers needed to launch it."""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.hlo import cards
from fusionstitch.hlo.brief import brief, count, listed
from fusionstitch.hlo.graph import Shape


@dataclass(frozen=True)
class Kernel:
    """One generated kernel.

    Its parameters are one pointer per input, then one per output, then one per scratch buffer, in
    this order, all row-major.

    Attributes:
        name: what it is called in the program, in profilers, and among `Options.templates`
        source: a complete CUDA-C translation unit that includes only "fusionstitch.cuh"
        inputs: element type and dims of each, such as f32[512,64]
        outputs: likewise
        scratch: likewise; device memory that is written and read inside the kernel alone
        grid: blocks
        block: threads of a block
        shared_bytes: dynamic shared memory of a block
        cooperative: whether all blocks have to be resident at once, for a grid barrier
        template: its schedule as text
        in_place: all (output, input) pairs that may share memory: every thread reads an input
            element before it writes the same output element. Several pairs may be used at once if
            no output and no input is in two of them
        cluster: neighbouring blocks that reach each other's shared memory; `grid` is a multiple
        facts: names and values for the report: shared bytes without sharing, allocations,
            requests, scopes, ...
    """

    name: str
    source: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    scratch: tuple[Shape, ...]
    grid: int
    block: int
    shared_bytes: int
    cooperative: bool
    template: str
    in_place: tuple[tuple[int, int], ...] = ()
    cluster: int = 1
    facts: tuple[tuple[str, object], ...] = ()

    def __post_init__(self) -> None:
        listed(self, "inputs", "outputs", "scratch", "in_place", "facts")

    def __repr__(self) -> str:
        lines = self.source.count("\n")
        return brief(
            f"Kernel {self.name}: {count(self.inputs, 'input')}, {count(self.outputs, 'output')}, "
            f"{count(self.grid, 'block')} of {count(self.block, 'thread')}, "
            f"{count(self.shared_bytes, 'byte')} shared, "
            f"{count(lines, 'line')} of source"
        )

    def _repr_html_(self) -> str:
        sizes = [("blocks", self.grid), ("threads a block", self.block)]
        sizes += [("shared bytes", self.shared_bytes), ("inputs", len(self.inputs))]
        sizes.append(("outputs", len(self.outputs)))
        return cards.card(
            self.name,
            cards.facts((name, f"{size:,}") for name, size in sizes),
            cards.folded("CUDA-C", self.source),
            cards.folded("Template", self.template),
        )
