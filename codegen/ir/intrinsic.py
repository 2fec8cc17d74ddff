"""What a record says of a function of the device headers; the records are in `intrinsics.py`."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.types import Type
from fusionstitch.costmodel.devices import WARP


class Holds(enum.Enum):
    """What a template parameter is given."""

    INTEGER = "an integer"
    TYPE = "a type"
    REDUCER = "a function object that joins two values"


_HOLDS: Mapping[type, Holds] = {int: Holds.INTEGER, str: Holds.REDUCER}


@dataclass(frozen=True)
class Parameter:
    """A template parameter. One that is `optional` may be left out, with all that follow it; the
    last may be `repeated`."""

    name: str
    holds: Holds
    optional: bool = False
    repeated: bool = False


#: Template arguments: integers, types, names of reducers.
Template = tuple[int | Type | str, ...]


@dataclass(frozen=True)
class Step:
    """A read or a write of the memory that a function goes through, or of half of it (`part` 0 or
    1), by threads that exchange `among` a team, a block or a cluster. `by_warps`: each warp writes
    to memory of its own, by its number in the block."""

    writes: bool
    among: Scope
    part: int | None = None
    by_warps: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """A value that a function exchanges, or an array of so many."""

    type: Type
    size: int = 1

    @property
    def bytes(self) -> int:
        return self.type.bytes

    @property
    def fields(self) -> int:
        """Fields of the value to compute with; of an array, those of one element."""
        return self.type.fields


@dataclass(frozen=True)
class Called:
    """A call: template arguments, the types of the values exchanged, threads of a block."""

    intrinsic: Intrinsic
    template: Template
    values: Sequence[Value]
    block: int

    def __getitem__(self, name: str) -> int:
        """The integer given for a template parameter."""
        return self.intrinsic.integer(name, self.template)

    def type(self, name: str) -> Type:
        """The type given for a template parameter."""
        found = self.template[self.intrinsic.positions[name]]
        assert not isinstance(found, (int, str))
        return found


@dataclass(frozen=True)
class Pointed:
    """How often each thread accesses memory, so many bytes at once, where an argument points to."""

    argument: int
    times: int
    bytes: int
    writes: bool = False


@dataclass(frozen=True)
class Cost:
    """What `threads` of them do together. Accesses are of shared memory, by their bytes; those of
    memory that arguments point to are `pointed`. `shuffles` and `joins` (values that are joined
    with others) are per thread, and so are `products`, instructions of tensor cores, and the FLOPs
    that these stand for, `tensor`. Where the data decides how much that is, it is so `at_most`."""

    threads: int
    loads: tuple[tuple[int, int], ...] = ()
    stores: tuple[tuple[int, int], ...] = ()
    barriers: tuple[tuple[Scope, int], ...] = ()
    shuffles: int = 0
    joins: int = 0
    products: int = 0
    tensor: int = 0
    pointed: tuple[Pointed, ...] = ()
    at_most: bool = False


T = TypeVar("T")


@dataclass(frozen=True)
class Some:
    """Neighbouring arguments: from one number up to another, or to the last."""

    first: int
    end: int | None = None

    def of(self, arguments: tuple[T, ...]) -> tuple[T, ...]:
        return arguments[self.first : self.end]


NONE, FIRST, ALL, REST = Some(0, 0), Some(0, 1), Some(0), Some(1)


@dataclass(frozen=True, eq=False)
class Intrinsic:
    """A function that kernels call: one of the device headers or of CUDA. Its `name` is the same in
    the emulator, whose header defines it, too.

    `together`: who has to call it together; a team has as many threads, or warps, as its template
    parameter `threads` or `warps` says. `changes`: the arguments, variables and arrays of the
    thread, that it changes; it reads the others. `through`: the argument that points to memory of
    other threads, and what happens to that, `steps` with barriers between them. `exchanged`: the
    arguments whose values are exchanged or joined, `scratch` the bytes that these take in a block.
    Its result is `alike` for so many neighbouring threads (0: all of the block), or as many as a
    template parameter says; as its arguments where that is None. `cost`: what it does where that is
    more than instructions; `priced_as`: the ops whose price it has. A `method` is one of a reducer.
    """

    name: str
    parameters: tuple[Parameter, ...] = ()
    together: Scope = Scope.THREAD
    changes: Some = NONE
    through: int | None = None
    steps: tuple[Step | Scope, ...] = ()
    exchanged: Some = NONE
    scratch: Callable[[Called], int] | None = None
    alike: str | int | None = None
    cost: Callable[[Called], Cost] | None = None
    priced_as: tuple[tuple[str, str], ...] = ()
    method: bool = False

    def __repr__(self) -> str:
        return f"Intrinsic: {self.name}"

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """The numbers of the template parameters by their names."""
        return {one.name: number for number, one in enumerate(self.parameters)}

    def integer(self, name: str, template: Template) -> int:
        """The integer given for a template parameter."""
        found = template[self.positions[name]]
        assert isinstance(found, int)
        return found

    def team(self, template: Template) -> int:
        """Threads of the teams that call it."""
        if "threads" in self.positions:
            return self.integer("threads", template)
        return WARP * self.integer("warps", template)

    def alike_over(self, template: Template) -> int | None:
        """For how many neighbouring threads its result is the same; None: as its arguments."""
        return self.integer(self.alike, template) if isinstance(self.alike, str) else self.alike

    def fits(self, template: Template) -> bool:
        """Whether these are arguments for its template parameters."""
        needed = sum(not one.optional for one in self.parameters)
        repeated = bool(self.parameters) and self.parameters[-1].repeated
        if len(template) < needed or (len(template) > len(self.parameters) and not repeated):
            return False
        last = len(self.parameters) - 1
        return all(
            _HOLDS.get(type(one), Holds.TYPE) is self.parameters[min(n, last)].holds
            for n, one in enumerate(template)
        )
