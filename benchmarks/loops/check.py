"""A loop at its small size under jax.jit and under fs.jit with the emulator, as one kernel."""

from __future__ import annotations

from benchmarks.loops.table import Loop


def check(loop: Loop) -> str:
    """What is wrong with our result, in words; nothing where it is right."""
    import jax

    import fusionstitch as fs
    from benchmarks.loops import checking
    from benchmarks.loops.forced import taken
    from benchmarks.loops.worker import reasons, stitched_loops
    from fusionstitch import accuracy

    options = fs.Options(backend="emulate")
    fun, args = loop.program(loop.small)
    moved = jax.tree.map(checking.moved, args)
    plain = jax.jit(fun)
    with taken():
        ours = fs.jit(fun, options=options).lower(*args).compile()
    if not stitched_loops(ours) and not reasons(ours):
        return f"{loop.name}: no kernel holds its loop, and nothing says why"
    results = [
        [accuracy.host(leaf) for leaf in jax.tree.leaves(run(*given))]
        for run, given in ((ours, args), (plain, args), (plain, moved))
    ]
    found = checking.check(results[0], results[1], results[2])
    return f"{loop.name}: {found['wrong']}" if found["wrong"] else ""
