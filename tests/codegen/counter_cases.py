"""Kernels whose blocks wait for each other: right ones, planted faults, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fusionstitch.codegen.index_maps.index import Index, constant, variable
from fusionstitch.codegen.ir.expressions import (
    BLOCK,
    THREAD,
    Cast,
    Choice,
    Integer,
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
    Invoke,
    Leave,
    Let,
    Shared,
    Skip,
    Statement,
    Store,
    Swap,
    Wait,
    While,
)
from fusionstitch.codegen.ir.types import FLOAT, INT, PointerTo
from tests.codegen.synchronised import (
    BEGIN,
    BLOCKS,
    BUFFERS,
    COUNTERS,
    ELEMENTS,
    EVERYBODY,
    GRID,
    NUMBERS,
    THREADS,
    TILE,
    TILES,
    ZERO,
    B,
    T,
    arrive,
    at,
    below,
    kernel,
    over_tiles,
    put,
    wait,
)

OWN, NEXT = TILE * THREADS + T, (TILE + 1) % TILES * THREADS + T
X = np.arange(ELEMENTS, dtype=np.float32)

# ---- one tile waits for the next one -------------------------------------------------------------

MAKE = over_tiles(put("between", OWN, at("x", OWN)), arrive(TILE))
USE = over_tiles(wait((TILE + 1) % TILES, 1), put("out", OWN, at("between", NEXT)))
#: Each tile of `out` is the next one of `x`.
SHIFT = (*BEGIN, MAKE, USE)
SHIFTED = np.roll(X, -THREADS)

# ---- all that a block needs, and a buffer that is used again -------------------------------------

ALL_MADE = over_tiles(put("between", OWN, at("x", OWN)), arrive(TILES))
ALL_READ = over_tiles(put("out", OWN, at("between", NEXT)), arrive(TILES + 1))
AGAIN = over_tiles(put("between", OWN, at("out", OWN)), arrive(TILES + 2))
READ_AGAIN = over_tiles(put("out", OWN, at("between", NEXT)))
#: Each tile of `out` is the one of `x` after the next.
TWICE = (
    *(*BEGIN, ALL_MADE, wait(TILES, TILES), ALL_READ, wait(TILES + 1, TILES)),
    *(AGAIN, wait(TILES + 2, TILES), READ_AGAIN),
)
SHIFTED_TWICE = np.roll(X, -2 * THREADS)

# ---- a ring of two tiles between a block that makes tiles and one that uses them -----------------

N, PLACE = variable("n", TILES), variable("n", TILES) % 2
RING = Buffer("ring", FLOAT, 2 * THREADS, Memory.SCRATCH)


def tiles(*body: Statement) -> For:
    return For(INT, "n", number(0), number(TILES), body=body)


def when(left: Integer, limit: int, *body: Statement) -> If:
    return If(infix("<", number(limit), left), None, body)


def ring(places: int = 2, *, made: bool = True, freed: bool = True) -> tuple[Statement, ...]:
    """Block 0 makes tiles, block 1 uses them; `done[0]` counts those made, `done[1]` those used.
    What is made may be as many `places` ahead."""
    free = when(Integer(N), places - 1, wait(1, N + (1 - places)))
    make = (put("ring", PLACE * THREADS + T, at("x", N * THREADS + T)), arrive(0))
    use = (wait(0, N + 1), put("out", N * THREADS + T, at("ring", PLACE * THREADS + T)))
    makes = tiles(*((free,) if freed else ()), *make)
    uses = tiles(*(use if made else use[1:]), arrive(1))
    return (*BEGIN, If(infix("==", BLOCK, 0), None, (makes,)), where_block(1, uses))


def where_block(block: int, *body: Statement) -> If:
    return If(infix("==", BLOCK, block), None, body)


def with_ring(*body: Statement, grid: int = GRID) -> Lowered:
    return kernel(*body, buffers=(*BUFFERS[:2], RING, BUFFERS[3]), grid=grid)


# ---- a function of the kernel's own, and a pointer -----------------------------------------------

COPY = Function(
    "copy",
    ((INT, "tile"), (PointerTo(FLOAT, constant=True), "in_0"), (PointerTo(FLOAT), "out_0")),
    (Let(INT, "t", THREAD), put("out_0", OWN, at("in_0", NEXT))),
)
COPIES = over_tiles(Invoke("copy", (Name("tile"), Name("between"), Name("out"))))
EITHER = Choice(((infix("<", BLOCK, 9), Name("between")),), Name("x"))
POINTER = Let(PointerTo(FLOAT, constant=True), "made", EITHER)
POINTED = over_tiles(put("out", OWN, at("made", NEXT)))

# ---- iterations that wait for their neighbours alone ---------------------------------------------

S, SWEEPS = variable("s", 6), 6
BOTH = tuple(Buffer(name, FLOAT, GRID * THREADS, Memory.SCRATCH) for name in ("old", "sums"))
LEFT, RIGHT_ = (B + GRID - 1) % GRID, (B + 1) % GRID
HERE = B * THREADS + T


def stencil(*waits: Wait, buffers: tuple[str, str] = ("old", "sums")) -> Lowered:
    """Each block adds up its elements, those of the block to the left and of that to the right,
    again and again; two buffers change names."""
    old, new = buffers
    total = infix("+", *(at(old, position * THREADS + T) for position in (LEFT, B, RIGHT_)))
    swap = (Swap("old", "sums"),) if old != new else ()
    sweep = (put(new, HERE, total), arrive(B), *waits, *swap)
    sweeps = For(INT, "s", number(0), number(SWEEPS), body=sweep)
    begin = put("old", HERE, at("x", HERE))
    body = (*BEGIN, begin, EVERYBODY, sweeps, put("out", HERE, at("old", HERE)))
    fill = For(INT, "n", number(GRID), number(TILES), step=1)
    rest = replace(fill, body=(put("out", variable("n", TILES) * THREADS + T, number(0)),))
    return kernel(*body, where_block(0, rest), buffers=(*BUFFERS[:2], *BOTH, BUFFERS[3]))


NEIGHBOURS = wait(LEFT, S + 1), wait(RIGHT_, S + 1)


def swept() -> np.ndarray:
    found = X[: GRID * THREADS].reshape(GRID, THREADS)
    for _ in range(SWEEPS):
        found = found + np.roll(found, 1, axis=0) + np.roll(found, -1, axis=0)
    return np.concatenate([found.ravel(), np.zeros(ELEMENTS - GRID * THREADS, np.float32)])


RIGHT: dict[str, tuple[Lowered, np.ndarray]] = {
    "a tile waits for the next": (kernel(*SHIFT), SHIFTED),
    "each block zeroes its own": (
        kernel(
            *NUMBERS,
            over_tiles(below(THREAD, 1, put("done", TILE, number(0)))),
            *(EVERYBODY, MAKE, USE),
        ),
        SHIFTED,
    ),
    "a buffer is used again": (kernel(*TWICE), SHIFTED_TWICE),
    "a ring of two places": (with_ring(*ring()), X),
    "a wait for each of several": (
        kernel(
            *(*BEGIN, MAKE),
            For(INT, "n", number(0), number(TILES), body=(wait(N, 1),)),
            over_tiles(put("out", OWN, at("between", NEXT))),
        ),
        SHIFTED,
    ),
    "columns of tiles": (  # whose elements lie between those of others
        kernel(
            *BEGIN,
            over_tiles(put("between", T * TILES + TILE, at("x", T * TILES + TILE)), arrive(TILE)),
            over_tiles(
                wait((TILE + 1) % TILES, 1),
                put("out", T * TILES + TILE, at("between", T * TILES + (TILE + 1) % TILES)),
            ),
        ),
        np.roll(X.reshape(THREADS, TILES), -1, axis=1).ravel(),
    ),
    "neighbours alone": (stencil(*NEIGHBOURS), swept()),
    "a function that reads": (
        kernel(*BEGIN, ALL_MADE, wait(TILES, TILES), COPIES, functions=[COPY]),
        SHIFTED,
    ),
    "through a pointer": (kernel(*BEGIN, ALL_MADE, wait(TILES, TILES), POINTER, POINTED), SHIFTED),
    "iterations that are skipped, and a loop that is left": (
        kernel(
            *BEGIN,
            tiles(
                Skip(infix("!=", infix("%", Integer(N), GRID), BLOCK)),
                put("between", N * THREADS + T, at("x", N * THREADS + T)),
                arrive(0),
            ),
            For(
                *(INT, "n", number(0), number(1 << 20)),
                body=(Leave(infix("==", Integer(variable("n", 1 << 20)), 3)), wait(0, TILES)),
            ),
            READ_AGAIN,
        ),
        SHIFTED,
    ),
    "a loop that the data ends, beside them": (
        kernel(
            *BEGIN,
            over_tiles(
                put("between", OWN, at("x", OWN)),
                While((Leave(infix("<", at("x", constant(0)), 3)), put("between", OWN, number(0)))),
                arrive(TILE),
            ),
            USE,
        ),
        SHIFTED,
    ),
    "barriers of the grid beside counters": (
        kernel(*BEGIN, MAKE, EVERYBODY, over_tiles(put("out", OWN, at("between", NEXT)))),
        SHIFTED,
    ),
}


@dataclass(frozen=True)
class Fault:
    """A kernel with a fault, what the verifier says, and what the emulator finds."""

    planted: Lowered
    refused: str
    found: str = "which block|which other blocks|which several|which nothing"


def less(body: Sequence[Statement], missing: Statement) -> tuple[Statement, ...]:
    """Statements without one of them."""
    assert missing in body
    return tuple(one for one in body if one != missing)


def swapped(*body: Statement) -> tuple[Statement, ...]:
    return tuple(reversed(body))


NEITHER = "neither waits for the other"
WRITE = over_tiles(put("between", OWN, at("x", OWN)))
READ = over_tiles(put("out", OWN, at("between", NEXT)))
#: Of the threads of a block, and of blocks by barriers.
KEPT = Shared(FLOAT, "kept", 0, THREADS * 2)
BACK = THREADS * 2 - 1
WIDE = (Let(INT, "t", THREAD), Let(INT, "b", BLOCK))


def sharing(*body: Statement) -> Lowered:
    """A block of two warps with shared memory."""
    one = kernel(*body, shared=2048, grid=1, cooperative=False)
    return replace(one, block=THREADS * 2)


W = variable("t", THREADS * 2)
KEEP = put("kept", W, at("x", W))
TURN = put("out", W, at("kept", W * -1 + BACK))
CLUSTER = Barrier(Scope.CLUSTER)
COPIED = Store("kept", Integer(T), at("x", T), blocks=2)
SPREAD = put("out", B * THREADS + T, at("kept", T))


def clustered(*body: Statement) -> Lowered:
    return kernel(*NUMBERS, KEPT, *body, cooperative=False, cluster=2, grid=2, shared=2048)


FAULTS: dict[str, Fault] = {
    # counters
    "no wait": Fault(kernel(*BEGIN, MAKE, READ), NEITHER),
    "no arrive": Fault(
        kernel(*BEGIN, WRITE, USE),
        "block 0 waits until 1 have arrived at element 1 of done, where 0 do",
        "deadlock: block 0 waits in k.cu:.* until 1 have arrived at element 1 of scratch 1",
    ),
    "arrives too early": Fault(kernel(*BEGIN, over_tiles(*swapped(*MAKE.body)), USE), NEITHER),
    "waits too late": Fault(kernel(*BEGIN, MAKE, over_tiles(*swapped(*USE.body))), NEITHER),
    "waits for too few": Fault(kernel(*BEGIN, ALL_MADE, wait(TILES, TILES - 1), READ), NEITHER),
    "waits for too many": Fault(
        kernel(*BEGIN, ALL_MADE, wait(TILES, TILES + 1), READ),
        f"until {TILES + 1} have arrived at element {TILES} of done, where {TILES} do",
        f"until {TILES + 1} have arrived at element {TILES} of scratch 1, where {TILES} have",
    ),
    "waits for another tile": Fault(
        kernel(*BEGIN, MAKE, over_tiles(wait(TILE, 1), USE.body[1])), NEITHER
    ),
    "arrives for another tile": Fault(
        kernel(*BEGIN, over_tiles(MAKE.body[0], arrive((TILE + 2) % TILES)), USE), NEITHER
    ),
    "waits for none": Fault(
        kernel(*BEGIN, MAKE, over_tiles(wait((TILE + 1) % TILES, 0), USE.body[1])), NEITHER
    ),
    "a buffer that nobody reads is written by two blocks": Fault(
        kernel(
            *(*BEGIN, MAKE, over_tiles(wait(TILE, 1), put("out", OWN, at("x", OWN)))),
            over_tiles(put("between", NEXT, at("x", OWN))),
        ),
        NEITHER,
        "overwrites",
    ),
    "a tile that no block makes": Fault(
        kernel(*BEGIN, over_tiles(below(Integer(TILE), TILES - 1, *MAKE.body)), USE),
        f"until 1 have arrived at element {TILES - 1} of done, where 0 do",
        f"until 1 have arrived at element {TILES - 1} of scratch 1, where 0 have",
    ),
    "a tile that none of the blocks that run makes": Fault(
        replace(kernel(*SHIFT), grid=2),
        "waits until 1 have arrived at element 2 of done, where 0 do",
        "deadlock: block",
    ),
    "blocks that wait for each other": Fault(
        kernel(*BEGIN, over_tiles(*USE.body[:1], *MAKE.body, USE.body[1])),
        "block 0 waits until 1 have arrived at element 1",
        "deadlock: block 0 waits .*; block 1 waits",
    ),
    "not zeroed": Fault(kernel(*NUMBERS, EVERYBODY, MAKE, USE), "of done does not begin at zero"),
    "some not zeroed": Fault(
        kernel(
            *(*NUMBERS, below(BLOCK, 1, below(THREAD, TILES - 1, put("done", T, number(0))))),
            *(EVERYBODY, MAKE, USE),
        ),
        f"element {TILES - 1} of done does not begin at zero",
    ),
    "zeroed with no barrier": Fault(
        kernel(*NUMBERS, ZERO, MAKE, USE), "done may be set to zero after block 1 came to it", "."
    ),
    "zeroed again": Fault(
        kernel(*SHIFT, ZERO), "done may be set to zero after block", "overwrites|which block"
    ),
    "begins at one": Fault(
        kernel(
            *(*NUMBERS, below(BLOCK, 1, below(THREAD, COUNTERS, put("done", T, number(1))))),
            *(EVERYBODY, MAKE, USE),
        ),
        "done are counters, and not for this",
    ),
    "written again too early": Fault(kernel(*less(TWICE, wait(TILES + 1, TILES))), NEITHER),
    "written again before some have read": Fault(
        kernel(
            *(wait(TILES + 1, TILES - 1) if one == wait(TILES + 1, TILES) else one for one in TWICE)
        ),
        NEITHER,
    ),
    "a ring whose places are used too early": Fault(with_ring(*ring(freed=False)), NEITHER),
    "a ring of more places than there are": Fault(with_ring(*ring(3)), NEITHER),
    "a ring whose tiles nobody waits for": Fault(with_ring(*ring(made=False)), NEITHER),
    "a ring with nobody at its other end": Fault(
        with_ring(*ring()[:-1]),
        "block 0 waits until 1 have arrived at element 1 of done, where 0 do",
        "deadlock: block 0 waits",
    ),
    "one neighbour alone": Fault(stencil(NEIGHBOURS[0]), NEITHER),
    "neighbours of the iteration before": Fault(stencil(wait(LEFT, S), wait(RIGHT_, S)), NEITHER),
    "one buffer for two": Fault(
        stencil(*NEIGHBOURS, buffers=("old", "old")), "old is written with no barrier after a read"
    ),
    "a function that reads too early": Fault(
        kernel(*BEGIN, ALL_MADE, wait(TILES, 1), COPIES, functions=[COPY]), NEITHER
    ),
    "through a pointer too early": Fault(
        kernel(*BEGIN, ALL_MADE, wait(TILES, 1), POINTER, POINTED), NEITHER
    ),
    "a wait that some threads do not come to": Fault(
        kernel(*BEGIN, MAKE, below(THREAD, 16, *USE.body[:0], wait(0, 1))),
        "all threads meet where conditions part them by 16",
        "__syncthreads",
    ),
    "an arrival that some threads do not come to": Fault(
        kernel(*BEGIN, below(THREAD, 16, arrive(0)), wait(0, GRID)),
        "all threads meet where conditions part them by 16",
        "__syncthreads|deadlock",
    ),
    "a launch whose blocks need not run at once": Fault(
        kernel(*NUMBERS, wait(0, 1), cooperative=False),
        "which need not run at once",
        "in a launch that is not cooperative",
    ),
    "one block reads what none wrote": Fault(
        kernel(*BEGIN, arrive(0), wait(0, GRID), READ),
        "reads between before anything is written there",
        "which nothing",
    ),
    # barriers of the grid
    "no barrier of the grid": Fault(kernel(*NUMBERS, WRITE, READ), "with no barrier after a write"),
    "a barrier of the block for one of the grid": Fault(
        kernel(*NUMBERS, WRITE, BLOCKS, READ),
        "with no barrier after a write",
    ),
    "written again with no barrier of the grid": Fault(
        kernel(
            *(*NUMBERS, WRITE, EVERYBODY, READ),
            *(over_tiles(put("between", OWN, number(0))), EVERYBODY, READ),
        ),
        "between is written with no barrier after a read",
    ),
    "a barrier that some blocks do not come to": Fault(
        kernel(*NUMBERS, below(BLOCK, 2, EVERYBODY)),
        "all blocks meet where conditions part them by 2",
        "grid barrier",
    ),
    "a barrier of the grid in a launch of blocks by themselves": Fault(
        kernel(*NUMBERS, EVERYBODY, cooperative=False),
        "which need not run at once",
        "a grid barrier in a launch that is not cooperative",
    ),
    # barriers of blocks and clusters
    "no barrier of the block": Fault(sharing(*WIDE, KEPT, KEEP, TURN), "with no barrier"),
    "written again with no barrier": Fault(
        sharing(*WIDE, KEPT, KEEP, BLOCKS, TURN, put("kept", W, number(1)), BLOCKS, TURN),
        "kept is written with no barrier after a read",
    ),
    "a barrier that a warp does not come to": Fault(
        sharing(*WIDE, KEPT, KEEP, below(THREAD, 32, BLOCKS)),
        "all threads meet where conditions part them by 32",
        "__syncthreads",
    ),
    "no barrier of the cluster": Fault(
        clustered(CLUSTER, COPIED, BLOCKS, SPREAD, CLUSTER), "with no barrier after a write"
    ),
    "blocks of a cluster that may not have begun": Fault(
        clustered(COPIED, CLUSTER, SPREAD),
        "kept of blocks is written that may not have begun",
        "which may not have begun",
    ),
    "blocks of a cluster that may have ended": Fault(
        clustered(CLUSTER, COPIED),
        "kept of blocks is written that may have ended",
        "may still use its block's shared memory|which has exited",
    ),
}


DATA = infix("<", at("x", constant(0)), 3)
OTHER = Buffer("other", FLOAT, COUNTERS, Memory.SCRATCH)
#: What nobody can follow, and what is no counter: the emulator has nothing against some of these.
REFUSED: dict[str, tuple[Lowered, str]] = {
    "where the data decides": (
        kernel(*BEGIN, If(DATA, None, (arrive(0),)), wait(0, GRID)),
        "whether blocks synchronise is not known",
    ),
    "where the data may skip it": (
        kernel(*BEGIN, tiles(Skip(DATA), arrive(0))),
        "whether blocks synchronise is not known",
    ),
    "where the data may skip it, by a condition": (
        kernel(*BEGIN, tiles(If(DATA, None, (Skip(infix("<", BLOCK, GRID)),)), arrive(0))),
        "whether blocks synchronise is not known",
    ),
    "as often as the data says": (
        kernel(*BEGIN, While((Leave(DATA), arrive(0)))),
        "blocks synchronise in a loop that the data ends",
    ),
    "up to where the data says": (
        kernel(*BEGIN, For(INT, "n", number(0), Cast(INT, at("x", Index())), body=(arrive(0),))),
        "how often blocks synchronise is not known",
    ),
    "a counter that the data names": (
        kernel(*BEGIN, Arrive("done", Cast(INT, at("x", Index())))),
        "for which counter, and which value, is not known",
    ),
    "a counter of each thread": (
        kernel(*BEGIN, arrive(T % COUNTERS)),
        "threads of a block differ in what they mean of done",
    ),
    "beyond the counters": (
        kernel(*BEGIN, arrive(COUNTERS), wait(COUNTERS, GRID)),
        f"done has {COUNTERS} elements, not {COUNTERS}",
    ),
    "counters that are floats": (
        kernel(*BEGIN, Arrive("between", number(0))),
        "between is no buffer of counters",
    ),
    "counters that are read": (
        kernel(*SHIFT, EVERYBODY, over_tiles(put("out", OWN, at("done", TILE)))),
        "done are counters, and not for this",
    ),
    "an input that is written": (
        kernel(*NUMBERS, put("x", T, number(0))),
        "x is written, and loads of it may not see that",
    ),
    "too often to be followed": (
        kernel(*BEGIN, For(INT, "n", number(0), number(1 << 30), body=(arrive(0),))),
        "blocks arrive and wait too often to be followed",
    ),
}
