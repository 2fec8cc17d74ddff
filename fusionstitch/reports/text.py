"""A report as plain text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusionstitch.hlo import foreign
from fusionstitch.hlo.brief import count
from fusionstitch.reports.figures import Figures
from fusionstitch.reports.memory import TOLERANCE_BYTES
from fusionstitch.reports.sizes import size
from fusionstitch.reports.won import won

_MAX_PATTERNS = 20
#: Microseconds from which on a unit is named.
_LEAST_US = 0.05


def text(report: Figures) -> str:
    """A header, one table of the three contestants, the patterns, what is left to say, and what was
    won."""
    lines = [
        f"{foreign.line(report.workload)} on {report.device} ({BACKENDS[report.backend]}), "
        f"{report.ops} ops as traced",
        "",
        *_table(comparison(report)),
        "",
        f"kernels             {_fewer(report.compression['vs_unfused'])} op by op, "
        f"{_fewer(report.compression['vs_xla'])} XLA",
    ]
    if report.speedup_vs_xla is not None:
        lines.append(f"faster              {report.speedup_vs_xla:.2f} times XLA")
    if floor := floor_line(report):
        lines.append(f"floor               {floor}")
    lines.append(f"error               {error_text(report)}")
    lines.append(f"compile time        {compile_text(report)}")
    if report.patterns:
        lines += ["", *_patterns(report)]
    counted: dict[str, int] = {}
    for one in report.fallbacks:
        counted[one["reason"]] = counted.get(one["reason"], 0) + 1
    lines += [f"left to XLA: {count(n, 'pattern')}: {why}" for why, n in counted.items()]
    lines += [f"note: {note}" for note in all_notes(report)]
    lines += ["", won(report)]
    return "\n".join(line.rstrip() for line in lines)


def all_notes(report: Figures) -> tuple[str, ...]:
    """The report's own, and what its numbers give cause to say."""
    return (*report.notes, *_more_memory(report))


def _more_memory(report: Figures) -> list[str]:
    """Says so where stitching takes memory."""
    xla, ours = report.memory_bytes["xla"], report.memory_bytes["fusionstitch"]
    if xla is None or ours is None or ours <= xla + TOLERANCE_BYTES:
        return []
    return [
        f"it needs {size(ours - xla)} more device memory than XLA's program: what passes "
        "between the loops of a kernel has a buffer until the kernel ends"
    ]


_SIDES = ("unfused", "xla", "fusionstitch")
#: What a report's backend means.
BACKENDS = {
    "cuda": "measured on this GPU",
    "emulate": "emulated on the host",
    "model": "planned only",
}


def comparison(report: Figures) -> list[tuple[str, ...]]:
    """The contestants side by side: a head and a row for each thing that is compared."""
    measured = report.backend == "cuda"
    kernels, times, traffic = report.kernels, report.time_us, report.traffic_bytes
    rows = [
        ("", "op by op", "XLA", "fusionstitch"),
        (
            "kernels" if measured else "kernels (XLA's modelled)",
            *(str(kernels[side]) for side in _SIDES),
        ),
        ("modelled time", "", _us(report.modelled_xla_us), _us(report.modelled_us)),
        *_over_floor(report),
        ("modelled traffic", *(size(traffic[side]) for side in _SIDES)),
    ]
    if measured:
        rows.append(("time of a call", *(_us(times[side]) for side in _SIDES)))
    memory = report.memory_bytes
    if memory["xla"] is not None and memory["fusionstitch"] is not None:
        rows.append(("device memory", "", size(memory["xla"]), size(memory["fusionstitch"])))
    return rows


def _over_floor(report: Figures) -> list[tuple[str, ...]]:
    """How far both sides are above what the device allows."""
    found = report.over_floor
    if found is None or found["xla"] is None:
        return []
    name = "time over the floor" if found["measured"] else "modelled over floor"
    return [(name, "", *(f"{found[side]:.2f} times" for side in ("xla", "fusionstitch")))]


def floor_line(report: Figures) -> str:
    """The floor and what each unit takes alone; empty for a program that computes nothing."""
    found = report.floor_us
    if not found or not found["total"]:
        return ""
    shown = [f"{unit} {us:.1f}" for unit, us in found["units"].items() if us >= _LEAST_US]
    least = "at least " if found["at_least"] else ""
    units = f" ({', '.join(shown)} us alone)" if shown else ""
    return f"{least}{found['total']:.1f} us, bound by {found['bound_by']}{units}"


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if n == 0 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]


#: Of each pattern, in all its runs; "measured" is stitched / XLA in one, of all patterns that were
#: compared together.
_TIMES = ("modelled", "XLA", "measured")


def _patterns(report: Figures) -> list[str]:
    lines = _table(pattern_rows(report))
    if (more := len(report.patterns) - _MAX_PATTERNS) > 0:
        lines.append(f"and {more} more")
    return lines


def pattern_rows(report: Figures) -> list[tuple[str, ...]]:
    """A head and a row for each of the first patterns, without columns that say nothing."""
    head = ("pattern", "kind", "scope", "ops", "shared", "registers", "runs", *_TIMES, "wins")
    rows = [head, *(_pattern(one) for one in report.patterns[:_MAX_PATTERNS])]
    columns = [column for column in zip(*rows, strict=True) if _says(*column)]
    return list(zip(*columns, strict=True))


def _says(name: str, *cells: str) -> bool:
    return any(cells) if name != "runs" else any(cell != "1" for cell in cells)


def _pattern(one: dict[str, Any]) -> tuple[str, ...]:
    registers = "" if one["registers"] is None else str(one["registers"])
    return (
        str(one["id"]),
        one["kind"],
        one["scope"],
        str(len(one["ops"])),
        size(one["shared_bytes"]) if one["shared_bytes"] else "",
        registers,
        str(one["runs"]),
        *_beside_xla(one),
        _us(one["wins_us"]),
    )


def _beside_xla(one: dict[str, Any]) -> tuple[str, ...]:
    found = one["measured_us"]
    measured = f"{found['ours_us']:.1f} / {found['xla_us']:.1f} us" if found else ""
    return _us(one["modelled_us"]), _us(one["modelled_us"] + one["wins_us"]), measured


def compile_text(report: Figures) -> str:
    """What compiling took, part by part."""
    spent = report.compile_s
    parts = [
        ("XLA", "xla"),
        ("planning", "plan"),
        ("codegen", "codegen"),
        ("toolchain", "toolchain"),
    ]
    known = [f"{name} {spent[key]:.2f} s" for name, key in parts if spent[key] is not None]
    return ", ".join(known)


def error_text(report: Figures) -> str:
    """The error and XLA's beside it."""
    if report.max_rel_error is None:
        return "not measured"
    other = report.max_rel_error_xla
    beside = "" if other is None else f", XLA alone {other:.1e}"
    return f"{report.max_rel_error:.1e} (largest relative L2 error against float64{beside})"


def _fewer(ratio: float | None) -> str:
    if ratio is None:
        return "none, unlike"
    return "as many as" if ratio == 1 else f"{ratio:.2f} times fewer than"


def _us(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} us"
