"""A kernel between schedule and CUDA-C as a text: its buffers, launch and statements."""

from __future__ import annotations

from collections.abc import Iterator

from fusionstitch.codegen.ir.kernel import Buffer, Lowered
from fusionstitch.codegen.ir.printer import lines, parameter_text
from fusionstitch.codegen.ir.spelling import type_text
from fusionstitch.codegen.snapshots.page import counted, page, table


def kernel_text(kernel: Lowered, name: str, about: str) -> str:
    """The kernel after the pass of that name."""
    body = "\n".join(_statements(kernel))
    return f"{page(_head(kernel, name, about))}{body}\n"


def _head(kernel: Lowered, name: str, about: str) -> Iterator[str]:
    yield f"{name}: {about}"
    yield f"{counted(kernel.grid, 'block')} of {counted(kernel.block, 'thread')}"
    if kernel.cluster > 1:
        yield f"clusters of {counted(kernel.cluster, 'block')}"
    yield f"{counted(kernel.shared, 'byte')} of shared memory"
    yield from table(map(_buffer, kernel.buffers))


def _buffer(buffer: Buffer) -> tuple[str, str, str]:
    over = ", may be overwritten" if buffer.overwritten else ""
    return buffer.memory.value, buffer.name, f"{buffer.size} {type_text(buffer.type)}{over}"


def _statements(kernel: Lowered) -> Iterator[str]:
    for function in kernel.functions:
        parameters = ", ".join(map(parameter_text, function.parameters))
        yield from ("", f"function {function.name}({parameters})", *lines(function.body, 1))
    yield from ("", f"kernel {kernel.name}", *lines(kernel.body, 1))
