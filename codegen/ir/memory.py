"""Where values lie while a kernel runs."""

from __future__ import annotations

import enum


class Memory(enum.Enum):
    """A memory, as people read of it."""

    #: global memory that others wrote before
    INPUT = "input"
    #: global memory that others read afterwards
    OUTPUT = "output"
    #: global memory of the kernel's own
    SCRATCH = "scratch"
    #: constants of the translation unit
    CONSTANT = "table"
    #: of the threads of a block, or the blocks of a cluster
    SHARED = "shared"
    #: of each thread
    REGISTER = "register"

    @property
    def is_near(self) -> bool:
        """Whether it is on the multiprocessor: of accesses to it no sectors are counted."""
        return self in _NEAR


_NEAR = (Memory.CONSTANT, Memory.SHARED, Memory.REGISTER)
