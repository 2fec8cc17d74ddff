"""Results as Markdown, printed or put into a page below its marker:
python -m benchmarks.tables RESULTS.json... [--before RESULTS.json...] [PAGE.md]

Runs before are of another commit: their tables follow below those of the newest.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import bars
from benchmarks.readings import (
    OURS,
    TUNED,
    Number,
    Row,
    activity,
    best_flags,
    count,
    fixed,
    gpu,
    launches,
    mean,
    megabytes,
    of_ceiling,
    over_floor,
    passes,
    percent,
    plain,
    profile,
    ratio,
    read,
    scientific,
    seconds,
    table,
    us,
    wall,
)
from benchmarks.suites import SUITES
from benchmarks.workloads import WORKLOADS
from fusionstitch.tuning.outcome import spearman

#: A loss beyond this needs its reason.
MUCH_SLOWER = 2.0
MARKER = "<!-- written by python -m benchmarks.tables -->"
BEFORE = "--before"


def kernels_table(rows: Sequence[Row]) -> list[str]:
    """Kernels per call and the compression, as the paper's table has them."""
    head = ["workload", "op by op", "XLA: kernels + memcpys + memsets", "fs: the same"]
    body = [
        [
            row["target"],
            plain(launches(row, "unfused"), "" if profile(row, "unfused") else "~"),
            activity(row, "xla"),
            activity(row, OURS),
            fixed(ratio(row, launches, "unfused")),
            fixed(ratio(row, launches)),
        ]
        for row in rows
    ]
    means = [_mean(rows, launches, side) for side in ("unfused", "xla")]
    return table(
        [*head, "op by op / fs", "XLA / fs"], [*body, ["geometric mean", *3 * [""], *means]]
    )


def times_table(rows: Sequence[Row]) -> list[str]:
    """GPU time per call, and how much less fusionstitch takes."""
    sides = ("unfused", "xla", "inductor")
    head = ["workload", "GPU us: op by op", "XLA", "Inductor", "fs"]
    body = [
        [
            row["target"],
            *(us(gpu(row, side)) for side in (*sides, OURS)),
            *(fixed(ratio(row, gpu, side)) for side in sides),
        ]
        for row in rows
    ]
    means = [_mean(rows, gpu, side) for side in sides]
    ratios = ["op by op / fs", "XLA / fs", "Inductor / fs"]
    return table([*head, *ratios], [*body, ["geometric mean", *4 * [""], *means]])


def floors_table(rows: Sequence[Row]) -> list[str]:
    """GPU time per call over what the device allows, and below it XLA's over ours."""
    rows = [row for row in rows if row.get("floor_us")]
    body = [
        [
            row["target"],
            us(row["floor_us"]),
            *(fixed(over_floor(row, side)) for side in ("xla", OURS)),
            fixed(ratio(row, gpu)),
        ]
        for row in rows
    ]
    head = ["workload", "floor us", "GPU time over the floor: XLA", "fs", "XLA / fs"]
    means = [mean([over_floor(row, side) for row in rows]) for side in ("xla", OURS)]
    last = ["geometric mean", "", *map(fixed, means), _mean(rows, gpu, "xla")]
    return table(head, [*body, last])


def headline(rows: Sequence[Row]) -> str:
    """Ours over the floor beside XLA over ours, the geometric means of the programs of which both
    are known; empty where none is."""
    known = [row for row in rows if over_floor(row, OURS) and over_floor(row, "xla")]
    if not known:
        return ""
    ours, xla = (fixed(mean([over_floor(row, side) for row in known])) for side in (OURS, "xla"))
    programs = "1 program" if len(known) == 1 else f"{len(known)} programs"
    return (
        f"GPU time of {programs}: fusionstitch takes {ours} times the floor, XLA {xla} times; "
        f"XLA / fusionstitch is {_mean(known, gpu, 'xla')} (geometric means)."
    )


def wall_table(rows: Sequence[Row]) -> list[str]:
    """Wall time per call against XLA's defaults and against its best flags for CUDA graphs."""
    head = ["workload", "wall us: XLA", "XLA, best flags", "fs", "XLA / fs", "best flags / fs"]
    body = [
        [
            row["target"],
            us(wall(row, "xla")),
            f"{us(wall(row, 'xla best'))}{f' ({flags})' if (flags := best_flags(row)) else ''}",
            us(wall(row, OURS)),
            fixed(ratio(row, wall)),
            fixed(ratio(row, wall, "xla best")),
        ]
        for row in rows
    ]
    means = [_mean(rows, wall, side) for side in ("xla", "xla best")]
    return table(head, [*body, ["geometric mean", *3 * [""], *means]])


