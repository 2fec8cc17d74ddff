"""Results as pictures: python -m benchmarks.plots RESULTS.json... (needs matplotlib).

`speedup.svg` has a bar per workload and contestant, `roofline.svg` every program's rate over its
arithmetic intensity below the ceilings of the device, `paper.svg` the paper's Figures 6, 7 and 8.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import paper
from benchmarks.readings import OURS, Row, gpu, ratio, read, wall
from fusionstitch.costmodel import devices
from fusionstitch.hlo.errors import OptionError

FOLDER = "docs/figures"
#: Contestants of the roofline, with the color of each.
COLORS = {"xla": "tab:orange", "inductor": "tab:green", OURS: "tab:blue"}
NAMES = {"xla": "XLA", "inductor": "Inductor", OURS: "fusionstitch"}


def short(target: str) -> str:
    """A target as a label: norms.py:backward is norms backward."""
    return target.replace(".py:", " ").replace("_", " ").removesuffix(" train step")


def speedups(rows: Sequence[Row]) -> list[tuple[str, dict[str, float]]]:
    """(label, ratios above 1 where fusionstitch is faster) of every row that was measured."""
    numbers = {"GPU time": gpu, "wall time": wall}
    found = []
    for row in rows:
        ratios = {name: ratio(row, number) for name, number in numbers.items()}
        known = {name: value for name, value in ratios.items() if value is not None}
        if known:
            found.append((short(row["target"]), known))
    return found


def rooflines(rows: Sequence[Row]) -> list[tuple[str, str, float, float]]:
    """(label, contestant, FLOP per byte of least traffic, FLOP per second)."""
    points = []
    for row in rows:
        flops, size = row.get("flops"), row.get("floor_bytes")
        for side in COLORS:
            us = gpu(row, side)
            if flops and size and us:
                points.append((short(row["target"]), side, flops / size, flops / (us * 1e-6)))
    return points


def draw_speedups(rows: Sequence[Row], path: Path) -> None:
    figure, axes = _figure(9, 0.28 * max(8, len(rows)))
    bars = speedups(rows)
    for number, (name, color) in enumerate((("GPU time", "tab:blue"), ("wall time", "tab:gray"))):
        places = [place + 0.4 * number - 0.2 for place in range(len(bars))]
        beyond = [known.get(name, 1.0) - 1.0 for _, known in bars]
        axes.barh(places, beyond, 0.38, left=1.0, label=name, color=color)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(bars)), [label for label, _ in bars], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("XLA / fusionstitch: above 1, fusionstitch takes less")
    axes.legend(loc="lower right")
    _save(figure, path)


def draw_roofline(
    rows: Sequence[Row], copy_bytes_per_s: float | None, flops: float | None, path: Path
) -> None:
    """`flops`: FLOP per second of the device's ordinary f32 units."""
    figure, axes = _figure(8, 5)
    points = rooflines(rows)
    labelled = set()
    for label, side, intensity, rate in points:
        name = NAMES[side] if side not in labelled else None
        labelled.add(side)
        axes.plot(intensity, rate, "o", color=COLORS[side], label=name, markersize=4)
        if side == OURS:
            axes.annotate(label, (intensity, rate), fontsize=5, rotation=20)
    if points and copy_bytes_per_s:
        low, high = min(p[2] for p in points) / 2, max(p[2] for p in points) * 2
        top = flops or high * copy_bytes_per_s
        knee = min(high, top / copy_bytes_per_s)
        xs = [low, knee, high]
        axes.plot(xs, [min(x * copy_bytes_per_s, top) for x in xs], "k-", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("FLOP per byte, each input and output counted once")
    axes.set_ylabel("FLOP/s by GPU time; line: a copy's rate and the f32 units")
    if labelled:
        axes.legend(loc="upper left")
    _save(figure, path)


def draw_paper(results: dict[str, Any], path: Path) -> None:
    """Figure 6: patterns by class. Figure 7: kernel time over XLA's. Figure 8: it by class."""
    rows = paper.named(results)
    figure, (patterns, times, breakdown) = _figure(10, 8, 3)
    _stack(patterns, {n: paper.pattern_shares(row) for n, row in rows.items()}, paper.CLASSES)
    patterns.set_title("Figure 6: patterns by class", fontsize=9)
    shares = {n: paper.kernel_time(rows[n]) for n in paper.APPLICATIONS}
    times.bar(list(shares), [share or 0.0 for share in shares.values()], color="tab:blue")
    times.axhline(1.0, color="black", linewidth=0.8)
    times.axhline(1.0 - paper.SAVED, color="tab:red", linewidth=0.8, label="the paper's average")
    times.set_title("Figure 7: kernel time, XLA's is 1", fontsize=9)
    times.legend(fontsize=7)
    applications = {n: paper.time_shares(rows[n]) for n in paper.APPLICATIONS}
    _stack(breakdown, applications, paper.TIME_CLASSES)
    breakdown.set_title("Figure 8: kernel time by class of pattern", fontsize=9)
    for axes in (patterns, times, breakdown):
        axes.tick_params(labelsize=7)
    _save(figure, path)


def _stack(axes: Any, shares: dict[str, list[float] | None], names: Sequence[str]) -> None:
    """A stacked bar per label; none where there are no shares."""
    below = [0.0] * len(shares)
    for number, name in enumerate(names):
        heights = [found[number] if found else 0.0 for found in shares.values()]
        axes.bar(list(shares), heights, bottom=below, label=name)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    axes.set_ylim(0, 1)
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _figure(width: float, height: float, panels: int = 1) -> Any:
    import matplotlib

    matplotlib.use("Agg")
    # equal results, equal files
    matplotlib.rcParams["svg.hashsalt"] = "fusionstitch"
    from matplotlib import pyplot

    return pyplot.subplots(panels, figsize=(width, height), layout="constrained")


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def draw(results: dict[str, Any], folder: Path) -> list[Path]:
    """Draws all pictures of `results`; their files."""
    paths = [folder / name for name in ("speedup.svg", "roofline.svg", "paper.svg")]
    draw_speedups(results["rows"], paths[0])
    draw_paper(results, paths[2])
    copy, flops = results["method"].get("copy_bytes_per_s"), _flops(results["environment"]["gpu"])
    draw_roofline(results["rows"], copy, flops, paths[1])
    return paths


def _flops(gpu_name: str | None) -> float | None:
    """FLOP per second of the f32 units of a GPU that there is a profile of."""
    try:
        return devices.device((gpu_name or "none").split()[-1].lower()).fp32_flops
    except OptionError:
        return None


def main(paths: Sequence[str]) -> None:
    for path in draw(read(paths), Path(FOLDER)):
        print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
