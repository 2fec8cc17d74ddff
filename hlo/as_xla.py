"""Bringing a program that XLA has not simplified to the values that it would compute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from fusionstitch.hlo.algebra import ValueRule, Version
from fusionstitch.hlo.algebra_rules import XLA
from fusionstitch.hlo.edit import Editor, FreshNames, forget_order, put, sort_instructions
from fusionstitch.hlo.errors import VerifyError
from fusionstitch.hlo.graph import FLOATS, Graph, Module, Op, topological
from fusionstitch.hlo.importer import from_message
from fusionstitch.hlo.literals import fill_literal
from fusionstitch.hlo.rewrite import Make
from fusionstitch.hlo.simplify import Rewriter

_MAX_SWEEPS = 25


def as_xla(module: Module, version: Version) -> Module:
    """The module with the values that XLA of a version of jaxlib makes of it: its proto is edited
    by the rules of `algebra_rules.py`. What XLA has simplified comes back as it is."""
    rules, names = XLA.of(version), FreshNames(module.proto)
    computations = {c.id: c for c in module.proto.computations}
    changed = False
    for graph in module.stitchable:
        valued = _Valued(graph, rules)
        valued.run()
        if valued.other:
            editor = Editor(module.proto, computations[graph.proto_id], names)
            _Writer(editor, valued.instead).write(valued.other)
            changed = True
    if not changed:
        return module
    forget_order(module.proto)
    return from_message(module.proto)


class _Valued(Rewriter):
    """Applies rules that change values between those that do not. Equal ops stay apart: XLA counts
    the readers of an op before it merges equal ones."""

    def __init__(self, graph: Graph, rules: Mapping[str, tuple[ValueRule, ...]]):
        super().__init__(graph, {})
        self.rules = rules
        #: the ops whose values are other than those of their instructions, in their order
        self.other: dict[Op, None] = {}
        self.readers: Counter[Op] = Counter()

    def run(self) -> None:
        """Sweeps until nothing changes, or as often as XLA does at most: a long chain of products
        with constants is taken together by pairs."""
        for _ in range(_MAX_SWEEPS):
            if not self.sweep():
                return

    def sweep(self) -> bool:
        live = topological(self.root, [op for op in self.ops if op in self.pinned])
        self.readers = Counter(o for op in live for o in dict.fromkeys(op.operands))
        return super().sweep()

    def match(self, op: Op) -> Op | Make | None:
        result = super().match(op)
        if result is not None or op.source.left or not op.operands:
            return result
        if op.operands[0].dtype not in FLOATS:
            return None
        for row in self.rules.get(op.opcode, ()):
            if all(self.readers[op.operands[number]] <= 1 for number in row.alone):
                result = row.apply(op)
                if result is not None:
                    self.other[op] = None
                    return result
        return None

    def merge(self, op: Op, seen: dict[Hashable, Op]) -> Op | None:
        return None


class _Writer:
    """Writes ops of other values into a computation's proto; `instead` says what stands for an op
    that is gone."""

    def __init__(self, editor: Editor, instead: Mapping[Op, Op]):
        self.editor, self.instead = editor, instead
        #: the instructions of ops that had none
        self.made: dict[Op, Any] = {}

    def write(self, ops: Iterable[Op]) -> None:
        computation, news = self.editor.computation, dict[int, Any]()
        for op in ops:
            if op.origin is None:
                continue  # it is written where it is read
            source = self.editor.by_id[op.origin]
            if op not in self.instead:
                source.CopyFrom(self.content(op, source))
                continue
            while op in self.instead:
                op = self.instead[op]
            news[source.id] = self.instruction(op, source)
        self.editor.replace_each(news)
        if computation.root_id in news:
            computation.root_id = news[computation.root_id].id
        sort_instructions(computation)

    def content(self, op: Op, source: Any) -> Any:
        """An instruction that replaces `source`."""
        made = type(source)(name=source.name, id=source.id)
        for name in ("shape", "metadata", "sharding", "frontend_attributes"):
            if source.HasField(name):
                getattr(made, name).CopyFrom(getattr(source, name))
        self.fill(made, op, source)
        return made

    def instruction(self, op: Op, source: Any) -> Any:
        """That of an op, which stands for what `source` did if it has to be made."""
        if op.origin is not None:
            return self.editor.by_id[op.origin]
        if op not in self.made:
            made = self.editor.add(op.opcode, op.shape, (), source)
            self.fill(made, op, source)
            self.made[op] = made
        return self.made[op]

    def fill(self, made: Any, op: Op, source: Any) -> None:
        made.opcode = op.opcode
        put(made.operand_ids, [self.instruction(o, source).id for o in op.operands])
        match op.opcode:
            case "constant":
                fill_literal(made.literal, op.attrs["value"], made.shape)
            case "broadcast":
                made.dimensions.extend(op.attrs["dimensions"])
            case "compare":
                made.comparison_direction = op.attrs["direction"]
            case _ if op.attrs:
                raise VerifyError(f"{op!r} cannot be written. This is a defect of fusionstitch.")
