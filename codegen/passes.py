"""The passes from region to region, in the order in which they run.

A pass gives a region that computes the same values, or the very graph it got where it has nothing
to do. `PASSES` alone decides their order, and under which settings they run. After each pass the
region is checked (`codegen/invariants.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fusionstitch.codegen.dots.chains import find_streams
from fusionstitch.codegen.dots.late_factors import without_factors
from fusionstitch.codegen.dots.whole_tiles import fill_tiles
from fusionstitch.codegen.invariants import check_region
from fusionstitch.codegen.rewrite.banded_products import with_banded_products
from fusionstitch.codegen.rewrite.comparisons import mark_compared
from fusionstitch.codegen.rewrite.complex_pairs import split_complex
from fusionstitch.codegen.rewrite.dot_dims import keep_dims_apart
from fusionstitch.codegen.rewrite.expansions import expand
from fusionstitch.codegen.rewrite.factors import take_out_factors
from fusionstitch.codegen.rewrite.halo_tiles import with_halos
from fusionstitch.codegen.rewrite.joined import compute_pieces, flat_joins
from fusionstitch.codegen.rewrite.long_rows import divide_rows
from fusionstitch.codegen.rewrite.merged_products import part_products
from fusionstitch.codegen.rewrite.moments import centre_sums, merge_variances
from fusionstitch.codegen.rewrite.padded_sums import join_padded
from fusionstitch.codegen.rewrite.rounded_products import round_products
from fusionstitch.codegen.rewrite.roundings import keep_roundings
from fusionstitch.codegen.rewrite.scatters import expand_scatters
from fusionstitch.codegen.rewrite.selected_rows import select_rows
from fusionstitch.codegen.rewrite.strength import reduce_strength
from fusionstitch.codegen.rewrite.strength_rules import RULES
from fusionstitch.codegen.rewrite.sunk import scan_in_pieces, sink_concatenates
from fusionstitch.codegen.rewrite.widened import widen
from fusionstitch.codegen.schedule.split import split_reductions
from fusionstitch.codegen.settings import Settings, Way
from fusionstitch.codegen.watch import Watch
from fusionstitch.hlo.errors import PassError, VerifyError
from fusionstitch.hlo.graph import Graph


@dataclass(frozen=True)
class Pass:
    """One pass: a word or two, what it does, and the function that does it.

    `rounds`: whether it may change how results are rounded, which strict numerics forbid. `ways`:
    where it runs; None is before the ways part.
    """

    name: str
    about: str
    run: Callable[[Graph, Settings], Graph]
    rounds: bool = False
    ways: frozenset[Way] | None = None

    def applies(self, settings: Settings, way: Way | None) -> bool:
        """Whether it runs under `settings`, on `way` or (None) before the ways part."""
        there = way is None if self.ways is None else way in self.ways
        return there and not (self.rounds and settings.strict)


def _expand(graph: Graph, settings: Settings) -> Graph:
    return expand(graph, settings.options.numerics)


def _reduce_strength(graph: Graph, settings: Settings) -> Graph:
    return reduce_strength(graph, RULES, exact=settings.strict)


def _free_streams(graph: Graph, settings: Settings) -> Graph:
    return without_factors(graph, settings.stream)


def _split(graph: Graph, settings: Settings) -> Graph:
    return split_reductions(graph, settings.splits)


PASSES: tuple[Pass, ...] = (
    Pass(
        "complex",
        "complex numbers become pairs of floats",
        lambda graph, _: split_complex(graph),
    ),
    Pass(
        "dims of dots",
        "dims that were merged for a dot, and come apart after it, stay apart",
        lambda graph, _: keep_dims_apart(graph),
    ),
    Pass(
        "scans",
        "prefix scans, however they are written, start each few elements from what is before them",
        lambda graph, _: scan_in_pieces(graph),
        rounds=True,
    ),
    Pass(
        "bands",
        "products with known matrices of which few elements are not 0 are sums of a few terms",
        lambda graph, _: with_banded_products(graph),
        rounds=True,
    ),
    Pass("expand", "ops that are known in terms of others become those", _expand),
    Pass("strength", "the same values from fewer instructions, equal ops once", _reduce_strength),
    Pass(
        "widened",
        "floats of 16 bits that decide, and are read as wider ones alone, are computed wide",
        lambda graph, _: widen(graph),
        rounds=True,
    ),
    Pass(
        "factors",
        "what does not vary along a sum is taken out of it",
        lambda graph, _: take_out_factors(graph),
        rounds=True,
    ),
    Pass(
        "centre",
        "sums of deviations from a mean do not wait for the mean",
        lambda graph, _: centre_sums(graph),
        rounds=True,
    ),
    Pass(
        "padded sums",
        "outputs that add up what pads set apart are joined from its pieces",
        lambda graph, _: join_padded(graph),
        rounds=True,
    ),
    Pass("strength again", "what the two before made is reduced", _reduce_strength, rounds=True),
    Pass(
        "selected rows",
        "of sorted rows only the elements are found that are read, if they are the first or last",
        lambda graph, _: select_rows(graph),
    ),
    Pass(
        "long rows",
        "rows that no block has as a whole are sorted in parts, which are merged",
        lambda graph, _: divide_rows(graph),
    ),
    Pass(
        "scatters",
        "scatters become pads, selects, or reductions of what matches",
        lambda graph, settings: expand_scatters(graph, settings.strict),
    ),
    Pass(
        "streams",
        "dots of streamed chains do not wait for factors of their rows",
        _free_streams,
        ways=frozenset({Way.STREAM}),
    ),
    Pass(
        "whole tiles",
        "rows of streamed chains whose number has no good divisor are padded",
        lambda graph, settings: fill_tiles(graph, find_streams(graph, settings.device)),
        ways=frozenset({Way.STREAM}),
    ),
    Pass(
        "split",
        "sums that would leave most of the device idle become two",
        _split,
        ways=frozenset({Way.MERGE, Way.APART}),
    ),
    Pass(
        "concatenates",
        "what is computed of a concatenate is computed of each of its pieces",
        lambda graph, settings: sink_concatenates(graph) if settings.sunk else graph,
        rounds=True,
        ways=frozenset({Way.MERGE, Way.APART}),
    ),
    Pass(
        "halos",
        "blocks compute all that their tiles stand on, what neighbours compute, too",
        lambda graph, settings: with_halos(graph, settings.halo),
        rounds=True,
        ways=frozenset({Way.MERGE}),
    ),
    Pass(
        "stacks",
        "stacks of stacks are one concatenate",
        lambda graph, _: flat_joins(graph),
        ways=frozenset({Way.STREAM, Way.SHARE, Way.MERGE, Way.APART}),
    ),
    Pass(
        "pieces",
        "inputs that are pieces of an output are copied",
        lambda graph, _: compute_pieces(graph),
        ways=frozenset({Way.STREAM, Way.SHARE, Way.MERGE, Way.APART}),
    ),
    Pass(
        "variances",
        "variances of parts are merged",
        lambda graph, _: merge_variances(graph),
        rounds=True,
        ways=frozenset({Way.SHARE, Way.MERGE, Way.APART}),
    ),
    Pass(
        "comparisons",
        "numbers that are compared with an extremum of them round alike everywhere",
        lambda graph, _: mark_compared(graph),
        ways=frozenset(Way),
    ),
    Pass(
        "roundings",
        "floats of 16 bits by which something is decided are rounded",
        lambda graph, settings: keep_roundings(graph, settings.becomes),
        rounds=True,
        ways=frozenset(Way),
    ),
    Pass(
        "products",
        "products of f32 that XLA rounds to TF32 are rounded, unless something is decided by them",
        lambda graph, settings: round_products(graph, settings.device),
        rounds=True,
        ways=frozenset({Way.STREAM, Way.SHARE, Way.MERGE, Way.APART}),
    ),
    Pass(
        "merged products",
        "products that were merged for a library come apart",
        lambda graph, _: part_products(graph),
        ways=frozenset({Way.LAYERS}),
    ),
    Pass(
        "large products",
        "products of f32 that XLA rounds to TF32 are rounded: they are as large as there",
        lambda graph, settings: round_products(graph, settings.device, decided=True),
        rounds=True,
        ways=frozenset({Way.LAYERS}),
    ),
)


def rewritten(graph: Graph, settings: Settings, way: Way | None, watch: Watch) -> Graph:
    """The region after the passes of `way`, or those before the ways part (None).

    Raises PassError, with the name of the pass, for a region that is none any more.
    """
    for one in PASSES:
        if not one.applies(settings, way):
            continue
        after = one.run(graph, settings)
        if after is graph:
            continue
        try:
            check_region(after, graph)
        except VerifyError as error:
            raise PassError(f'The pass "{one.name}" broke {graph.name}: {error}') from error
        watch.region(after, one.name, one.about)
        graph = after
    return graph
