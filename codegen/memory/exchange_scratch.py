"""Shared memory through which the threads of a nest exchange values while they walk it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fusionstitch.codegen.dots.streams import layouts_of
from fusionstitch.codegen.loops.nests import Role
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.schedule import sorts
from fusionstitch.codegen.schedule.bins import bins_bytes, warps_of
from fusionstitch.codegen.schedule.schedule import GroupPlan, NestPlan, slot_bytes
from fusionstitch.codegen.text.types import compute_bytes


@dataclass(frozen=True)
class ExchangeBuffer:
    """Scratch in which threads of a nest exchange values: partial results of `stages` lie there, or
    what a streamed dot reads."""

    nest: NestPlan
    stages: tuple[Stage, ...]


def exchange_buffers(
    nest: NestPlan, group: GroupPlan, block: int, cluster: int
) -> Iterator[tuple[ExchangeBuffer, int]]:
    """The exchange buffers that a nest of a group needs, and their bytes, in a kernel of blocks of
    `block` threads, `cluster` of which share each row."""
    if nest.tile is not None:
        yield from _of_tile(nest, group, block)
        return
    for stage in nest.nest.with_role(Role.BINS):
        yield ExchangeBuffer(nest, (stage,)), warps_of(stage.op, block) * bins_bytes(stage.op)
    for stage in nest.nest.with_role(Role.SORT):
        if size := sorts.shared_bytes(stage.op, nest.teams.threads, block):
            yield ExchangeBuffer(nest, (stage,)), size
    reduced = nest.nest.with_role(Role.REDUCE)
    if nest.teams.joins_warps:  # warps join what they have of all sums of a level at once
        for level in sorted({nest.nest.level[s] for s in reduced}):
            joined = tuple(s for s in reduced if nest.nest.level[s] == level)
            yield ExchangeBuffer(nest, joined), sum(slot_bytes(s.op.dtype, cluster) for s in joined)
    each: dict[Stage, int] = {}
    if nest.teams.threads < block:
        most = nest.most_per_thread()
        each |= {s: most * compute_bytes(s.op.dtype) for s in nest.nest.with_role(Role.CARRY)}
    if nest.teams.columns:
        each |= {s: compute_bytes(s.op.dtype) for s in reduced}
    if each:
        yield ExchangeBuffer(nest, tuple(each)), block * max(each.values())


def _of_tile(nest: NestPlan, group: GroupPlan, block: int) -> Iterator[tuple[ExchangeBuffer, int]]:
    tile, products = nest.tile, nest.nest.products
    assert tile is not None
    if tile.columns:
        for stage, layout in layouts_of(group.group, nest.nest).items():
            yield ExchangeBuffer(nest, (stage,)), layout.bytes_of(tile.columns)
    if tile.shares > 1:
        each = max(compute_bytes(s.op.dtype) for s in products)
        yield (
            ExchangeBuffer(nest, tuple(products)),
            block * (tile.rows * tile.steps + tile.unit) * each,
        )
