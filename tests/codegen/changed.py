"""Every template that differs from another in one part: a number, a level, a mark, a line, a place.

Values are the nearest others, whether a kernel can have them or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fusionstitch.codegen.schedule.template import (
    CLAUSES,
    HEADER,
    WORDS,
    Attr,
    Block,
    Level,
    Loop,
    Schedule,
    Template,
)

#: Bounds on what a thread holds and reads at once: most kernels stay below.
LIMITS = ("row_registers", "vector_bytes")


def changes(given: Template) -> Iterator[tuple[str, Template]]:
    """What is changed, and the template that it makes."""
    for name in HEADER:
        if name not in LIMITS and (value := getattr(given, name)) is not None:
            for other in _near(value):
                if other >= HEADER[name]:
                    yield f"{name}={other}", replace(given, **{name: other})
    for n, (name, parts) in enumerate(given.splits):
        rest = (*given.splits[:n], *given.splits[n + 1 :])
        yield f"no split of {name}", replace(given, splits=rest)
        for other in _near(parts):
            splits = (*given.splits[:n], (name, other), *given.splits[n + 1 :])
            yield f"split {name} into {other}", replace(given, splits=splits)
    for n, phase in enumerate(given.phases):
        around = given.phases[:n], given.phases[n + 1 :]
        for what, changed in _phases(phase):
            yield f"phase {n}: {what}", replace(given, phases=(*around[0], changed, *around[1]))
        if n:
            joined = (*given.phases[: n - 1], (*given.phases[n - 1], *phase), *around[1])
            yield f"no grid before phase {n}", replace(given, phases=joined)
            swapped = (*given.phases[: n - 1], phase, given.phases[n - 1], *around[1])
            yield f"phase {n} first", replace(given, phases=swapped)


def _near(value: int) -> list[int]:
    return sorted({value - 1, value + 1, value // 2, 2 * value} - {value, 0, -1})


def _phases(phase: tuple[Block, ...]) -> Iterator[tuple[str, tuple[Block, ...]]]:
    for n, block in enumerate(phase):
        for what, changed in _blocks(block):
            yield f"group {n}: {what}", (*phase[:n], changed, *phase[n + 1 :])
        if n:
            swapped = (*phase[: n - 1], block, phase[n - 1], *phase[n + 1 :])
            yield f"group {n} first", swapped
            one = Block((*phase[n - 1].loops, *block.loops), phase[n - 1].tile)
            yield f"group {n} merged", (*phase[: n - 1], one, *phase[n + 1 :])


def _blocks(block: Block) -> Iterator[tuple[str, Block]]:
    if block.tile is not None:
        for tile in _near(block.tile):
            yield f"tile={tile}", replace(block, tile=tile)
    for n, loop in enumerate(block.loops):
        before, after = block.loops[:n], block.loops[n + 1 :]
        for what, changed in _loops(loop):
            made = (*before, changed, *after) if changed else (*before, *after)
            if made:
                yield f"loop {n}: {what}", replace(block, loops=made)
        if n:
            last = block.loops[n - 1]
            swapped = (*block.loops[: n - 1], loop, last, *after)
            yield f"loop {n} first", replace(block, loops=swapped)
            one = replace(last, schedules=(*last.schedules, *loop.schedules))
            yield f"loop {n} merged", replace(block, loops=(*block.loops[: n - 1], one, *after))


def _loops(loop: Loop) -> Iterator[tuple[str, Loop | None]]:
    for name in CLAUSES:
        if (value := getattr(loop, name)) is not None:
            for other in _near(value):
                yield f"{name}={other}", replace(loop, **{name: other})
    for word in WORDS:
        parts = {} if word == "stream" else dict.fromkeys(("run", "lot", "shares"))
        if getattr(loop, word):
            yield f"no {word}", replace(loop, **{word: False}, **parts)
    lines = loop.schedules
    for n, line in enumerate(lines):
        for what, changed in _lines(line):
            yield what, replace(loop, schedules=(*lines[:n], changed, *lines[n + 1 :]))
        rest = (*lines[:n], *lines[n + 1 :])
        yield f"no {line.identifier}", replace(loop, schedules=rest) if rest else None
        if n:
            swapped = (*lines[: n - 1], line, lines[n - 1], *lines[n + 1 :])
            yield f"{line.identifier} first", replace(loop, schedules=swapped)


def _lines(line: Schedule) -> Iterator[tuple[str, Schedule]]:
    for mark in ("shared", "registers", "whole"):
        other = {mark: not getattr(line, mark)}
        if mark == "shared":
            other["registers"] = False
        if mark == "registers":
            other["shared"] = False
        yield f"{line} with other {mark}", replace(line, **other)
    for n, attr in enumerate(line.attrs):
        for changed in _attrs(attr):
            attrs = (*line.attrs[:n], changed, *line.attrs[n + 1 :])
            yield f"{line} with {changed}", replace(line, attrs=attrs)
    yield f"{line} without a dim", replace(line, attrs=line.attrs[1:] or line.attrs * 2)


def _attrs(attr: Attr) -> Iterator[Attr]:
    for n, part in enumerate(attr.parts):
        before, after = attr.parts[:n], attr.parts[n + 1 :]
        for level in Level:
            if level is not part.level:
                yield Attr((*before, replace(part, level=level), *after))
        for extent in _near(part.extent) if part.extent is not None else ():
            yield Attr((*before, replace(part, extent=extent), *after))
