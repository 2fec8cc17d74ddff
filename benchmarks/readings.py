"""The numbers of one row of results, their ratios and means, and how tables print them."""

from __future__ import annotations

import json
import operator
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.environment import output

Row = dict[str, Any]
#: A number of one contestant in a row, or None where it was not measured.
Number = Callable[[Row, str], float | None]
#: The folders of what is measured; the others measure it, or tell of it.
PRODUCT = ("codegen", "costmodel", "examples", "fusionstitch", "hlo")
OURS, TUNED = "fusionstitch", "fusionstitch tuned"


def read(paths: Sequence[str]) -> dict[str, Any]:
    """The results of one or several runs as one, the commits of all of them named; of a workload
    that several measured, the last's.

    Raises ValueError for runs of different devices or versions, or of commits that differ in what
    is measured.
    """
    first, *others = (json.loads(Path(path).read_text()) for path in paths)
    joined: dict[str, Any] = first
    commits = {first["environment"]["commit"]: None}
    for other in others:
        one, another = first["environment"], other["environment"]
        for what in ("commit", "gpu", "driver", "packages"):
            alike = _same_product if what == "commit" else operator.eq
            if not alike(one[what], another[what]):
                raise ValueError(f"Runs of different {what} do not belong on one page: {paths}.")
        commits[another["commit"]] = None
        rows = {row["target"]: row for row in (*joined["rows"], *other["rows"])}
        joined = {
            **joined,
            "environment": {**one, "commit": ", ".join(commits)},
            "command": f"{joined['command']}` and `{other['command']}",
            "rows": list(rows.values()),
        }
    return joined


def _same_product(one: str, other: str) -> bool:
    """Whether two commits of this checkout differ in nothing that is measured."""
    command = ["git", "diff", "--quiet", one, other, "--", *PRODUCT]
    return one == other or output(command) is not None


def wall(row: Row, side: str) -> float | None:
    """Microseconds per call, the median; side "xla best": XLA's with the flags that are best."""
    times = row.get("wall_us", {})
    if side == "xla best":
        found = [value["median"] for name, value in times.items() if name.startswith("xla")]
        return min(found, default=None)
    return times[side]["median"] if side in times else None


def best_flags(row: Row) -> str:
    """The name of XLA's fastest flags; empty for its defaults."""
    measured = row.get("wall_us", {}).items()
    times = {name: value["median"] for name, value in measured if name.startswith("xla")}
    best = min(times, key=lambda name: times[name], default="xla")
    return best.removeprefix("xla").removeprefix(", ")


def gpu(row: Row, side: str) -> float | None:
    """Microseconds of kernels and copies per call; op by op of kernels alone."""
    value = profile(row, side)
    return value["kernel_us" if side == "unfused" else "gpu_us"] if value else None


def launches(row: Row, side: str) -> float | None:
    """Kernels and copies per call; op by op kernels alone, modelled where they were not traced.

    JAX runs a reshape as a copy when it runs op by op, which says nothing about the program.
    """
    value = profile(row, side)
    if side == "unfused":
        return value["kernels"] if value else modelled_kernels(row)
    return value["kernels"] + value["copies"] if value else None


def modelled_kernels(row: Row) -> int | None:
    """Kernels op by op, counted in the lowered program."""
    found: int | None = row.get("modelled", {}).get("unfused", {}).get("kernels")
    return found


def profile(row: Row, side: str) -> dict[str, Any] | None:
    """A contestant's activity on the GPU."""
    return (row.get("profile") or {}).get(side)


def passes(row: Row) -> float | None:
    """Seconds of compiling that are fusionstitch's own: planning, code generation, NVRTC."""
    seconds = row.get("stitched", {}).get("passes_s")
    return sum(seconds.values()) if seconds else None


def ratio(row: Row, number: Number, side: str = "xla") -> float | None:
    """`side`'s number over ours: above 1, fusionstitch has less."""
    theirs, ours = number(row, side), number(row, OURS)
    return theirs / ours if theirs and ours else None


def of_ceiling(row: Row, side: str, copy_bytes_per_s: float | None) -> float | None:
    """The rate at which a program moves its least traffic, as a share of that of a copy."""
    us, size = gpu(row, side), row.get("floor_bytes")
    return size / (us * 1e-6) / copy_bytes_per_s if us and size and copy_bytes_per_s else None


def over_floor(row: Row, side: str) -> float | None:
    """How many times what the device allows a call takes on the GPU; None for a run of before rows
    had their floors."""
    us, floor = gpu(row, side), row.get("floor_us")
    return us / floor if us and floor else None


def mean(values: Sequence[float | None]) -> float | None:
    """The geometric mean of the values there are."""
    found = [value for value in values if value]
    return statistics.geometric_mean(found) if found else None


# ---- cells --------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> list[str]:
    """Lines of a Markdown table; all columns but the first `words` are aligned to the right."""
    rule = ["---" if place < words else "--:" for place in range(len(head))]
    lines = [head, ["|".join(["", *rule, ""])], *rows]
    return [line[0] if len(line) == 1 else f"| {' | '.join(line)} |" for line in lines]


def plain(value: float | None, prefix: str = "") -> str:
    return "-" if value is None else f"{prefix}{value:g}"


def us(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def fixed(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f}%"


def scientific(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"


def seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def megabytes(value: float | None) -> str:
    return "-" if value is None else f"{value / 1e6:.1f}"


def activity(row: Row, side: str) -> str:
    """Kernels + memcpys + memsets."""
    value = profile(row, side)
    if not value:
        return "-"
    return f"{value['kernels']:g} + {value['memcpys']:g} + {value['memsets']:g}"


def count(values: Sequence[Any] | None) -> str:
    return "-" if values is None else str(len(values))
