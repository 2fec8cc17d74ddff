"""What ops are once the tuples around them are looked through."""

from __future__ import annotations

from fusionstitch.hlo.graph import Graph, Op


def resolved(op: Op) -> Op:
    """What an op is, where tuples of the same computation lie between."""
    while op.opcode == "get-tuple-element" and op.operands[0].opcode == "tuple":
        op = op.operands[0].operands[op.attrs["index"]]
    return op


def unhindered(op: Op) -> Op:
    """What an op is before the barriers that keep XLA from computing it only once: what
    `jax.checkpoint` computes again reads after them."""
    op = resolved(op)
    while op.opcode == "get-tuple-element" and op.operands[0].opcode == "opt-barrier":
        given = op.operands[0].operands[0]
        if given.opcode != "tuple":
            break
        op = resolved(given.operands[op.attrs["index"]])
    return op


def is_invariant(body: Graph, index: int) -> bool:
    """Whether a loop's body returns an element of its tuple unchanged."""
    if body.root.opcode != "tuple":
        return False
    op = body.root.operands[index]
    return (
        op.opcode == "get-tuple-element"
        and op.operands[0].opcode == "parameter"
        and op.attrs["index"] == index
    )


def is_taken_apart(graph: Graph, op: Op) -> bool:
    """Whether a tuple is only read element by element."""
    return all(user.opcode == "get-tuple-element" for user in graph.users[op.id])
