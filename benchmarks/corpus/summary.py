"""Results of the corpus as Markdown: python -m benchmarks.corpus.summary FILE..."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.readings import fixed, mean, percent, read, scientific, seconds, table, us

#: A program is slower where even the upper end of its interval is below this.
SLOWER = 0.98
#: The bar of first calls: so many times jax.jit's, and so many seconds.
FIRST_TIMES, FIRST_SECONDS = 2.3, 0.3
MEASURES = {"span": "GPU time", "wall": "wall time"}
XLA, OURS = "xla", "fusionstitch"
Row = dict[str, Any]


def ratio(row: Row, what: str) -> float | None:
    """XLA over ours, the median of the paired rounds; None where it was not measured."""
    found = row.get(f"{what}_ratio")
    return found["median"] if found else None


def is_slower(row: Row, what: str) -> bool:
    return row.get(f"{what}_ratio", {}).get("high", SLOWER) < SLOWER


def is_unchanged(row: Row) -> bool:
    """Whether XLA serves it as it is: nothing was stitched, or what was has lost its trial."""
    return "stitched" in row and not (row["stitched"]["patterns"] and not turned_back(row))


def turned_back(row: Row) -> bool:
    """Whether something was stitched, and XLA serves: it was not faster when it was tried, or could
    not be run."""
    return bool(row.get("stitched", {}).get("patterns")) and row.get("serves") == [XLA]


def over_floor(row: Row, side: str) -> float | None:
    """Time on the device over what it cannot go below; None where either is not known."""
    times, floor_us = row.get("span_us"), row.get("floor_us")
    return times[side]["median"] / floor_us if times and floor_us else None


def late(row: Row) -> float | None:
    """The first call over the most it may take; None where it was not measured."""
    found = row.get("first_call_s")
    return found[OURS] / (FIRST_TIMES * found[XLA] + FIRST_SECONDS) if found else None


def overall(rows: Sequence[Row]) -> list[str]:
    """A line per measure: how the ratios of all programs are spread."""
    head = ["XLA / ours", "n", "mean", "lowest", "quarter", "median", "three quarters", "highest"]
    lines = []
    for what, name in MEASURES.items():
        found = sorted(value for row in rows if (value := ratio(row, what)))
        if not found:
            continue
        many = len(found) > 1
        quarters = statistics.quantiles(found, n=4, method="inclusive") if many else found * 3
        cells = map(fixed, [mean(found), found[0], *quarters, found[-1]])
        lines.append([name, str(len(found)), *cells, str(sum(is_slower(r, what) for r in rows))])
    return table([*head, "slower"], lines)


def above_floors(rows: Sequence[Row]) -> list[str]:
    """How far both sides are above the floor: geometric mean and quartiles."""
    lines = []
    for side in (XLA, OURS):
        found = [value for row in rows if (value := over_floor(row, side))]
        if len(found) > 1:
            quarters = statistics.quantiles(found, n=4, method="inclusive")
            lines.append([side, str(len(found)), *map(fixed, [mean(found), *quarters])])
    return table(["GPU time / floor", "n", "mean", "quarter", "median", "three quarters"], lines)


def repeated(rows: Sequence[Row]) -> str:
    """How many programs gave the same bits in every call, of those that do under jax.jit."""
    found = [row["repeats"] for row in rows if row.get("repeats", {}).get(XLA)]
    changed = [row["target"] for row in rows if row.get("repeats") == {XLA: True, OURS: False}]
    same = f"{len(found) - len(changed)} of {len(found)}"
    return f"The same bits in each of many calls: {same}; not in {', '.join(changed) or 'none'}."


def pairs(rows: Sequence[Row]) -> list[str]:
    """How far two equal jax.jit lie apart."""
    lines = []
    for what, name in MEASURES.items():
        found = [row[f"{what}_same"]["median"] for row in rows if f"{what}_same" in row]
        if found:
            cells = map(fixed, [mean(found), min(found), max(found)])
            lines.append([name, str(len(found)), *cells])
    return table(["jax.jit / jax.jit", "n", "mean", "lowest", "highest"], lines)


def by_kind(rows: Sequence[Row]) -> list[str]:
    """Geometric means of each kind of program, and how many are unchanged."""
    lines = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        own = [row for row in rows if row["kind"] == kind]
        cells = [fixed(mean([ratio(row, what) for row in own])) for what in MEASURES]
        lines.append([kind, str(len(own)), *cells, str(sum(map(is_unchanged, own)))])
    return table(["kind", "n", *MEASURES.values(), "unchanged"], lines)


HEAD = (
    *("program", "kind", "kernels", "span us: XLA", "ours", "ratio", "95%"),
    *("wall us: XLA", "ours", "ratio", "95%", "first call s: XLA", "ours", "error", "right"),
)


def cells(row: Row) -> list[str]:
    """A program's line; what failed says why at its end."""
    found = [row["target"], row["kind"]]
    found.append(str(len(row["stitched"]["kernels"])) if "stitched" in row else "-")
    for what in MEASURES:
        times, paired = row.get(f"{what}_us"), row.get(f"{what}_ratio")
        found += [us(times[side]["median"]) if times else "-" for side in (XLA, OURS)]
        found.append(fixed(paired["median"]) if paired else "-")
        found.append(f"{paired['low']:.2f} to {paired['high']:.2f}" if paired else "-")
    first, check = row.get("first_call_s", {}), row.get("check")
    found += [seconds(first.get(XLA)), seconds(first.get(OURS))]
    found.append(scientific(check["error"]) if check else "-")
    right = "-" if not check else "no" if check["wrong"] else "yes"
    return [*found, row.get("failure", right)]


