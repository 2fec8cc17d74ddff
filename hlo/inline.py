"""Inlining calls in a module's proto: lowered programs come with one function per jitted callee,
and one body for all loops that run the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fusionstitch.hlo.calls import callees_first
from fusionstitch.hlo.copying import copied, sort_computations
from fusionstitch.hlo.edit import (
    Editor,
    FreshIds,
    FreshNames,
    drop_uncalled,
    entry_of,
    put,
    sort_instructions,
)
from fusionstitch.hlo.errors import ImportModuleError, VerifyError
from fusionstitch.hlo.importer import parse
from fusionstitch.hlo.marks import LEAVE, mark_of
from fusionstitch.hlo.semantics import Kind, kind_of

#: Instructions that loops get of their own at most, in all: of a larger module they share bodies.
MOST_COPIED = 10_000


def inline_calls(data: bytes) -> bytes:
    """The module with every plain `call` replaced by a copy of its callee's instructions, and every
    `map` by one elementwise op replaced by that.

    A call stays when it says more than "run this": frontend attributes (such as "run this on
    the host"), a backend config, a sharding, or a callee on another execution thread. Inlined
    instructions take over the call's control dependences; their op names get the call's as
    prefix. Loops get conditions and bodies of their own, also where no call was.
    Raises ImportModuleError for bytes that are no HloModuleProto or contradict themselves, and
    where `callees_first` does.
    """
    module = parse(data)
    inliner = _Inliner(module)
    for computation in callees_first(module):
        try:
            inliner.run(computation)
        except (KeyError, IndexError, VerifyError) as error:
            raise ImportModuleError(
                f"The calls in {computation.name} cannot be followed ({error}); export the module "
                "again."
            ) from None
    if inliner.inlined:
        entry_of(module)
        drop_uncalled(module)
    if not _part_loops(module) and not inliner.inlined:
        return data
    return module.SerializeToString(deterministic=True)


def _part_loops(module: Any) -> bool:
    """Gives each loop a condition and a body that no other loop runs: they may be rewritten.
    Whether there was one without."""
    loops = [(c, i) for c in module.computations for i in c.instructions if i.opcode == "while"]
    runs = Counter(ident for _, loop in loops for ident in loop.called_computation_ids)
    if max(runs.values(), default=0) < 2:
        return False
    parted = False
    names, before = FreshNames(module), _size(module)
    by_id = {c.id: c for c in module.computations}
    position = {c.id: number for number, c in enumerate(callees_first(module))}
    run: set[int] = set()
    for computation, loop in sorted(loops, key=lambda one: -position[one[0].id]):  # callers first
        shared = run.intersection(loop.called_computation_ids)
        run.update(loop.called_computation_ids)
        if not shared or _size(module) - before > MOST_COPIED:
            continue
        editor = Editor(module, computation, names)
        own = [
            copied(editor, by_id[i])[0].id if i in shared else i
            for i in loop.called_computation_ids
        ]
        put(loop.called_computation_ids, own)
        parted = True
    if parted:
        sort_computations(module)
    return parted


def _size(module: Any) -> int:
    return sum(len(computation.instructions) for computation in module.computations)


class _Inliner:
    def __init__(self, module: Any):
        self.module = module
        self.computations = {c.id: c for c in module.computations}
        self.names = FreshNames(module)
        self.inlined: set[int] = set()

    def run(self, computation: Any) -> None:
        """Inlines the calls of one computation; those of its callees already are."""
        for one in computation.instructions:
            if one.opcode == "map":
                self.unmap(one)
        calls = [i for i in computation.instructions if self.is_plain(i)]
        if calls:
            self.inline(computation, calls)

    def unmap(self, one: Any) -> None:
        """Makes a map by a body of one elementwise op that op: XLA joins the blocks of a running
        reduction so."""
        callee = self.computations[one.called_computation_ids[0]]
        inner = {i.id: i for i in callee.instructions}
        root = inner[callee.root_id]
        while root.opcode == "get-tuple-element" and inner[root.operand_ids[0]].opcode == "tuple":
            root = inner[inner[root.operand_ids[0]].operand_ids[root.tuple_index]]
        read = [inner[i] for i in root.operand_ids]
        if kind_of(root.opcode) is not Kind.ELEMENTWISE or any(
            i.opcode != "parameter" for i in read
        ):
            return
        before = type(one)()
        before.CopyFrom(one)
        one.CopyFrom(root)
        one.id, one.name = before.id, before.name
        one.shape.CopyFrom(before.shape)
        one.metadata.CopyFrom(before.metadata)
        _replace(one.operand_ids, [before.operand_ids[i.parameter_number] for i in read])
        _replace(one.control_predecessor_ids, before.control_predecessor_ids)
        self.inlined.add(callee.id)

    def is_plain(self, instruction: Any) -> bool:
        if instruction.opcode != "call" or len(instruction.called_computation_ids) != 1:
            return False
        callee = self.computations[instruction.called_computation_ids[0]]
        return not (
            instruction.frontend_attributes.map
            or instruction.backend_config
            or instruction.HasField("sharding")
            or callee.execution_thread not in ("", "main")
        )

    def inline(self, computation: Any, calls: list[Any]) -> None:
        fresh = FreshIds(self.module, computation)
        instead: dict[int, int] = {}
        #: call id -> the ids of its inlined instructions
        bodies: dict[int, list[int]] = {}
        for call in calls:
            callee = self.computations[call.called_computation_ids[0]]
            copied = {
                i.id: call.operand_ids[i.parameter_number] if i.opcode == "parameter" else fresh()
                for i in callee.instructions
            }
            bodies[call.id] = [
                self.copy(computation, inner, call, callee, copied)
                for inner in callee.instructions
                if inner.opcode != "parameter"
            ]
            instead[call.id] = copied[callee.root_id]
            self.inlined.add(callee.id)
        _rewire(computation, instead, bodies)
        sort_instructions(computation)

    def copy(
        self, computation: Any, inner: Any, call: Any, callee: Any, copied: dict[int, int]
    ) -> int:
        """Adds a copy of a callee's instruction to the caller; returns its id."""
        new = computation.instructions.add()
        new.CopyFrom(inner)
        new.id = copied[inner.id]
        new.name = self.names(inner.name)
        _replace(new.operand_ids, [copied[i] for i in inner.operand_ids])
        before = [copied[i] for i in inner.control_predecessor_ids]
        _replace(new.control_predecessor_ids, [*before, *call.control_predecessor_ids])
        prefix = call.metadata.op_name
        if mark_of(callee.name) and not mark_of(prefix):  # a text may come without metadata
            prefix = "/".join(filter(None, (prefix, LEAVE)))
        if prefix and not new.metadata.op_name.startswith(prefix):
            new.metadata.op_name = "/".join(filter(None, (prefix, new.metadata.op_name)))
        return new.id


def _rewire(computation: Any, instead: dict[int, int], bodies: dict[int, list[int]]) -> None:
    """Makes readers and control successors of the inlined calls refer to what replaced them."""

    def resolve(ident: int) -> int:
        for _ in range(len(instead) + 1):
            if ident not in instead:
                return ident
            ident = instead[ident]
        raise KeyError(f"call {ident} waits for its own result")

    def moved(ident: int) -> list[int]:
        if ident not in bodies:
            return [ident]
        return bodies[ident] or [resolve(ident)]

    for index in reversed(range(len(computation.instructions))):
        if computation.instructions[index].id in bodies:
            del computation.instructions[index]
    for instruction in computation.instructions:
        if any(i in instead for i in instruction.operand_ids):
            _replace(instruction.operand_ids, [resolve(i) for i in instruction.operand_ids])
        if any(i in bodies for i in instruction.control_predecessor_ids):
            before = [m for i in instruction.control_predecessor_ids for m in moved(i)]
            _replace(instruction.control_predecessor_ids, list(dict.fromkeys(before)))
    computation.root_id = resolve(computation.root_id)


def _replace(repeated: Any, values: list[int]) -> None:
    del repeated[:]
    repeated.extend(values)
