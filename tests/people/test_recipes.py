"""The recipes of CONTRIBUTING.md, followed to the letter in copies of the checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.people.checkout import ROOT, attempt, copied

PAGE = (ROOT / "CONTRIBUTING.md").read_text()
#: A line that says what the block below it is for, and the block.
BLOCK = re.compile(r"^([^\n]*):\n\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BELOW = re.compile(r"In `(?P<file>[^`]+)`, below `(?P<line>.+)`")
INSTEAD = re.compile(r"In `(?P<file>[^`]+)`, instead of `(?P<line>.+)`")
END = re.compile(r"At the end of `(?P<file>[^`]+)`")
NEW = re.compile(r"In a new file `(?P<file>[^`]+)`")


@dataclass(frozen=True)
class Step:
    """What a line of the page says is to be done with the block below it."""

    said: str
    text: str

    @property
    def is_test(self) -> bool:
        return "`tests/" in self.said

    def take(self, folder: Path) -> None:
        if self.said == "Run":
            done = shell(self.text, folder)
            assert done.returncode == 0, done.stderr
        elif found := END.fullmatch(self.said):
            path = folder / found["file"]
            path.write_text(f"{path.read_text()}\n\n{self.text}")  # as functions stand apart
        elif found := NEW.fullmatch(self.said):
            (folder / found["file"]).write_text(self.text)
        else:
            self._edit(folder)

    def _edit(self, folder: Path) -> None:
        below = BELOW.fullmatch(self.said)
        found = below or INSTEAD.fullmatch(self.said)
        assert found, f"{self.said}: what is to be done?"
        path = folder / found["file"]
        lines = path.read_text().splitlines(keepends=True)
        [at] = [n for n, line in enumerate(lines) if line.strip() == found["line"]]
        lines[at : at + 1] = [lines[at], self.text] if below else [self.text]
        path.write_text("".join(lines))


@dataclass(frozen=True)
class Recipe:
    steps: tuple[Step, ...]
    check: str


def recipes() -> Iterator[tuple[str, Recipe]]:
    part = PAGE.partition("\n## Recipes\n")[2]
    for section in part.split("\n### ")[1:]:
        title, _, text = section.partition("\n")
        *steps, check = (Step(said, block) for said, _, block in BLOCK.findall(text))
        assert check.said == "Check", title
        assert text.count("\n```") == 2 * (len(steps) + 1), f"{title}: a block without its line"
        yield title, Recipe(tuple(steps), check.text)


RECIPES = dict(recipes())
#: Each step that is no test, by the recipe's name and its number.
MADE = [
    (title, n)
    for title, recipe in RECIPES.items()
    for n, step in enumerate(recipe.steps)
    if not step.is_test
]


def shell(commands: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Lines of a page, as in the environment that it has made."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return attempt(["sh", "-euc", commands], folder, PATH=path, PYTHONPATH=str(folder))


def test_there_is_a_recipe_for_each_of_these() -> None:
    titles = ["A rewrite rule", "An op", "An intrinsic", "A schedule", "An edge"]
    assert list(RECIPES) == [*titles, "A device profile"]


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_does_what_it_says(title: str, tmp_path: Path, host_compiler: str) -> None:
    folder = copied(tmp_path)
    for step in RECIPES[title].steps:
        step.take(folder)
    done = shell(RECIPES[title].check, folder)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    for wanted in (["check"], ["format", "--check"]):
        linted = attempt([sys.executable, "-m", "ruff", *wanted, "."], folder)
        assert linted.returncode == 0, linted.stdout


@pytest.mark.parametrize(("title", "left_out"), MADE)
def test_no_step_can_be_left_out(
    title: str, left_out: int, tmp_path: Path, host_compiler: str
) -> None:
    folder = copied(tmp_path)
    for n, step in enumerate(RECIPES[title].steps):
        if n != left_out:
            step.take(folder)
    done = shell(RECIPES[title].check, folder)
    # a module that is missing, or has no such name, interrupts pytest while it collects
    failed = (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)
    assert done.returncode in failed, f"{done.stdout}\n{done.stderr}"
