"""A loop at its small size under jax.jit and under fs.jit with the emulator."""

from __future__ import annotations

from benchmarks.loops.table import Loop


def check(loop: Loop) -> str:
    """What is wrong with our result, in words; nothing where it is right."""
    import jax

    import fusionstitch as fs
    from benchmarks.loops import checking
    from fusionstitch import accuracy

    options = fs.Options(backend="emulate", scorer="paper")
    fun, args = loop.program(loop.small)
    moved = jax.tree.map(checking.moved, args)
    plain = jax.jit(fun)
    results = [
        [accuracy.host(leaf) for leaf in jax.tree.leaves(run(*given))]
        for run, given in ((fs.jit(fun, options=options), args), (plain, args), (plain, moved))
    ]
    found = checking.check(results[0], results[1], results[2])
    return f"{loop.name}: {found['wrong']}" if found["wrong"] else ""
