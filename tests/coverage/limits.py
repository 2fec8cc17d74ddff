"""Writes docs/limits.md from the table of cases: `python -m tests.coverage.limits`.

What is stitched is decided by planning and code generation alone; nothing is built or run.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path

import jax

from fusionstitch.codegen.rewrite import bins, scatter_sums
from fusionstitch.hlo.brief import count
from fusionstitch.hlo.semantics import SEMANTICS, Kind
from tests.coverage.running import Outcome, Status, all_groups, large_statuses
from tests.coverage.table import EVERY, FLOAT8, FOUR_BITS, MORE_FLOAT8

#: Releases of JAX lower some functions to other ops.
JAX_VERSION = ".".join(jax.__version__.split(".")[:2])
PAGE = Path(__file__).parents[2] / "docs" / "limits.md"

#: family -> heading, and whether the bar of stitched cases holds for it.
FAMILIES = {
    "elementwise": ("Elementwise ops", True),
    "types": ("Conversions, bitcasts, iotas, keys", True),
    "movement": ("Movement at fixed indices", True),
    "places": ("Gathers, scatters, dynamic slices", True),
    "reductions": ("Reductions", True),
    "windows": ("Reductions over windows", True),
    "dots": ("Small and batched products", False),
    "convolutions": ("Convolutions", False),
    "matrices": ("Small matrices", False),
    "sorts": ("Sorts", False),
    "complex": ("Complex numbers", False),
    "random": ("Random numbers", False),
    "others": ("Others, without a NumPy reference", False),
}
#: Made by code generation alone: no module holds them.
INTERNAL = frozenset({"record", "member", "windows", "inverse-erf", "bins", "sort-rows"})
#: Ops that end a pattern, whatever their types: XLA, its libraries and its runtime do them.
XLA_ALONE = """
    fft, cholesky, while, conditional, call, custom-call,
    map, select-and-scatter, rng, rng-bit-generator, batch-norm-training, batch-norm-inference,
    batch-norm-grad, all-reduce, all-gather, reduce-scatter, all-to-all,
    collective-permute, collective-broadcast, partition-id, replica-id, infeed, outfeed, send, recv,
    optimization-barrier, domain, get-dimension-size, set-dimension-size, stochastic-convert