def memory_table(rows: Sequence[Row], copy_bytes_per_s: float | None) -> list[str]:
    """The memory suite: least traffic over GPU time, as a share of what a copy reaches."""
    rows = [row for row in rows if row["target"] in SUITES["memory"]]
    sides = ("xla", "inductor", OURS)
    body = [
        [
            row["target"],
            megabytes(row.get("floor_bytes")),
            *(us(gpu(row, side)) for side in sides),
            *(percent(of_ceiling(row, side, copy_bytes_per_s)) for side in sides),
        ]
        for row in rows
    ]
    means = [
        percent(mean([of_ceiling(row, side, copy_bytes_per_s) for row in rows])) for side in sides
    ]
    head = ["workload", "MB", "GPU us: XLA", "Inductor", "fs", "share: XLA", "Inductor", "fs"]
    return table(head, [*body, ["geometric mean", *4 * [""], *means]])


def traffic_table(rows: Sequence[Row]) -> list[str]:
    """DRAM bytes per call by the model, and as counted where they were."""
    body = []
    for row in rows:
        modelled, counted = row.get("modelled", {}), row.get("dram_bytes", {})
        body.append(
            [
                row["target"],
                megabytes(row.get("floor_bytes")),
                *(megabytes(modelled.get(s, {}).get("bytes")) for s in ("unfused", "xla", OURS)),
                *(megabytes(counted.get(side)) for side in ("xla", OURS)),
            ]
        )
    head = ["workload", "least MB", "modelled: op by op", "XLA", "fs", "counted: XLA", "fs"]
    return table(head, body)


def checks_table(rows: Sequence[Row]) -> list[str]:
    """Errors and what was stitched."""
    body = []
    for row in rows:
        check, stitched = row.get("check", {}), row.get("stitched", {})
        right = f"{check['outputs'] - len(check['wrong'])} of {check['outputs']}" if check else "-"
        body.append(
            [
                row["target"],
                check.get("reference", "-"),
                right,
                scientific(check.get("error")),
                scientific(check.get("error_xla")),
                *(count(stitched.get(key)) for key in ("patterns", "kernels", "fallbacks")),
            ]
        )
    head = ["workload", "against", "outputs right", "error: fs", "XLA", "patterns"]
    return table([*head, "stitched kernels", "left to XLA"], body, words=2)


#: The passes that count as planning; the others have a column of their own.
PLANNING = ("import", "simplify", "plan", "export")


def compile_table(rows: Sequence[Row]) -> list[str]:
    """Seconds of compiling: XLA alone, with fusionstitch and its passes, and from caches."""
    body = []
    for row in rows:
        whole, warm = row.get("compile_s", {}), row.get("warm_s") or {}
        own = row.get("stitched", {}).get("passes_s") or {}
        parts = [sum(own.get(p, 0.0) for p in PLANNING), own.get("codegen"), own.get("build")]
        body.append(
            [
                row["target"],
                seconds(whole.get("xla")),
                seconds(whole.get(OURS)),
                *(seconds(part if own else None) for part in parts),
                fixed(_share(passes(row), whole.get("xla"))),
                seconds(warm.get("xla")),
                seconds(warm.get(OURS)),
                fixed(_share(warm.get(OURS), whole.get("xla"))),
            ]
        )
    own_mean = mean([_share(passes(row), row.get("compile_s", {}).get("xla")) for row in rows])
    warm_mean = mean(
        [
            _share((row.get("warm_s") or {}).get(OURS), row.get("compile_s", {}).get("xla"))
            for row in rows
        ]
    )
    head = ["workload", "s: XLA", "fs", "planning", "codegen", "NVRTC", "sum of these / XLA"]
    means = [*5 * [""], fixed(own_mean), "", "", fixed(warm_mean)]
    return table(
        [*head, "warm: XLA", "warm: fs", "warm fs / XLA"], [*body, ["geometric mean", *means]]
    )


