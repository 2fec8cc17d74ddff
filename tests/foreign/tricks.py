"""What a module may call its parts, and module messages whose every free text is such."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusionstitch.codegen.text.source import RESERVED
from fusionstitch.hlo.importer import parse

#: Breaks of lines, ends of comments, terminals, formats, markup, shells, paths, scripts.
TRICKS = (
    *("", " ", "\n", "\r", "\r\n", "\v", "\f", "\0", "\t", "\x1c", "\x85", "\u2028", "\u2029"),
    *("a\n}; #error broken\nvoid b() {", "\r#error broken\r", "\v#error\v", "\u2028#error\u2028"),
    *("x\\", "x\\ ", "x\\\n", "??/", "x??/", "??/\n", "???/", "??=error", "%:error", "*/ a /*"),
    *("*/", "/*", "//", '"', "'", '"; abort(); "', 'R"(', "#include </etc/passwd>", "#pragma once"),
    *("%s%n", "{0}", "${HOME}", "$(id)", "`id`", "</script><b>", "&lt;", '{"a": 1}', "\\u0022"),
    *("\x1b[31mred", "\x1b]0;title\a", "\x9b2J", "\b\b", "\x7f", "\u202eevil", "\u2066x", "\u200b"),
    *("../../etc/passwd", "/etc/passwd", ".hidden", "-rf", "con", "a b", "a:b", "a;b", "a=b", "@"),
    *("ñ", "日本", "٣", "²", "µ", "Ⅷ", "\uff41", "\ufeff", "\U0001f600", "e\u0301", "\u0301"),
    *("x" * 5000, "x" * 5000 + "\\", "a" * 63 + "_1", "a" * 64 + "_2", "\n" * 999, "?" * 99),
)
#: Names that generated code, its headers or C's own use, and such as one that counts up makes.
OURS = (
    *("row", "row_1", "row_1_1", "lane", "tile", "tile_1", "work", "points", "in_0", "out_0"),
    *("in_0_vector", "at_0", "at_0_terms", "column", "v", "k", "k_block", "f", "r", "s", "a", "b"),
    *("x", "x_1", "elementwise", "part", "scratch", "values", "NAME", "TILE", "FsAdd", "FsJoin0"),
    *("fs_load", "FS_UNROLL", "fs_grid_barrier", "FS_DYNAMIC_SHARED", "v_row", "v_fs_load"),
    *("value", "__syncthreads", "__launch_bounds__", "_Exit", "__builtin_trap", "__LINE__", "a__b"),
    *("M_PI_2", "M_PI_2f", "PRId16", "EOF", "CUDART_INF_F", "INT_MAX", "cudaStreamLegacy", "_"),
    *("float2", "dim3", "half", "1e5", "0x1", "u", "f32", "NULL.1", "tuple", "atomicAdd", "result"),
)
NAMES = (*TRICKS, *OURS, *sorted(RESERVED))


def renamed(module: bytes, name: Callable[[int], str], text: Callable[[int], str]) -> bytes:
    """A module whose n-th instruction is called `name(n)` and says `text(n)` wherever it may."""
    proto = parse(module)
    proto.name = proto.entry_computation_name = text(0)
    for computation in proto.computations:
        computation.name = text(computation.id)
    for number, one in enumerate(_instructions(proto)):
        one.name = name(number)
        one.metadata.op_name = one.metadata.op_type = text(number)
        one.metadata.source_file, one.metadata.source_line = text(number + 1), 7
    del proto.stack_frame_index.file_names[:]
    return bytes(proto.SerializeToString(deterministic=True))


def _instructions(proto: Any) -> list[Any]:
    return [one for computation in proto.computations for one in computation.instructions]
