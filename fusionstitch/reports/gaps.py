"""Where programs lose most above their floors: the parts of all of them in one list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fusionstitch.hlo import foreign
from fusionstitch.hlo.brief import brief, count
from fusionstitch.reports.floors import Part, floors, parts
from fusionstitch.reports.lines import source_lines
from fusionstitch.reports.modelled import modelled_times

if TYPE_CHECKING:
    from fusionstitch.compiler.stitched import Stitched
    from fusionstitch.costmodel.floor import Floor

#: Kernels of ours that are named for a part.
SHOWN = 3
#: A part that loses less than this has no gap, microseconds.
LEAST_US = 0.05


@dataclass(frozen=True)
class Program:
    """A program's floor beside the modelled times of a call; `priced` is that of the ops that the
    times are of."""

    name: str
    floor: Floor
    priced: Floor
    xla_us: float
    ours_us: float


@dataclass(frozen=True)
class Gap:
    """A part of a program that takes longer than its floor, in one of its runs or in all of them
    (`lost_us`)."""

    program: str
    part: Part

    def to_dict(self) -> dict[str, Any]:
        """As plain data, ready for JSON."""
        part = self.part
        return {
            "workload": self.program,
            "graph": part.graph.name,
            "op": part.longest[0].name,
            "opcode": part.longest[0].opcode,
            "scope": part.longest[0].source.op_name,
            "source": source_lines(part.longest),
            "ops": len(part.ops),
            "runs": part.runs,
            "floor_us": part.floor.us,
            "bound_by": part.floor.bound_by,
            "at_least": part.floor.at_least,
            "time_us": {"xla": part.xla_us, "fusionstitch": part.ours_us},
            "lost_us": {"xla": part.lost_xla_us, "fusionstitch": part.lost_us},
            "kernels": list(part.kernels),
            "reason": part.reason,
        }


@dataclass(frozen=True)
class Gaps:
    """The gaps of some programs on a device, those that lose most first; times are modelled."""

    device: str
    programs: tuple[Program, ...]
    gaps: tuple[Gap, ...]

    def to_dict(self, limit: int | None = None) -> dict[str, Any]:
        """As plain data, ready for JSON; of the gaps the first `limit`."""
        return {
            "device": self.device,
            "programs": [
                {
                    "workload": one.name,
                    "floor_us": one.floor.us,
                    "bound_by": one.floor.bound_by,
                    "modelled_us": {"xla": one.xla_us, "fusionstitch": one.ours_us},
                    "over_floor": {
                        "xla": one.priced.over(one.xla_us),
                        "fusionstitch": one.priced.over(one.ours_us),
                    },
                }
                for one in self.programs
            ],
            "gaps": [gap.to_dict() for gap in self.gaps[:limit]],
        }

    def text(self, limit: int | None = None) -> str:
        """The programs, and of the gaps the first `limit`."""
        lines = [f"{count(self.programs, 'program')} on {self.device}, times are modelled", ""]
        lines += _programs(self.programs)
        lines += ["", "lost above the floor, in all runs of a call:", ""]
        lines += _gaps(self.gaps[:limit])
        if limit is not None and len(self.gaps) > limit:
            lines.append(f"and {len(self.gaps) - limit} more")
        return "\n".join(line.rstrip() for line in lines)

    def __repr__(self) -> str:
        return brief(f"Gaps: {count(self.gaps, 'gap')} of {count(self.programs, 'program')}")


def gaps(stitched: Iterable[tuple[str, Stitched]]) -> Gaps:
    """The gaps of programs that were planned for one device, by the names they go by."""
    programs, found, device = [], [], ""
    for name, one in stitched:
        of = floors(one, one.given)
        programs.append(Program(name, of.whole, of.priced, *modelled_times(one)))
        own = (Gap(name, part) for part in parts(one))
        found += [gap for gap in own if max(gap.part.lost_us, gap.part.lost_xla_us) > LEAST_US]
        device = one.device.name
    found.sort(key=lambda gap: -max(gap.part.lost_us, 0.0) or -1e-9 * gap.part.lost_xla_us)
    return Gaps(device, tuple(programs), tuple(found))


def part_lines(part: Part) -> Iterator[str]:
    """A part in two lines: what it loses and what it is; and who computes it, or why nobody."""
    op = part.longest[0]
    where = source_lines(part.longest)
    at = f" at {foreign.line(where[0])}" if where else ""
    times = f", in each of {part.runs} runs" if part.runs != 1 else ""
    least = "at least " if part.floor.at_least else ""
    yield (
        f"{max(0.0, part.lost_us):.1f} us lost, {max(0.0, part.lost_xla_us):.1f} us under XLA: "
        f"{foreign.line(op.name or op.opcode)}{at}, {count(part.ops, 'op')}, floor "
        f"{least}{part.floor.us:.1f} us by {part.floor.bound_by}{times}"
    )
    if part.reason:
        yield f"  left to XLA: {part.reason}"
    else:
        more = len(part.kernels) - SHOWN
        yield f"  in {', '.join(part.kernels[:SHOWN])}{f' and {more} more' * (more > 0)}"


def _programs(programs: Sequence[Program]) -> Iterator[str]:
    width = max([len("program"), *(len(foreign.line(one.name)) for one in programs)])
    yield f"{'program':<{width}}  {'floor':>10}  {'XLA':>11}  fusionstitch  bound by"
    for one in programs:
        over = [one.priced.over(us) for us in (one.xla_us, one.ours_us)]
        theirs, ours = ("-" if ratio is None else f"{ratio:.2f} times" for ratio in over)
        yield (
            f"{foreign.line(one.name):<{width}}  {one.floor.us:>7.1f} us  {theirs:>11}  {ours:>12}"
            f"  {one.floor.bound_by}"
        )


def _gaps(found: Sequence[Gap]) -> Iterator[str]:
    if not found:
        yield "none"
    for gap in found:
        first, second = part_lines(gap.part)
        yield f"{foreign.line(gap.program)}: {first}"
        yield second
