"""One side of a comparison of plans: the kernels of a program with their ops, read from what
`explain --json` or `report --json` wrote, or from a program that was just planned."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusionstitch.compiler.core import Stitched
from fusionstitch.errors import TargetError
from fusionstitch.hlo import foreign
from fusionstitch.reports.answered import to_dict
from fusionstitch.reports.questions import Question

HOW = "Write one with `fusionstitch explain TARGET --json FILE` or `report TARGET --json FILE`."


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
    microseconds of a call, stitched and under XLA."""

    name: str
    device: str
    parts: tuple[Part, ...]
    reasons: Mapping[str, str]
    us: float
    xla_us: float


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
