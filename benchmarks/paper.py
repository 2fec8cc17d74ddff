"""The paper's tables and figures from our results: python -m benchmarks.paper RESULTS.json...
[ablation.json] > docs/paper.md

The paper is FusionStitching (arXiv 1911.11576): TensorFlow 1 on a V100. Its four applications are
not public; ours are stand-ins, so kernels and times of those rows are of other programs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import ablation
from benchmarks.readings import (
    OURS,
    Row,
    fixed,
    gpu,
    launches,
    mean,
    percent,
    plain,
    profile,
    read,
    table,
)
from benchmarks.suites import PAPER

APPLICATIONS = ("nmt", "multi-interests", "rokid", "aiwriter")
#: Table 2: ops of the graph, kernels, average microseconds of a kernel, share of memory-bound time.
TABLE_2 = {
    "nmt": (1532, 5940, 9.2, 0.46),
    "multi-interests": (992, 495, 202.8, 0.81),
    "rokid": (3204, 261029, 4.0, 0.47),
    "aiwriter": (27428, 398265, 5.4, 0.80),
    "logistic": (62, 1540, 3.1, 0.60),
    "word2vec": (206, 64, 2.5, 0.71),
    "bi-rnn": (461, 1085, 3.7, 0.56),
    "dyn-rnn": (957, 1352, 3.2, 0.63),
    "perceptron": (108, 49, 5.4, 0.47),
    "var-encoder": (239, 112, 4.5, 0.53),
}
#: Table 3: kernels and speed of XLA and of FusionStitching, relative to TensorFlow.
TABLE_3 = {
    "nmt": (1.65, 3.25, 1.36, 1.84),
    "multi-interests": (1.63, 2.27, 1.25, 1.57),
    "rokid": (1.3, 13.5, 1.09, 1.35),
    "aiwriter": (2.6, 5.7, 2.53, 4.6),
    "logistic": (1.5, 4.6, 1.46, 1.83),
    "word2vec": (2.9, 4.9, 2.6, 3.3),
    "bi-rnn": (2.8, 6.8, 2.5, 4.1),
    "dyn-rnn": (3.2, 7.8, 3.8, 5.7),
    "perceptron": (1.1, 1.3, 0.94, 1.18),
    "var-encoder": (1.5, 1.9, 0.8, 1.09),
}
#: Table 4: share of patterns with shared memory, of their time, average and most KB, allocated
#: over requested.
TABLE_4 = {
    "nmt": (0.42, 0.87, 3.6, 18.6, 0.81),
    "multi-interests": (0.24, 0.56, 7.5, 36.0, 0.88),
    "rokid": (0.90, 0.95, 5.5, 16.4, 0.98),
    "aiwriter": (0.34, 0.62, 1.4, 4.1, 0.87),
}
CLASSES = ("elemwise", "reduction", "gemm")

#: Figure 7: the kernel time that FusionStitching saves against XLA, on average.
SAVED = 0.39

Rows = Mapping[str, Row]


def named(results: Mapping[str, Any]) -> dict[str, Row]:
    """The rows of the ten workloads by the paper's names; empty for those that are missing."""
    rows = {row["target"]: row for row in results["rows"]}
    return {name: rows.get(target, {"target": target}) for name, target in PAPER.items()}


def table_2(rows: Rows) -> list[str]:
    body = []
    for name, (ops, kernels, average, share) in TABLE_2.items():
        row = rows[name]
        found = profile(row, "unfused")
        gemm = found and found["classes"].get("gemm", {"us": 0.0})["us"]
        body.append(
            [
                *(name, plain(ops), plain(kernels), plain(average), percent(share)),
                plain(row.get("ops")),
                plain(launches(row, "unfused"), "" if found else "~"),
                fixed(found["kernel_us"] / found["kernels"] if found else None),
                percent(1 - gemm / found["kernel_us"] if found else None),
            ]
        )
    paper = ["paper: ops", "kernels", "us a kernel", "memory-bound"]
    return table(["workload", *paper, "ours: ops", *paper[1:]], body)


