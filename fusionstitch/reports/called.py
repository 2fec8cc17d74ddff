"""The lines of the user's that called each op of a program, and what runs it."""

from __future__ import annotations

from typing import Any

from fusionstitch.hlo import foreign
from fusionstitch.hlo.detached import detach
from fusionstitch.hlo.frames import Frame, Frames
from fusionstitch.hlo.graph import Module
from fusionstitch.hlo.importer import from_proto, parse
from fusionstitch.hlo.inline import inline_calls

#: An instruction by the proto ids of its graph and of itself.
Place = tuple[int | None, int | None]


def read(data: bytes) -> tuple[Module | None, dict[Place, tuple[Frame, ...]]]:
    """A module as it was given, and by instruction the user's lines that called it."""
    if not data:
        return None, {}
    read, _ = detach(data)
    around = _Around(parse(read))
    module = from_proto(inline_calls(read))
    frames = Frames(module.proto.stack_frame_index)
    return module, {
        (computation.id, one.id): around.lines(one.metadata, frames)
        for computation in module.proto.computations
        for one in computation.instructions
    }


class _Around:
    """The lines of calls and loops around ops. JAX cuts stacks short, and those of a jitted
    function are of where it was traced first: what runs an op, by its name, says more."""

    def __init__(self, proto: Any):
        frames = Frames(proto.stack_frame_index)
        self._lines: dict[str, tuple[Frame, ...]] = {}
        for computation in proto.computations:
            for one in computation.instructions:
                if one.called_computation_ids and (name := one.metadata.op_name):
                    found = tuple(frames.users(one.metadata.stack_frame_id))
                    same = self._lines.setdefault(name, found) == found
                    self._lines[name] = found if same else ()  # several calls of that name

    def lines(self, metadata: Any, frames: Frames) -> tuple[Frame, ...]:
        """The user's lines of an op, innermost first, and of what is around it."""
        found = list(frames.users(metadata.stack_frame_id))
        parts = metadata.op_name.split("/")
        for length in range(len(parts) - 1, 0, -1):
            found += self._lines.get("/".join(parts[:length]), ())
        return tuple(dict.fromkeys(map(_printable, found)))


def _printable(frame: Frame) -> Frame:
    return Frame(foreign.line(frame.file), foreign.line(frame.function), frame.line)