def line(row: Row) -> str:
    return f"| {' | '.join(cells(row))} |"


def text(results: dict[str, Any]) -> str:
    """The whole page: what was measured, on what, the spread, losses, and a line per program."""
    rows, where = results["rows"], results["environment"]
    known = [row for row in rows if "stitched" in row]
    unchanged = sum(map(is_unchanged, known)) / len(known) if known else None
    lost = [row["target"] for row in rows if turned_back(row)]
    tardy = sorted(
        ((value, row["target"]) for row in rows if (value := late(row)) and value > 1), reverse=True
    )
    parts = [
        [f"`{results['command']}`", f"{where['gpu']}, commit {where['commit']}, {where['date']}"],
        overall(rows),
        above_floors(rows),
        [f"XLA serves {percent(unchanged)} of {len(known)} programs, unchanged."],
        [f"Turned back by a trial: {', '.join(lost) or 'none'}."],
        [repeated(rows)],
        pairs(rows),
        by_kind(rows),
    ]
    for what, name in MEASURES.items():
        losses = [f"{r['target']} ({fixed(ratio(r, what))})" for r in rows if is_slower(r, what)]
        parts.append([f"Slower in {name}: {', '.join(losses) or 'none'}."])
    said = ", ".join(f"{name} ({value:.2f})" for value, name in tardy)
    bar = f"{FIRST_TIMES:g} times jax.jit's and {FIRST_SECONDS:g} s"
    parts.append([f"First calls over {bar}, as a multiple of it: {said or 'none'}."])
    wrong = [row["target"] for row in rows if row.get("check", {}).get("wrong")]
    failed = [f"{row['target']} ({row['failure']})" for row in rows if "failure" in row]
    parts += [
        [f"Wrong: {', '.join(wrong) or 'none'}."],
        [f"Failed: {', '.join(failed) or 'none'}."],
    ]
    parts.append(table(HEAD, [cells(row) for row in rows], words=2))
    return "\n\n".join("\n".join(part) for part in parts)


if __name__ == "__main__":
    print(text(read(sys.argv[1:])))
