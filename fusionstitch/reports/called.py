"""The lines of the user's that called each op of a program, what they call, and what runs it."""

from __future__ import annotations

from typing import Any, NamedTuple

from fusionstitch.hlo import foreign
from fusionstitch.hlo.detached import detach
from fusionstitch.hlo.frames import Frame, Frames, is_ours
from fusionstitch.hlo.graph import Module
from fusionstitch.hlo.importer import from_proto, parse
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.reports.callees import callees

#: An instruction by the proto ids of its graph and of itself.
Place = tuple[int | None, int | None]


class Called(NamedTuple):
    """Who called an op: the user's lines, innermost first, and the names of the functions on its
    stack, a library's and JAX's among them: those that it was in, and those that were called."""

    frames: tuple[Frame, ...] = ()
    functions: tuple[str, ...] = ()


def read(data: bytes) -> tuple[Module | None, dict[Place, Called]]:
    """A module as it was given, and by instruction who called it."""
    if not data:
        return None, {}
    read, _ = detach(data)
    around = _Around(parse(read))
    module = from_proto(inline_calls(read))
    frames = Frames(module.proto.stack_frame_index)
    return module, {
        (computation.id, one.id): around.called(one.metadata, frames)
        for computation in module.proto.computations
        for one in computation.instructions
    }


class _Around:
    """Who called the calls and loops around ops. JAX cuts stacks short, and those of a jitted
    function are of where it was traced first: what runs an op, by its name, says more."""

    def __init__(self, proto: Any):
        frames = Frames(proto.stack_frame_index)
        self._called: dict[str, Called] = {}
        for computation in proto.computations:
            for one in computation.instructions:
                if one.called_computation_ids and (name := one.metadata.op_name):
                    found = _called(one.metadata.stack_frame_id, frames)
                    same = self._called.setdefault(name, found) == found
                    self._called[name] = found if same else Called()  # several calls of that name

    def called(self, metadata: Any, frames: Frames) -> Called:
        """Who called an op, and what is around it."""
        found = [_called(metadata.stack_frame_id, frames)]
        parts = metadata.op_name.split("/")
        for length in range(len(parts) - 1, 0, -1):
            found.append(self._called.get("/".join(parts[:length]), Called()))
        lines = dict.fromkeys(frame for one in found for frame in one.frames)
        functions = dict.fromkeys(name for one in found for name in one.functions)
        return Called(tuple(lines), tuple(functions))


def _called(ident: int, frames: Frames) -> Called:
    lines = map(_printable, frames.users(ident))
    stack = [frame.function for frame in frames.stack(ident) if not is_ours(frame.file)]
    spans = [span for span in frames.spans(ident) if not is_ours(span.file)]
    names = [*stack, *(name for span in spans for name in callees(span))]
    return Called(tuple(lines), tuple(dict.fromkeys(map(foreign.line, filter(None, names)))))


def _printable(frame: Frame) -> Frame:
    return Frame(foreign.line(frame.file), foreign.line(frame.function), frame.line)
