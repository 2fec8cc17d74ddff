"""How far patterns that are like each other fall short of their bounds:
python -m benchmarks.shortfalls [--seed S] [--sample N] [--only NAME...]

For each program of the corpus, some of its candidates are drawn and scored, without a GPU. Of two
that have ops in common, one falls short of its bound by some share of what the other does. Printed
are the shares that a tenth, a fifth and half of all pairs stay below, each program weighing the
same, by how the two lie to each other and by their likeness, beside what the planner supposes
(`fusionstitch/plan/expectations.py`).
"""

from __future__ import annotations

import argparse
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import jax

from benchmarks.corpus.table import templates
from benchmarks.fit_xla import quantile
from fusionstitch.compiler.core import stitch
from fusionstitch.compiler.planning import GraphPlanner
from fusionstitch.costmodel.devices import Device, device
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.hlo.graph import Graph
from fusionstitch.options import Options
from fusionstitch.plan.expectations import share_of

#: A pattern that falls short by less, in microseconds, or by less of XLA's time, says nothing.
LEAST_US, LEAST_SHARE = 2.0, 0.1
QUANTILES = (0.1, 0.2, 0.5)

#: A pattern that was scored: its ops, a bitset, and by how many microseconds it fell short.
Scored = tuple[int, float]


def scored(graph: Graph, target: Device, count: int, rng: random.Random) -> list[Scored]:
    """Up to `count` candidates of a graph whose bounds promise a gain."""
    search = GraphPlanner(graph, target, Options()).planner.search
    promising = [one for one in search.candidates if one.bound > 0]
    found = []
    for one in rng.sample(promising, min(count, len(promising))):
        facts = search.inspect(one.pattern)
        if isinstance(facts, KernelFacts):
            score = search.scorer.score(one.pattern, facts)
            short_us = one.bound - score.gain_us
            if short_us > max(LEAST_US, LEAST_SHARE * score.xla_us):
                found.append((one.bits, short_us))
    return found


def pairs(found: Sequence[Scored]) -> Iterator[tuple[tuple[str, int], float, float]]:
    """For each pair its kind and tenths of likeness, the share, and what is supposed of it."""
    for (known, known_us), (other, other_us) in itertools.permutations(found, 2):
        if common := known & other:
            kind = {known: "contains it", other: "is contained"}.get(common, "overlap")
            tenths = 10 * common.bit_count() // (known | other).bit_count()
            yield (kind, min(tenths, 9)), other_us / known_us, share_of(known, other)


def quantiles(shares: Sequence[tuple[float, str]]) -> list[float]:
    """Of shares with the names of their programs, each of which weighs the same."""
    each = Counter(name for _, name in shares)
    weighted = [(share, 1 / each[name]) for share, name in shares]
    return [quantile(weighted, below) for below in QUANTILES]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="How far similar patterns fall short.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", type=int, default=40, help="candidates of a graph")
    parser.add_argument("--only", nargs="*", help="these programs; by default all")
    asked = parser.parse_args(arguments)
    target = device("h200")
    shares: dict[tuple[str, int], list[tuple[float, str]]] = defaultdict(list)
    supposed: dict[tuple[str, int], list[float]] = defaultdict(list)
    for name in asked.only or templates():
        program = templates()[name].program(asked.seed, times=8)
        lowered = jax.jit(program.fun).lower(*program.shapes()).compiler_ir("hlo")
        module = lowered.as_serialized_hlo_module_proto()
        for plan in stitch(module, Options(), target, None).plans:
            rng = random.Random(asked.seed)
            for kind, share, at_least in pairs(scored(plan.program, target, asked.sample, rng)):
                shares[kind].append((share, name))
                supposed[kind].append(at_least)
    print("the other      likeness   pairs  programs    10%    20%    50%   supposed")
    for kind in sorted(shares):
        relation, tenths = kind
        columns = "".join(f"{share:7.2f}" for share in quantiles(shares[kind]))
        likeness = f"{tenths / 10:.1f}-{(tenths + 1) / 10:.1f}"
        mean = sum(supposed[kind]) / len(supposed[kind])
        programs = len({name for _, name in shares[kind]})
        print(
            f"{relation:14} {likeness:>8} {len(shares[kind]):7} {programs:9} {columns} {mean:10.2f}"
        )


if __name__ == "__main__":
    main()
