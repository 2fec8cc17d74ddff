"""Which line of a call stack is the user's: the innermost outside of Python, JAX and libraries."""

from __future__ import annotations

import importlib.util
import re
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

#: Frames of one stack that are looked at. JAX records 100.
_DEEPEST = 256
#: Folders of installed packages and of the standard library, also those of another machine.
_INSTALLED = re.compile(
    r"/(?:site-packages|dist-packages|__pypackages__|lib(?:64)?/(?:python|pypy)\d[\d.]*)/"
)
_PACKAGE = re.compile(r".*/(?:site|dist)-packages/([^/]+)")
#: What interpreters and notebooks call text that came from no file. Other names in angle brackets
#: are code that Python or a library wrote.
_TYPED_IN = re.compile(
    r"<(?:stdin|string|console|input|(?:i?python-)?input-[^>]*|doctest [^>]*|cell[^>]*)>"
)
#: Part of the names of the methods that `dataclasses` writes, from a "<string>".
_WRITTEN = "__create_fn__"


class Frame(NamedTuple):
    """One line of a call stack."""

    file: str
    function: str
    line: int


class Span(NamedTuple):
    """What part of a file's text a frame was at: columns are bytes of UTF-8 from 0, the last of
    them excluded. The end is 0 where it is not known."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int


class Frames:
    """The stack frames of a module, by the 1-based ids that its instructions name."""

    def __init__(self, index: Any):
        self.index = index
        self.found: dict[int, tuple[str, int]] = {}

    def location(self, ident: int) -> tuple[str, int]:
        """The user's file and line among a frame and its callers; ("", 0) if there is none."""
        if ident not in self.found:
            frame = users(self.stack(ident))
            self.found[ident] = (frame.file, frame.line) if frame else ("", 0)
        return self.found[ident]

    def users(self, ident: int) -> list[Frame]:
        """All lines of the user's among a frame and its callers, innermost first."""
        return [frame for frame in self.stack(ident) if is_users(frame)]

    def stack(self, ident: int) -> list[Frame]:
        """A frame and its callers, innermost first, as far as the tables go."""
        functions = self.index.function_names
        frames = []
        for file, location in self._locations(ident):
            known = 0 < location.function_name_id <= len(functions)
            name = functions[location.function_name_id - 1] if known else ""
            frames.append(Frame(file, name, location.line))
        return frames

    def spans(self, ident: int) -> list[Span]:
        """What a frame and its callers were at, innermost first."""
        return [
            Span(file, location.line, location.column, location.end_line, location.end_column)
            for file, location in self._locations(ident)
        ]

    def _locations(self, ident: int) -> Iterator[tuple[str, Any]]:
        """The file and the FileLocation of a frame and its callers."""
        index = self.index
        for _ in range(_DEEPEST):
            if ident <= 0:
                return
            try:
                frame = index.stack_frames[ident - 1]
                location = index.file_locations[frame.file_location_id - 1]
                file = index.file_names[location.file_name_id - 1]
            except IndexError:
                return
            yield file, location
            ident = frame.parent_frame_id


def users(stack: list[Frame]) -> Frame | None:
    """The innermost frame that is the user's, of a stack from inside out; None for an empty one,
    and where nothing called this package.

    Files outside of the folders of installed packages are the user's, including packages installed
    in place. A program that is itself installed is its outermost package.
    """
    for frame in stack:
        if is_users(frame):
            return frame
    others = [frame for frame in stack if not is_ours(frame.file)]
    packages = [_package(frame.file) for frame in others]
    program = next((package for package in reversed(packages) if package), None)
    if program is None and others != stack:
        return None  # a command of ours was given a function of JAX's
    return others[packages.index(program)] if others else None


def is_ours(file: str) -> bool:
    """Whether a file is this package's."""
    return _slashed(file).startswith(_ours())


def is_users(frame: Frame) -> bool:
    """Whether a line lies outside of Python, JAX, this package and what is installed."""
    if frame.file.startswith("<"):
        return _TYPED_IN.fullmatch(frame.file) is not None and _WRITTEN not in frame.function
    if frame.function == "<module>" and _slashed(frame.file).startswith(_scripts()):
        return False  # the file that an installer writes to start a program
    return not _is_library(frame.file)


@cache
def _is_library(file: str) -> bool:
    path = _slashed(file)
    return _INSTALLED.search(path) is not None or path.startswith(_folders())


@cache
def _folders() -> tuple[str, ...]:
    """The folders of this Python, of JAX wherever it is installed, and of this package."""
    found = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    for name in ("jax", "jaxlib"):
        spec = importlib.util.find_spec(name)
        found += list((spec and spec.submodule_search_locations) or ())
    folders = (f"{_slashed(folder).rstrip('/')}/" for folder in found if folder)
    return (*folders, _ours())


@cache
def _ours() -> str:
    return f"{_slashed(str(Path(__file__).parent.parent))}/"


@cache
def _scripts() -> str:
    return f"{_slashed(sysconfig.get_path('scripts')).rstrip('/')}/"


def _package(file: str) -> str | None:
    found = _PACKAGE.match(_slashed(file))
    return found[1] if found else None


def _slashed(path: str) -> str:
    return path.replace("\\", "/")
