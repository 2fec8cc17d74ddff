"""What the documentation lists is what there is."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import importlib
import re
import tomllib
from pathlib import Path

import pytest

from fusionstitch import Options, env

ROOT = Path(__file__).parent.parent
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md"))
#: Modules whose docstrings hold examples.
EXAMPLES = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    for path in ROOT.glob("fusionstitch/**/*.py")
    if ">>> " in path.read_text()
)
#: Where the files of the checkout are for who reads a page elsewhere.
AWAY = re.compile(r"https://github\.com/fusionstitch/fusionstitch/(?:blob|tree)/main/([^)\s#\"]+)")


def test_every_option_and_variable_is_documented() -> None:
    text = (ROOT / "docs" / "options.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    options = [field.name for field in dataclasses.fields(Options)]
    variables = [variable.name for variable in env.VARIABLES]
    assert rows[: len(options)] == options
    others = rows[len(options) :]
    assert [name for name in variables if name not in others] == []
    assert set(others) - set(variables) <= {"CXX", "FUSIONSTITCH_EXAMPLE_SCALE"}


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        "examples/README.md",
        # the index is the site's alone, whose build looks at its links
        *(name for name in PAGES if name != "docs/index.md"),
    ],
)
def test_paths_and_targets_in_the_pages_exist(page: str) -> None:
    path = ROOT / page
    text = path.read_text()
    links = re.findall(r"\]\((?!http)([^)#]+)", text)
    assert [link for link in links if not (path.parent / link).exists()] == []
    assert [link for link in AWAY.findall(text) if not (ROOT / link).exists()] == []
    files = re.findall(r"`((?:hlo|costmodel|codegen|fusionstitch|tests|examples)/[\w./]+)`", text)
    made = re.findall(r"In a new file `([^`]+)`", text)
    assert [name for name in files if not (ROOT / name).exists() and name not in made] == []
    for module, name in re.findall(r"\b(?:examples/)?(\w+\.py):([a-z]\w+)", text):
        if (ROOT / "examples" / module).exists():
            assert f"def {name}()" in (ROOT / "examples" / module).read_text()


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_in_docstrings(module: str, host_compiler: str) -> None:
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    done = doctest.testmod(importlib.import_module(module), optionflags=flags)
    assert done.attempted > 0
    assert done.failed == 0


def test_there_are_examples() -> None:
    assert "fusionstitch.api" in EXAMPLES


def test_links_of_the_readme_and_of_the_package_lead_away() -> None:
    """Both are shown where there is no checkout around them."""
    readme = (ROOT / "README.md").read_text()
    links = re.findall(r"\]\(([^)]+)|^\[[^]]+\]: (\S+)", readme, re.MULTILINE)
    links = [inline or named for inline, named in links]
    assert [link for link in links if not link.startswith("https://")] == []
    assert "docs/reports.md" in AWAY.findall(readme)
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert {name for name, url in urls.items() if AWAY.match(url)} == {"Documentation", "Changelog"}
    named = [path for url in urls.values() for path in AWAY.findall(url)]
    assert [path for path in named if not (ROOT / path).exists()] == []


#: What a page quotes from an output: in backticks, with a number in several words.
_QUOTE = re.compile(r"`([^`]+)`")
_BLOCKS = re.compile(r"^```\w*\n.*?^```$|^(?: {4}[^\n]*\n)+", re.MULTILINE | re.DOTALL)


def _is_code(text: str) -> bool:
    try:
        ast.parse(text.removeprefix("$ "))
    except SyntaxError:
        return False
    return True


def unseen_quotes(page: str) -> list[str]:
    """What the sentences of a page quote with a number, and none of its blocks shows; `...` in a
    quote stands for anything."""
    shown = " ".join(" ".join(_BLOCKS.findall(page)).split())
    found = []
    for quote in _QUOTE.findall(_BLOCKS.sub("", page)):
        words = " ".join(quote.split())
        if " " not in words or not re.search(r"\d", words) or _is_code(words):
            continue
        if not all(part.strip() in shown for part in words.split("...")):
            found.append(words)
    return found


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.startswith(("docs/start/", "docs/guides/"))]
)
def test_what_sentences_quote_is_in_an_output(page: str) -> None:
    assert not unseen_quotes((ROOT / page).read_text())


def test_a_quote_that_no_output_shows_is_found() -> None:
    page = "It is `2 patterns in 1 kernel`.\n\n```text\njit_f for h200: {} in 1 kernel\n```\n"
    assert not unseen_quotes(page.format("2 patterns"))
    assert unseen_quotes(page.format("3 patterns")) == ["2 patterns in 1 kernel"]
    assert not unseen_quotes("Write `f(x, 2)` and `loop ... 4`.\n\n    loop rows 4\n")
