"""The pages under docs/start and docs/guides, as a reader follows them.

- Blocks `python` of a page are one program in the order of the page, in an empty folder, where its
  name is the page's: docs/start/quickstart.md is `quickstart.py`. It runs twice, under plain JAX
  and on the emulator.
- A block `python` whose first line is a comment with the name of a file, `# model.py`, is that
  file, and not part of the program.
- Blocks `sh` are commands, one a line, in the same folder, where `examples/` is, too. Those of
  `fusionstitch` are run, in the order of the page, also with variables before them:
  `NAME=value fusionstitch ...`.
- Blocks `text` show what the code block before them printed, by the rule of `tests/pages.py`; of a
  program in one of its two runs. Nothing is printed on stderr, and no command fails, but where a
  page shows that. After a `py` block, which is not run, they show anything.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.pages import ROOT, Done, blocks, commands, file_of, printed, run, write_files

PAGES = sorted(path for name in ("start", "guides") for path in ROOT.glob(f"docs/{name}/*.md"))
#: Told on both streams between two blocks of a program, in the place of the empty line there.
MARK = "\0end of a block\0"
TELL = f"import sys; print({MARK!r}); print({MARK!r}, file=sys.stderr)"


@dataclass
class Step:
    """A block of code, and the texts that show what it prints."""

    language: str
    text: str
    shown: list[str] = field(default_factory=list)


def steps(page: Path) -> Iterator[Step]:
    step = Step("", "")
    for language, text in blocks(page.read_text("utf-8")):
        if language == "text":
            step.shown.append(text)
            continue
        if step.language:
            yield step
        step = Step(language, text)
    yield step


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


def program(page: Path, folder: Path) -> list[Step]:
    """The steps of a page's program, which lies in the folder with its files."""
    write_files(page.read_text("utf-8"), folder)
    parts = [one for one in steps(page) if one.language == "python" and not file_of(one.text)]
    text = "".join(f"{part.text}{TELL}\n" for part in parts)
    (folder / f"{page.stem}.py").write_text(text)
    return parts


def test_there_is_something_to_follow() -> None:
    assert {page.stem for page in PAGES} >= {"quickstart", "tutorial"}


@pytest.mark.parametrize(
    ("shown", "text", "same"),
    [
        ("a  b\nc\n", "a b\nc", True),
        ("a b\nc", "a b c", False),
        ("a b", "a bc", False),
        ("a ... d", "a d", True),
        ("a ... d", "a\nd", False),
        ("a\n...\nd", "a\nb c\nd", True),
        ("a\n...\nd", "a\nd", True),
        ("a\n...\nd", "ab\nc\nd", False),
        # a table of two rows is not one of one, which shows the first of one and the last of other
        ("0  warp ... 1  2.0 us", "0  warp  5  1  9.0 us\n1  block  6  1  2.0 us", False),
        ("fs_..._x", "fs_reduce_x", True),
        ("a ...", "b a", False),
        ("2.00 us", "2.09 us", True),
        ("2.00 us", "2.2 us", False),
        ("7 ops", "8 ops", False),
        ("a\n--------\nb", "a\n-----------\nb", True),
        ("a --- b", "a ---- b", False),
        ("[GRID,CTA];", "[GRID,CTA];", True),
    ],
)
def test_what_is_shown_is_compared(shown: str, text: str, same: bool) -> None:
    assert printed(shown, text) == same


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_are_found(page: Path) -> None:
    text = page.read_text("utf-8")
    assert len(re.findall("```", text)) == 2 * len(blocks(text))
    for step in steps(page):
        assert step.shown == [] or (step.language and not file_of(step.text)), step.shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_program(page: Path, folder: Path, host_compiler: str) -> None:
    parts = program(page, folder)
    runs = []
    for backend in ({}, {"FUSIONSTITCH_BACKEND": "emulate"}):
        done = run([f"{page.stem}.py"], folder, JAX_PLATFORMS="cpu", **backend)
        assert done.code == 0, done.err
        outs, errs = done.out.split(f"{MARK}\n"), done.err.split(f"{MARK}\n")
        assert outs[-1] == errs[-1] == ""  # on leaving
        runs.append([Done(0, *both) for both in zip(outs, errs, strict=True)])
    for number, step in enumerate(parts):
        texts = [one[number].out + one[number].err for one in runs]
        for shown in step.shown:
            assert any(printed(shown, text) for text in texts), f"{texts}\n\nnot:\n{shown}"
        for one in runs:
            if one[number].err:
                said = one[number].out + one[number].err
                assert any(printed(shown, said) for shown in step.shown), said


def answer(line: str, folder: Path) -> Done | None:
    """What a command says; None if it is none of ours."""
    *variables, command = re.split(r"(?=\bfusionstitch )", line, maxsplit=1)
    if not command.startswith("fusionstitch "):
        return None
    given = dict(one.split("=", 1) for one in shlex.split("".join(variables)))
    return run(["-m", *shlex.split(command)], folder, JAX_PLATFORMS="cpu", **given)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands(page: Path, folder: Path, host_compiler: str) -> None:
    program(page, folder)
    for step in steps(page):
        if step.language != "sh":
            continue
        said = [done for line in commands(step.text) if (done := answer(line, folder))]
        text = "".join(done.out + done.err for done in said)
        fine = all(done.code == 0 and not done.err for done in said)
        assert fine or step.shown, text
        for shown in step.shown:
            assert not said or printed(shown, text), f"{text}\n\nnot:\n{shown}"
