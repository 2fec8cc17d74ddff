"""The loops over iterations of a kernel whose threads go through each iteration together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.statements import For, Shared, Statement, While
from fusionstitch.codegen.ir.types import Raw, Record, Scalar

#: Types of elements, by the name of the buffer.
Types = Mapping[str, Scalar | Record | Raw]
Loop = For | While


def with_loops(
    kernel: Lowered, new: Callable[[Loop, Types], tuple[list[Statement], Loop]]
) -> Lowered:
    """The kernel with each loop over iterations rewritten. `new` gets the loop and the types of the
    buffers that may be read before it, those that may be overwritten left out. It returns the
    statements to put before the loop and the new loop, or the loop that it got."""
    iterations = kernel.iterations
    assert iterations is not None
    types: dict[str, Scalar | Record | Raw] = {
        one.name: one.type for one in kernel.buffers if not one.overwritten
    }
    body: list[Statement] = []
    changed = False
    for one in kernel.body:
        if isinstance(one, Shared):
            types[one.name] = one.type
        if iterations.are(one):
            assert isinstance(one, Loop)
            before, loop = new(one, types)
            changed = changed or loop is not one
            body += [*before, loop]
        else:
            body.append(one)
    return replace(kernel, body=tuple(body)) if changed else kernel
