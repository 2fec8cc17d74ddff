"""Stages, groups and nests as text: which loops a kernel has, and what each of them reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusionstitch.codegen.index_maps.index import Index, Term, Var
from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.loops.groups import Group
from fusionstitch.codegen.loops.nests import Nest
from fusionstitch.codegen.loops.pieces import Piece
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.schedule.schedule import KernelPlan
from fusionstitch.codegen.snapshots.page import counted, label, page, table


def stages_text(stages: Sequence[Stage]) -> str:
    """What each stage computes, the indices it runs over, and where it reads."""
    lines = [counted(len(stages), "stage")]
    for stage in stages:
        lines += ["", f"stage {stage.number}: {label(stage.op)}", *table(_stage(stage))]
    return page(lines)


def _stage(stage: Stage) -> Iterator[tuple[str, str]]:
    yield "computes", f"{stage.op.shape} {stage.op.opcode}{_kind(stage)}"
    yield "over", _extents(stage.dims, stage.op.dims) or "one element"
    if stage.is_reduction:
        yield "sums along", _extents(stage.inner, stage.inner_extents)
    for producer, index in stage.reads:
        yield "reads", f"stage {producer.number} {_at(index)}"
    for op, index in stage.loads:
        yield "loads", f"{label(op)} {_at(index)}"
    for cut in stage.cuts:
        how = "a piece of which it is" if isinstance(cut, Piece) else "a slice of it"
        yield "stores", f"{label(cut.output)}, {how}"
    if stage.inlined:
        yield "inlines", ", ".join(f"%{i}" for i in sorted(stage.inlined))


def _kind(stage: Stage) -> str:
    if stage.optional:
        return ", kept for who can reach it"
    return ", computed once" if stage.whole else ""


def _extents(index: Indices, extents: Sequence[int]) -> str:
    return ", ".join(f"{i} < {n}" for i, n in zip(index, extents, strict=True))


def _at(index: Indices) -> str:
    return f"[{', '.join(map(_index, index))}]"


def _index(index: Index) -> str:
    """An index; where data decides, whose."""
    if not index.fetched:
        return str(index)
    known = tuple((term, c) for term, c in index.terms if _is_known(term))
    whose = ", ".join(dict.fromkeys(f"%{value.op.id}" for value in index.fetched))
    rest = Index(known, index.const)
    return f"by {whose}" + (f" + {rest}" if known or index.const else "")


def _is_known(term: Term) -> bool:
    return isinstance(term, Var) or not Index(((term, 1),)).fetched


def groups_text(plan: KernelPlan) -> str:
    """The stages that share blocks, their axes, and the nests of loops inside a block."""
    lines = [counted(len(plan.groups), "group")]
    for number, group in enumerate(plan.groups):
        axes = _Axes(group.group)
        lines += ["", f"group {number}", *table(axes.described())]
        for count, nest in enumerate(group.nests):
            lines += ["", f"  nest {count}", *table(_nest(nest.nest, axes), 4)]
    return page(lines)


class _Axes:
    """The atomic axes of a group, named in the order in which they are met."""

    def __init__(self, group: Group):
        self.group = group
        self.names: dict[int, str] = {}
        for leaves in (group.grid, *map(group.axes.leaves, group.stages)):
            self.named(leaves)

    def named(self, leaves: Sequence[int]) -> str:
        """Axes by name."""
        return " ".join(self.names.setdefault(x, f"a{len(self.names)}") for x in leaves) or "none"

    def described(self) -> Iterator[tuple[str, str]]:
        axes = self.group.axes
        summed = [x for s in self.group.stages for x in axes.inner_leaves(s)]
        self.named(summed)
        yield "axes", ", ".join(f"{n} < {axes.extent(x)}" for x, n in self.names.items()) or "none"
        yield "over blocks", self.named(self.group.grid)
        if self.group.dot_axes is not None:
            rows, columns = self.group.dot_axes
            how = "walked by blocks of columns" if self.group.streamed else "a tile of its own"
            yield "held", f"rows {self.named([rows])}, columns {self.named([columns])}: {how}"
        for stage in self.group.stages:
            inside = f", along {self.named(axes.inner_leaves(stage))}" if stage.is_reduction else ""
            over = self.named(axes.leaves(stage))
            yield f"stage {stage.number}", f"{label(stage.op)}: over {over}{inside}"


def _nest(nest: Nest, axes: _Axes) -> Iterator[tuple[str, str]]:
    yield "rows", axes.named(nest.rows)
    yield "along a row", axes.named(nest.inner)
    for level in range(nest.levels):
        for stage in nest.at(level):
            what = f"stage {stage.number} {label(stage.op)}"
            yield f"sweep {level}", f"{nest.role[stage].value:7} {what}"
