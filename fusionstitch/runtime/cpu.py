"""The model of this processor, for code built for it and no other."""

from __future__ import annotations

import functools
import platform
import re
from collections.abc import Iterable
from pathlib import Path

#: Fields of /proc/cpuinfo that identify a model; clocks and core counts do not.
_TELLING = frozenset(
    {"vendor_id", "cpu family", "model", "model name", "stepping", "flags"}
    | {"CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"}
    | {"cpu", "revision", "isa", "mvendorid", "marchid", "uarch"}
)
#: Flags that mean the present machine; files of flags are not read.
_NATIVE = re.compile(r"-m(?:arch|cpu|tune)=native|-xHost|@.*")


@functools.cache
def model() -> str:
    """The model and features of the first processor, as text."""
    try:
        first = Path("/proc/cpuinfo").read_text("utf-8", "replace").partition("\n\n")[0]
    except OSError:
        return platform.processor()
    rows = (line.partition(":") for line in first.splitlines())
    return "\n".join(
        f"{name.strip()}:{value}" for name, _, value in rows if name.strip() in _TELLING
    )


def is_named_by(arguments: Iterable[str]) -> bool:
    """Whether a compiler's arguments build for the present machine."""
    return any(_NATIVE.fullmatch(argument) for argument in arguments)
