"""Grown kernels in which blocks wait for each other: chains of stages, each of which makes tiles
out of tiles of others, in any way to share them out, to lay them out, and to wait for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fusionstitch.codegen.index_maps.index import Index, variable
from fusionstitch.codegen.ir.expressions import BLOCK, THREAD, Expr, infix, least, number
from fusionstitch.codegen.ir.kernel import Buffer, Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.statements import Arrive, For, If, Let, Statement, Wait
from fusionstitch.codegen.ir.types import FLOAT, INT, WORD
from fusionstitch.codegen.ir.walk import FRAMES, statements, with_bodies
from tests.codegen.synchronised import (
    ELEMENTS,
    EVERYBODY,
    THREADS,
    TILES,
    arrive,
    at,
    put,
    wait,
)

#: Tiles that share a counter, where some do.
GROUP = 2
T = variable("t", THREADS)


@dataclass(frozen=True)
class Stage:
    """Makes `tiles` tiles, each out of those of stage `source` (-1: the input) at the places
    `factor * tile + offset` of `reads`, of each element the one `shift` further. `apart`: elements
    of a tile lie between those of others. Blocks have every grid-th tile, parts of them, or one
    block all. It waits for a counter of each tile, of groups, of all, or at a barrier of the grid.
    `over` is the stage whose memory it writes to, if that is not its own."""

    tiles: int
    source: int
    reads: tuple[tuple[int, int], ...]
    shift: int
    apart: bool
    shared_out: str
    edge: str
    over: int | None = None


@dataclass(frozen=True)
class Grown:
    """Stages for so many blocks; the last one makes the output."""

    grid: int
    stages: tuple[Stage, ...]


_STAGES = st.builds(
    Stage,
    tiles=st.sampled_from([2, 4, 6, TILES]),
    source=st.integers(-1, 3),
    reads=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 7)), min_size=1, max_size=3).map(
        tuple
    ),
    shift=st.integers(0, 40),
    apart=st.booleans(),
    shared_out=st.sampled_from(["strided", "strided", "parts", "one"]),
    edge=st.sampled_from(["each", "each", "groups", "all", "grid"]),
    over=st.none() | st.integers(0, 2),
)


@st.composite
def grown(draw: st.DrawFn) -> Grown:
    """Programs of two to five stages."""
    drawn = draw(st.lists(_STAGES, min_size=2, max_size=5))
    stages: list[Stage] = []
    for n, one in enumerate(drawn):
        last = n == len(drawn) - 1
        source = _readable(stages, min(one.source, n - 1))
        tiles, over = (TILES, None) if last else (one.tiles, one.over)
        if over is not None and not _may_be_over(stages, over, tiles, source):
            over = None
        stages.append(replace(one, source=source, tiles=tiles, over=over))
    return Grown(draw(st.integers(1, 5)), tuple(stages))


def _readable(stages: list[Stage], source: int) -> int:
    """A stage whose memory still holds what it made: the last before it that is so."""
    while source >= 0 and any(later.over == source for later in stages):
        source -= 1
    return source


def _may_be_over(stages: list[Stage], over: int, tiles: int, source: int) -> bool:
    """Whether a stage may write to the memory of another one, which no other one does."""
    if over >= len(stages) or source == over:
        return False
    taken = any(one.over == over for one in stages) or stages[over].over is not None
    return not taken and stages[over].tiles == tiles


def examples(count: int) -> list[Grown]:
    """So many programs, the same each time."""
    found: list[Grown] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(grown())
    def find(one: Grown) -> None:
        found.append(one)

    find()
    return found


# ---- what it computes ----------------------------------------------------------------------------


def wanted(one: Grown, x: np.ndarray) -> np.ndarray:
    """The output, by NumPy."""
    made: list[np.ndarray] = []
    for n, stage in enumerate(one.stages):
        source = x.reshape(TILES, THREADS) if stage.source < 0 else made[stage.source]
        turned = np.roll(source, -stage.shift, axis=1)
        tiles = np.arange(stage.tiles)
        parts = [turned[(tiles * f + o) % len(source)] for f, o in stage.reads]
        made.append(np.sum(parts, axis=0, dtype=np.float32) + np.float32(n + 1))
    return _laid_out(one.stages[-1], made[-1])


def _laid_out(stage: Stage, tiles: np.ndarray) -> np.ndarray:
    return (tiles.T if stage.apart else tiles).ravel()


# ---- the kernel ----------------------------------------------------------------------------------


class _Writer:
    def __init__(self, one: Grown):
        self.one = one
        #: where the counters of each stage begin: of tiles, of groups, and of all
        self.first = [n * 2 * TILES for n in range(len(one.stages))]

    def kernel(self) -> Lowered:
        counters = 2 * TILES * len(self.one.stages)
        zero = For(INT, "t0", THREAD, number(counters), step=THREADS)
        zero = replace(zero, body=(put("done", variable("t0", counters), number(0)),))
        body = [Let(INT, "t", THREAD), If(infix("<", BLOCK, 1), None, (zero,)), EVERYBODY]
        for n, stage in enumerate(self.one.stages):
            body += self.stage(n, stage)
        last = len(self.one.stages) - 1
        own = [n for n, s in enumerate(self.one.stages[:-1]) if s.over is None]
        sizes = {n: self.one.stages[n].tiles * THREADS for n in own}
        buffers = (
            Buffer("x", FLOAT, ELEMENTS, Memory.INPUT),
            Buffer(self.buffer(last), FLOAT, ELEMENTS, Memory.OUTPUT),
            *(Buffer(f"made_{n}", FLOAT, sizes[n], Memory.SCRATCH) for n in own),
            Buffer("done", WORD, counters, Memory.SCRATCH),
        )
        return Lowered(
            *("k", buffers, (), tuple(body), THREADS, 1, self.one.grid, 0), cooperative=True
        )

    def buffer(self, n: int) -> str:
        if n < 0:
            return "x"
        stage = self.one.stages[n]
        return f"made_{n if stage.over is None else stage.over}"

    def stage(self, n: int, stage: Stage) -> Iterator[Statement]:
        if stage.edge == "grid":
            yield EVERYBODY
        if stage.over is not None:  # all that made or read what it writes over
            for other in (stage.over, *self.readers(stage.over, n)):
                yield self.all_of(other)
        tile = variable(f"tile_{n}", stage.tiles)
        source = self.one.stages[stage.source] if stage.source >= 0 else None
        tiles = source.tiles if source else TILES
        indices = [(tile * f + o) % tiles for f, o in stage.reads]
        body: list[Statement] = []
        if source and stage.edge != "grid":
            body += (self.waited(stage.source, stage.edge, place) for place in indices)
        other = (T + stage.shift % THREADS) % THREADS
        loads: list[Expr] = [
            at(self.buffer(stage.source), _element(source, tiles, place, other))
            for place in indices
        ]
        total = infix("+", *loads, number(n + 1)) if loads else number(n + 1)
        body += [put(self.buffer(n), _element(stage, stage.tiles, tile, T), total)]
        counters = {
            "each": tile + self.first[n],
            "groups": tile // GROUP + self.first[n] + TILES,
            "all": self.first[n] + 2 * TILES - 1,
        }
        body += (arrive(counters[edge]) for edge in counters if edge in self.edges(n))
        yield self.loop(stage, f"tile_{n}", tuple(body))

    def edges(self, n: int) -> set[str]:
        """How others wait for a stage."""
        stages = self.one.stages
        found = {one.edge for one in stages if one.source == n}
        over = (m for m, one in enumerate(stages) if one.over is not None)
        freed = any(stages[m].over == n or n in self.readers(stages[m].over, m) for m in over)
        return found | {"all"} if freed else found

    def readers(self, n: int | None, until: int) -> Iterator[int]:
        """The stages that read what a stage made."""
        return (m for m in range(until) if self.one.stages[m].source == n)

    def waited(self, n: int, edge: str, place: Index) -> Wait:
        if edge == "each":
            return wait(place + self.first[n], 1)
        if edge == "groups":
            return wait(place // GROUP + self.first[n] + TILES, GROUP)
        return self.all_of(n)

    def all_of(self, n: int) -> Wait:
        return wait(self.first[n] + 2 * TILES - 1, self.one.stages[n].tiles)

    def loop(self, stage: Stage, name: str, body: tuple[Statement, ...]) -> Statement:
        tiles, grid = stage.tiles, self.one.grid
        if stage.shared_out == "strided":
            return For(INT, name, BLOCK, number(tiles), step=grid, body=body)
        if stage.shared_out == "one":
            alone = For(INT, name, number(0), number(tiles), body=body)
            return If(infix("==", BLOCK, tiles % grid), None, (alone,))
        each = -(-tiles // grid)
        first = infix("*", BLOCK, each)
        end = least(INT, infix("+", first, each), tiles)
        return For(INT, name, first, end, body=body)


def _element(stage: Stage | None, tiles: int, tile: Index, thread: Index) -> Index:
    apart = stage is not None and stage.apart
    return thread * tiles + tile if apart else tile * THREADS + thread


def lowered(one: Grown) -> Lowered:
    """The statements of a grown program."""
    return _Writer(one).kernel()


# ---- faults --------------------------------------------------------------------------------------


def mutants(kernel: Lowered) -> Iterator[Lowered]:
    """The kernel without one of its statements at which blocks arrive, wait or meet."""
    for one in statements(kernel.body):
        if isinstance(one, (Arrive, Wait)) or one is EVERYBODY:
            yield replace(kernel, body=_without(kernel.body, one))


def _without(body: tuple[Statement, ...], missing: Statement) -> tuple[Statement, ...]:
    """Statements without the first occurrence of a certain one."""
    found: list[Statement] = []
    for number_, one in enumerate(body):
        if one is missing:
            return (*found, *body[number_ + 1 :])
        if isinstance(one, FRAMES):
            inner = with_bodies(one, lambda b: _without(b, missing))
            if inner != one:
                return (*found, inner, *body[number_ + 1 :])
        found.append(one)
    return tuple(found)
