"""What stitching a program won, and why, in one line."""

from __future__ import annotations

from fusionstitch.hlo.brief import count
from fusionstitch.reports.figures import Figures
from fusionstitch.reports.sizes import size

#: Times that differ by less than this part of XLA's are the same.
_SAME = 0.01


def won(report: Figures) -> str:
    """The time that a call is shorter than XLA's, measured where it was, and what it comes from:
    fewer kernels, and fewer bytes through DRAM by the model."""
    if not report.patterns:
        return "won: nothing, since no pattern was worth stitching; explain says why"
    xla_us, ours_us, measured = report.call_us
    how = "measured" if measured else "modelled"
    times = f"{ours_us:.1f} us a call, {xla_us:.1f} us under XLA"
    if abs(xla_us - ours_us) <= _SAME * xla_us:
        return f"won ({how}): nothing, {times}"
    if ours_us > xla_us:
        return f"lost ({how}): {ours_us - xla_us:.1f} us, {times}"
    why = " and ".join(_causes(report)) or "each kernel does less"
    gain = f"{xla_us - ours_us:.1f} us ({xla_us / ours_us:.2f} times as fast)"
    return f"won ({how}): {gain}, {times}: {why}"


def _causes(report: Figures) -> list[str]:
    kernels, traffic = report.kernels, report.traffic_bytes
    causes = []
    if kernels["xla"] > kernels["fusionstitch"]:
        ours = count(kernels["fusionstitch"], "kernel")
        causes.append(f"{ours} instead of {kernels['xla']:,}")
    if traffic["xla"] > traffic["fusionstitch"]:
        causes.append(f"{size(traffic['xla'] - traffic['fusionstitch'])} less DRAM traffic")
    return causes
