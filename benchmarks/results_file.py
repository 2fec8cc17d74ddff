"""How a file of results is written: a row on each line, so that a run is as many lines as rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write(path: Path | str, content: Mapping[str, Any]) -> None:
    """Writes `content`: each of its entries on a line, and each element of a list or a dict that it
    has, such as a row or a program, on a line of its own."""
    entries = [f" {json.dumps(name)}: {_lines(value)}" for name, value in content.items()]
    Path(path).write_text("{\n" + ",\n".join(entries) + "\n}\n")


def _lines(value: Any) -> str:
    if isinstance(value, Mapping) and any(isinstance(one, Mapping) for one in value.values()):
        inner = [f"  {json.dumps(name)}: {_line(one)}" for name, one in value.items()]
        return "{\n" + ",\n".join(inner) + "\n }"
    if isinstance(value, (list, tuple)) and value:
        return "[\n" + ",\n".join(f"  {_line(one)}" for one in value) + "\n ]"
    return _line(value)


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
