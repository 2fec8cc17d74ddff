"""One side of a comparison of plans: the kernels of a program with their ops, read from what
`explain --json` or `report --json` wrote, or from a program that was just planned."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fusionstitch.compiler.stitched import Stitched
from fusionstitch.errors import TargetError
from fusionstitch.hlo import foreign
from fusionstitch.reports.answered import to_dict
from fusionstitch.reports.questions import Question

HOW = "Write one with `fusionstitch explain TARGET --json FILE` or `report TARGET --json FILE`."

#: An op's name in a template.
_WORD = re.compile(r"[A-Za-z_][\w.-]*")


@dataclass(frozen=True)
class Part:
    """A pattern that became a kernel: its name, ops, scope, template and modelled microseconds."""

    kernel: str
    ops: frozenset[str]
    scope: str
    template: str
    us: float
    xla_us: float


@dataclass(frozen=True)
class Side:
    """The plan of a program: its parts, why other ops are in none of them, and the modelled
    microseconds of a call, stitched and under XLA. `kinds` say what an op is besides its name,
    whose number follows from all that is before it in the program; empty where a file says less.
    """

    name: str
    device: str
    parts: tuple[Part, ...]
    reasons: Mapping[str, str]
    us: float
    xla_us: float
    kinds: Mapping[str, str] = field(default_factory=dict)

    def renamed(self, other: Side) -> Side:
        """The same plan, with the names that `other` has for the same ops: those of the same opcode
        and scope, in their order."""
        if not (self.kinds and other.kinds):
            return self
        theirs = _numbered(other.kinds)
        names = {name: theirs.get(kind, "") for kind, name in _numbered(self.kinds).items()}
        taken = set(other.kinds)

        def renamed(name: str) -> str:
            found = names.get(name, "")
            # a name that the other side has for another op
            return found or (f"{name} (before)" if name in taken else name)

        def part(one: Part) -> Part:
            template = _WORD.sub(lambda found: names.get(found[0]) or found[0], one.template)
            return replace(one, ops=frozenset(map(renamed, one.ops)), template=template)

        parts = tuple(map(part, self.parts))
        reasons = {renamed(name): why for name, why in self.reasons.items()}
        return replace(self, parts=parts, reasons=reasons)


def _numbered(kinds: Mapping[str, str]) -> dict[tuple[str, int], str]:
    """By kind and number among those of a kind, the name."""
    found: dict[tuple[str, int], str] = {}
    counts: dict[str, int] = {}
    for name, kind in kinds.items():
        counts[kind] = counts.get(kind, 0) + 1
        found[kind, counts[kind]] = name
    return found


def of_program(name: str, stitched: Stitched) -> Side:
    """A program that was just planned."""
    return _side(name, to_dict(stitched, Question()))


def of_file(path: Path) -> Side:
    """What a file tells of a program. Raises TargetError for a file that tells of none."""
    try:
        data = json.loads(path.read_text("utf-8"))
        return _side(str(data["workload"]), data)
    except OSError as error:
        raise TargetError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise TargetError(f"{path} holds no plan that explain or report wrote. {HOW}") from None


def _side(name: str, data: Mapping[str, Any]) -> Side:
    explained = "ops" in data and isinstance(data["ops"], list)
    key = "name" if explained else "kernel"
    parts = tuple(_part(one, key) for one in data["kernels" if explained else "patterns"])
    if explained:
        reasons = {_text(op["name"]): _text(op["reason"]) for op in data["ops"] if op["reason"]}
    else:
        reasons = {_text(op): _text(one["reason"]) for one in data["rejected"] for op in one["ops"]}
    return Side(
        foreign.line(name),
        _text(data["device"]),
        parts,
        reasons,
        float(data["modelled_us"]),
        float(data["modelled_xla_us"]),
        {_text(op["name"]): f"{op['opcode']} {op['scope']}" for op in data["ops"]}
        if explained
        else {},
    )


def _part(one: Mapping[str, Any], key: str) -> Part:
    return Part(
        _text(one[key]),
        frozenset(map(_text, one["ops"])),
        _text(one["scope"]),
        "\n".join(map(foreign.line, str(one["template"]).splitlines())),
        float(one["modelled_us"]),
        float(one["xla_us"]),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return foreign.line(value)
