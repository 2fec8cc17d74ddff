"""The paper's implementation templates (section 5.2) and what today's schedules need beside them.

    template      ::= header schedule-list | header phases
    header        ::= { name '=' (integer | 'any') ';' } [ 'sink' 'concatenates' ';' ]
                      { 'split' identifier 'into' integer ';' }
    phases        ::= group-list { 'grid' ';' group-list }
    group-list    ::= { 'group' [ 'tile' '=' integer ] ';' { loop } }
    loop          ::= 'loop' [ clause { ',' clause } ] ';' schedule-list
    clause        ::= 'stream' | 'tensor' | name '=' integer
    schedule-list ::= schedule schedule-list | schedule
    schedule      ::= identifier '[' attr-list ']' [ 'S' | 'R' ] [ 'G' ] ';'
    attr-list     ::= attr ',' attr-list | attr
    attr          ::= attrtype | subattr-list
    subattr-list  ::= subattr '-' subattr-list | subattr
    subattr       ::= attrtype '_' integer
    attrtype      ::= 'GRID' | 'WARP' | 'CTA' | 'THREAD'

A schedule has one attr per dimension of its op's input. The paper's own templates are a header with
a schedule list; `docs/templates.md` says what each part means. White space may stand between any
two symbols.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fusionstitch.hlo.errors import TemplateSyntaxError


class Level(enum.StrEnum):
    """The `attrtype`: what runs along an axis."""

    GRID = "GRID"  # blocks
    WARP = "WARP"  # warps of a block
    CTA = "CTA"  # threads of a block
    THREAD = "THREAD"  # one thread, in sequence


#: After the name of an output that another group than its own computes for itself as well.
COPY = "#copy"
#: Between what an op does and which of those it is.
NUMBERED = "@"
#: A name as HLO has it; of several ops of one name the later ones have a number after a #. Or what
#: an op does and its number among those, whatever its name is.
IDENTIFIER = re.compile(rf"[A-Za-z_][A-Za-z0-9_.-]*(?:[#{NUMBERED}][1-9][0-9]*)?(?:{COPY})?")
#: The least value of each number of a header, and of the clauses of a loop and of a group.
HEADER: Mapping[str, int] = {
    "cta_num": 1,
    "cta_size": 1,
    "cluster": 1,
    "cta_per_sm": 0,
    "row_registers": 0,
    "vector_bytes": 1,
}
CLAUSES: Mapping[str, int] = dict.fromkeys(
    ("team", "columns", "rows", "lanes", "run", "lot", "shares"), 1
)
#: The header entry whose 0 means no request, which is written as 'any'.
BOUNDS, ANY = "cta_per_sm", "any"
#: Clauses of a loop that are a word alone.
WORDS = ("stream", "tensor")


@dataclass(frozen=True, slots=True)
class SubAttr:
    """One level of tiling of a dimension: `extent` steps along `level`; None is all there are."""

    level: Level
    extent: int | None = None

    def __post_init__(self) -> None:
        if self.extent is not None and self.extent < 1:
            raise TemplateSyntaxError(
                f"{self.level}_{self.extent}: the integer of a subattr must be at least 1."
            )

    def __str__(self) -> str:
        return f"{self.level}" if self.extent is None else f"{self.level}_{self.extent}"


@dataclass(frozen=True, slots=True)
class Attr:
    """How one dimension is spread: one level, or several sized ones, the outermost first."""

    parts: tuple[SubAttr, ...]

    def __post_init__(self) -> None:
        sized = all(part.extent is not None for part in self.parts)
        if not self.parts or (len(self.parts) > 1 and not sized):
            raise TemplateSyntaxError(
                f"{str(self)!r} is no attr: write one level, or subattrs that all have an integer."
            )

    @property
    def levels(self) -> tuple[Level, ...]:
        return tuple(part.level for part in self.parts)

    def __str__(self) -> str:
        return "-".join(map(str, self.parts))


def attr(level: Level | str, extent: int | None = None) -> Attr:
    """The attr of one level: `attr("GRID")` is GRID, `attr("CTA", 256)` is CTA_256."""
    return Attr((SubAttr(Level(level), extent),))


@dataclass(frozen=True, slots=True)
class Schedule:
    """One op with a loop of its own, and where its value is kept for those that read it.

    `shared` (S) is in shared memory, `registers` (R) where the loop that computes it has it; what
    is `whole` (G) nothing computes again: other groups read it from global memory.
    """

    identifier: str
    attrs: tuple[Attr, ...]
    shared: bool = False
    registers: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        _check_identifier(self.identifier)
        if not self.attrs:
            raise TemplateSyntaxError(
                f"Schedule {self.identifier} has no attr: a scalar is written as one dimension."
            )
        if self.shared and self.registers:
            raise TemplateSyntaxError(
                f"Schedule {self.identifier} is S and R: what is in shared memory is also in the "
                "registers of its loop, write S."
            )

    @property
    def op(self) -> str:
        """What its op is called."""
        return self.identifier.removesuffix(COPY)

    @property
    def is_copy(self) -> bool:
        return self.identifier.endswith(COPY)

    @property
    def marks(self) -> str:
        """The letters after the attrs."""
        return "S" * self.shared + "R" * self.registers + "G" * self.whole

    def __str__(self) -> str:
        return f"{self.identifier}[{','.join(map(str, self.attrs))}]{self.marks};"


@dataclass(frozen=True, slots=True)
class Loop:
    """The schedules of one loop over rows, and what works on a row (None: as the attrs say).

    `team` threads share a row, or as many as the block has for each of `columns` rows that lie
    along its lanes. A register tile is `tensor`, or `rows` of `lanes` lanes; a lane takes `run`
    summed elements and `lot` columns at once, and `shares` sets of threads a part of the summed
    elements each. A `stream` is walked by blocks of columns.
    """

    schedules: tuple[Schedule, ...]
    stream: bool = False
    tensor: bool = False
    team: int | None = None
    columns: int | None = None
    rows: int | None = None
    lanes: int | None = None
    run: int | None = None
    lot: int | None = None
    shares: int | None = None

    def __post_init__(self) -> None:
        if not self.schedules:
            raise TemplateSyntaxError("A loop needs at least one schedule.")
        parts = [name for name in ("run", "lot", "shares") if getattr(self, name) is not None]
        if parts and (self.stream or not self.tiled):
            raise TemplateSyntaxError(
                f"{parts[0]} is a clause of register tiles: of loops with tensor, or with rows and "
                "lanes."
            )

    @property
    def tiled(self) -> bool:
        """Whether it has a register tile."""
        return self.stream or self.tensor or self.rows is not None or self.lanes is not None

    def __str__(self) -> str:
        words = [word for word in WORDS if getattr(self, word)]
        values = ((name, getattr(self, name)) for name in CLAUSES)
        clauses = [*words, *(f"{name}={value}" for name, value in values if value is not None)]
        head = f"loop {', '.join(clauses)};" if clauses else "loop;"
        return "\n".join([head, *map(str, self.schedules)])


@dataclass(frozen=True, slots=True)
class Block:
    """The loops of a group: what one block does for `tile` points of the grid."""

    loops: tuple[Loop, ...]
    tile: int | None = None

    def __post_init__(self) -> None:
        if not self.loops:
            raise TemplateSyntaxError("A group needs at least one loop.")

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        return tuple(s for loop in self.loops for s in loop.schedules)

    def __str__(self) -> str:
        head = "group;" if self.tile is None else f"group tile={self.tile};"
        return "\n".join([head, *map(str, self.loops)])


@dataclass(frozen=True, slots=True)
class Template:
    """A whole kernel's intent: the launch, the sums that are split, and the loops. `sunk`: what is
    computed of concatenates is computed of their pieces. `halo` has the elements of tiles with a
    halo along each stencil axis.

    `phases` has the groups between grid barriers, the loops of each and their schedules; the
    paper's flat list, in which merging decides what shares a block and a loop, is `flat`.
    `str()` gives its text, one schedule per line; `parse_template` of that text gives it back.
    """

    flat: tuple[Schedule, ...] = ()
    cta_num: int | None = None
    cta_size: int | None = None
    cluster: int | None = None
    cta_per_sm: int | None = None
    row_registers: int | None = None
    vector_bytes: int | None = None
    sunk: bool = False
    halo: tuple[int, ...] = ()
    splits: tuple[tuple[str, int], ...] = ()
    phases: tuple[tuple[Block, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.schedules or (self.flat and self.phases) or not all(self.phases):
            raise TemplateSyntaxError(
                "A template needs at least one schedule, either all of them in groups or none."
            )
        for name, least in HEADER.items():
            if (value := getattr(self, name)) is not None and value < least:
                raise TemplateSyntaxError(f"{name} must be at least {least}.")
        if any(size < 1 for size in self.halo):
            raise TemplateSyntaxError("A tile with a halo has 1 element or more along each axis.")
        for name, parts in self.splits:
            _check_identifier(name)
            if parts < 1:
                raise TemplateSyntaxError(f"split {name} into {parts}: it takes 1 (none) or more.")

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The groups of all phases."""
        return tuple(block for phase in self.phases for block in phase)

    @property
    def loops(self) -> tuple[Loop, ...]:
        return tuple(loop for block in self.blocks for loop in block.loops)

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """The schedules in the order they are emitted."""
        return self.flat or tuple(s for block in self.blocks for s in block.schedules)

    @property
    def streams(self) -> bool:
        """Whether a loop walks its columns block by block."""
        return any(loop.stream for loop in self.loops)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for name in HEADER:
            if (value := getattr(self, name)) is not None:
                yield f"{name}={value or (ANY if name == BOUNDS else value)};"
        if self.sunk:
            yield "sink concatenates;"
        if self.halo:
            yield f"halo {' '.join(map(str, self.halo))};"
        yield from (f"split {name} into {parts};" for name, parts in self.splits)
        yield from map(str, self.flat)
        for number, phase in enumerate(self.phases):
            if number:
                yield "grid;"
            yield from map(str, phase)


def _check_identifier(text: str) -> None:
    if IDENTIFIER.fullmatch(text) is None:
        raise TemplateSyntaxError(
            f"{text!r} is no identifier: a letter or underscore, then letters, digits and any of "
            "_ . - may follow, and a number after a # or @."
        )
