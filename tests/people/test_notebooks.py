"""The notebooks of the documentation: kept without outputs, they run and show cards."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from tests.pages import ROOT

NOTEBOOKS = sorted(ROOT.glob("docs/notebooks/*.ipynb"))
#: Cells that end with such an object show it as a card.
CARD = re.compile(r"(\.explain\(.*\)|\.plan|\.kernels\[0\]|fs\.report\(.*\)|\nreport)$")


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_there_are_notebooks() -> None:
    assert {path.stem for path in NOTEBOOKS} >= {"first_look", "loops"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_kept_without_outputs(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert notebook.metadata.kernelspec.name == "python3"
    assert [cell for cell in code(notebook) if cell.outputs or cell.execution_count] == []


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch, host_compiler: str) -> None:
    """Kernels that find the package and no GPU."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.delenv("FUSIONSTITCH_PROGRESS", raising=False)


def executed(notebook: Any, folder: Path) -> list[list[Any]]:
    """What each cell of code shows; an error is raised."""
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    return [cell.outputs for cell in code(notebook)]


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_and_shows_cards(path: Path, tmp_path: Path) -> None:
    notebook = read(path)
    outputs = executed(notebook, tmp_path)
    cards = 0
    for cell, shown in zip(code(notebook), outputs, strict=True):
        assert all(one.output_type == "execute_result" for one in shown)
        if CARD.search(cell.source):
            cards += 1
            assert "text/html" in shown[0].data, cell.source
            assert "ipykernel_" not in shown[0].data["text/plain"]
    assert cards >= 3


@pytest.mark.usefixtures("kernels")
def test_lines_of_cells_are_asked_for_as_they_are_shown(tmp_path: Path) -> None:
    define = """
import jax, jax.numpy as jnp, fusionstitch as fs

def soften(x):
    return jax.nn.softmax(x.T) + x.sum()

options = fs.Options(backend="emulate", scorer="paper")
compiled = fs.jit(soften, options=options).lower(jnp.ones((8, 8))).compile()
compiled"""
    cells = [define.strip(), "compiled.explain('In[1]:4')"]
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    [shown] = executed(notebook, tmp_path)[1]
    assert ", In[1]:4" in shown.data["text/plain"]


def seen(outputs: list[Any]) -> str:
    """What is left to see of streams, where a carriage return goes back to the line's begin."""
    text = ""
    for one in outputs:
        assert one.output_type == "stream", one
        text += one.text
    assert "\x1b" not in text
    lines = (re.sub(r"[^\n]*\r(?=.)", "", line).rstrip() for line in text.split("\n"))
    return "\n".join(lines).strip()


@pytest.mark.usefixtures("kernels")
def test_progress_is_a_line_that_goes(tmp_path: Path) -> None:
    """In the cell that takes long, or in all that are asked to; no widgets, warnings, codes."""
    bar = """
from fusionstitch.compiler import progress
with progress.counted("measures", 3) as step:
    for name in "abc":
        step(f"part {name}")"""
    compiles = """
import jax, jax.numpy as jnp, fusionstitch as fs
step = fs.jit(lambda x: jax.nn.softmax(x.T) + x.sum(), options=fs.Options(backend="emulate"))
y = step(jnp.ones((8, 8)))"""
    asked = "import os; os.environ['FUSIONSTITCH_PROGRESS'] = %r"
    cells = [bar, compiles, asked % "1", f"step.clear_cache()\n{compiles}", asked % "0", bar]
    notebook = new_notebook(cells=[new_code_cell(cell.strip()) for cell in cells])
    default, quiet, _, loud, _, off = executed(notebook, tmp_path)
    assert "fusionstitch measures: part b" in "".join(one.text for one in default)
    assert "fusionstitch <lambda>: plan" in "".join(one.text for one in loud)
    assert seen(default) == seen(loud) == ""
    assert quiet == off == []