"""
SHORT = {"float": "f", "bfloat": "bf", "int": "s", "uint": "u"}


@functools.cache
def statuses() -> tuple[Status, ...]:
    """Those of the whole table."""
    return tuple(s for group in all_groups().values() for s in group.statuses())


def share(found: Iterable[Status]) -> float:
    """The part of the cases under the bar that is stitched; those that leave no op do not count."""
    counted = [s for s in found if FAMILIES[s.case.family][1] and s.outcome is not Outcome.GONE]
    return sum(s.outcome is Outcome.STITCHED for s in counted) / len(counted)


def page() -> str:
    """The text of docs/limits.md."""
    found = statuses()
    seen = {opcode for s in found for opcode in s.opcodes}
    barred = sum(bar for _, bar in FAMILIES.values())  # the first of them
    known = [op for op, spec in SEMANTICS.items() if spec.kind is not Kind.STRUCTURE]
    unseen = [f"`{op}`" for op in known if op not in seen | INTERNAL | {"constant", "iota"}]
    lines = [
        "# What is stitched, and what is left to XLA",
        "",
        "Which ops can be part of a kernel, for which types, and why are others left to XLA?",
        "The answers come from the cases of `tests/coverage/`. Each case is an op and a neighbor",
        "that it could be fused with, lowered for CUDA. The planner uses the paper's scorer, which",
        "takes every pattern that saves a kernel. So a case is left to XLA only for the reason",
        "given. The default scorer also leaves to XLA what would not be faster.",
        "",
        "This page is written by `python -m tests.coverage.limits`, and a test fails if it is out",
        f"of date. Lowered by JAX {JAX_VERSION}.",
        "",
        "| cases | stitched | left to XLA | nothing to compute |",
        "|---|---|---|---|",
        *(
            _summary(title, [s for s in found if s.case.family == f])
            for f, (title, _) in FAMILIES.items()
        ),
        _summary("all", found),
        "",
        f"Of the cases in the first {barred} rows, {share(found):.1%} are stitched.",
        "Those that leave nothing to compute are not counted.",
        "",
        "How to read the tables below:",
        "",
        "- **+**: all cases of this op and type are in a kernel;",
        "- **XLA**: no case is;",
        "- **+/XLA**: some cases are;",
        "- an empty cell: there is no such case.",
        "",
        "Ops on one-byte floats are computed in f32, and each result is rounded to the type. The",
        "column **real sizes** summarizes [a section below](#at-real-sizes), which uses the",
        "default scorer.",
    ]
    for family, (title, _) in FAMILIES.items():
        lines += ["", f"## {title}", "", *_table(family, found)]
    lines += ["", "## At real sizes", "", *_real_sizes()]
    lines += ["", "## Left to XLA, and why", "", *_reasons(found)]
    lines += [
        "",
        "## HLO ops",
        "",
        "Supported in kernels, and in one of the cases above: "
        + ", ".join(f"`{op}`" for op in known if op in seen)
        + ".",
        "",
        f"Supported, but in no case: {', '.join(unseen) or '-'}.",
        "",
        "Never in a kernel, like complex numbers of 128 bits and all ops that this page does not "
        "name: "
        + ", ".join(f"`{op.strip()}`" for op in XLA_ALONE.split(","))
        + ". The ops around them are stitched. [Loops](loops.md) says which `while` loops run as "
        "one kernel.",
        "",
    ]
    return "\n".join(lines)


def _summary(title: str, found: Sequence[Status]) -> str:
    counts = [str(sum(s.outcome is outcome for s in found)) for outcome in Outcome]
    return f"| {title} ({len(found)}) | {' | '.join(counts)} |"


def _short(dtype: str) -> str:
    """The name of a type in HLO."""
    head = dtype.split("_")[0].rstrip("0123456789")
    if head not in SHORT:
        return dtype
    return dtype.replace(head, SHORT[head], 1).replace("f8_", "f8")


def _table(family: str, every: Sequence[Status]) -> list[str]:
    found = [s for s in every if s.case.family == family]
    large = [s for s in large_statuses() if s.case.family == family]
    present = {s.case.dtype for s in found}
    order = (*EVERY, *FLOAT8, *MORE_FLOAT8, *FOUR_BITS)
    types = [t for t in order if t in present] + sorted(present - set(order))
    heads = [*map(_short, types), *(["real sizes"] if large else [])]
    rows = [f"| op | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for op in sorted({s.case.op for s in found}):
        here = [s for s in found if s.case.op == op]
        cells = [_cell(s for s in here if s.case.dtype == dtype) for dtype in types]
        cells += [_cell(s for s in large if s.case.op == op)] if large else []
        rows.append(f"| {op} | {' | '.join(cells)} |")
    return rows


def _cell(found: Iterable[Status]) -> str:
    outcomes = {s.outcome for s in found}
    return "/".join(o.value for o in Outcome if o in outcomes and o.value)


def _real_sizes() -> list[str]:
    return [
        "These cases are planned in f32 for an H200 with the default scorer, which decides by the",
        "model; nothing is run. Each has ops before and after it for which XLA needs kernels, such",
        "as `exp` of the updates and `tanh` of the sums. Without these, more is left to XLA.",
        "",
        "Several updates of a scatter or a segment sum may go to the same",
        "element. Kernels handle this in three ways; all use a fixed order and",
        "no atomics. If the indices need no data, as in an overlap-add or the gradient",
        "of strides, frames, patches or repeats, each element reads its updates, however",
        "many there are. If there are few updates, each is compared with every",
        f"element of the result: {scatter_sums.MOST:,} comparisons at most, or more where a",
        f"batch has few elements a row. With {bins.LEAST_UPDATES:,} updates or more (each",
        "element of an updated row counts), each warp accumulates into its own",
        f"copy of the result in shared memory. A copy may take {bins.MOST_BYTES:,} bytes;",
        "wide rows are divided among blocks first, down to 32 bytes of each.",
        "Larger results, such as the sums of a large graph or the gradient of a",
        "large table, are left to XLA.",
        "",
        "| op | sizes | stitched | why not |",
        "|---|---|---|---|",
        *(
            f"| {s.case.op} | {s.case.name.partition(': ')[2]} | {s.outcome.value} | {s.reason} |"
            for s in large_statuses()
        ),
    ]


def _reasons(found: Sequence[Status]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for status in found:
        if status.outcome is Outcome.LEFT:
            by_reason.setdefault(status.reason, []).append(status.case.name)
    return [
        f"- {reason.rstrip('.')} ({count(names, 'case')}): {', '.join(names)}."
        for reason, names in sorted(by_reason.items(), key=lambda entry: -len(entry[1]))
    ]


if __name__ == "__main__":
    PAGE.write_text(page())
