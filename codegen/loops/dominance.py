"""Dominance on a pattern's data flow, seen from its outputs (paper Algorithm 4's `dom`).

The tree is rooted at a virtual tuple of all outputs; edges run from users to operands. So `a`
dominates `b` when every path from `b` to an output passes `a`: once `a` is computed, nothing
reads `b` any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusionstitch.hlo.graph import Op


class DominanceTree:
    """Immediate dominators by Cooper, Harvey and Kennedy.

    `ops` are the pattern's ops in topological order, `outputs` those read outside. Operands
    outside of `ops` are ignored; ops that no output depends on are dominated by nothing. Since
    the data flow has no cycles, one pass over the reversed order settles every dominator.
    """

    def __init__(self, ops: Sequence[Op], outputs: Iterable[Op]):
        index = {op: i for i, op in enumerate(ops)}
        root = len(ops)
        parents: list[int | None] = [None] * root + [root]
        depth = [0] * (root + 1)
        users: list[list[int]] = [[] for _ in ops]
        for output in outputs:
            users[index[output]].append(root)
        for i in range(root - 1, -1, -1):
            reachable = [user for user in users[i] if parents[user] is not None]
            if not reachable:
                continue
            parent = reachable[0]
            for user in reachable[1:]:
                parent = _meet(parent, user, parents, depth)
            parents[i] = parent
            depth[i] = depth[parent] + 1
            for operand in ops[i].operands:
                if operand in index:
                    users[index[operand]].append(i)
        self._ops = ops
        self._index = index
        self._parents = parents
        self._spans = _spans(parents)

    def immediate(self, op: Op) -> Op | None:
        """The closest op all paths from `op` to the outputs pass; None when it is the tuple."""
        parent = self._parents[self._index[op]]
        return None if parent is None or parent == len(self._ops) else self._ops[parent]

    def dominates(self, a: Op, b: Op) -> bool:
        """Whether every path from `b` to an output passes `a`; every reachable op does itself."""
        first, last = self._spans[self._index[a]]
        return first <= self._spans[self._index[b]][0] < last


def _meet(a: int, b: int, parents: Sequence[int | None], depth: Sequence[int]) -> int:
    """The deepest common ancestor of two nodes of the tree."""
    while a != b:
        if depth[a] < depth[b]:
            a, b = b, a
        above = parents[a]
        assert above is not None
        a = above
    return a


def _spans(parents: Sequence[int | None]) -> list[tuple[int, int]]:
    """Per node the preorder numbers [first, last) of its subtree; (-1, -1) outside of the tree."""
    root = len(parents) - 1
    size = [1] * len(parents)
    for node in range(root):  # a parent's number is above its children's
        parent = parents[node]
        if parent is not None:
            size[parent] += size[node]
    spans = [(-1, -1)] * len(parents)
    spans[root] = (0, size[root])
    free = [0] * len(parents)
    free[root] = 1
    for node in range(root - 1, -1, -1):
        parent = parents[node]
        if parent is None:
            continue
        first = free[parent]
        free[parent] += size[node]
        free[node] = first + 1
        spans[node] = (first, first + size[node])
    return spans
