"""Templates that fit equal regions of other programs, where ops have other names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fusionstitch.codegen.schedule.labels import labels, numbered_labels
from fusionstitch.codegen.schedule.template import COPY, Block, Loop, Schedule, Template
from fusionstitch.hlo.graph import Graph


def numbered(template: Template, graph: Graph, before: Graph) -> Template:
    """A template in the names of a region with ops called by what they do and their number; splits
    are those of the region `before` it."""
    lines, splits = (
        {name: numbers[i] for i, name in labels(region).items()}
        for region, numbers in ((graph, numbered_labels(graph)), (before, numbered_labels(before)))
    )
    named = _renamed(template, lines)
    return replace(named, splits=tuple((splits[name], n) for name, n in template.splits))


def in_own_names(template: Template, graph: Graph) -> Template:
    """A template with ops called as a region's are, for what calls them by their numbers."""
    own = labels(graph)
    return _renamed(template, {number: own[i] for i, number in numbered_labels(graph).items()})


def _renamed(template: Template, names: Mapping[str, str]) -> Template:
    """A template whose lines have other names, as far as there are any."""

    def line(one: Schedule) -> Schedule:
        copy = COPY if one.is_copy else ""
        return replace(one, identifier=names.get(one.op, one.op) + copy)

    def loop(one: Loop) -> Loop:
        return replace(one, schedules=tuple(map(line, one.schedules)))

    def block(one: Block) -> Block:
        return replace(one, loops=tuple(map(loop, one.loops)))

    phases = tuple(tuple(map(block, phase)) for phase in template.phases)
    return replace(template, flat=tuple(map(line, template.flat)), phases=phases)
