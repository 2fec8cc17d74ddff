"""Splits by what templates call their sums: read from a template, and named for one."""

from __future__ import annotations

from collections.abc import Sequence

from fusionstitch.codegen.rewrite.extents import reduced_size
from fusionstitch.codegen.schedule.labels import labels, numbered_labels
from fusionstitch.codegen.schedule.split import Split, Splits, can_split, possible_parts
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph


def named(graph: Graph, splits: Splits) -> tuple[tuple[str, int], ...]:
    """What is split, by what templates call it, and into how many parts."""
    if not splits:
        return ()
    names = labels(graph)
    return tuple((names[i], split.parts) for i, split in sorted(splits.items()))


def requested_splits(graph: Graph, requested: Sequence[tuple[str, int]]) -> Splits:
    """The splits that a template requests. Raises CodegenError for what cannot be split so."""
    names = (*labels(graph).items(), *numbered_labels(graph).items())
    ops = {name: graph.ops[i] for i, name in names}
    found: dict[int, Split] = {}
    for name, count in requested:
        if name not in ops or not can_split(ops[name]):
            raise CodegenError(
                f"split {name}: the region has no sum of that name whose parts may be joined in "
                "any order."
            )
        if ops[name].id in found:
            raise CodegenError(f"split {name}: the template says it twice.")
        size = reduced_size(ops[name])
        if count > size or (possible := possible_parts(ops[name], count)) != count:
            most = min(size, possible) if count <= size else size
            raise CodegenError(
                f"split {name} into {count}: its {size} elements go into {most} parts, none empty."
            )
        found[ops[name].id] = Split(count)
    return found