def tuning_table(rows: Sequence[Row]) -> list[str]:
    """Tuned against untuned, and how well the model ranks the schedules that were measured."""
    body, ratios, both = [], [], []
    for row in rows:
        if not (found := row.get("tuning")):
            continue
        before, after = gpu(row, OURS), gpu(row, TUNED)
        ratios.append(_share(before, after))
        both += [(model, measured) for model, measured in found["points"]]
        body.append(
            [
                row["target"],
                plain(found["patterns"]),
                f"{found['schedules']}{'' if found['complete'] else ' of more'}",
                us(before),
                us(after),
                fixed(ratios[-1]),
                fixed(found["rank_correlation"]),
            ]
        )
    over_all = ["all", "", str(len(both)), "", "", fixed(mean(ratios)), fixed(spearman(both))]
    head = ["workload", "patterns", "schedules", "GPU us: untuned", "tuned", "untuned / tuned"]
    return table([*head, "rank correlation"], [*body, over_all]) if body else ["Not tuned."]


def losses(rows: Sequence[Row]) -> list[str]:
    """Where fusionstitch has more kernels, takes longer than XLA, is wrong or failed."""
    why = {w.target: w.why_slower for w in WORKLOADS}
    lines = []
    for row in rows:
        found = []
        for what, number in (("kernels", launches), ("GPU time", gpu), ("wall time", wall)):
            factor = ratio(row, number)
            if factor is not None and round(factor, 2) < 1:
                bold = "**" if 1 / factor > MUCH_SLOWER and number is not launches else ""
                found.append(f"{bold}{what} {1 / factor:.2f} times XLA's{bold}")
        if wrong := row.get("check", {}).get("wrong"):
            found.append(
                f"{len(wrong)} of {row['check']['outputs']} outputs over the limit, the first, of "
                f"{wrong[0]['elements']} elements, with error {wrong[0]['error']:.1e} where "
                f"XLA's is {wrong[0]['xla']:.1e} and {wrong[0]['allowed']:.1e} is allowed"
            )
        if failure := row.get("failure"):
            found.append(f"not measured: {failure}")
        for part, failed in row.get("failed_parts", {}).items():
            found.append(f"{part} not measured: {failed['failure']}")
        if found:
            reason = why.get(row["target"])
            lines.append(f"- {row['target']}: {'; '.join(found)}.{f' {reason}' if reason else ''}")
    return lines or ["None."]


def markdown(results: dict[str, Any]) -> str:
    """The page's part that is written from a results file."""
    rows, machine = results["rows"], results["environment"]
    copy = results["method"].get("copy_bytes_per_s")
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    copied = f"; a copy inside the GPU moves {copy / 1e12:.2f} TB/s" if copy else ""
    above = headline(rows)
    sections = {
        **({"Over the floor": floors_table(rows)} if above else {}),
        "Kernels per call": kernels_table(rows),
        "GPU time per call": times_table(rows),
        "Wall time per call": wall_table(rows),
        "The memory suite against a copy": memory_table(rows, copy),
        "Goals": bars.table(results),
        "Losses": losses(rows),
        "Tuning": tuning_table(rows),
        "Results": checks_table(rows),
        "DRAM traffic per call": traffic_table(rows),
        "Compilation": compile_table(rows),
    }
    parts = [
        f"{machine['gpu']}, driver {machine['driver']}, {packages}; {machine['date']}; "
        f"commit {machine['commit']}; `{results['command']}`{copied}.",
        *([above] if above else []),
    ]
    for title, lines in sections.items():
        parts += [f"### {title}", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def earlier(results: dict[str, Any]) -> str:
    """The part of earlier runs, whose numbers count for what the newest run did not measure."""
    head = f"## Results before: {results['environment']['date'][:10]}"
    said = "Use these tables only for programs and contestants that were not measured since."
    return "\n\n".join([head, said, markdown(results)])


def _mean(rows: Sequence[Row], number: Number, side: str) -> str:
    return fixed(mean([ratio(row, number, side) for row in rows]))


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part and whole else None


def put(text: str, page: str) -> str:
    """`page` with `text` in place of everything below its marker."""
    above, marker, _ = page.partition(MARKER)
    if not marker:
        raise ValueError(f"The page has no line {MARKER}: the results go below it.")
    return f"{above}{MARKER}\n\n{text}"


def main(arguments: Sequence[str]) -> None:
    pages = [path for path in arguments if path.endswith(".md")]
    files = [path for path in arguments if path not in pages]
    at = files.index(BEFORE) if BEFORE in files else len(files)
    text = markdown(read(files[:at]))
    if before := files[at + 1 :]:
        text += "\n" + earlier(read(before))
    for page in pages:
        Path(page).write_text(put(text, Path(page).read_text()))
    if not pages:
        print(text, end="")


if __name__ == "__main__":
    main(sys.argv[1:])
