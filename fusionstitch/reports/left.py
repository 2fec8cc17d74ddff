"""The ops of a plan that are in no kernel of ours, by reason, and what XLA takes for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fusionstitch.hlo.brief import count
from fusionstitch.reports.answers import CONTROL, FREE, SIMPLIFIED, STRUCTURE, Answer, Answers
from fusionstitch.reports.lines import shortened

#: Reasons shown of a plan, and ops named for each.
_SHOWN = 8
_SHOWN_OPS = 4
#: Ops that nobody misses in a kernel.
_IDLE = frozenset({CONTROL, FREE, SIMPLIFIED, STRUCTURE})


@dataclass(frozen=True)
class Left:
    """Ops that were left to XLA for one `reason`, the longest first; `us` is what XLA is modelled
    to take for them in one run, microseconds: their part of the kernels that they are in."""

    reason: str
    ops: tuple[Answer, ...]
    us: float


def left(answers: Answers) -> Mapping[int, list[Left]]:
    """What each plan, by its identity, leaves to XLA by reason, what takes longest first."""
    found: dict[int, dict[str, list[Answer]]] = {}
    for asked in answers.asked:
        if asked.plan is not None:
            answer = answers.answer(asked)
            if not answer.kernels and answer.reason not in _IDLE:
                reasons = found.setdefault(id(asked.plan), {})
                reasons.setdefault(answer.reason, []).append(answer)
    return {plan: _ranked(reasons) for plan, reasons in found.items()}


def _ranked(reasons: Mapping[str, list[Answer]]) -> list[Left]:
    found = []
    for reason, ops in reasons.items():
        ops.sort(key=lambda op: -_us(op))
        found.append(Left(reason, tuple(ops), sum(map(_us, ops))))
    return sorted(found, key=lambda one: (-one.us, -len(one.ops)))


def left_lines(found: Sequence[Left]) -> Iterator[str]:
    """All reasons with the ops that take longest; nothing where there is no reason."""
    if not found:
        return
    number = sum(len(one.ops) for one in found)
    yield f"left to XLA: {count(number, 'op')}, modelled {sum(one.us for one in found):.1f} us"
    for one in found[:_SHOWN]:
        yield f"  {count(one.ops, 'op')}, {one.us:.1f} us: {one.reason}"
        yield f"    {_named(one.ops)}"
    if len(found) > _SHOWN:
        yield f"  and {count(len(found) - _SHOWN, 'other reason')}"


def _named(ops: Sequence[Answer]) -> str:
    names = ", ".join(op.name for op in ops[:_SHOWN_OPS])
    more = f" and {len(ops) - _SHOWN_OPS} more" if len(ops) > _SHOWN_OPS else ""
    where = f" at {shortened(ops[0].lines)[0]}" if ops[0].lines else ""
    return f"{names}{more}{where}"


def _us(op: Answer) -> float:
    return op.xla.us / op.xla.ops if op.xla else 0.0
