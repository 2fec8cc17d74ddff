"""Attributes that a docstring lists show their types behind their names, not below."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx


def _processed(_app: Sphinx, _kind: str, _name: str, _of: Any, _all: Any, text: list[str]) -> None:
    """What napoleon writes as the last field of an attribute becomes its option."""
    lines: list[str] = []
    for line in text:
        if line.startswith("   :type:"):
            heads = [number for number, one in enumerate(lines) if one.startswith(".. attribute::")]
            lines.insert(heads[-1] + 1, line)
        else:
            lines.append(line)
    text[:] = lines


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _processed, priority=600)  # napoleon's is 500
    return {"parallel_read_safe": True, "parallel_write_safe": True}
