"""The progress line."""

from __future__ import annotations

import io
import sys

import pytest

from fusionstitch.compiler import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "asked", "shown"),
    [
        (io.StringIO, "", False),
        (io.StringIO, "1", True),
        (Terminal, "", True),
        (Terminal, "0", False),
    ],
)
def test_progress_shows_only_where_somebody_looks(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], asked: str, shown: bool
) -> None:
    written = stream()
    monkeypatch.setattr(sys, "stderr", written)
    monkeypatch.setenv("FUSIONSTITCH_PROGRESS", asked)
    with progress.line("train_step") as step:
        step("plan")
    assert ("fusionstitch train_step: plan" in written.getvalue()) == shown
    if shown and stream is Terminal:
        assert written.getvalue().endswith("\r")  # nothing stays on the line


@pytest.mark.parametrize("asked", ["", "1"])
@pytest.mark.parametrize("state", ["none", "closed"])
def test_nobody_looks_at_a_stream_that_is_closed(
    monkeypatch: pytest.MonkeyPatch, state: str, asked: str
) -> None:
    stream = Terminal()
    stream.close()
    monkeypatch.setattr(sys, "stderr", None if state == "none" else stream)
    monkeypatch.setenv("FUSIONSTITCH_PROGRESS", asked)
    with progress.line("train_step") as step:
        step("plan")
