"""All candidate patterns of a graph: the union of the generators, made legal, each set once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, starmap

from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.free import free_bits
from fusionstitch.hlo.graph import Graph, ids
from fusionstitch.hlo.semantics import Kind, kind_of
from fusionstitch.hlo.verdict import Verdict, allow, forbid
from fusionstitch.options import Options
from fusionstitch.patterns.contract import overlap, owned
from fusionstitch.patterns.convex import borders, components, escaping, is_convex, users
from fusionstitch.patterns.dot_chains import dot_chains
from fusionstitch.patterns.exploratory import exploratory
from fusionstitch.patterns.layers import layers
from fusionstitch.patterns.packing import packing
from fusionstitch.patterns.pattern import (
    Offer,
    Pattern,
    spread_bits,
    spread_values,
    spreads,
)
from fusionstitch.patterns.substitution import substitution
from fusionstitch.patterns.windows import unit_windows, windows

#: Exploratory fusion, a supplement, may fill one part in this many of `max_patterns`.
EXPLORATORY_SHARE = 8
POINTER_BYTES = 8


@dataclass(frozen=True)
class Candidates:
    """`patterns` in the generators' order; `refused` has (bitset, rule, verdict)."""

    patterns: tuple[Pattern, ...]
    refused: tuple[tuple[int, str, Verdict], ...]


def candidates(
    graph: Graph, fusible: int, units: Sequence[int], device: Device, options: Options
) -> Candidates:
    """Candidates among the ops `fusible`. `units` are pieces of work that otherwise run on their
    own (XLA's kernels); packing joins them. There are at most `options.max_patterns`."""
    inside = [piece for unit in units for piece in _pieces(graph, unit, fusible)]
    pointers = device.parameter_bytes // POINTER_BYTES
    sources: list[Iterator[tuple[int, str] | Offer]] = [
        substitution(graph, fusible),
        dot_chains(graph, fusible, device),
        layers(graph, fusible, device),
    ]
    if options.packing:
        sources.append(packing(graph, inside, pointers, options.max_pattern_ops))
    # cheap ops may be in several units, of which only one could then be chosen
    several, own = overlap(inside), owned(inside)
    sources.append(
        (bits, "unit")
        for unit, first in zip(inside, own, strict=True)
        for bits in dict.fromkeys((unit, unit & ~several, first))
    )
    sources += [unit_windows(graph, inside), windows(graph, fusible)]
    if options.exploratory:
        limit = max(1, options.max_patterns // EXPLORATORY_SHARE)
        sources.append(exploratory(graph, fusible, device, limit))
    return collect(graph, fusible, chain.from_iterable(sources), device, options)


def _pieces(graph: Graph, unit: int, fusible: int) -> list[int]:
    """The fusible parts of a unit, before and after each op that is not fusible."""
    pieces = [unit & fusible]
    for i in ids(unit & ~fusible):
        above = graph.reach[i]
        parts = (part for piece in pieces for part in (piece & above, piece & ~above))
        pieces = [part for part in parts if part]  # at most as many as ops
    return pieces


def collect(
    graph: Graph,
    fusible: int,
    found: Iterator[tuple[int, str] | Offer],
    device: Device,
    options: Options,
    seen: frozenset[int] = frozenset(),
) -> Candidates:
    """The legal sets among `found`, each once, without those in `seen`."""
    known, offered = set(seen), set[int]()
    patterns: list[Pattern] = []
    refused = []
    for bits, rule, stays in starmap(Offer, found):
        if bits in offered:
            continue
        offered.add(bits)
        closed = close(graph, bits, fusible)
        for variant in dict.fromkeys((closed, _without_shared_spreads(graph, closed))):
            if variant in known or not variant or len(patterns) >= options.max_patterns:
                continue
            known.add(variant)
            verdict = legal(graph, variant, device, options)
            if verdict:
                patterns.append(Pattern(graph, variant, rule, stays))
            else:
                refused.append((variant, rule, verdict))
        if len(patterns) >= options.max_patterns:
            break
    return Candidates(tuple(patterns), tuple(refused))


def close(graph: Graph, bits: int, fusible: int) -> int:
    """`bits` with the ops it reads that the simplifier made, and with all parts of values that are
    reduced together. The former have no instruction in the module and must be computed inside."""
    fusible |= bits
    while True:
        more = 0
        for i in ids(borders(graph, bits) & fusible):
            if graph.ops[i].origin is None or graph.ops[i].shape.is_tuple:
                more |= 1 << i
        for i in ids(bits):
            if graph.ops[i].shape.is_tuple:
                more |= users(graph)[i] & fusible & ~bits
        if not more:
            return bits
        bits |= more


def _without_shared_spreads(graph: Graph, bits: int) -> int:
    """`bits` without ops that spread a smaller value for readers outside as well. Every reader
    repeats them, so nothing waits for the pattern because of them, and other patterns may contain
    them too."""
    readers = users(graph)
    shared = 0
    for i in ids(bits & spread_bits(graph)):
        if readers[i] & ~bits and graph.ops[i].origin is not None:
            shared |= 1 << i
    return bits & ~shared


def legal(graph: Graph, bits: int, device: Device, options: Options) -> Verdict:
    """Whether `bits` may be a pattern, before code generation is asked."""
    if bits.bit_count() > options.max_pattern_ops:
        return forbid(
            "It has more ops than max_pattern_ops allows.",
            ops=bits.bit_count(),
            limit=options.max_pattern_ops,
        )
    border = borders(graph, bits)
    if not is_convex(graph, bits, border):
        return forbid("A path leaves it and comes back: it would wait for itself.")
    if not options.packing and len(list(components(graph, bits))) > 1:
        return forbid("Some of its ops do not depend on each other, and packing is off.")
    written = escaping(graph, bits)
    if not written:
        return forbid("Nobody reads what it computes.")
    alone = (graph.ops[i] for i in ids(written))
    if all(spreads(op) and not any(bits >> v.id & 1 for v in spread_values(op)) for op in alone):
        return forbid("It only broadcasts, which every reader does for itself.")
    read = border & ~free_bits(graph)
    pointers = (read | written).bit_count()
    if pointers * POINTER_BYTES > device.parameter_bytes:
        return forbid(
            "It reads and writes more arrays than a kernel has parameters for.",
            arrays=pointers,
            limit=device.parameter_bytes // POINTER_BYTES,
        )
    if _only_for_a_scatter(graph, bits, written):
        return forbid("XLA computes it inside the scatter that reads it.")
    for i in ids(written):
        op = graph.ops[i]
        if kind_of(op.opcode) is Kind.UPDATE and read >> op.operands[0].id & 1:
            return forbid("XLA updates the array in place.", op=op.name)
    for i in ids(read | written):
        if graph.ops[i].shape.is_tuple:
            return forbid("It has a part only of what is reduced together.", op=graph.ops[i].name)
        if graph.ops[i].origin is None:
            name = graph.ops[i].name
            return forbid("A value at its border was made by the simplifier.", op=name)
    return allow()


def _only_for_a_scatter(graph: Graph, bits: int, written: int) -> bool:
    """Whether a single scatter outside reads everything that `bits` write, and its loop can compute
    it."""
    readers, found = users(graph), 0
    for i in ids(written):
        found |= readers[i]
    found &= ~bits
    if found.bit_count() != 1 or graph.ops[found.bit_length() - 1].opcode != "scatter":
        return False
    return not any(kind_of(graph.ops[i].opcode) in (Kind.REDUCTION, Kind.DOT) for i in ids(bits))
