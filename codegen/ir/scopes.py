"""Who does something together."""

from __future__ import annotations

import enum


class Scope(enum.Enum):
    """Threads that do something together, from the fewest to the most; barriers are for a team and
    all that are more."""

    THREAD = "a thread by itself"
    WARP = "the lanes of a warp"
    TEAM = "the threads that share a row"
    BLOCK = "the threads of a block"
    CLUSTER = "the blocks of a cluster"
    GRID = "all blocks"
