"""Pages as a reader follows them: their blocks of code, in a process of a new user.

What a page shows in a block `text` is what was printed, line by line: blanks count as one blank,
`...` stands for anything within its line, a line of nothing but `...` for any number of whole
lines, a number with a decimal point for any within 5% of it, a rule of dashes for one of any
length, and all else for itself.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: How far off numbers with a decimal point may be.
NEAR = 0.05
#: The first line of a block that is a file of its own.
_FILE = re.compile(r"# (\w+\.py)\n")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: What a line shows that does not stand for itself: dots, blanks, a number, a rule of a table.
_LOOSE = re.compile(r"([ \t]*\.\.\.[ \t]*)|([ \t]+)|(\d+\.\d+)|(-{8,})")
_STANDS_FOR = {1: r".*?", 2: r"[ \t]+", 3: r"(\d+(?:\.\d+)?)", 4: r"-{8,}"}
_LEFT_OUT = "..."


def blocks(page: str, *languages: str) -> list[tuple[str, str]]:
    """Language and text of the blocks of a page, in order; of these languages, if any are named."""
    found = _BLOCK.findall(page)
    return [one for one in found if one[0] in languages or not languages]


def file_of(block: str) -> str:
    """The name of the file that a block of Python is, or nothing."""
    return name[1] if (name := _FILE.match(block)) else ""


def write_files(page: str, folder: Path) -> None:
    """The files of a page, into a folder."""
    for _, text in blocks(page, "python"):
        if name := file_of(text):
            (folder / name).write_text(text)


def commands(block: str) -> list[str]:
    """The lines of a block of shell, without what they say in comments."""
    lines = [line.partition(" #")[0].strip() for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


@dataclass(frozen=True)
class Done:
    """What a process printed, and what it ended with."""

    code: int
    out: str
    err: str


def run(arguments: list[str], folder: Path, **environment: str) -> Done:
    """Python in a process of a new user; it may use no variable of ours that is not given."""
    kept = {name: value for name, value in os.environ.items() if "FUSIONSTITCH" not in name}
    found = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    kept |= {"PYTHONPATH": found, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    kept |= {"FUSIONSTITCH_CACHE_DIR": os.environ["FUSIONSTITCH_CACHE_DIR"], **environment}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=kept,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


def printed(shown: str, text: str) -> bool:
    """Whether `text` is what a page shows."""
    numbers: list[float] = []

    def line(one: str) -> str:
        if one.strip() == _LEFT_OUT:
            return r"(?:.*\n)*?"
        parts, at = [], 0
        for found in _LOOSE.finditer(one):
            parts.append(re.escape(one[at : found.start()]))
            if found[3]:
                numbers.append(float(found[3]))
            parts.append(_STANDS_FOR[found.lastindex or 0])
            at = found.end()
        return "".join([*parts, re.escape(one[at:]), r"\n"])

    pattern = "".join(map(line, _lines(shown)))
    match = re.fullmatch(pattern, "".join(f"{one}\n" for one in _lines(text)))
    return match is not None and all(
        abs(float(one) - number) <= NEAR * number
        for one, number in zip(match.groups(), numbers, strict=True)
    )


def _lines(text: str) -> list[str]:
    """Its lines, without blanks at their ends and empty lines around them."""
    return [one.rstrip() for one in text.strip().splitlines()]
