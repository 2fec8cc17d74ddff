"""XLA's final kernels: what a program it has compiled launches, and what the model says of each.

They are read from the scheduled module, so nothing is guessed of what fuses with what; how long
each takes is the same model as for kernels that are guessed (`xla_kernels.py`).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.estimate import kernel_us
from fusionstitch.costmodel.graph_work import GraphWork
from fusionstitch.costmodel.work import Work
from fusionstitch.costmodel.xla_kernels import kernel_time_us
from fusionstitch.costmodel.xla_libraries import library_us
from fusionstitch.hlo.brief import brief, count
from fusionstitch.hlo.free import free_bits
from fusionstitch.hlo.graph import Graph, Module, Op, ids
from fusionstitch.hlo.launches import Launch, backend_configs, opened, trips_of
from fusionstitch.hlo.semantics import FACTORS, READ_WHOLES, Kind, kind_of
from fusionstitch.hlo.trips import UNKNOWN_TRIPS


class Emitter(enum.StrEnum):
    """What writes a kernel of XLA's, or which library has it."""

    LOOP = "loop"
    REDUCTION = "reduction"
    TRANSPOSE = "transpose"
    CONCATENATE = "concatenate"
    SCATTER = "scatter"
    UPDATE = "update"  # some elements of an array, in place
    WINDOW = "window"
    TRITON = "triton"
    PRODUCT = "product"
    CONVOLUTION = "convolution"
    SORT = "sort"
    COPY = "copy"
    LIBRARY = "library"
    WHILE = "while"  # what the host adds to an iteration


#: Which emitter an op decides on, the most telling first; the root alone decides on the second.
_ANYWHERE: Mapping[str, Emitter] = {
    "convolution": Emitter.CONVOLUTION,
    "fft": Emitter.LIBRARY,
    "dot": Emitter.PRODUCT,
    "custom-call": Emitter.LIBRARY,
    **dict.fromkeys(FACTORS, Emitter.LIBRARY),
    **dict.fromkeys(("sort", "topk", "radix-sort"), Emitter.SORT),
    "scatter": Emitter.SCATTER,
    "reduce": Emitter.REDUCTION,
    "reduce-window": Emitter.WINDOW,
    "select-and-scatter": Emitter.WINDOW,
}
#: Kinds of ops that have rules of their own (`xla_libraries.py`), or move bytes.
_OWN_RULES = READ_WHOLES | {Kind.FACTOR}
_AT_THE_ROOT: Mapping[str, Emitter] = {
    "concatenate": Emitter.CONCATENATE,
    "dynamic-update-slice": Emitter.UPDATE,
}
#: Parts of the targets of custom calls.
_TARGETS: Mapping[str, Emitter] = {
    "cudnn$conv": Emitter.CONVOLUTION,
    "triangular": Emitter.LIBRARY,
    "cublas": Emitter.PRODUCT,
    "sort": Emitter.SORT,
}


@dataclass(frozen=True)
class FinalOp:
    """An op of a kernel: its name in the compiled module, JAX's name of it, its extents, and
    whether the kernel writes its value."""

    name: str
    opcode: str
    op_name: str
    dims: tuple[int, ...]
    written: bool


@dataclass(frozen=True)
class FinalKernel:
    """One launch of a compiled program.

    Attributes:
        name: the instruction's; kernels that XLA writes are called after it
        emitter: what writes it
        ops: what it computes
        graph: the computation that launches it
        runs: how often it runs in a call of the program
        bytes: what it reads and writes
        floor_us: what none takes less than: a launch, its bytes at the rate of L2
        modelled_us: one run by the model
        us: one run, as `source` says
        source: "modelled", "scaled" (to the measured time of the program) or "measured"
    """

    name: str
    emitter: Emitter
    ops: tuple[FinalOp, ...]
    graph: str
    runs: int
    bytes: int
    floor_us: float
    modelled_us: float
    us: float
    source: str = "modelled"

    @property
    def launches(self) -> bool:
        """Whether it is a kernel or a copy, not what the host does between."""
        return self.emitter is not Emitter.WHILE

    def __repr__(self) -> str:
        return brief(
            f"FinalKernel {self.name}: {self.emitter}, {count(self.ops, 'op')}, {self.us:.2f} us "
            f"({self.source}), {self.runs} runs"
        )


def final_kernels(module: Module, device: Device) -> list[FinalKernel]:
    """What a scheduled module launches, in the order of the schedule.

    The kernels of a loop run as often as it does, `UNKNOWN_TRIPS` times where the data decides;
    those of every branch count.
    """
    return list(_Lister(backend_configs(module.proto), device).of(module.entry, 1))


