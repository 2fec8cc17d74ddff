"""Tables of README.md, docs/benchmarks.md and docs/compare.md, each from the newest results that
have its programs: python -m benchmarks.published [PAGE...]

A table stands below its marker, `<!-- benchmarks.published: NAME -->`. Without a page all tables
are printed.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import readings
from benchmarks.corpus import summary
from benchmarks.guard import BARS, speed
from benchmarks.loops.__main__ import gain
from benchmarks.readings import OURS, fixed, gpu, ratio, us, wall

RESULTS = Path(__file__).parent / "results"
#: Some programs of the examples, and what the page calls them.
EXAMPLES: Mapping[str, str] = {
    "figure1.py:original": "Figure 1 of the paper, D 2",
    "cross_entropy.py:vocabulary": "cross-entropy and gradient, bf16[4096, 32768]",
    "norms.py:backward": "layer norm forward and backward, bf16[16384, 1024]",
    "transformer.py:train_step": "training step of a transformer, 4 layers, 64 wide",
    "var_encoder.py:train_step": "Adam step of a variational encoder",
    "adam.py:gpt2_small": "Adam over GPT-2 small's tensors",
    "softmax.py:rows": "softmax, f32[8192, 4096]",
    "word2vec.py:train_step": "word2vec, one step",
    "norms.py:forward": "layer norm forward, nothing stitched",
}

#: What PyTorch's Inductor was measured on.
MEMORY: Mapping[str, str] = {
    "softmax.py:rows": "softmax, f32[8192, 4096]",
    "norms.py:residual_norm_gelu": "residual, layer norm, GELU, bf16[8192, 4096]",
    "norms.py:backward": "layer norm forward and backward, bf16[16384, 1024]",
    "norms.py:rms_backward": "RMS norm backward",
    "norms.py:batch_backward": "batch norm, ReLU, backward",
    "cross_entropy.py:vocabulary": "cross-entropy and gradient, bf16[4096, 32768]",
    "adam.py:gpt2_small": "Adam over GPT-2 small",
    "black_scholes.py:options": "option prices",
}


@dataclass(frozen=True)
class Run:
    """A file of results."""

    path: Path
    content: dict[str, Any]

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for row in self.content["rows"] if "failure" not in row]

    @property
    def told(self) -> str:
        """Where and when it was measured, and the commit."""
        machine = self.content["environment"]
        gpu_name, day = machine["gpu"].removeprefix("NVIDIA ").split()[0], machine["date"][:10]
        return f"{gpu_name}, {day}, {machine['commit'][:7]}"


def runs(kind: str) -> list[Run]:
    """The runs whose file's name has `kind`, a regular expression, between date and suffixes, the
    newest first."""
    named = re.compile(rf"h\d+-[-\d]{{10}}-{kind}(-\w+)*\.json")
    read = (
        Run(path, json.loads(path.read_text()))
        for path in RESULTS.iterdir()
        if named.fullmatch(path.name)
    )
    found = [run for run in read if "environment" in run.content]
    return sorted(found, key=lambda run: run.content["environment"]["date"], reverse=True)


def newest(found: Sequence[Run], share: float = 1.0) -> Run:
    """The first, newest of these that measured `share` of what the largest did."""
    most = max(len(run.rows) for run in found)
    return next(run for run in found if len(run.rows) >= share * most)


def suites() -> list[Run]:
    """The newest run of each suite that others published."""
    found = {run.rows[0]["kind"]: run for run in reversed(runs("public"))}
    return [found[name] for name in sorted(found)]


def spreads() -> list[str]:
    """How the programs of each kind fare: first those that others wrote, then those drawn after the
    code was written."""
    run, looped, shown = newest(runs("guard"), 0.9), newest(runs("loops")), newest(runs("suites"))
    drawn = newest(runs("corpus"), 0.9)
    rows = [_of_corpus(suite.rows[0]["kind"], suite) for suite in suites()]
    batches = drawn.content.get("times", 1)
    kind = "drawn from a seed" + (f", batches x {batches}" if batches > 1 else "")
    rows.append(_of_corpus(kind, drawn))
    both = [{r["name"]: speed(r, what, "guarded") for r in run.rows} for what in ("gpu", "wall")]
    stitched = {r["name"] for r in run.rows if r["guarded"]["patterns"]}
    rows.append(_spread("unseen programs of ten fields", run, stitched, both))
    both = [{r["target"]: gain(r, key) for r in looped.rows} for key in ("span_us", "wall_us")]
    stitched = {r["target"] for r in looped.rows if r["patterns"]}
    rows.append(_spread("with loops", looped, stitched, both))
    both = [{r["target"]: ratio(r, number) for r in shown.rows} for number in (gpu, wall)]
    stitched = {r["target"] for r in shown.rows if r["stitched"]["patterns"]}
    rows.append(_spread("examples", shown, stitched, both))
    times = [cell for what in ("GPU", "wall") for cell in (f"{what} time", "mean")]
    slower = [f"below {BARS['gpu']} in GPU time", f"below {BARS['wall']} in wall time"]
    return readings.table(["run", "programs", *times, "unchanged", *slower], rows)


def _of_corpus(kind: str, run: Run) -> list[str]:
    """A row for a run of `benchmarks.corpus`."""
    both = [{r["target"]: summary.ratio(r, what) for r in run.rows} for what in ("span", "wall")]
    return _spread(kind, run, {r["target"] for r in run.rows if not summary.is_unchanged(r)}, both)


def _spread(
    kind: str, run: Run, stitched: Set[str], both: Sequence[Mapping[str, float | None]]
) -> list[str]:
    """A row: quartiles with the median between them and means of GPU and wall time, and what of
    that which is stitched is slower than XLA's."""
    cells, lost = [f"{kind}: {run.told}", str(len(run.rows))], []
    for speeds, bar in zip(both, (BARS["gpu"], BARS["wall"]), strict=True):
        known = {name: one for name, one in speeds.items() if one is not None}
        low, middle, high = statistics.quantiles(known.values(), n=4, method="inclusive")
        cells.append(f"{low:.2f}, **{middle:.2f}**, {high:.2f}")
        cells.append(readings.fixed(readings.mean(list(known.values()))))
        slow = sorted((known[name], name.split("/")[-1]) for name in stitched & known.keys())
        named = [f"`{name}` {one:.2f}" for one, name in slow if one < bar]
        lost.append(", ".join(named) or "none")
    return [*cells, str(len(run.rows) - len(stitched)), *lost]


