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


# ---- bars ----------------------------------------------------------------------------------------

HIDE, SHOW, WIPE = "\x1b[?25l", "\x1b[?25h", "\x1b[2K"


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "FUSIONSTITCH_PROGRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    written = Terminal()
    monkeypatch.setattr(sys, "stderr", written)
    return written


def test_a_bar_counts_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with progress.counted("measures", 4) as step:
        for name in ("a", "b", "[red]c", "d\x1b[2J"):
            step(name)
    text = terminal.getvalue()
    assert [share for share in ("0%", "25%", "50%", "75%") if share not in text] == []
    assert "100%" not in text  # the last one is under way when it is told
    assert "[red]c" in text
    assert "\x1b[2J" not in text
    assert text.rstrip().endswith((SHOW, WIPE)) or WIPE in text[text.rindex("75%") :]


def test_a_bar_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.timed("tunes", 60) as step:
        for passed in (15.0, 90.0):
            now[0] = 100.0 + passed
            step("building")
    assert "25%" in terminal.getvalue()
    assert "100%" in terminal.getvalue()


def test_an_interrupt_gives_the_cursor_back(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)

    def interrupted() -> None:
        with progress.counted("measures", 4) as step:
            step("a")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    text = terminal.getvalue()
    assert HIDE in text
    assert text.rindex(SHOW) > text.rindex(HIDE)


@pytest.mark.parametrize(("asked", "shown"), [("", ""), ("1", "fusionstitch measures: a\n")])
def test_no_bar_is_piped(monkeypatch: pytest.MonkeyPatch, asked: str, shown: str) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    monkeypatch.setenv("FUSIONSTITCH_PROGRESS", asked)
    with progress.counted("measures", 4) as step:
        step("a")
    assert written.getvalue() == shown


def test_a_line_says_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.line("train_step") as step:
        step("plan")
        now[0] += 12
        step("codegen")
    assert "fusionstitch train_step: plan " in terminal.getvalue()
    assert "fusionstitch train_step: 12 s, codegen " in terminal.getvalue()
