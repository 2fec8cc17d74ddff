"""Text of others made printable: every character, and every trick that printing may fall for."""

from __future__ import annotations

import logging
import re
import subprocess

import pytest

from fusionstitch import env
from fusionstitch.codegen.ir.builder import Writer
from fusionstitch.codegen.text.source import RESERVED, comment, identifier
from fusionstitch.compiler import progress
from fusionstitch.errors import FusionStitchWarning, ImportModuleError, reason
from fusionstitch.execution import path as execution_path
from fusionstitch.hlo import foreign
from tests.foreign.tricks import NAMES, TRICKS

AROUND = (("a", ""), ("??", "/"), ("", "\\"))
CHARACTERS = [chr(code) for code in range(0x10000)]


def texts() -> list[str]:
    around = [f"{before}{c}{after}" for c in CHARACTERS for before, after in AROUND]
    return [*around, *NAMES, *(f"{one}{other}" for one in TRICKS for other in TRICKS)]


def test_a_line_is_one_line_that_ends_and_means_nothing() -> None:
    for text in texts():
        line = foreign.line(text)
        assert line.isprintable(), repr(text)
        assert "??" not in line
        assert not line.endswith(("\\", " "))
        assert len(line) <= foreign.MOST_OF_A_LINE + len("<U+005C>")


def test_what_is_a_line_already_stays() -> None:
    scopes = "jit(f)/transpose(jvp(layer_0))/dot_general", "jit(f)/é 日本/what?", "C:\\x\\y"
    for text in (*scopes, "x" * foreign.MOST_OF_A_LINE):
        assert foreign.line(text) == text
        assert foreign.lines(text) == text


def test_different_texts_stay_apart() -> None:
    assert len({foreign.line(f"a{c}b") for c in CHARACTERS}) == len(CHARACTERS)


def test_of_a_long_text_both_ends_are_shown() -> None:
    assert foreign.line("begin" + "x" * 10**6 + "end", 20) == "beginxxxx...xxxxxend"


def test_lines_keep_breaks_and_tabs_alone() -> None:
    assert foreign.lines("a\n\tb\r\x1b[2Jc") == "a\n\tb<U+000D><U+001B>[2Jc"
    for text in TRICKS:
        shown = foreign.lines(text)
        assert all(c.isprintable() or c in "\n\t" for c in shown)
        assert shown.count("\n") == text.count("\n")


def test_a_name_is_one_of_hlo() -> None:
    allowed = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
    for text in texts():
        name = foreign.name(text)
        assert allowed.fullmatch(name) or name == text == "", repr(text)
        assert len(name) <= foreign.MOST_OF_A_NAME + 1
        assert foreign.name(name) == name or len(name) > foreign.MOST_OF_A_NAME
    for name in ("add.1", "region_0.2.clone", "Arg_0.1", "all-reduce-start"):
        assert foreign.name(name) == name


def test_a_comment_is_one_line() -> None:
    for text in texts():
        line = comment(text)
        assert line.startswith("//")
        assert line.isprintable()
        assert not line.endswith("\\")
        assert "??" not in line


def test_an_identifier_is_free_and_short() -> None:
    allowed = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
    for text in texts():
        name = identifier(text)
        assert allowed.fullmatch(name), repr(text)
        assert "__" not in name
        assert name not in RESERVED
        assert not name.startswith(("fs_", "Fs", "FS_"))
        assert len(name) <= 70


def test_a_writer_gives_every_name_once() -> None:
    writer = Writer()
    given = [writer.name(name) for _ in range(3) for name in NAMES]
    assert len(set(given)) == len(given)


def test_no_identifier_is_a_macro_of_c(host_compiler: str) -> None:
    """Of the dialect that nvcc hands to g++, with all headers of C++ in it."""
    headers = "".join(f"#include <{h}>\n" for h in ("bits/stdc++.h", "signal.h", "sys/stat.h"))
    command = [host_compiler, "-std=gnu++17", "-dM", "-E", "-x", "c++", "-"]
    found = subprocess.run(command, input=headers, capture_output=True, text=True)
    if found.returncode:
        pytest.skip("this compiler has no <bits/stdc++.h>")
    # one with parameters does nothing to a name without an argument list
    macros = set(re.findall(r"^#define ([A-Za-z_]\w*)(?= |$)", found.stdout, re.MULTILINE))
    assert len(macros) > 500
    assert {macro for macro in macros if identifier(macro) in macros} == set()


def test_errors_warnings_logs_and_the_progress_line_are_printable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FUSIONSTITCH_PROGRESS", "1")
    for text in TRICKS:
        shown = [str(ImportModuleError(f"It says {text}.")), reason(ValueError(text))]
        with pytest.warns(FusionStitchWarning) as heard:
            execution_path.warn(text, text)
        shown += [str(one.message) for one in heard]
        record = logging.LogRecord("hlo", logging.INFO, "", 1, "%s", (text,), None)
        shown.append(env._Formatter().format(record))
        with progress.line(text) as step:
            step(text)
        shown.append(capsys.readouterr().err)
        for message in shown:
            assert all(c.isprintable() or c in "\n\t" for c in message), repr(message)
