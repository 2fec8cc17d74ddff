"""Blocks of a cluster write to each other's shared memory only while all of them are there: after
the first barrier of the cluster, and before the last.
"""

from __future__ import annotations

from collections.abc import Iterable

from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import Barrier, Shared, Statement, Store, StoreVector
from fusionstitch.codegen.ir.verifier.fault import Fault
from fusionstitch.codegen.ir.walk import every


def check(kernel: Lowered) -> None:
    """Raises Fault for a store to blocks that may not be there, or to what they do not share."""
    for function in kernel.functions:
        _check(function.body, kernel.cluster)
    _check(kernel.body, kernel.cluster)


def _check(body: Iterable[Statement], cluster: int) -> None:
    shared: set[str] = set()
    begun = False
    last: Store | StoreVector | None = None
    for one in every(body):
        if isinstance(one, Shared):
            shared.add(one.name)
        elif isinstance(one, Barrier) and one.scope is Scope.CLUSTER:
            begun, last = True, None
        elif isinstance(one, (Store, StoreVector)) and one.blocks > 1:
            if one.blocks != cluster:
                raise Fault(f"{one.blocks} blocks are written to in clusters of {cluster}", one)
            if one.buffer not in shared:
                raise Fault(f"{one.buffer} is no array in shared memory", one)
            if not begun:
                raise Fault(f"{one.buffer} of blocks is written that may not have begun", one)
            last = one
    if last is not None:
        raise Fault(f"{last.buffer} of blocks is written that may have ended", last)