def examples() -> list[str]:
    """The examples' programs, in the newest run of all of them."""
    run = newest(runs("suites"))
    found = {row["target"]: row for row in run.rows}
    head = ["program", "XLA us", "fusionstitch us", "XLA / fusionstitch", "in wall time"]
    body = [
        [
            label,
            *(us(gpu(found[target], side)) for side in ("xla", OURS)),
            *(fixed(ratio(found[target], number)) for number in (gpu, wall)),
        ]
        for target, label in EXAMPLES.items()
    ]
    return readings.table(head, body)


def corpus() -> list[str]:
    """The spread of the newest run of the corpus."""
    return summary.overall(newest(runs("corpus"), 0.9).rows)


def public() -> list[str]:
    """Every program of the suites that others published."""
    head = ["program", "kernels", "XLA us", "fusionstitch us", "XLA / fusionstitch"]
    head += ["in wall time", "first call s: XLA", "fusionstitch"]
    body = []
    for row in (row for suite in suites() for row in suite.rows):
        first, span = row["first_call_s"], row["span_us"]
        kernels = 0 if summary.is_unchanged(row) else len(row["stitched"]["kernels"])
        body.append(
            [
                f"`{row['target']}`",
                str(kernels),
                *(us(span[side]["median"]) for side in ("xla", OURS)),
                *(fixed(summary.ratio(row, what)) for what in ("span", "wall")),
                *(readings.seconds(first[side]) for side in ("xla", OURS)),
            ]
        )
    return readings.table(head, body)


def inductor() -> list[str]:
    """Programs of the memory suite under XLA, under Inductor and stitched, in the newest run that
    has all of them."""
    found = (
        {row["target"]: row for row in run.rows if readings.profile(row, "inductor")}
        for run in runs("(suites|kernels)")
    )
    rows = next(one for one in found if MEMORY.keys() <= one.keys())
    sides = ("xla", "inductor", OURS)
    body = []
    for target, label in MEMORY.items():
        times = [gpu(rows[target], side) for side in sides]
        by = times[1] / times[2] if times[1] and times[2] else None
        body.append([label, *map(us, times), fixed(by)])
    head = ["program", "XLA us", "Inductor us", "fusionstitch us", "Inductor / fusionstitch"]
    return readings.table(head, body)


def instances(kind: str) -> list[str]:
    """Every instance of a kind of op, in the newest run."""
    rows = newest(runs(f"instances-{kind}")).rows
    rounds = any(row.get("errors") for row in rows)
    head = ["instance", "XLA us", "fusionstitch us", "XLA / fusionstitch", "floor us"]
    body = []
    for row in rows:
        times = (row["xla"]["median"], row["ours"]["median"], row["floor"])
        xla, ours, floor = map(us, times)
        cells = [row["program"], xla, ours, fixed(row["ratio"]["median"]), floor]
        if rounds:
            errors = row["errors"] or {}
            cells += [readings.scientific(errors.get(side)) for side in ("xla", "ours")]
        body.append(cells)
    return readings.table([*head, *(("error: XLA", "fusionstitch") if rounds else ())], body)


TABLES = {
    "spreads": spreads,
    "examples": examples,
    "corpus": corpus,
    "public": public,
    "inductor": inductor,
    "sorting": lambda: instances("sorting"),
    "convolutions": lambda: instances("convolutions"),
}
#: The tables that each page has.
PAGES = {
    "README.md": ("spreads", "examples"),
    "docs/benchmarks.md": ("public", "corpus", "sorting", "convolutions"),
    "docs/compare.md": ("inductor",),
}
_MARKER = re.compile(r"<!-- benchmarks\.published: (\w+) -->\n")


def put(page: str) -> str:
    """The page with the table of each marker anew. Raises ValueError for a page without one, or
    with one of no table."""
    names = _MARKER.findall(page)
    if not names or not TABLES.keys() >= set(names):
        raise ValueError(f"A page has markers of {', '.join(TABLES)}: {', '.join(names) or 'none'}")
    for name in names:
        marker = f"<!-- benchmarks.published: {name} -->\n"
        place = re.compile(rf"({re.escape(marker)}\n)(?:\|.*\n)*\n*")
        text = "".join(f"{line}\n" for line in TABLES[name]())
        text += "\n"  # without an empty line, the text that follows would be a row of the table
        page = place.sub(lambda found, text=text: found[1] + text, page)
    return page.rstrip("\n") + "\n"


def main(arguments: Sequence[str]) -> None:
    for name in arguments:
        path = Path(name)
        path.write_text(put(path.read_text()))
    if not arguments:
        for name, lines in TABLES.items():
            print(name, *lines(), sep="\n", end="\n\n")


if __name__ == "__main__":
    main(sys.argv[1:])
