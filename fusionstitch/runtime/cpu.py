"""Which processor this is, for code that is built for it and no other."""

from __future__ import annotations

import functools
import platform
import re
from collections.abc import Iterable
from pathlib import Path

#: What tells one model from another in /proc/cpuinfo; clocks and numbers of cores do not.
_TELLING = frozenset(
    {"vendor_id", "cpu family", "model", "model name", "stepping", "flags"}
    | {"CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"}
    | {"cpu", "revision", "isa", "mvendorid", "marchid", "uarch"}
)
#: Flags that mean the machine they are used on; what a file of flags holds is not looked at.
_NATIVE = re.compile(r"-m(?:arch|cpu|tune)=native|-xHost|@.*")


@functools.cache
def model() -> str:
    """The model of the first processor and what it can do, as text."""
    try:
        first = Path("/proc/cpuinfo").read_text("utf-8", "replace").partition("\n\n")[0]
    except OSError:
        return platform.processor()
    rows = (line.partition(":") for line in first.splitlines())
    return "\n".join(
        f"{name.strip()}:{value}" for name, _, value in rows if name.strip() in _TELLING
    )


def is_named_by(arguments: Iterable[str]) -> bool:
    """Whether a compiler's arguments build for the machine at hand."""
    return any(_NATIVE.fullmatch(argument) for argument in arguments)
