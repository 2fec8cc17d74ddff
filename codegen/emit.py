"""Emission: a scheduled kernel as CUDA-C text, phase by phase, group by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from codegen.nest_emitter import NestEmitter
from codegen.schedule import GroupPlan, KernelPlan
from codegen.source import Writer
from codegen.stages import Stage
from codegen.types import c_type


@dataclass
class Memory:
    """Where values live: C names of inputs, outputs and scratch by op id; shared offsets; tables
    of constants by op id."""

    inputs: Mapping[int, str]
    outputs: Mapping[int, Sequence[str]]
    scratch: Mapping[int, str]
    shared: Mapping[Stage, int]
    tables: dict[int, str]


class KernelEmitter:
    """Prints the statements of one kernel function through `writer`."""

    def __init__(self, plan: KernelPlan, memory: Memory, numerics: str, wide: bool, writer: Writer):
        self.plan = plan
        self.memory = memory
        self.numerics = numerics
        self.int = "long long" if wide else "int"
        self.writer = writer

    def body(self) -> str:
        """The statements of the kernel function."""
        for number, phase in enumerate(self.plan.phases):
            if number:
                self.writer.line("fs_grid_barrier();")
                self.writer.line()
            self._phase(phase)
        return self.writer.text()

    def _phase(self, groups: list[GroupPlan]) -> None:
        """The tiles of all groups, numbered through; a block takes every grid-th one."""
        tiles, grid = sum(g.tiles for g in groups), self.plan.grid
        writer, int_ = self.writer, self.int
        if tiles <= grid and len(groups) == 1:
            guard = f"if (blockIdx.x < {tiles})" if tiles < grid else ""
            with writer.nested(guard, pinned=True) if guard else nullcontext():
                self._group(groups[0], "blockIdx.x", looped=False)
            return
        work = writer.name("work")
        looped = tiles > grid
        if looped:
            header = f"for ({int_} {work} = blockIdx.x; {work} < {tiles}; {work} += {grid})"
        else:
            header = f"if (const {int_} {work} = blockIdx.x; {work} < {tiles})"
        with writer.nested(header, pinned=True):
            if len(groups) == 1:
                self._group(groups[0], work, looped)
                return
            for number, group in enumerate(groups):
                test = f"if ({work} < {group.first_tile + group.tiles})"
                header = ("", "else ")[number > 0] + ("", test)[number < len(groups) - 1]
                with writer.nested(header.strip(), pinned=True):
                    self._group(group, f"{work} - {group.first_tile}" if number else work, looped)

    def _group(self, group: GroupPlan, tile_text: str, looped: bool) -> None:
        """One tile of a group: its nests in order, a barrier between them where they share."""
        writer = self.writer
        tile = writer.name("tile")
        if group.tiles > 1:
            writer.line(f"const {self.int} {tile} = {tile_text};")
            writer.declare(tile)
        names: dict[Stage, str] = {}
        for stage in group.group.stages:
            if stage in self.memory.shared:
                names[stage] = writer.name(f"{stage.op.name or stage.op.opcode}_shared")
                compute, offset = c_type(stage.op.dtype).compute, self.memory.shared[stage]
                place = f"({compute}*)(shared_memory + {offset})"
                writer.line(f"{compute}* const {names[stage]} = {place};")
        for number, nest in enumerate(group.nests):
            if number and names:
                writer.line("__syncthreads();")
            NestEmitter(self, group, nest, tile, names).emit()
        if looped and names:
            writer.line("__syncthreads();")
