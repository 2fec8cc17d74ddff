"""A module cut at custom calls that the caller executes: the parts between them as modules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fusionstitch.hlo import schema
from fusionstitch.hlo.edit import FreshIds, FreshNames, drop_uncalled, entry_of, put
from fusionstitch.hlo.errors import ImportModuleError
from fusionstitch.hlo.importer import parse

#: A value of the entry computation: the instruction that gives it, and which of its results it is
#: (0 unless a call that is cut at gives several).
Value = tuple[int, int]

_NUMBER = re.compile(r"\bnumber = (\d+)")


@dataclass(frozen=True)
class Part:
    """A module (HloModuleProto bytes) of what lies between calls; it returns a tuple."""

    module: bytes
    takes: tuple[Value, ...]
    gives: tuple[Value, ...]


@dataclass(frozen=True)
class Call:
    """A call that the module was cut at, by its number."""

    number: int
    takes: tuple[Value, ...]
    gives: tuple[Value, ...]


@dataclass(frozen=True)
class Parted:
    """What to do one after the other, from the values of the parameters to the results."""

    parameters: tuple[Value, ...]
    steps: tuple[Part | Call, ...]
    results: tuple[Value, ...]


def part(data: bytes, target: str) -> Parted:
    """Cuts a module at its custom calls of `target`, which have an attribute `number` each. What
    orders them is what they read; each part is as large as can be.

    Raises ImportModuleError for a module that cannot be cut: a call in another computation than the
    entry, a tuple that goes from part to part, a root that is no tuple and has several results.
    """
    return _Parter(parse(data), target).run()


class _Parter:
    def __init__(self, module: Any, target: str):
        self.module, self.entry = module, entry_of(module)
        self.by_id = {one.id: one for one in self.entry.instructions}
        self.root = self.by_id[self.entry.root_id]
        self.calls = {
            one.id: _number(one)
            for one in self.entry.instructions
            if one.custom_call_target == target
        }
        every = (one for each in module.computations for one in each.instructions)
        if sum(one.custom_call_target == target for one in every) != len(self.calls):
            raise ImportModuleError(f"A call of {target} lies inside of another computation.")
        #: after how many rounds of calls an instruction can run
        self.levels: dict[int, int] = {}

    def run(self) -> Parted:
        for ident in self.by_id:
            self._assign(ident)
        results = self._results()
        calls = {
            ident: Call(
                self.calls[ident],
                tuple(self._value(i) for i in self.by_id[ident].operand_ids),
                tuple((ident, n) for n in range(max(1, len(self.by_id[ident].shape.tuple_shapes)))),
            )
            for ident in sorted(self.calls, key=self.calls.__getitem__)
        }
        read = {*results, *(value for call in calls.values() for value in call.takes)}
        takes: dict[int, tuple[Value, ...]] = {}
        for level in sorted({*self.levels.values()}):
            takes[level] = self._border(level)
            read.update(takes[level])
        steps: list[Part | Call] = []
        for level, given in takes.items():
            here = (value for value in read if self.levels[value[0]] == level)
            gives = sorted(value for value in here if self._is_within(value[0], level))
            if gives:
                steps.append(Part(self._module(level, given, gives), given, tuple(gives)))
            steps += [call for ident, call in calls.items() if self.levels[ident] == level]
        parameters = [one for one in self.entry.instructions if one.opcode == "parameter"]
        parameters.sort(key=lambda one: one.parameter_number)
        return Parted(tuple((one.id, 0) for one in parameters), tuple(steps), tuple(results))

    def _assign(self, start: int) -> None:
        """Finds the level of an instruction, after those of what it needs."""
        stack = [start]
        while stack:
            one = self.by_id[stack[-1]]
            needs = (*one.operand_ids, *one.control_predecessor_ids)
            if missing := [i for i in needs if i not in self.levels]:
                stack += missing
                continue
            found = (self.levels[i] + (i in self.calls) for i in needs)
            self.levels.setdefault(stack.pop(), max(found, default=0))

    def _results(self) -> list[Value]:
        if self.root.opcode == "tuple":
            return [self._value(i) for i in self.root.operand_ids]
        if self.root.shape.tuple_shapes:
            raise ImportModuleError("The results are those of one instruction.")
        return [self._value(self.root.id)]

    def _value(self, ident: int) -> Value:
        """What an operand is, if it is no tuple."""
        one = self.by_id[ident]
        if one.opcode == "get-tuple-element" and one.operand_ids[0] in self.calls:
            return one.operand_ids[0], one.tuple_index
        if one.shape.tuple_shapes:
            raise ImportModuleError(f"The tuple {one.name} goes from part to part.")
        return ident, 0

    def _is_within(self, ident: int, level: int) -> bool:
        """Whether a part has an instruction of its own: what it computes, and what costs nothing
        to have once more."""
        one = self.by_id[ident]
        if one.opcode == "tuple":
            return True
        if one.opcode == "parameter" or ident in self.calls:
            return False
        if one.opcode == "get-tuple-element" and one.operand_ids[0] in self.calls:
            return False
        return self.levels[ident] == level or not one.operand_ids

    def _own(self, level: int) -> list[Any]:
        """The instructions of a part in their order."""
        results = self.root.id if self.root.opcode == "tuple" else None
        stack = [i for i, at in self.levels.items() if at == level and i != results]
        # what loads the kernels of a module stands alone, and runs before any of them
        stack += [i for i, one in self.by_id.items() if _stands_alone(one)]
        own: set[int] = set()
        while stack:
            ident = stack.pop()
            if ident not in own and self._is_within(ident, level):
                own.add(ident)
                stack += self.by_id[ident].operand_ids
        return [one for one in self.entry.instructions if one.id in own]

    def _border(self, level: int) -> tuple[Value, ...]:
        """What a part takes."""
        read = (i for one in self._own(level) for i in one.operand_ids)
        found = (self._value(i) for i in read if not self._is_within(i, level))
        return tuple(dict.fromkeys(found))

    def _module(self, level: int, takes: Sequence[Value], gives: Sequence[Value]) -> bytes:
        module = schema.HloModule()
        module.CopyFrom(self.module)
        for field in ("schedule", "input_output_alias", "host_program_shape"):
            module.ClearField(field)
        entry = entry_of(module)
        fresh, names = FreshIds(module, entry), FreshNames(module)
        del entry.instructions[:]
        instead: dict[Value, int] = {}
        for number, value in enumerate(takes):
            taken = entry.instructions.add(opcode="parameter", parameter_number=number)
            taken.name, taken.id = names(f"input_{number}"), fresh()
            taken.shape.CopyFrom(self._shape(value))
            instead[value] = taken.id
        parameters = list(entry.instructions)
        own = self._own(level)
        ids = {one.id for one in own}
        for one in own:
            copy = entry.instructions.add()
            copy.CopyFrom(one)
            put(
                copy.control_predecessor_ids,
                [i for i in one.control_predecessor_ids if i in ids],
            )
            read = [i if i in ids else instead[self._value(i)] for i in one.operand_ids]
            put(copy.operand_ids, read)
        root = entry.instructions.add(opcode="tuple", name=names("outputs"), id=fresh())
        root.shape.element_type = schema.PRIMITIVE_NUMBERS["tuple"]
        root.shape.tuple_shapes.extend(self._shape(value) for value in gives)
        put(root.operand_ids, [value[0] for value in gives])
        entry.root_id = root.id
        entry.ClearField("program_shape")
        program = entry.program_shape
        program.parameters.extend(one.shape for one in parameters)
        program.parameter_names.extend(one.name for one in parameters)
        program.result.CopyFrom(root.shape)
        module.host_program_shape.CopyFrom(program)
        drop_uncalled(module)
        return bytes(module.SerializeToString(deterministic=True))

    def _shape(self, value: Value) -> Any:
        shape = self.by_id[value[0]].shape
        return shape.tuple_shapes[value[1]] if shape.tuple_shapes else shape


def _stands_alone(one: Any) -> bool:
    return bool(one.custom_call_has_side_effect and not one.operand_ids)


def _number(call: Any) -> int:
    found = _NUMBER.search(call.backend_config.decode("latin-1"))
    if found is None:
        raise ImportModuleError(f"{call.name} has no number.")
    return int(found[1])
