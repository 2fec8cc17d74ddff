"""Pages as a reader follows them: their blocks of code, in a process of a new user.

What a page shows in a block `text` is what was printed: blanks and ends of lines count as one
blank, `...` stands for anything, a number with a decimal point for any within 5% of it, and all
else for itself.
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
_LOOSE = re.compile(r"(\s*\.\.\.\s*)|(\s+)|(\d+\.\d+)")


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
        timeout=300,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


def printed(shown: str, text: str) -> bool:
    """Whether `text` is what a page shows."""
    numbers: list[float] = []

    def loose(one: re.Match[str]) -> str:
        if one[1]:
            return "\0any"
        if one[2]:
            return "\0blank"
        numbers.append(float(one[3]))
        return "\0number"

    pattern = re.escape(_LOOSE.sub(loose, shown.strip()))
    for name, meant in (("any", ".*?"), ("blank", r"\s+"), ("number", r"(\d+(?:\.\d+)?)")):
        pattern = pattern.replace(re.escape(f"\0{name}"), meant)
    match = re.fullmatch(pattern, text.strip(), re.DOTALL)
    return match is not None and all(
        abs(float(one) - number) <= NEAR * number
        for one, number in zip(match.groups(), numbers, strict=True)
    )
