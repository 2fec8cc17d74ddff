"""A built kernel and the custom call attributes that carry it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

#: The custom call target of every stitched kernel, on every platform.
TARGET = "fusionstitch_launch"


@dataclass(frozen=True)
class Artifact:
    """One kernel ready to launch.

    `image` holds a cubin or a shared object, `key` names its content (equal keys mean equal
    images), `entry` the kernel in it. `grid` counts blocks, `block` threads, `shared_bytes` the
    dynamic shared memory of one block.
    """

    key: str
    image: bytes
    entry: str
    grid: int
    block: int
    shared_bytes: int
    cooperative: bool

    def config(self, include_image: bool) -> bytes:
        """The text of an MLIR dictionary attribute, for the custom call's backend_config.

        An image travels once: only the first call of a module with this key includes it, the
        others carry an empty string.
        """
        fields = (
            (b"key", quoted(self.key.encode())),
            (b"image", _quoted_image(self.image) if include_image else b'""'),
            (b"entry", quoted(self.entry.encode())),
            (b"grid", b"%d : i64" % self.grid),
            (b"block", b"%d : i64" % self.block),
            (b"shared", b"%d : i64" % self.shared_bytes),
            (b"cooperative", b"%d : i64" % self.cooperative),
        )
        return b"{" + b", ".join(b"%s = %s" % field for field in fields) + b"}"


_ESCAPES = tuple(
    bytes([c]) if 32 <= c < 127 and c not in b'"\\' else b"\\%02X" % c for c in range(256)
)


def quoted(raw: bytes) -> bytes:
    """The text form of an MLIR string attribute that holds `raw`, whatever its bytes."""
    return b'"' + b"".join(map(_ESCAPES.__getitem__, raw)) + b'"'


# One image is rendered again for every module that uses it.
_quoted_image = functools.lru_cache(maxsize=64)(quoted)
