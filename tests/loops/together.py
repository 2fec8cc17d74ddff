"""Programs whose kernels the host compiler builds in one translation unit, which is most of what a
small program takes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.compiler import builders
from fusionstitch.compiler.built import Builder, Built
from fusionstitch.hlo.errors import ToolchainError
from fusionstitch.runtime import emulate
from fusionstitch.runtime.toolchain import MemoryStore

T = TypeVar("T")
Outcomes = Sequence[Built | ToolchainError]


class _Half(threading.Thread, Generic[T]):
    """Work that stops where it has kernels to build, until it is given them. No two run at once."""

    def __init__(self, work: Callable[[], T]):
        super().__init__()
        self.work = work
        self.wanted: SimpleQueue[Sequence[Kernel] | None] = SimpleQueue()
        self.given: SimpleQueue[Outcomes] = SimpleQueue()
        self.result: list[T] = []

    def run(self) -> None:
        try:
            self.result.append(self.work())
        finally:
            self.wanted.put(None)

    def build(self, kernels: Sequence[Kernel]) -> Outcomes:
        self.wanted.put(kernels)
        return self.given.get()


def together(works: Sequence[Callable[[], T]]) -> Iterator[T]:
    """What each work returns, in order; their first kernels are built together."""
    halves = [_Half(work) for work in works]
    expected = []
    for half in halves:
        with _building(half.build):
            half.start()
            expected.append(half.wanted.get())
    build = _builder()
    kernels = [kernel for some in expected for kernel in some or ()]
    built = dict(zip(map(id, kernels), build(kernels), strict=True))
    for half, some in zip(halves, expected, strict=True):
        with _building(half.build):
            if some is not None:
                half.given.put([built[id(kernel)] for kernel in some])
                while (more := half.wanted.get()) is not None:
                    half.given.put(build(more))
        half.join()
        yield half.result[0]


def _builder() -> Callable[[Sequence[Kernel]], Outcomes]:
    """Builds kernels without a trace of them on disk: a long run makes thousands."""

    def build(kernels: Sequence[Kernel]) -> Outcomes:
        try:
            return [Built(artifact) for artifact in emulate.build(kernels, MemoryStore())]
        except ToolchainError as error:
            return [error] if len(kernels) == 1 else [x for k in kernels for x in build([k])]

    return build


@contextmanager
def _building(build: Builder) -> Iterator[None]:
    """fs.jit on the emulator has its kernels built so."""
    before: Any = builders.emulated
    builders.emulated = lambda device=None: build
    try:
        yield
    finally:
        builders.emulated = before
