"""Blocks of C text: statements, nested blocks, and what each block already computed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


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
        return any(word.search(line) for line in self.lines(0) if line.strip() != beyond)


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
        base = re.sub(r"\W+", "_", wanted).strip("_") or "value"
        if base[0].isdigit() or base in RESERVED or base.startswith(("fs_", "Fs", "FS_")):
            base = f"v_{base}"
        count = self._names.get(base, 0)
        self._names[base] = count + 1
        return base if not count else self.name(f"{base}_{count}")

    def text(self) -> str:
        return "\n".join(self.chain[0].lines(0))


#: Names generated code must not take: C++ keywords and what the device header defines.
_WORDS = """
and and_eq asm auto bool break case catch char class const continue default delete do double else
enum explicit extern false float for goto if int long new not operator or private public register
return short signed sizeof static struct switch template this throw true try typedef union unsigned
using virtual void volatile while xor bitand bitor compl main abs exp log sin cos tan sqrt rsqrt
floor ceil round min max pow erf tanh cbrt exp2 fmod y0 y1 yn j0 j1 jn gamma signgam log1p expm1
atan2 shared_memory bf16 f16 remainder index div rint nullptr step threadIdx blockIdx blockDim
gridDim warpSize NULL NAN INFINITY HUGE_VAL EOF M_PI M_E errno
"""
#: With the single-precision names of C's functions: expf, logf, ...
RESERVED = frozenset(word + end for word in _WORDS.split() for end in ("", "f"))