class _Lister:
    def __init__(self, configs: Mapping[int | None, Any], device: Device):
        self.configs, self.device = configs, device

    def of(self, scheduled: Graph, runs: int) -> Iterator[FinalKernel]:
        found = opened(scheduled, self.configs)
        works = GraphWork(found.graph, free_bits(found.graph), self.device, guessed=False)
        for launch in found.launches:
            op = launch.instruction
            if op.opcode == "while":
                trips = trips_of(op, self.configs)
                times = runs * (UNKNOWN_TRIPS if trips is None else trips)
                yield self.overhead(op, scheduled.name, times, trips is None)
                for called in op.called:
                    yield from self.of(called, times)
            elif op.opcode == "conditional":
                for called in op.called:
                    yield from self.of(called, runs)
            else:
                yield self.kernel(works, launch, runs)

    def overhead(self, loop: Op, graph: str, runs: int, waits: bool) -> FinalKernel:
        """What the host adds to each iteration of a loop."""
        us = self.device.loop_turn_us + (self.device.loop_wait_us if waits else 0.0)
        ops, floor = (_final(loop, True),), self.device.launch_us
        return FinalKernel(loop.name, Emitter.WHILE, ops, graph, runs, 0, floor, us, us)

    def kernel(self, works: GraphWork, launch: Launch, runs: int) -> FinalKernel:
        ops = [works.graph.ops[i] for i in ids(launch.bits)]
        emitter = self.emitter(launch, ops)
        work = works.fused(launch.bits, _arrays(works.graph, launch.written))
        moved = work.bytes + work.l2_bytes
        us = _modelled_us(works, launch, ops, work)
        floor = max(self.device.launch_us, moved / self.device.l2_bytes_per_s * 1e6)
        return FinalKernel(
            name=launch.instruction.name,
            emitter=emitter,
            ops=tuple(_final(op, bool(launch.written >> op.id & 1)) for op in ops),
            graph=works.graph.name,
            runs=runs,
            bytes=moved,
            floor_us=floor,
            modelled_us=us,
            us=us,
        )

    def emitter(self, launch: Launch, ops: list[Op]) -> Emitter:
        opcodes = {op.opcode for op in ops}
        for opcode, emitter in _ANYWHERE.items():
            if opcode not in opcodes:
                continue
            if opcode == "custom-call":
                return _of_library(ops)
            if emitter is Emitter.REDUCTION and self.is_triton(launch.instruction):
                return Emitter.TRITON
            return emitter
        if self.is_triton(launch.instruction):
            return Emitter.TRITON
        for op in ops:
            if launch.written >> op.id & 1 and op.opcode in _AT_THE_ROOT:
                return _AT_THE_ROOT[op.opcode]
        if launch.instruction.opcode == "copy":
            return Emitter.COPY
        return Emitter.TRANSPOSE if "transpose" in opcodes else Emitter.LOOP

    def is_triton(self, instruction: Op) -> bool:
        config = self.configs.get(instruction.origin)
        fusion = config.get("fusion_backend_config") if isinstance(config, dict) else None
        return isinstance(fusion, dict) and str(fusion.get("kind")).startswith("__triton")


def _final(op: Op, written: bool) -> FinalOp:
    return FinalOp(op.name, op.opcode, op.source.op_name, op.dims, written)


def _of_library(ops: list[Op]) -> Emitter:
    [target, *_] = [str(op.attrs["target"]).lower() for op in ops if op.opcode == "custom-call"]
    found = (emitter for part, emitter in _TARGETS.items() if part in target)
    return next(found, Emitter.LIBRARY)


def _arrays(graph: Graph, written: int) -> int:
    """Those of the values that are arrays: the workspaces of libraries are in tuples."""
    return sum(1 << i for i in ids(written) if not graph.ops[i].shape.is_tuple)


def _modelled_us(works: GraphWork, launch: Launch, ops: list[Op], work: Work) -> float:
    """One run of a kernel by the model: what has no rules of its own moves its bytes."""
    for op in ops:
        if (us := library_us(op, works.device)) is not None:
            return max(us, kernel_us(work, works.device))
    if any(kind_of(op.opcode) in _OWN_RULES and op.opcode != "layout-bitcast" for op in ops):
        return kernel_us(work, works.device)
    return kernel_time_us(works, launch.bits, launch.written)
