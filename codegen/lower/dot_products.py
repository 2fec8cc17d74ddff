"""Dots whose results are the elements of a tile's rows: each operand is read once per row, or once
per column, and sums of dots that are alike are loops over their operands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from fusionstitch.codegen.ir.expressions import Element, Name, Number, element
from fusionstitch.codegen.ir.statements import Assign, Fill, Group, Table, unrolled
from fusionstitch.codegen.loops.stages import Stage, body_reads
from fusionstitch.codegen.lower.repeats import FEWEST, Repeat, repeat_of, runs
from fusionstitch.codegen.lower.sweeps import Key, zero_of
from fusionstitch.codegen.lower.tiled_rows import TiledRows
from fusionstitch.codegen.places.index import delinearize, variable
from fusionstitch.codegen.places.maps import Indices
from fusionstitch.codegen.text.types import c_type
from fusionstitch.hlo.graph import Op

#: Summed elements of a dot that are unrolled at once.
UNROLLED_DEPTH = 16


class ProductEmitter(TiledRows):
    """Adds up the products of a tile in registers."""

    def _products(self, dots: Sequence[Stage], op: Op) -> None:
        """Adds up all elements of all rows of `op`, the sum of `dots`, one summed index after the
        other: each operand is read once per row, or once per column."""
        zero = zero_of(op)
        start = self._start_product(dots[0]) if len(dots) == 1 else zero
        name = self._array(op, "_tile", self.rows * self.steps, start)
        many = len(dots) >= FEWEST
        bodies: list[Group] = []
        for stage in dots:
            self._bind_element()
            index = self._index(stage)
            with self.writer.nested(Group(), pinned=True) if many else nullcontext():
                self._add_product(stage, index, name, start is not None)
            last = self.writer.block.items[-1]
            bodies += [last] if many and isinstance(last, Group) else []
        if many:
            self._as_loop(dots, bodies)
        name, size = self._joined(dots[0], op, name)
        each = Element(Name(name), Name("i"))
        finished = self.values.finished(dots[0].op, each)
        if finished != each:
            self.writer.add(Fill(name, size, finished))
        self.element_arrays[op, index] = name

    def _as_loop(self, dots: Sequence[Stage], bodies: Sequence[Group]) -> None:
        """Turns the statements of several dots into a loop over their operands where they differ in
        nothing else."""
        loaded = [op for dot in dots for op, _ in dot.loads]
        computed = [stage.op for dot in dots for stage, _ in dot.reads]
        types = {self.memory.buffer(op): c_type(op.dtype).storage for op in (*loaded, *computed)}
        items = self.writer.block.items
        if [id(one) for one in items[-len(bodies) :]] != [id(body) for body in bodies]:
            return
        del items[-len(bodies) :]
        for first, end in runs(bodies, types):
            repeat = repeat_of(bodies[first:end], types) if end - first >= FEWEST else None
            if repeat is None:
                items += bodies[first:end]
            else:
                self._loop_over(repeat, types, end - first)

    def _loop_over(self, repeat: Repeat, types: Mapping[str, str], count: int) -> None:
        """The loop over the buffers of statements that repeat."""
        term = self.writer.name("term")
        tables: dict[str, tuple[str, str]] = {}
        kinds = {name: f"const {types[name]}*" for name in repeat.buffers}
        kinds |= dict.fromkeys(repeat.places, self.int)
        for name, values in (*repeat.buffers.items(), *repeat.places.items()):
            tables[name] = kinds[name], self.writer.name(f"{name}_terms")
            kind, table = tables[name]
            spelt: type[Name | Number] = Name if name in repeat.buffers else Number
            self.writer.add(Table(kind, table, tuple(map(spelt, values))))
        with self.writer.nested(replace(unrolled(term, count), unroll=2), pinned=True):
            for name, (kind, table) in tables.items():
                self.writer.let(kind, name, Element(Name(table), Name(term)))
            self.writer.add(repeat.body)

    def _joined(self, stage: Stage, op: Op, name: str) -> tuple[str, int]:
        """The array with the elements of `op`, a sum of dots of which `stage` is one, where all
        that a thread added up are in `name`; and its size."""
        return name, self.rows * self.steps

    def _load_early(self, sweep: Sequence[Stage]) -> None:
        """Loads what the elements of `sweep` need beside the dots, where it can wait there."""

    def _bind_element(self) -> None:
        """Binds the column of the current element."""
        self._bind_column(self.column)

    def _start_product(self, stage: Stage) -> Number | None:
        """What the sums of a dot start from; None if its first terms replace it."""
        return zero_of(stage.op)

    def _add_product(self, stage: Stage, index: Indices, name: str, started: bool) -> None:
        with self._depth(stage) as inner:
            once: dict[Key, str] = {}
            for source, at in body_reads(stage.op, index, inner):
                if not any(self.column.variables & i.variables for i in at):
                    once[source, at] = self._array(source, "_rows", self.rows)
            with self._rows():
                for (source, at), array in once.items():
                    value = self.values.value(source, at)
                    self.writer.add(Assign(element(array, self.row), value))
            with self._loop(self.step), self._column(guarded=False), self._rows(once):
                term = self.values.accumulated(stage.op, index, inner)
                self.writer.add(Assign(element(name, self._place()), term, "+"))

    @contextmanager
    def _depth(self, stage: Stage) -> Iterator[Indices]:
        """The loops over the summed index of a dot that runs inside each thread."""
        writer = self.writer
        leaves = self.axes.inner_leaves(stage)
        extents = [self.axes.extent(leaf) for leaf in leaves]
        depth = self.axes.size(leaves)
        unrolled = depth
        if depth > UNROLLED_DEPTH:
            unrolled = max(d for d in range(1, UNROLLED_DEPTH // 2 + 1) if depth % d == 0)
        outer = variable(writer.name("k_block"), depth // unrolled)
        inner = variable(writer.name("k"), unrolled)
        with self._loop(outer, 0), self._loop(inner):
            digits = delinearize(outer * unrolled + inner, extents)
            self.digits |= dict(zip(leaves, digits, strict=True))
            yield self._inner(stage)
