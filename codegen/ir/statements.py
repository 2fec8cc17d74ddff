"""The statements that kernels are made of: a node for each kind that `printer.py` prints."""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.codegen.ir.expressions import Declared, Expr, Number, Used, number
from fusionstitch.codegen.ir.intrinsic import Intrinsic, Template
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.types import INT, IndexType, Raw, Record, Scalar, Type

#: For.unroll: all iterations are written out by the compiler.
ALL = -1


@dataclass(frozen=True)
class Note:
    """A comment; `text` is a line that no compiler reads (`text/source.py: comment`). `stages` are
    the names of the stages that the statements after it compute."""

    text: str
    stages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Blank:
    """An empty line."""


@dataclass(frozen=True)
class Let:
    """A variable of a type with its first value. Unless `changes`, it keeps that."""

    type: Type
    name: Declared
    value: Expr
    changes: bool = False


@dataclass(frozen=True)
class Array:
    """`size` variables of a type, or a single one. Without a first value unless they are `zero`."""

    type: Type
    name: Declared
    size: int | None = None
    zero: bool = False


@dataclass(frozen=True)
class Shared:
    """`size` elements of a type in shared memory from byte `offset` on. One that `changes` may swap
    names with another one."""

    type: Scalar | Record | Raw
    name: Declared
    offset: int
    size: int
    changes: bool = False

    @property
    def bytes(self) -> int:
        return self.size * self.type.bytes


@dataclass(frozen=True)
class Table:
    """An array of constants of a type: names of buffers, or integers."""

    type: Type
    name: Declared
    values: tuple[Expr, ...]


@dataclass(frozen=True)
class Assign:
    """`target` gets `value`, or by `operator` gets it added (`+`) or multiplied (`*`). The target
    is a variable of this thread, or an element of an array of it."""

    target: Expr
    value: Expr
    operator: str = ""


@dataclass(frozen=True)
class Store:
    """An element of memory that other threads, or the host, may read; of shared memory that of all
    `blocks` of a cluster, where these are several."""

    buffer: Used
    address: Expr
    value: Expr
    blocks: int = 1


@dataclass(frozen=True)
class StoreVector:
    """Neighbouring elements of memory, stored at once; only where `condition` holds if there is
    one. `values` is an array of this thread. `blocks` as in `Store`."""

    buffer: Used
    address: Expr
    values: Used
    condition: Expr | None = None
    blocks: int = 1


#: The name of an index in an array that is filled.
FILLED = "i"


@dataclass(frozen=True)
class Fill:
    """Elements 0 to `size` of an array of this thread get `value`, which may read the index in the
    array, `FILLED`."""

    array: Used
    size: int
    value: Expr


@dataclass(frozen=True)
class Call:
    """An intrinsic that is called for what it does to memory or to arrays of this thread, with
    these template arguments."""

    intrinsic: Intrinsic
    template: Template
    arguments: tuple[Expr, ...]


@dataclass(frozen=True)
class Invoke:
    """A function of the kernel's own that is called, by its name."""

    function: str
    arguments: tuple[Expr, ...]


@dataclass(frozen=True)
class Barrier:
    """A wait for all threads of a scope; `threads` are those of a team, `why` is printed as its
    comment."""

    scope: Scope
    threads: int = 0
    why: str = ""


@dataclass(frozen=True)
class Arrive:
    """The block is done with what stands before: element `index` of a buffer of counters, which
    begin at zero, goes up by one. All threads of the block come to it together, and wait for each
    other."""

    counter: Used
    index: Expr


@dataclass(frozen=True)
class Wait:
    """The block waits until element `index` of a buffer of counters is `value` at least: what
    blocks did before they arrived there comes before what stands after. All threads of the block
    come to it together, and wait for each other."""

    counter: Used
    index: Expr
    value: Expr


@dataclass(frozen=True)
class Skip:
    """The next iteration of the innermost loop begins where `condition` holds. If the data has a
    say in that, it is `likely` where this does, which is for the cost model alone."""

    condition: Expr
    likely: Expr | None = None


@dataclass(frozen=True)
class Group:
    """Statements that belong together; those of a `term` are one of several that are alike, of
    which a loop may be made (`passes/rolling.py`)."""

    body: tuple[Statement, ...] = ()
    term: bool = False


@dataclass(frozen=True)
class For:
    """Counts `variable` from `start` up to `stop`, which it does not reach, by `step`; or `down`
    from `start` to `stop`, which it does reach, by one. `unroll`: as many iterations are written
    out at once (0: as the compiler likes)."""

    type: IndexType
    variable: Declared
    start: Expr
    stop: Expr
    step: int = 1
    down: bool = False
    unroll: int = 0
    body: tuple[Statement, ...] = ()


@dataclass(frozen=True)
class While:
    """Repeats what is inside until a `Leave` ends it."""

    body: tuple[Statement, ...] = ()


@dataclass(frozen=True)
class Leave:
    """The innermost loop ends where `condition` holds; `likely` as in `Skip`."""

    condition: Expr
    likely: Expr | None = None


@dataclass(frozen=True)
class Swap:
    """Two buffers, of the same type and size, change names."""

    left: Used
    right: Used


@dataclass(frozen=True)
class Branch:
    """What runs where `condition` holds, if there is one, and none of the conditions before did."""

    condition: Expr | None
    body: tuple[Statement, ...] = ()


@dataclass(frozen=True)
class If:
    """`body` where `condition` holds, else the first of `others` that applies. `given` is a
    variable that condition and statements read."""

    condition: Expr
    given: Let | None = None
    body: tuple[Statement, ...] = ()
    others: tuple[Branch, ...] = ()


@dataclass(frozen=True)
class Function:
    """A function of the kernel's own: types and names of its parameters, and what it does."""

    name: str
    parameters: tuple[tuple[Type, str], ...]
    body: tuple[Statement, ...]


Statement = (
    Note
    | Blank
    | Let
    | Array
    | Shared
    | Table
    | Assign
    | Store
    | StoreVector
    | Fill
    | Call
    | Invoke
    | Barrier
    | Arrive
    | Wait
    | Skip
    | Leave
    | Swap
    | Group
    | For
    | While
    | If
)
#: What holds statements.
Frame = Group | For | While | If
Body = tuple[Statement, ...]


def unrolled(variable: str, extent: int) -> For:
    """A loop over `extent` iterations, all of them written out by the compiler."""
    return For(INT, variable, Number("0"), number(extent), unroll=ALL)
