"""How two plans differ: kernels gained, lost and changed, ops that moved, modelled times."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fusionstitch.hlo.brief import count
from fusionstitch.reports.sides import Part, Side

#: Share of their ops that two kernels have in common if one became the other.
ALIKE = 0.5
#: Ops, kernels and lines of templates named in a list; the rest is counted.
_SHOWN_OPS, _SHOWN_KERNELS, _SHOWN_LINES = 8, 30, 12


@dataclass(frozen=True)
class Change:
    """A kernel of the first plan and the one of the second that it became."""

    before: Part
    after: Part

    @property
    def gained(self) -> list[str]:
        return sorted(self.after.ops - self.before.ops)

    @property
    def lost(self) -> list[str]:
        return sorted(self.before.ops - self.after.ops)


@dataclass(frozen=True)
class Difference:
    """What became of the first plan in the second. `entered` are ops that only the second has in
    kernels, `left` those that only the first has there, `moved` those in kernels of which neither
    became the other."""

    before: Side
    after: Side
    same: tuple[Part, ...]
    changed: tuple[Change, ...]
    lost: tuple[Part, ...]
    gained: tuple[Part, ...]
    entered: tuple[str, ...]
    left: tuple[str, ...]
    moved: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return not (self.changed or self.lost or self.gained)

    def to_dict(self) -> dict[str, Any]:
        """As plain data, ready for JSON."""
        pairs = [(c.before, c.after) for c in self.changed]
        return {
            "before": _told(self.before),
            "after": _told(self.after),
            "same": [one.kernel for one in self.same],
            "changed": [
                {
                    "before": a.kernel,
                    "after": b.kernel,
                    "ops_gained": sorted(b.ops - a.ops),
                    "ops_lost": sorted(a.ops - b.ops),
                    "modelled_us": [a.us, b.us],
                    "templates": [a.template, b.template],
                }
                for a, b in pairs
            ],
            "lost": [one.kernel for one in self.lost],
            "gained": [one.kernel for one in self.gained],
            "ops": {
                "entered": list(self.entered),
                "left": list(self.left),
                "moved": list(self.moved),
            },
        }


def compare(before: Side, after: Side) -> Difference:
    """Pairs kernels that are equal, then those that have most of their ops in common. Ops are the
    same that have the same opcode and scope, in their order; where a file does not say that, those
    of the same HLO name."""
    before = before.renamed(after)
    first, second = list(before.parts), list(after.parts)
    same = [(a, b) for a in list(first) if (b := _taken(a, second)) is not None]
    for a, _ in same:
        first.remove(a)
    changed = []
    for share, a, b in _pairs(first, second):
        if share >= ALIKE and a in first and b in second:
            first.remove(a)
            second.remove(b)
            changed.append(Change(a, b))
    became = [*same, *((c.before, c.after) for c in changed)]
    kept = {op for a, b in became for op in a.ops & b.ops}
    old = {op for part in before.parts for op in part.ops}
    new = {op for part in after.parts for op in part.ops}
    return Difference(
        before,
        after,
        tuple(a for a, _ in same),
        tuple(changed),
        tuple(first),
        tuple(second),
        tuple(sorted(new - old)),
        tuple(sorted(old - new)),
        tuple(sorted((old & new) - kept)),
    )


def _taken(part: Part, others: list[Part]) -> Part | None:
    """An equal kernel, which is taken out of `others`."""
    for one in others:
        if (one.kernel, one.ops, one.template) == (part.kernel, part.ops, part.template):
            others.remove(one)
            return one
    return None


def _pairs(first: Sequence[Part], second: Sequence[Part]) -> list[tuple[float, Part, Part]]:
    """All pairs with the share of ops that they have in common, the most alike first."""
    found = [
        (len(a.ops & b.ops) / max(1, len(a.ops | b.ops)), a.kernel == b.kernel, i, j)
        for i, a in enumerate(first)
        for j, b in enumerate(second)
        if a.ops & b.ops
    ]
    found.sort(key=lambda one: (-one[0], not one[1], one[2:]))
    return [(share, first[i], second[j]) for share, _, i, j in found]


def _told(side: Side) -> dict[str, Any]:
    return {
        "workload": side.name,
        "device": side.device,
        "kernels": len(side.parts),
        "modelled_us": side.us,
        "modelled_xla_us": side.xla_us,
    }


def text(difference: Difference) -> str:
    """The difference for people."""
    return "\n".join(_lines(difference))


def _lines(found: Difference) -> Iterator[str]:
    for mark, side in (("-", found.before), ("+", found.after)):
        yield (
            f"{mark} {side.name} for {side.device}: {count(side.parts, 'pattern')}, modelled "
            f"{side.us:.2f} us, {side.xla_us:.2f} us under XLA"
        )
    yield f"modelled {_times(found.before.us, found.after.us)}"
    if found.equal:
        yield f"the plans are equal: {count(found.same, 'kernel')}"
        return
    yield f"{count(found.same, 'kernel')} the same"
    for title, parts in (("lost", found.lost), ("gained", found.gained)):
        yield from _parts(title, parts)
    for change in found.changed[:_SHOWN_KERNELS]:
        yield from _change(change)
    if len(found.changed) > _SHOWN_KERNELS:
        yield f"and {len(found.changed) - _SHOWN_KERNELS} more changed"
    yield from _ops("into a kernel", found.entered, found.before)
    yield from _ops("out of all kernels", found.left, found.after)
    yield from _ops("to another kernel", found.moved, None)


def _parts(title: str, parts: Sequence[Part]) -> Iterator[str]:
    if parts:
        yield f"{title} {len(parts)}:"
    for part in parts[:_SHOWN_KERNELS]:
        yield (
            f"  {part.kernel}: {count(part.ops, 'op')}, {part.scope} scope, modelled "
            f"{part.us:.2f} us, XLA {part.xla_us:.2f} us"
        )
    if len(parts) > _SHOWN_KERNELS:
        yield f"  and {len(parts) - _SHOWN_KERNELS} more"


def _change(change: Change) -> Iterator[str]:
    a, b = change.before, change.after
    name = a.kernel if a.kernel == b.kernel else f"{a.kernel} became {b.kernel}"
    scope = a.scope if a.scope == b.scope else f"{a.scope} -> {b.scope}"
    yield f"changed {name}: {scope} scope, modelled {_times(a.us, b.us)}"
    for mark, ops in (("+", change.gained), ("-", change.lost)):
        if ops:
            yield f"  {mark} {_named(ops)}"
    if a.template != b.template:
        rows = difflib.unified_diff(a.template.splitlines(), b.template.splitlines(), n=0)
        lines = [row for row in rows if not row.startswith(("---", "+++", "@@"))]
        yield from (f"    {line}" for line in lines[:_SHOWN_LINES])
        if len(lines) > _SHOWN_LINES:
            yield f"    and {len(lines) - _SHOWN_LINES} more lines of the template"


def _ops(where: str, ops: Iterable[str], other: Side | None) -> Iterator[str]:
    """Ops that moved, by the reason for which the `other` plan has them in no kernel."""
    groups: dict[str, list[str]] = {}
    for op in ops:
        groups.setdefault(other.reasons.get(op, "") if other else "", []).append(op)
    for why, group in groups.items():
        told = f"; in {other.name} for {other.device}: {why}" if other and why else ""
        yield f"{count(group, 'op')} {where}: {_named(group)}{told}"


def _named(ops: Sequence[str]) -> str:
    more = len(ops) - _SHOWN_OPS
    return ", ".join(ops[:_SHOWN_OPS]) + (f" and {more} more" if more > 0 else "")


def _times(before: float, after: float) -> str:
    share = f" ({100 * (after / before - 1):+.1f}%)" if before > 0 else ""
    return f"{before:.2f} -> {after:.2f} us{share}"