def table_3(rows: Rows) -> list[str]:
    body, columns = [], []
    for name, paper in TABLE_3.items():
        row, numbers = rows[name], []
        for number in (launches, gpu):
            base, xla, ours = (number(row, side) for side in ("unfused", "xla", OURS))
            numbers += [_over(base, xla), _over(base, ours), _over(xla, ours)]
        theirs = [*paper[:2], paper[1] / paper[0], *paper[2:], paper[3] / paper[2]]
        columns.append((theirs, numbers))
        pairs = zip(theirs, numbers, strict=True)
        body.append([name, *(f"{fixed(a)} / {fixed(b)}" for a, b in pairs)])
    means = [
        " / ".join(fixed(mean([pair[side][i] for pair in columns])) for side in (0, 1))
        for i in range(6)
    ]
    kinds = [
        f"{what}: {of}" for what in ("kernels", "time") for of in ("tf/xla", "tf/fs", "xla/fs")
    ]
    return table(["workload", *kinds], [*body, ["geometric mean", *means]])


def pattern_shares(row: Row) -> list[float] | None:
    """The share of each of CLASSES among the patterns of a program; None without patterns."""
    stitched = row.get("stitched", {})
    kinds = {kernel["name"]: kernel["kind"] for kernel in stitched.get("kernels", ())}
    found = [kinds[one["kernel"]] for one in stitched.get("patterns", ())]
    return [found.count(kind) / len(found) for kind in CLASSES] if found else None


def figure_6(rows: Rows) -> list[str]:
    body = []
    for name, row in rows.items():
        shares = pattern_shares(row) or [None] * len(CLASSES)
        body.append(
            [name, str(len(row.get("stitched", {}).get("patterns", ()))), *map(percent, shares)]
        )
    return table(["workload", "patterns", *CLASSES], body)


def kernel_time(row: Row) -> float | None:
    """GPU time with fusionstitch over that with XLA."""
    return _over(gpu(row, OURS), gpu(row, "xla"))


def figure_7(rows: Rows) -> list[str]:
    body = [
        [name, fixed(gpu(row, "xla")), fixed(gpu(row, OURS)), fixed(kernel_time(row))]
        for name, row in ((name, rows[name]) for name in APPLICATIONS)
    ]
    average = fixed(mean([kernel_time(rows[name]) for name in APPLICATIONS]))
    head = ["workload", "us: XLA", "fs", "fs / XLA"]
    return table(head, [*body, ["geometric mean", "", "", average]])


def time_shares(row: Row) -> list[float] | None:
    """The share of kernel time of stitched patterns of each of CLASSES, of matrix products left to
    XLA, and of other kernels left to it; None where nothing was measured."""
    found = profile(row, OURS)
    classes = found["classes"] if found else {}
    whole = sum(one["us"] for one in classes.values())
    names = [*(f"stitched {kind}" for kind in CLASSES), "gemm", "memory"]
    return [classes.get(n, {"us": 0.0})["us"] / whole for n in names] if whole else None


#: What `time_shares` are of.
TIME_CLASSES = (*CLASSES, "left to XLA: gemm", "left to XLA: other")


def figure_8(rows: Rows) -> list[str]:
    shares = {name: time_shares(rows[name]) for name in APPLICATIONS}
    body = [[n, *map(percent, known or [None] * len(TIME_CLASSES))] for n, known in shares.items()]
    return table(["workload", *TIME_CLASSES], body)


def table_4(rows: Rows) -> list[str]:
    body = []
    for name, (patterns, time, average, most, reuse) in TABLE_4.items():
        ours = _shared(rows[name])
        theirs = [percent(patterns), percent(time), f"{average} KB", f"{most} KB", fixed(reuse)]
        body.append([name, *(f"{a} / {b}" for a, b in zip(theirs, ours, strict=True))])
    head = ["patterns with shared memory", "their share of time", "average", "most", "alloc / req"]
    return table(["workload", *head], body)


