"""Kernels whose blocks wait for each other, written by hand as statements, and runs of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fusionstitch.codegen.assembly import translation_unit
from fusionstitch.codegen.index_maps.index import Index, variable
from fusionstitch.codegen.ir.expressions import (
    BLOCK,
    THREAD,
    Expr,
    Integer,
    Load,
    Name,
    infix,
    number,
)
from fusionstitch.codegen.ir.kernel import Buffer, Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import (
    Arrive,
    Barrier,
    For,
    Function,
    If,
    Let,
    Statement,
    Store,
    Wait,
)
from fusionstitch.codegen.ir.types import FLOAT, INT, WORD
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.hlo.graph import Shape
from fusionstitch.runtime import emulate
from fusionstitch.runtime.artifact import Artifact
from tests.codegen.regions import launched

#: Blocks, threads of each, and tiles of as many elements, which blocks share out.
GRID, THREADS, TILES = 4, 32, 8
ELEMENTS = TILES * THREADS
COUNTERS = 16
TILE, T, B = variable("tile", TILES), variable("t", THREADS), variable("b", GRID)
BLOCKS, EVERYBODY = Barrier(Scope.BLOCK), Barrier(Scope.GRID)
BUFFERS = (
    Buffer("x", FLOAT, ELEMENTS, Memory.INPUT),
    Buffer("out", FLOAT, ELEMENTS, Memory.OUTPUT),
    Buffer("between", FLOAT, ELEMENTS, Memory.SCRATCH),
    Buffer("done", WORD, COUNTERS, Memory.SCRATCH),
)
NUMBERS = (Let(INT, "t", THREAD), Let(INT, "b", BLOCK))
ORDERS: Sequence[tuple[emulate.Order, int]] = (
    *(("forward", 0), ("reversed", 0), ("random", 1)),
    *(("delayed", seed) for seed in range(5)),
)


def at(buffer: str, index: Index) -> Load:
    return Load(Name(buffer), Integer(index))


def put(buffer: str, index: Index, value: Expr) -> Store:
    return Store(buffer, Integer(index), value)


def over_tiles(*body: Statement) -> For:
    """Tiles, each of one block."""
    return For(INT, "tile", BLOCK, number(TILES), step=GRID, body=body)


def below(left: Expr, limit: int, *body: Statement) -> If:
    return If(infix("<", left, limit), None, body)


def arrive(index: Index | int) -> Arrive:
    return Arrive("done", number(index) if isinstance(index, int) else Integer(index))


def wait(index: Index | int, value: Index | int) -> Wait:
    one, other = (number(i) if isinstance(i, int) else Integer(i) for i in (index, value))
    return Wait("done", one, other)


#: Block 0 zeroes all counters, and all wait for that.
ZERO = below(BLOCK, 1, below(THREAD, COUNTERS, put("done", T, number(0))))
BEGIN = (*NUMBERS, ZERO, EVERYBODY)


def kernel(
    *body: Statement,
    buffers: Sequence[Buffer] = BUFFERS,
    cooperative: bool = True,
    grid: int = GRID,
    shared: int = 0,
    cluster: int = 1,
    functions: Sequence[Function] = (),
) -> Lowered:
    return Lowered(
        *("k", tuple(buffers), tuple(functions), body, THREADS, cluster, grid, shared),
        cooperative=cooperative,
    )


def printed(lowered: Lowered) -> Kernel:
    """A kernel to be built."""

    def shapes(memory: Memory) -> tuple[Shape, ...]:
        found = (b for b in lowered.buffers if b.memory is memory)
        return tuple(Shape("u32" if b.type == WORD else "f32", (b.size,)) for b in found)

    return Kernel(
        name=lowered.name,
        source="\n".join(translation_unit([], lowered, ["by hand"])),
        inputs=shapes(Memory.INPUT),
        outputs=shapes(Memory.OUTPUT),
        scratch=shapes(Memory.SCRATCH),
        grid=lowered.grid,
        block=lowered.block,
        shared_bytes=lowered.shared,
        cooperative=lowered.cooperative,
        cluster=lowered.cluster,
        template="by hand",
    )


def runs(
    one: Kernel,
    artifact: Artifact,
    x: np.ndarray,
    orders: Sequence[tuple[emulate.Order, int]] = ORDERS,
) -> Iterator[np.ndarray]:
    """The output of a kernel, in one order of its threads and blocks after the other. Raises
    VerifyError for what the emulator finds."""
    try:
        for order, seed in orders:
            emulate.set_order(order, seed)
            [out] = launched(one, artifact, [x])
            yield out
    finally:
        emulate.set_order("forward")
