"""Where ops come from: the user's own frames, and what is written on their lines."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fusionstitch.hlo import foreign
from fusionstitch.hlo.detached import detach
from fusionstitch.hlo.errors import FusionStitchError
from fusionstitch.hlo.frames import Frames
from fusionstitch.hlo.importer import parse
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.reports.lines import shortened

if TYPE_CHECKING:
    from fusionstitch.hlo.graph import Graph, Op

#: Frames of one op that are listed, and characters of a line.
MOST_FRAMES, MOST_OF_A_LINE = 12, 160
#: What may be quoted. A module from elsewhere can name any file of this machine as its source.
_QUOTED = (".py", ">")


class Places:
    """The frames of a program's ops, each place listed once: `table` is what the page reads."""

    def __init__(self, module: bytes):
        self.table: list[dict[str, object]] = []
        self._numbers: dict[tuple[str, int, str], int] = {}
        self._stacks: dict[int, list[int]] = {}
        self._idents: dict[tuple[int | None, int], int] = {}
        self._frames: Frames | None = None
        try:
            proto = parse(inline_calls(detach(module)[0]))
        except FusionStitchError:  # a program that nothing was made of
            return
        self._frames = Frames(proto.stack_frame_index)
        for computation in proto.computations:
            for one in computation.instructions:
                if one.metadata.stack_frame_id:
                    self._idents[computation.id, one.id] = one.metadata.stack_frame_id

    def of(self, graph: Graph, op: Op) -> Sequence[int]:
        """The numbers of an op's places, innermost first."""
        ident = self._idents.get((graph.proto_id, op.origin)) if op.origin is not None else None
        if ident is not None and self._frames is not None:
            if ident not in self._stacks:
                frames = self._frames.users(ident)[:MOST_FRAMES]
                self._stacks[ident] = [self._number(f.file, f.line, f.function) for f in frames]
            if self._stacks[ident]:
                return self._stacks[ident]
        if not op.source.file:
            return ()
        return (self._number(op.source.file, op.source.line, ""),)

    def _number(self, file: str, line: int, function: str) -> int:
        key = file, line, function
        if key not in self._numbers:
            self._numbers[key] = len(self.table)
            [place] = shortened([f"{foreign.line(file)}:{line}"])
            self.table.append(
                {"at": place, "in": foreign.line(function, 80), "text": _text(file, line)}
            )
        return self._numbers[key]


def _text(file: str, line: int) -> str:
    """What is written there, if it is Python that can be read."""
    if not file.endswith(_QUOTED):
        return ""
    return foreign.line(linecache.getline(file, line).strip(), MOST_OF_A_LINE)
