"""The documentation site: it builds without a warning, is complete, and needs no network."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fusionstitch import Options, errors
from fusionstitch.commands.cli import command_line
from tests.people.test_page import wait

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
OPENED = ("index", "reference/api", "reference/cli", "reports")
#: A small site, in a repository of its own, in which all is well.
SMALL = {
    "docs/index.md": "# Small\n\n```{toctree}\npage\nother\nnotes\n```\n",
    "docs/page.md": "# P\n\n[a](../tests/a.py) [b](../tests) [c](../NOTES.md) [](other.md#there)\n",
    "docs/other.md": "# Other\n\n## There\n",
    "docs/notes.md": "```{include} ../NOTES.md\n```\n",
    "NOTES.md": "# Notes\n\n[a](docs/other.md#there) [b](tests/a.py)\n",
    "tests/a.py": "",
}
#: The beginning of a notebook as text.
CELL = "---\nfile_format: mystnb\nkernelspec:\n  name: python3\n---\n\n# P\n\n```{code-cell}\n"


def build(source: Path, into: Path) -> subprocess.CompletedProcess[str]:
    """Sphinx over a folder of pages, as `make docs` has it."""
    return subprocess.run(
        [sys.executable, "-m", "sphinx", "-qTWn", "-b", "html", str(source), str(into)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )


def build_small(folder: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    """The small site with changes, by the name of a page."""
    for name, text in (SMALL | {f"docs/{page}.md": text for page, text in changes.items()}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copy(DOCS / "conf.py", folder / "docs")
    shutil.copytree(DOCS / "_ext", folder / "docs" / "_ext")
    return build(folder / "docs", folder / "site")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("site")
    done = build(DOCS, into)
    assert done.returncode == 0, done.stderr
    return into


class Page(HTMLParser):
    """The ids of a page, and the addresses that a browser loads on opening it."""

    def __init__(self, path: Path):
        super().__init__()
        self.ids: set[str] = set()
        self.loaded: list[str] = []
        self.text = path.read_text()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if (name := given.get("id")) is not None:
            self.ids.add(name)
        if tag == "link" and given.get("rel") in ("stylesheet", "preload", "icon"):
            self.loaded.append(given.get("href") or "")
        if tag != "a":
            self.loaded += [given.get("src") or "", given.get("srcset") or ""]


def written() -> list[Path]:
    """The pages that somebody wrote, without their endings."""
    found = [path for ending in ("md", "ipynb") for path in DOCS.rglob(f"*.{ending}")]
    return sorted(path.relative_to(DOCS).with_suffix("") for path in found)


def pages(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


def public_names() -> list[str]:
    tree = ast.parse((ROOT / "fusionstitch" / "__init__.py").read_text())
    imported = [
        alias for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    return [one.asname for one in imported if one.asname and not one.asname.startswith("_")]


def subcommands() -> dict[str, argparse.ArgumentParser]:
    actions = command_line()._actions
    (found,) = (one for one in actions if isinstance(one, argparse._SubParsersAction))
    return dict(found.choices)


def test_every_page_is_there_and_found(site: Path) -> None:
    assert [page for page in written() if not (site / f"{page}.html").exists()] == []
    index = (site / "searchindex.js").read_text()
    assert [page for page in written() if f'"{page}"' not in index] == []
    assert "max_solver_nodes" in index


def test_titles_differ(site: Path) -> None:
    texts = [(site / f"{page}.html").read_text() for page in written()]
    titles = [re.findall(r"<h1>(.*?)<a class", text)[0] for text in texts]
    assert sorted(titles) == sorted(set(titles))


def test_the_api_is_complete(site: Path) -> None:
    names = public_names()
    assert {"jit", "report", "Options", "FusionStitchError"} <= set(names)
    fields = [f"Options.{field.name}" for field in dataclasses.fields(Options)]
    others = [f"errors.{name}" for name in errors.__all__ if name not in (*names, "reason")]
    ids = Page(site / "reference" / "api.html").ids
    assert [name for name in (*names, *fields, *others) if f"fusionstitch.{name}" not in ids] == []


def test_the_command_line_is_complete(site: Path) -> None:
    page = Page(site / "reference" / "cli.html")
    for name, parser in subcommands().items():
        assert name in page.ids
        shown = {one for one in page.ids if one.startswith(f"cmdoption-fusionstitch-{name}-")}
        flags = [flag for one in parser._actions for flag in one.option_strings]
        wanted = {f"cmdoption-fusionstitch-{name}-{flag.lstrip('-')}" for flag in flags}
        helps = {f"cmdoption-fusionstitch-{name}-{flag}" for flag in ("h", "help")}
        assert wanted - shown == helps
        positional = [one for one in parser._actions if not one.option_strings]
        assert len(shown - wanted) == len(positional)
    for flag in ("-h", "--help", "--version"):
        assert flag in page.text


def test_the_commands_shown_are_taken() -> None:
    text = (DOCS / "reference" / "cli.md").read_text()
    lines = re.findall(r"^fusionstitch (.*)$", text, re.MULTILINE)
    parsed = [command_line().parse_args(shlex.split(line)) for line in lines]
    assert len({one.run for one in parsed}) == len(subcommands())


def test_nothing_comes_from_the_network(site: Path) -> None:
    found = [address for path in pages(site) for address in Page(path).loaded]
    assert [one for one in found if one.endswith(".css")]
    assert [one for one in found if one.endswith(".js")]
    assert [one for one in found if "//" in one] == []
    for path in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", path.read_text()), path


def test_links_lead_to_pages_or_to_the_repository(tmp_path: Path) -> None:
    done = build_small(tmp_path)
    assert done.returncode == 0, done.stderr
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    place = f"{project['urls']['Source']}/blob/main"
    page, notes = ((tmp_path / "site" / f"{n}.html").read_text() for n in ("page", "notes"))
    files = [f"{place}/{name}" for name in ("tests/a.py", "tests", "NOTES.md")]
    for target in ("other.html#there", *files):
        assert f'href="{target}"' in page
    for target in ("other.html#there", "page.html", files[0]):
        assert f'href="{target}"' in notes


def test_notebooks_run_and_show_cards(tmp_path: Path) -> None:
    cell = "from fusionstitch.reports.explained import Explained"
    done = build_small(tmp_path, page=f"{CELL}{cell}\nExplained('all ' + 'is well')\n```\n")
    assert done.returncode == 0, done.stderr
    assert "<b>all is well</b>" in (tmp_path / "site" / "page.html").read_text()


@pytest.mark.parametrize(
    ("page", "text", "said"),
    [
        ("page", "# Page\n\n[a](nowhere.md)\n", "nowhere.md"),
        ("page", "# Page\n\n[a](../tests/nowhere.py)\n", "nowhere.py"),
        ("page", "# Page\n\n[a](other.md#nowhere)\n", "nowhere"),
        ("page", "# Page\n\n[](#nowhere)\n", "nowhere"),
        ("page", "# Page\n\n```{command} nowhere\n```\n", "nowhere"),
        ("page", f"{CELL}1 / 0\n```\n", "ZeroDivisionError"),
        ("lost", "# In no menu\n", "toctree"),
    ],
)
def test_what_is_broken_fails(tmp_path: Path, page: str, text: str, said: str) -> None:
    done = build_small(tmp_path, **{page: text})
    assert done.returncode != 0
    assert f"{page}.md" in done.stderr
    assert said in done.stderr


def opened(driver: Any, address: str) -> list[str]:
    """Opens a page; returns what the browser has to say of it."""
    driver.get("about:blank")
    driver.get_log("browser")
    driver.get(address)
    return [entry["message"] for entry in driver.get_log("browser")]


@pytest.mark.parametrize("page", OPENED)
def test_pages_open(themed: Any, site: Path, page: str) -> None:
    assert opened(themed, (site / f"{page}.html").as_uri()) == []
    assert themed.find_element("tag name", "h1").text
    over = "return document.documentElement.scrollWidth - innerWidth"
    assert themed.execute_script(over) <= 0


def test_the_search_finds(session: Any, site: Path) -> None:
    assert opened(session, f"{(site / 'search.html').as_uri()}?q=max_solver_nodes") == []
    wait(session, "document.querySelectorAll('#search-results li').length")
    found = session.find_element("id", "search-results").text
    assert "Options.max_solver_nodes" in found
    assert [entry["message"] for entry in session.get_log("browser")] == []
