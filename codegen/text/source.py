"""Blocks of C text: statements, nested blocks, and what each block already computed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fusionstitch.hlo import foreign


@dataclass(eq=False)
class Block:
    """Statements in order. `memo` maps a value to its C name. `ordered` blocks stand behind what
    the kernel itself wrote; `pinned` blocks, besides, run conditionally,
    so nothing that reads memory may move out of them."""

    header: str = ""
    pinned: bool = False
    ordered: bool = False
    items: list[str | Block] = field(default_factory=list)
    memo: dict[Any, str] = field(default_factory=dict)

    def lines(self, depth: int) -> Iterator[str]:
        inner = depth
        if self.header:
            yield "  " * depth + self.header + " {"
            inner += 1
        for item in self.items:
            if isinstance(item, Block):
                yield from item.lines(inner)
            else:
                yield ("  " * inner + item) if item else ""
        if self.header:
            yield "  " * depth + "}"

    def mentions(self, name: str, beyond: str) -> bool:
        """Whether a statement other than `beyond` reads the variable `name`."""
        word = re.compile(rf"\b{name}\b")
        statements = (line.strip() for line in self.lines(0))
        return any(
            word.search(line)
            for line in statements
            if line != beyond and not line.startswith(COMMENT)
        )


class Writer:
    """The chain of open blocks, outermost first, and the depth at which each variable lives."""

    def __init__(self) -> None:
        self.chain: list[Block] = [Block()]
        self.depth_of: dict[str, int] = {}
        self._names: dict[str, int] = {}

    @property
    def depth(self) -> int:
        return len(self.chain) - 1

    @property
    def block(self) -> Block:
        return self.chain[-1]

    def line(self, text: str = "", depth: int | None = None) -> None:
        """Adds a statement to the block at `depth` (the innermost unless told)."""
        self.chain[self.depth if depth is None else depth].items.append(text)

    def declare(self, variable: str) -> str:
        """Records that an index variable is defined in the innermost block."""
        self.depth_of[variable] = self.depth
        return variable

    @contextmanager
    def nested(self, header: str, pinned: bool = False, ordered: bool = False) -> Iterator[Block]:
        """Opens a block; statements hoisted to outer blocks meanwhile precede it."""
        block = Block(header, pinned, ordered or pinned)
        self.chain.append(block)
        try:
            yield block
        finally:
            self.chain.pop()
            self.block.items.append(block)

    @property
    def ordered_depth(self) -> int:
        """The innermost block that reads of the kernel's own results must not leave."""
        return max((d for d, b in enumerate(self.chain) if b.ordered), default=0)

    @property
    def pinned_depth(self) -> int:
        """The innermost block that runs conditionally: loads stay at or inside it."""
        return max((d for d, b in enumerate(self.chain) if b.pinned), default=0)

    def find(self, key: Any) -> tuple[str, int] | None:
        """A value computed in an open block: its C text and that block's depth."""
        for depth in range(self.depth, -1, -1):
            text = self.chain[depth].memo.get(key)
            if text is not None:
                return text, depth
        return None

    def name(self, wanted: str) -> str:
        """A C identifier like `wanted` that is not used yet in this kernel."""
        name = identifier(wanted)
        while count := self._names.get(name, 0):
            self._names[name] = count + 1
            name = f"{name}_{count}"
        self._names[name] = 1
        return name

    def text(self) -> str:
        return "\n".join(self.chain[0].lines(0))


COMMENT = "//"
#: Characters of an identifier before what makes it unique.
MOST_CHARACTERS = 64
_NO_LETTER = re.compile(r"[^A-Za-z0-9]+")
#: What headers define as macros (capitals, then capitals or digits) and what is ours.
_THEIRS = re.compile(r"[A-Z][A-Z0-9_]|\d|fs_|Fs|cuda|nv")


def comment(text: str) -> str:
    """A line that no compiler reads, whatever `text` holds: others may have written parts of it."""
    return f"{COMMENT} {foreign.line(text)}".rstrip()


_COMMENTS = re.compile(rf"^[ \t]*{COMMENT}.*", re.MULTILINE)
#: By these a line may be no comment that looks like one, or end elsewhere: parts of strings, of
#: longer comments, of joined lines.
_UNSURE = re.compile(r'\\|\?\?/|R"|/\*|\r')


def uncommented(source: str) -> str:
    """What a compiler reads of `source`, line by line: comments name the user's files and lines,
    which change while the code stays. Lines that are comments are empty; all others have their
    numbers and text. Generated code has no other comments and no strings over several lines;
    where `source` might have, it stays as it is.
    """
    return source if _UNSURE.search(source) else _COMMENTS.sub("", source)


def identifier(wanted: str) -> str:
    """A C identifier like `wanted` that is no keyword, no macro, and no name generated code uses
    without asking a `Writer` for it."""
    name = _NO_LETTER.sub("_", wanted[: 2 * MOST_CHARACTERS])[:MOST_CHARACTERS].strip("_")
    name = name or "value"
    return f"v_{name}" if name in RESERVED or _THEIRS.match(name) else name


_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
char32_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
constinit continue decltype default delete do double dynamic_cast else enum explicit export extern
false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
operator or or_eq private protected public register reinterpret_cast requires restrict return short
signed sizeof static static_assert static_cast struct switch template this thread_local throw true
try typedef typeid typename typeof union unsigned using virtual void volatile wchar_t while xor
xor_eq

bf16 f16 f8e5m2 f8e4m3 f8e4m3fn f8e4m3b11fnuz f8e5m2fnuz f8e4m3fnuz f8e3m4 int8_t int16_t int32_t
int64_t uint8_t uint16_t uint32_t uint64_t size_t shared_memory step main threadIdx blockIdx
blockDim gridDim warpSize

abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh div erf erfc erfinv exp
exp10 exp2 expm1 fabs floor fma fmax fmin fmod frexp gamma hypot index isfinite isinf isnan j0 j1
jn ldexp lgamma log log10 log1p log2 logb max memcpy memset min modf nearbyint pow powi remainder
rint round rsqrt signbit signgam sin sincos sinh sinpi sqrt tan tanh tgamma trunc y0 y1 yn

alloca assert environ errno linux i386 math_errhandling offsetof sa_handler sa_sigaction
sched_priority si_addr si_addr_lsb si_arch si_band si_call_addr si_fd si_int si_lower si_overrun
si_pid si_pkey si_ptr si_status si_stime si_syscall si_timerid si_uid si_upper si_utime si_value
sigev_notify_attributes sigev_notify_function st_atime st_ctime st_mtime stderr stdin stdout unix
"""
#: Names that mean something else in C++, in the device header, in what generated code calls, or in
#: the C library's macros; with the single-precision names of C's functions: expf, logf, ...
RESERVED = frozenset(word + end for word in _WORDS.split() for end in ("", "f"))
