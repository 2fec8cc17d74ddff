"""What docs/how shows of kernels, schedules and plans is what the product makes today.

Above a block or a table a comment says whose it is: `<!-- warp: source -->` stands above lines of
that kernel's source, in their order. Lines that are left out are a line of three dots.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from benchmarks.figures.__main__ import FIGURES, pages
from benchmarks.figures.cases import JAX, PROGRAMS, TARGETS, case
from benchmarks.figures.tables import PLACE, TABLES
from fusionstitch.commands import cli

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "how").glob("*.md"))
#: Those with figures and tables.
DRAWN = pages(ROOT / "docs")
BLOCK = re.compile(r"(?:^<!-- ([\w ]+): ([\w ]+) -->\n)?^```(\w*)\n(.*?)^```$", re.M | re.S)
LARGE, THOUSANDS = 100, re.compile(r"(?<=\d),(?=\d{3}\b)")
LEFT_OUT = "..."

named_alike = pytest.mark.skipif(
    jax.__version__ != JAX, reason=f"ops on the pages have the names that JAX {JAX} gives them"
)
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def chunks(block: str) -> Iterator[str]:
    """The runs of lines between those that are left out."""
    lines: list[str] = []
    for line in [*block.splitlines(), LEFT_OUT]:
        if line.strip() != LEFT_OUT:
            lines.append(line)
        elif lines:
            yield "\n".join(lines) + "\n"
            lines = []


@named_alike
@every_page
def test_what_a_page_shows_is_what_there_is(page: Path) -> None:
    blocks = BLOCK.findall(page.read_text("utf-8"))
    for name, what, language, block in blocks:
        if language not in ("c", "text"):
            continue
        assert name, f"a comment has to say whose this is:\n{block}"
        text, at = case(name).text(what), 0
        for chunk in chunks(block):
            found = f"\n{text}\n".find(f"\n{chunk}", at)
            assert found >= 0, f"{name} has no such lines in its {what}, here or later:\n{chunk}"
            at = found + len(chunk)


@named_alike
@pytest.mark.parametrize("page", DRAWN, ids=lambda page: page.stem)
def test_tables_are_those_of_the_product(page: Path) -> None:
    for name, table in PLACE.findall(page.read_text("utf-8")):
        assert table == TABLES[name](), f"the table {name} is another one today: run make figures"


def bare(function: ast.FunctionDef) -> str:
    """What a function does, whatever is said of it."""
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
            if ast.get_docstring(node) is not None:
                node.body.pop(0)
    return ast.dump(function)


def functions(text: str) -> dict[str, str]:
    found = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return {node.name: bare(node) for node in found}


@every_page
def test_programs_on_the_pages_are_those_that_are_planned(page: Path) -> None:
    there = functions((ROOT / PROGRAMS).read_text("utf-8"))
    for _, _, language, block in BLOCK.findall(page.read_text("utf-8")):
        if language == "py":
            assert functions(block).items() <= there.items()


def large(text: str) -> set[int]:
    return {n for n in map(int, re.findall(r"(?<![a-zA-Z])\d+", text)) if n >= LARGE}


@every_page
def test_large_numbers_in_the_text_are_in_what_it_speaks_of(page: Path) -> None:
    text = page.read_text("utf-8")
    shown = "".join(block for *_, block in BLOCK.findall(text))
    shown += "".join(line for line in text.splitlines() if line.startswith("|"))
    for name in re.findall(r"\(\.\./figures/([\w.-]+)\)", text):
        shown += (ROOT / "docs" / "figures" / name).read_text("utf-8")
    prose = "\n".join(line for line in BLOCK.sub("", text).splitlines() if line[:1] != "|")
    assert large(THOUSANDS.sub("", prose)) <= large(THOUSANDS.sub("", shown)) | large(shown)


@every_page
def test_links_and_paths_lead_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    links = re.findall(r"\]\((?!http)([^)#]+)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []
    files = re.findall(r"`((?:hlo|costmodel|codegen|fusionstitch|tests|examples)/[\w./]+)`", text)
    assert [name for name in files if not (ROOT / name).exists()] == []


@every_page
def test_commands_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("docs", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    for _, _, language, block in BLOCK.findall(page.read_text("utf-8")):
        for line in block.splitlines() if language == "sh" else ():
            words = line.split("#")[0].split()
            assert words[0] == "fusionstitch"
            assert cli.main(words[1:]) == 0


def test_every_figure_table_and_program_is_on_a_page() -> None:
    text = "".join(page.read_text("utf-8") for page in DRAWN)
    assert [name for name in FIGURES if f"figures/{name})" not in text] == []
    assert [name for name in TABLES if f"<!-- table: {name} -->" not in text] == []
    told = [(f"`{name}`" in text or f"<!-- {name}: " in text) for name in TARGETS]
    assert all(told)
    # the first thing on each page is a figure
    assert all("![" in page.read_text("utf-8").split("\n\n")[1] for page in DRAWN)
