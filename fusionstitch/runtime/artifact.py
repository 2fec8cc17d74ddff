"""A built kernel and the custom call attributes that carry it."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from fusionstitch.hlo.brief import brief, count

#: The custom call target of stitched kernels, on every platform.
TARGET = "fusionstitch_launch"
#: That of the one call of a module which loads the images of all kernels, and does nothing else.
#: XLA prepares a call with something to load before every run of the program, by listing its
#: arguments: this one has none, and the others are spared that.
LOAD_TARGET = "fusionstitch_load"
#: Changes with the attributes of the calls: it is in the mark of a program, so that no executable
#: out of XLA's persistent cache meets handlers that expect others.
CALL_FORMAT = 3


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

    def __repr__(self) -> str:
        return brief(
            f"Artifact {self.entry} in {self.key}: {count(self.image, 'byte')}, "
            f"{count(self.grid, 'block')} of {count(self.block, 'thread')}"
        )

    def config(self) -> bytes:
        """The text of an MLIR dictionary attribute, for a call's backend_config."""
        texts = {"key": quoted(self.key.encode()), "entry": quoted(self.entry.encode())}
        numbers = {
            "grid": self.grid,
            "block": self.block,
            "shared": self.shared_bytes,
            "cooperative": self.cooperative,
        }
        return _dictionary(texts | _numbers(numbers))


def loading_config(artifacts: Iterable[Artifact]) -> bytes:
    """The same for the call that loads the images of `artifacts`.

    `images` maps keys to images and to the kernels in them with their dynamic shared memory,
    `bundle` names all of that.
    """
    images: dict[str, bytes] = {}
    kernels: dict[str, dict[str, int]] = {}
    for artifact in artifacts:
        images[artifact.key] = _quoted_image(artifact.image)
        shared = kernels.setdefault(artifact.key, {})
        shared[artifact.entry] = max(artifact.shared_bytes, shared.get(artifact.entry, 0))
    brought = {
        key: _dictionary({"image": image, "kernels": _dictionary(_numbers(kernels[key]))})
        for key, image in images.items()
    }
    content = json.dumps(kernels, sort_keys=True).encode()
    bundle = quoted(hashlib.sha256(content).hexdigest().encode())
    return _dictionary({"bundle": bundle, "images": _dictionary(brought)})


def _numbers(values: dict[str, int]) -> dict[str, bytes]:
    return {name: b"%d : i64" % value for name, value in values.items()}


def _dictionary(fields: dict[str, bytes]) -> bytes:
    """Names that are no identifiers, such as most keys, are quoted."""
    named = {n.encode() if n.isidentifier() else quoted(n.encode()): v for n, v in fields.items()}
    return b"{" + b", ".join(b"%s = %s" % item for item in named.items()) + b"}"


_ESCAPES = tuple(
    bytes([c]) if 32 <= c < 127 and c not in b'"\\' else b"\\%02X" % c for c in range(256)
)


def quoted(raw: bytes) -> bytes:
    """The text form of an MLIR string attribute that holds `raw`, whatever its bytes."""
    return b'"' + b"".join(map(_ESCAPES.__getitem__, raw)) + b'"'


# One image is rendered again for every module that uses it.
_quoted_image = functools.lru_cache(maxsize=64)(quoted)
