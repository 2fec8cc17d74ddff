"""Answers about ops as text: each kernel with the ops asked for, then each reason with its ops."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fusionstitch.codegen.drafts import COMPARED
from fusionstitch.compiler.stitched import Stitch, Stitched
from fusionstitch.costmodel.xla_truth import MODELLED
from fusionstitch.hlo import foreign
from fusionstitch.hlo.brief import count
from fusionstitch.plan.scores import kind_of_pattern
from fusionstitch.reports import counting
from fusionstitch.reports.answers import Answer, Answers, Candidate
from fusionstitch.reports.explain import chosen_lines, number_text
from fusionstitch.reports.floors import floors, pattern_floor
from fusionstitch.reports.lines import shortened, source_lines
from fusionstitch.reports.looped import loops_of
from fusionstitch.reports.modelled import modelled_times
from fusionstitch.reports.questions import Question

#: Ops named under a kernel or a reason, and reasons of candidates under an op.
_SHOWN = 40
_SHOWN_REASONS = 4


def answered(stitched: Stitched, question: Question) -> str:
    """What became of the ops that are asked for. Raises TargetError where there are none."""
    found = question.chosen(Answers(stitched))
    lines = [f"{count(found, 'op')} of {foreign.line(stitched.name) or 'the program'}"]
    numbers = {id(c): n for plan in stitched.plans for n, c in enumerate(plan.chosen)}
    runs = _runs(stitched)
    told: set[str] = set()
    for one in stitched.stitches:
        name = one.kernel.name
        held = [answer for answer in found if name in answer.kernels]
        if held and name not in told and question.tells(name):
            told.add(name)
            whole = question.names(name)
            floor = pattern_floor(one.chosen.pattern, stitched)
            lines += ["", *chosen_lines(numbers[id(one.chosen)], one.chosen, one, floor, whole)]
            if (often := runs[id(one.chosen)]) != 1:
                lines.append(f"    runs {often} times a call: times are those of one")
            lines += _listed(held)
    reasons: dict[str, list[Answer]] = {}
    for answer in found:
        if not answer.kernels:
            reasons.setdefault(answer.reason, []).append(answer)
    for reason, left in reasons.items():
        lines += ["", f"in no kernel: {reason}", *_listed(left)]
    return "\n".join(lines)


def _runs(stitched: Stitched) -> dict[int, int]:
    """How often chosen patterns run in a call, by their identity."""
    repeats = counting.runs_of(stitched.plans)
    return {id(c): repeats.get(p.program, 0) for p in stitched.plans for c in p.chosen}


def _listed(answers: Sequence[Answer]) -> Iterator[str]:
    for answer in answers[:_SHOWN]:
        yield f"    {named(answer)}"
        yield from (f"      {line}" for line in _costs(answer))
    if len(answers) > _SHOWN:
        yield f"    and {len(answers) - _SHOWN} more"


def named(answer: Answer) -> str:
    """An op on one line: name, type, scope, line of the user's."""
    where = [answer.scope] if answer.scope else []
    where += shortened(answer.lines[:1])
    equal = f" (as {answer.equal})" if answer.equal else ""
    return f"{answer.name} = {answer.shape} {answer.opcode}{equal}  {', '.join(where)}".rstrip()


def _costs(answer: Answer) -> Iterator[str]:
    if answer.kernels:
        if len(answer.kernels) > 1:
            yield f"computed by each of {', '.join(answer.kernels)}"
        return
    if answer.facts and not answer.candidates:
        yield facts_text(answer.facts.items())
    if answer.xla is not None:
        beside = f" with {count(answer.xla.ops - 1, 'more op')}" if answer.xla.ops > 1 else ""
        how = "modelled" if answer.xla.source == MODELLED else "modelled and scaled"
        yield f"XLA's kernel{beside} is {how} to take {answer.xla.us:.2f} us"
    groups: dict[str, list[Candidate]] = {}
    for candidate in answer.candidates:
        groups.setdefault(candidate.reason, []).append(candidate)
    for reason, group in list(groups.items())[:_SHOWN_REASONS]:
        best = group[0]
        facts = f" ({facts_text(best.facts.items())})" if best.facts else ""
        many = f"{len(group)} candidates, the best of" if len(group) > 1 else "a candidate of"
        yield f"{many} {count(best.ops, 'op')}: {reason}{facts}"
    if len(groups) > _SHOWN_REASONS:
        yield f"and {len(groups) - _SHOWN_REASONS} other reasons"


def facts_text(facts: Iterable[tuple[str, object]]) -> str:
    """Facts of a verdict as text."""
    return ", ".join(f"{name} {number_text(value)}" for name, value in facts)


def to_dict(stitched: Stitched, question: Question) -> dict[str, Any]:
    """What became of the ops that are asked for (all of them without a question), and the kernels
    that hold them, as plain data ready for JSON. Raises TargetError where there are none."""
    answers = Answers(stitched)
    found = question.chosen(answers) if question else list(answers)
    held = {name for answer in found for name in answer.kernels}
    wanted = set(filter(question.tells, held))
    ours = [one for one in stitched.stitches if one.kernel.name in wanted]
    xla_us, modelled_us = modelled_times(stitched)
    runs = _runs(stitched)
    return {
        "device": stitched.device.name,
        "modelled_us": modelled_us,
        "modelled_xla_us": xla_us,
        "floor_us": floors(stitched, stitched.given).to_dict(),
        "ops": [_op(answer) for answer in found],
        "kernels": [_kernel(one, runs[id(one.chosen)], stitched) for one in ours],
        "fallbacks": [{"ops": list(f.ops), "reason": f.reason} for f in stitched.fallbacks],
    }


def _op(answer: Answer) -> dict[str, Any]:
    return {
        "name": answer.name,
        "opcode": answer.opcode,
        "shape": answer.shape,
        "graph": answer.graph,
        "scope": answer.scope,
        "source": list(answer.lines),
        "functions": list(dict.fromkeys(f.function for f in answer.frames if f.function)),
        "kernels": list(answer.kernels),
        "reason": answer.reason or None,
        "facts": plain(answer.facts),
        "candidates": [
            {"rule": c.rule, "ops": c.ops, "reason": c.reason, "facts": plain(c.facts)}
            for c in answer.candidates
        ],
        "xla": dataclasses.asdict(answer.xla) if answer.xla else None,
        "equal": answer.equal or None,
    }


def _kernel(one: Stitch, runs: int, stitched: Stitched) -> dict[str, Any]:
    chosen, loops = one.chosen, loops_of(one.kernel)
    return {
        "name": one.kernel.name,
        "kind": kind_of_pattern(chosen.pattern.ops),
        "scope": chosen.facts.scope,
        "runs": runs,
        "ops": [op.name for op in chosen.pattern.ops],
        "source": source_lines(chosen.pattern.ops),
        "modelled_us": chosen.modelled_us,
        "xla_us": chosen.xla_us,
        "xla_source": chosen.xla_source,
        "wins_us": chosen.wins_us,
        "floor_us": pattern_floor(chosen.pattern, stitched).us,
        "measured_us": chosen.measured and dataclasses.asdict(chosen.measured),
        "compared_us": plain(dict(one.kernel.facts).get(COMPARED)),
        "template": one.kernel.template,
        "loops": None if loops is None else dataclasses.asdict(loops),
    }


def plain(value: object) -> Any:
    """Facts as JSON knows them: what it has no word for as text."""
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)
