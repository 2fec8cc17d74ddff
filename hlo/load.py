"""Reading a module from anything that holds one: a file, text or bytes."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from google.protobuf.message import DecodeError

from fusionstitch.hlo import schema
from fusionstitch.hlo.errors import ImportModuleError
from fusionstitch.hlo.importer import parse
from fusionstitch.hlo.stablehlo import BYTECODE_MAGIC, stablehlo_to_proto
from fusionstitch.hlo.text import text_to_proto

_ACCEPTED = (
    "Accepted are HLO text (Lowered.compiler_ir('hlo').as_hlo_text()), StableHLO text "
    "(Lowered.as_text()) or bytecode (jax.export) and HloModuleProto bytes."
)
#: What a serialized protobuf message may hold.
_MAX_BYTES = (1 << 31) - 1
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f]")
#: HLO text, which may begin with comments.
_HLO = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*+HloModule", re.DOTALL)


def load(source: str | bytes | os.PathLike[str]) -> bytes:
    """The module as a serialized HloModuleProto.

    `source` is a path, or the content of such a file: HLO text, StableHLO text or bytecode, an
    HloModuleProto, or the HloProto that XLA dumps. A string is a path unless it is longer than
    one line. Raises ImportModuleError when it is none of these.
    """
    if isinstance(source, str) and "\n" in source.strip():
        return _read_text(source)
    if not isinstance(source, bytes):
        source = _read_file(source)
    if not source.strip():
        raise ImportModuleError(f"There is nothing in it. {_ACCEPTED}")
    if source.startswith(BYTECODE_MAGIC):
        return stablehlo_to_proto(source)
    try:
        text = source.decode()
    except UnicodeDecodeError:
        return _read_proto(source)
    # a small proto may happen to be UTF-8, but it holds control characters
    return _read_proto(source) if _CONTROL.search(text) else _read_text(text)


def _read_file(path: str | os.PathLike[str]) -> bytes:
    name = str(path)[:200]
    try:
        facts = os.stat(path)
        if not stat.S_ISREG(facts.st_mode):  # a device or a pipe may never end
            raise ImportModuleError(f"{name} is no file. {_ACCEPTED}")
        if facts.st_size > _MAX_BYTES:
            raise ImportModuleError(f"{name} holds {facts.st_size} bytes, more than {_MAX_BYTES}.")
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ImportModuleError(f"{name} cannot be read: {why}. {_ACCEPTED}") from None


def _read_text(text: str) -> bytes:
    return text_to_proto(text) if _HLO.match(text) else stablehlo_to_proto(text)


def _read_proto(data: bytes) -> bytes:
    dump = schema.Hlo()
    try:
        dump.ParseFromString(data)
    except DecodeError:
        parse(data)
        return data
    if dump.hlo_module.computations:
        return dump.hlo_module.SerializeToString()
    parse(data)
    return data
