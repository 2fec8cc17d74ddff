"""Until all pages are written: the index names those that are there.

Delete this file and its line in conf.py then.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

PAGES = Path(__file__).parent.parent
NAME = re.compile(r"(?<![\w/])(?:(?:start|how|guides|notebooks)/[\w*]+|compare|contributing)")


def _there(page: str) -> bool:
    if page == "contributing":  # which includes it
        return (PAGES.parent / "CONTRIBUTING.md").exists()
    return any(PAGES.glob(f"{page}.*"))


def _read(_app: Sphinx, page: str, source: list[str]) -> None:
    if page == "index":
        lines = source[0].splitlines()
        source[0] = "\n".join(line for line in lines if all(map(_there, NAME.findall(line))))


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", _read)
    if not _there("contributing"):
        app.config.exclude_patterns.append("contributing.md")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
