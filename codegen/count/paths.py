"""The longest way of one thread through a phase: which branch is longer, and what is on it.

Loops count by their most iterations, branches by their longer side: a kernel whose blocks do
different things takes as long as the slowest of them.
"""

from __future__ import annotations

from fusionstitch.codegen.index_maps.index import Index, Quotient, Remainder

#: Ops whose code for unusual operands is a branch of its own, past which no load is moved.
BRANCHING = frozenset({"log", "log-plus-one", "power", "sine", "cosine", "tan", "atan2"})


def divisions(index: Index, known: set[str]) -> int:
    """Quotients and remainders in an index that are not `known` yet."""
    found = 0
    for term, _ in index.terms:
        if isinstance(term, (Quotient, Remainder)) and term.key not in known:
            known.add(term.key)
            found += 1 + divisions(term.base, known)
    return found
