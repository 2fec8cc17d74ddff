"""Every environment variable of this project: declared once, typed, and checked when read."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from fusionstitch.hlo import foreign
from fusionstitch.hlo.errors import OptionError

PREFIX = "FUSIONSTITCH_"
T = TypeVar("T")


@dataclass(frozen=True)
class Variable(Generic[T]):
    """One variable. `allowed` describes in words what `parse` accepts; an empty value counts as
    unset."""

    name: str
    default: T
    parse: Callable[[str], T]
    allowed: str
    doc: str

    @property
    def text(self) -> str | None:
        """The text in the environment, or None if unset."""
        return os.environ.get(self.name) or None

    def get(self) -> T:
        """The current value. Raises OptionError for text that is not allowed."""
        if self.text is None:
            return self.default
        try:
            return self.parse(self.text)
        except (ValueError, OSError):
            raise OptionError(
                f"{self.name}={self.text!r} is not allowed: set it to {self.allowed}, or unset it."
            ) from None


def _one_of(*values: str) -> tuple[Callable[[str], str], str]:
    def parse(text: str) -> str:
        if text.lower() not in values:
            raise ValueError(text)
        return text.lower()

    return parse, f"{', '.join(values[:-1])} or {values[-1]}"


def _choice(name: str, default: str, values: Sequence[str], doc: str) -> Variable[str]:
    parse, allowed = _one_of(*values)
    return Variable(PREFIX + name, default, parse, allowed, doc)


def _flag(text: str) -> bool:
    known = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}
    try:
        return known[text.lower()]
    except KeyError:
        raise ValueError(text) from None


def _expanded(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:  # ~ of an unknown user
        raise ValueError(text) from None


def _folder(text: str) -> Path:
    path = _expanded(text)
    if path.exists() and not path.is_dir():
        raise ValueError(text)
    return path


def _existing_folder(text: str) -> Path:
    path = _expanded(text)
    if not path.is_dir():
        raise ValueError(text)
    return path


def _file(text: str) -> Path:
    path = _expanded(text)
    if not path.is_file():
        raise ValueError(text)
    return path


def _path(name: str, doc: str) -> Variable[Path | None]:
    return Variable(PREFIX + name, None, _folder, "a folder", doc)


_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_SIZE = re.compile(r"(\d{1,15}) ?([KMGT]?B)?", re.IGNORECASE | re.ASCII)


def _size(text: str) -> int | None:
    """A size in bytes; None for no limit."""
    if text.lower() == "none":
        return None
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return int(found[1]) * _UNITS[(found[2] or "").upper()]


BACKENDS = ("auto", "cuda", "emulate", "xla")
SCORERS = ("guarded", "model", "paper", "measured", "mixed")
FALLBACKS = ("xla", "error")
NUMERICS = ("default", "strict", "fast")
TRIALS = ("copies", "calls", "off")
LOG_LEVELS = ("off", "warning", "info", "debug")

BACKEND = _choice("BACKEND", "auto", BACKENDS, "Default of Options.backend.")
SCORER = _choice("SCORER", "guarded", SCORERS, "Default of Options.scorer.")
FALLBACK = _choice("FALLBACK", "xla", FALLBACKS, "Default of Options.fallback.")
NUMERIC = _choice("NUMERICS", "default", NUMERICS, "Default of Options.numerics.")
TRIAL = _choice("TRIAL", "copies", TRIALS, "Default of Options.trial.")
LOG = _choice(
    "LOG", "off", LOG_LEVELS, "Level of the log on stderr, read at import; unset: warnings."
)
PROGRESS: Variable[bool | None] = Variable(
    PREFIX + "PROGRESS",
    None,
    _flag,
    "1 or 0",
    "Progress lines and bars on stderr; unset: on a terminal, and of what takes long in notebooks.",
)
CHECK: Variable[bool] = Variable(
    PREFIX + "CHECK",
    False,
    _flag,
    "1 or 0",
    "Kernels are verified after each pass; emulated ones fail at races and at reads of what "
    "nothing wrote, and run slower.",
)
DELAYS: Variable[bool] = Variable(
    PREFIX + "DELAYS",
    False,
    _flag,
    "1 or 0",
    "Threads of kernels wait pseudo-random times around barriers: a missing one shows more often.",
)
CACHE_DIR = _path("CACHE_DIR", "Folder of compiled kernels, programs and timings.")
CACHE_LIMIT: Variable[int | None] = Variable(
    PREFIX + "CACHE_LIMIT",
    2 << 30,
    _size,
    "a size such as 500MB or 2GB, or none",
    "Bytes of compiled kernels and programs that the cache keeps; unset: 2GB.",
)
PROFILE: Variable[Path | None] = Variable(
    PREFIX + "PROFILE",
    None,
    _file,
    "the JSON file of a profile",
    "Device profile of the GPU in use, as `fusionstitch calibrate` writes it.",
)
DUMP_DIR = _path(
    "DUMP_DIR", "Folder that generated kernels are written to, step by step, before they are built."
)
OVERRIDE_DIR: Variable[Path | None] = Variable(
    PREFIX + "OVERRIDE_DIR",
    None,
    _existing_folder,
    "a folder that is there",
    "Folder of kernels that run instead of generated ones of the same names.",
)
EXAMPLE_SCALE = _choice(
    "EXAMPLE_SCALE", "", ("full", "small"), "Size of the programs in examples/; unset: by device."
)

VARIABLES: tuple[
    Variable[str]
    | Variable[bool]
    | Variable[bool | None]
    | Variable[int | None]
    | Variable[Path | None],
    ...,
] = (
    BACKEND,
    SCORER,
    FALLBACK,
    NUMERIC,
    TRIAL,
    LOG,
    PROGRESS,
    CHECK,
    DELAYS,
    CACHE_DIR,
    CACHE_LIMIT,
    PROFILE,
    DUMP_DIR,
    OVERRIDE_DIR,
    EXAMPLE_SCALE,
)


def check() -> None:
    """Raises OptionError for the first variable whose value is not allowed."""
    for variable in VARIABLES:
        variable.get()


def unknown() -> list[str]:
    """Names in the environment that start with our prefix but are not declared, most likely
    typos."""
    declared = {variable.name for variable in VARIABLES}
    return sorted(n for n in os.environ if n.startswith(PREFIX) and n not in declared)


class _Formatter(logging.Formatter):
    """Escapes log lines, which may quote a module or another program's message."""

    def format(self, record: logging.LogRecord) -> str:
        return foreign.lines(super().format(record))


def configure_logging() -> None:
    """Sends the package's log to stderr at the level in FUSIONSTITCH_LOG.

    An invalid level logs nothing here, because `import fusionstitch` must not fail for it. The
    first use of the package raises for it, as for the other variables (see `check`).
    """
    try:
        level = LOG.get()
    except OptionError:
        return
    logger = logging.getLogger("fusionstitch")
    if level == "off":
        if LOG.text is not None:  # without a handler Python prints warnings itself
            logger.addHandler(logging.NullHandler())
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter("%(name)s %(levelname)s: %(message)s"))
    logger.setLevel(level.upper())
    logger.addHandler(handler)
