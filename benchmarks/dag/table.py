"""The rows as a text for people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_COLUMNS = ("serial", "async", "hand", "hand, prefetch", "one stream", "graph", "graph, one stream")


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """One line for each row; milliseconds, and ratios above 1 where the scheduler is faster."""
    rows = list(rows)
    lines = []
    if six := [row for row in rows if row.get("section") == "six" and "ms" in row]:
        lines += _six(six)
    for row in rows:
        if row.get("section") == "launches" and "us" in row:
            lines += ["", "us a launch: " + _pairs(row["us"], 1)]
            lines.append(f"  beyond CuPy's own: {row['us beyond CuPy']:.1f}")
            lines.append("  to let go of them afterwards: " + _pairs(row["us to let go"], 1))
        elif row.get("section") == "JAX" and "ms" in row:
            lines.append(
                f"JAX, {row['benchmark']:<12} ms: {_pairs(row['ms'], 2)}; "
                f"speed-up {_interval(row['speedup'])}, JAX over itself "
                f"{_interval(row['jax over itself'])}; errors {_pairs(row['error of results'], 6)}"
            )
        elif row.get("section") == "growth" and "before" in row:
            grown = (f"{k} {row['before'][k]} to {row['after'][k]}" for k in row["before"])
            lines.append(
                f"{row['launches']} launches, streams {row['streams']}, {row['us']:.1f} us each: "
                + ", ".join(grown)
            )
        elif row.get("section") == "random programs" and "run" in row:
            lines.append(f"random programs: {row['run']} run, wrong: {row['wrong'] or 'none'}")
    for row in rows:
        what = " ".join(str(row.get(k, "")) for k in ("section", "benchmark", "size", "block"))
        if row.get("error"):
            lines.append(f"failed: {what.strip()}: {row['error']}")
        for name, error in row.get("failed", {}).items():
            lines.append(f"failed: {what}, {name}: {error}")
    return "\n".join(lines)


def _six(rows: list[Mapping[str, Any]]) -> list[str]:
    head = f"{'':<5}{'size':>11}{'block':>6}" + "".join(f"{name[:11]:>12}" for name in _COLUMNS)
    lines = [
        head + f"{'speed-up':>9}{'/hand':>7}{'bound':>7}"
        f"{'CT':>6}{'TC':>6}{'CC':>6}{'TOT':>6}  V/E/S/W"
    ]
    for row in rows:
        if row.get("check"):
            lines += _wrong(row)
            continue
        ms, overlap, graph = row["ms"], row["overlap"]["async"], row["graph"]
        counts = "/".join(str(graph[k]) for k in ("vertices", "edges", "streams", "waits"))
        lines.append(
            f"{row['benchmark']:<5}{row['size']:>11}{row['block']:>6}"
            + "".join(f"{ms[n]:>12.3f}" if n in ms else f"{'-':>12}" for n in _COLUMNS)
            + f"{row['speedup']:>9.3f}{row['vs best by hand']:>7.3f}{row['bound over async']:>7.2f}"
            + "".join(f"{overlap[k]:>6.2f}" for k in ("ct", "tc", "cc", "tot"))
            + f"  {counts}"
        )
        lines += _wrong(row)
    logs = [math.log(row["speedup"]) for row in rows if not row.get("check")]
    if logs:
        lines.append(f"geometric mean of speed-ups: {math.exp(sum(logs) / len(logs)):.3f}")
    return lines


def _wrong(row: Mapping[str, Any]) -> list[str]:
    lines = []
    wrong = {n: d for n, d in row["same as serial"].items() if not d <= 1e-3}
    if wrong:
        lines.append(f"{row['benchmark']} unlike serial: {_pairs(wrong, 6)}")
    error = row.get("error of results", 0.0)
    if row.get("check"):
        lines.append(f"{row['benchmark']:<5}{row['size']:>11}  error of results {error:.1e}")
    return lines


def _interval(values: Sequence[float]) -> str:
    return "{:.3f} ({:.3f} to {:.3f})".format(*values)


def _pairs(values: Mapping[str, float], digits: int) -> str:
    return ", ".join(f"{name} {value:.{digits}f}" for name, value in values.items())
