"""Results as Markdown, printed or put into a page below its marker:
python -m benchmarks.tables RESULTS.json [PAGE.md]"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.workloads import WORKLOADS

Row = dict[str, Any]
#: A loss beyond this needs its reason.
MUCH_SLOWER = 2.0
MARKER = "<!-- written by python -m benchmarks.tables -->"


# ---- one row's numbers --------------------------------------------------------------------------


def wall(row: Row, side: str) -> float | None:
    """Microseconds per call, the median."""
    value = row.get("wall_us", {}).get(side)
    return value["median"] if value else None


def gpu(row: Row, side: str) -> float | None:
    """Microseconds of kernels and copies per call; op by op of kernels alone."""
    value = _profile(row, side)
    return value["kernel_us" if side == "unfused" else "gpu_us"] if value else None


def launches(row: Row, side: str) -> float | None:
    """Kernels and copies per call; op by op kernels alone, modelled where they were not traced.

    JAX runs a reshape as a copy when it runs op by op, which says nothing about the program.
    """
    value = _profile(row, side)
    if side == "unfused":
        return value["kernels"] if value else row.get("unfused_modelled")
    return value["kernels"] + value["copies"] if value else None


def _profile(row: Row, side: str) -> dict[str, Any] | None:
    return (row.get("profile") or {}).get(side)


def ratio(row: Row, number: Callable[[Row, str], float | None], side: str = "xla") -> float | None:
    """`side`'s number over ours: above 1, fusionstitch has less."""
    theirs, ours = number(row, side), number(row, "fusionstitch")
    return theirs / ours if theirs and ours else None


# ---- tables -------------------------------------------------------------------------------------


def kernels_table(rows: Sequence[Row]) -> list[str]:
    """Kernels per call and the compression, as the paper's table has them."""
    lines = [
        "| workload | op by op | XLA: kernels + copies | fs: kernels + copies | op by op / fs "
        "| XLA / fs |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        modelled = "" if _profile(row, "unfused") else "~"
        lines.append(
            f"| {row['target']} | {_number(launches(row, 'unfused'), modelled)} "
            f"| {_activity(row, 'xla')} | {_activity(row, 'fusionstitch')} "
            f"| {_ratio(ratio(row, launches, 'unfused'))} | {_ratio(ratio(row, launches))} |"
        )
    means = (_mean(rows, launches, "unfused"), _mean(rows, launches, "xla"))
    return [*lines, f"| geometric mean | | | | {means[0]} | {means[1]} |"]


def times_table(rows: Sequence[Row]) -> list[str]:
    """GPU and wall time per call, and how much faster fusionstitch is than XLA."""
    lines = [
        "| workload | GPU us: op by op | XLA | fs | op by op / fs | XLA / fs "
        "| wall us: XLA | fs | XLA / fs |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        lines.append(
            f"| {row['target']} | {_time(gpu(row, 'unfused'))} | {_time(gpu(row, 'xla'))} "
            f"| {_time(gpu(row, 'fusionstitch'))} | {_ratio(ratio(row, gpu, 'unfused'))} "
            f"| {_ratio(ratio(row, gpu))} | {_time(wall(row, 'xla'))} "
            f"| {_time(wall(row, 'fusionstitch'))} | {_ratio(ratio(row, wall))} |"
        )
    means = [_mean(rows, gpu, "unfused"), _mean(rows, gpu, "xla"), _mean(rows, wall, "xla")]
    return [*lines, f"| geometric mean | | | | {means[0]} | {means[1]} | | | {means[2]} |"]


def checks_table(rows: Sequence[Row]) -> list[str]:
    """Errors, compile times and what was stitched."""
    lines = [
        "| workload | outputs right | error: fs | XLA | against | compile s: XLA | fs | patterns "
        "| stitched kernels | left to XLA |",
        "|---|--:|--:|--:|---|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        check, seconds = row.get("check", {}), row.get("compile_s", {})
        stitched = row.get("stitched", {})
        right = f"{check['outputs'] - len(check['wrong'])} of {check['outputs']}" if check else "-"
        lines.append(
            f"| {row['target']} | {right} | {_error(check.get('error'))} "
            f"| {_error(check.get('error_xla'))} | {check.get('reference', '-')} "
            f"| {_seconds(seconds.get('xla'))} | {_seconds(seconds.get('fusionstitch'))} "
            f"| {stitched.get('patterns', '-')} | {_count(stitched.get('kernels'))} "
            f"| {_count(stitched.get('fallbacks'))} |"
        )
    return lines


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
        if found:
            reason = why.get(row["target"])
            lines.append(f"- {row['target']}: {'; '.join(found)}.{f' {reason}' if reason else ''}")
    return lines or ["None."]


def markdown(results: dict[str, Any]) -> str:
    """The page's part that is written from a results file."""
    rows, machine = results["rows"], results["environment"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    parts = [
        f"{machine['gpu']}, driver {machine['driver']}, {packages}; {machine['date']}; "
        f"commit {machine['commit']}; `{results['command']}`.",
        "### Kernels per call",
        "\n".join(kernels_table(rows)),
        "### Times per call",
        "\n".join(times_table(rows)),
        "### Losses",
        "\n".join(losses(rows)),
        "### Results and compilation",
        "\n".join(checks_table(rows)),
    ]
    return "\n\n".join(parts) + "\n"


# ---- cells --------------------------------------------------------------------------------------


def _mean(rows: Sequence[Row], number: Callable[[Row, str], float | None], side: str) -> str:
    found = [value for row in rows if (value := ratio(row, number, side))]
    return _ratio(statistics.geometric_mean(found)) if found else "-"


def _number(value: float | None, prefix: str = "") -> str:
    return "-" if value is None else f"{prefix}{value:g}"


def _activity(row: Row, side: str) -> str:
    value = _profile(row, side)
    return f"{value['kernels']:g} + {value['copies']:g}" if value else "-"


def _count(values: Sequence[Any] | None) -> str:
    return "-" if values is None else str(len(values))


def _time(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def put(text: str, page: str) -> str:
    """`page` with `text` in place of everything below its marker."""
    above, marker, _ = page.partition(MARKER)
    if not marker:
        raise ValueError(f"The page has no line {MARKER}: the results go below it.")
    return f"{above}{MARKER}\n\n{text}"


def main(results: str, page: str | None = None) -> None:
    text = markdown(json.loads(Path(results).read_text()))
    if page is None:
        print(text, end="")
    else:
        Path(page).write_text(put(text, Path(page).read_text()))


if __name__ == "__main__":
    main(*sys.argv[1:])
