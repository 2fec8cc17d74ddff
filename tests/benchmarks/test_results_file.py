"""Files of results: what is written is read again, and every file has a row on each line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import published, results_file

FILES = sorted(published.RESULTS.glob("*.json"))
NUMBERS = st.integers() | st.floats(allow_nan=False) | st.text() | st.none()
VALUES = st.recursive(
    NUMBERS, lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(), some, max_size=3)
)


@given(content=st.dictionaries(st.text(), VALUES, max_size=4))
def test_what_is_written_is_read_again(
    content: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "content.json"
    results_file.write(path, content)
    assert json.loads(path.read_text()) == content


def test_rows_have_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    rows = [{"name": "a", "us": {"xla": 1.5}}, {"name": "b", "us": {}}]
    results_file.write(path, {"command": "python", "rows": rows, "by": {"a": {"n": 1}}})
    assert path.read_text() == (
        '{\n "command": "python",\n "rows": [\n'
        '  {"name":"a","us":{"xla":1.5}},\n  {"name":"b","us":{}}\n ],\n'
        ' "by": {\n  "a": {"n":1}\n }\n}\n'
    )


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_files_are_written_so(file: Path, tmp_path: Path) -> None:
    results_file.write(tmp_path / "again.json", json.loads(file.read_text()))
    assert (tmp_path / "again.json").read_text() == file.read_text()