def _shared(row: Row) -> list[str]:
    """Our columns of Table 4. Averages and ratios are over the patterns with shared memory."""
    stitched, found = row.get("stitched", {}), profile(row, OURS)
    kernels = {kernel["name"]: kernel for kernel in stitched.get("kernels", ())}
    patterns = [kernels[p["kernel"]] for p in stitched.get("patterns", ())]
    using = [kernel for kernel in patterns if kernel["shared"]]
    times = found["stitched"] if found else {}
    whole = sum(times.values())
    theirs = sum(us for name, us in times.items() if kernels.get(name, {}).get("shared"))
    sizes = [kernel["shared"] for kernel in using]
    return [
        percent(len(using) / len(patterns) if patterns else None),
        percent(theirs / whole if whole else None),
        f"{sum(sizes) / len(sizes) / 1024:.1f} KB" if sizes else "-",
        f"{max(sizes) / 1024:.1f} KB" if sizes else "-",
        fixed(_over(sum(sizes), sum(kernel["unshared"] for kernel in using))),
    ]


def _over(a: float | None, b: float | None) -> float | None:
    return a / b if a and b else None


#: Sections: title, what it shows, what makes it.
SECTIONS = (
    (
        "Table 2: workloads, op by op",
        "The number of ops, the kernels per run and their average time, and the share of kernel "
        "time in memory-bound kernels, which are neither matrix products nor convolutions. The "
        "paper counts ops of a TensorFlow graph and kernels of many steps; we count ops of the "
        "lowered program and kernels of one step. `~`: counted by the model, not measured. `-`: "
        "not measured.",
        table_2,
    ),
    (
        "Table 3: compression and speed",
        "Each cell has two numbers: the paper's, then ours. Every number is itself a ratio, such "
        "as kernels under XLA over kernels with FusionStitching (xla/fs). tf is op-by-op "
        "execution. The paper's times are times of a step, ours are GPU times.",
        table_3,
    ),
    (
        "Figure 6: patterns by class",
        "A gemm pattern contains a dot, a reduction pattern contains a reduction but no dot, and "
        "an elemwise pattern contains neither. The paper has patterns of all three classes, and "
        "16% gemm patterns in nmt and multi-interests.",
        figure_6,
    ),
    (
        "Figure 7: accumulated kernel time of the applications",
        f"The last column is relative to XLA. The paper saves {100 * SAVED:.0f}% on average.",
        figure_7,
    ),
    (
        "Figure 8: kernel time by class of pattern",
        "The paper breaks down the time of stitched kernels only, about half of which is elemwise. "
        "Our shares are of the time of all kernels, including those left to XLA.",
        figure_8,
    ),
    (
        "Table 4: shared memory of the applications",
        "Each cell has two numbers: the paper's, then ours. The second column is the share of the "
        "patterns' GPU time spent in patterns with shared memory. The next two are bytes per "
        "block. alloc / req is allocated over requested bytes: below 1, values share memory.",
        table_4,
    ),
)


def markdown(results: Mapping[str, Any], ladder: Mapping[str, Any] | None = None) -> str:
    """The whole page."""
    rows, machine = named(results), results["environment"]
    parts = [
        "# The paper's evaluation, repeated",
        "FusionStitching (arXiv 1911.11576) was measured with TensorFlow on a V100 in 2019. This "
        "page puts its tables and figures next to ours. The six micro-benchmarks are the same "
        "models. The four applications are not published, so public stand-ins replace them, and "
        "their kernels and times are those of other programs.",
        f"Ours: {machine['gpu']}, jax {machine['packages'].get('jax')}, {machine['date']}, commit "
        f"{machine['commit']}. This page is written by `python -m benchmarks.paper`.",
    ]
    for title, text, make in SECTIONS:
        parts += [f"## {title}", text, "\n".join(make(rows))]
    if ladder:
        parts += [
            "## Compositions, one after the other",
            "Kernels per call by the model, planned for "
            f"{ladder['device']} by `python -m benchmarks.ablation`. Each column allows more than "
            "the one before: values may be passed within threads, warps and blocks, independent "
            "ops may be packed, patterns may be explored (all of these are the paper's), and "
            "values may be passed across the whole grid.",
            "\n".join(ablation.table(ladder["rows"])),
        ]
    return "\n\n".join(parts) + "\n"


def main(paths: Sequence[str]) -> None:
    ladders = [json.loads(Path(path).read_text()) for path in paths if "ablation" in path]
    results = read([path for path in paths if "ablation" not in path])
    print(markdown(results, ladders[0] if ladders else None), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
