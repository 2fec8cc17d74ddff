"""A built kernel, and the custom call attributes that contain it."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from fusionstitch.hlo.brief import brief, count

#: The custom call target of stitched kernels, on every platform.
TARGET = "fusionstitch_launch"
#: The target of the one call per module that loads the images of all kernels, and does nothing
#: else. Before every run, XLA prepares each call that has something to load by listing its
#: arguments. This call has none, and the others need not be prepared.
LOAD_TARGET = "fusionstitch_load"
#: The version of the call attributes. It is in the mark of a program, so that no executable from
#: XLA's persistent cache meets handlers that expect others.
CALL_FORMAT = 3


@dataclass(frozen=True)
class Artifact:
    """One kernel ready to launch.

    `image` is a cubin or a shared object. `key` identifies its content: equal keys mean equal
    images. `entry` names the kernel in it. `grid` counts blocks, `block` threads. `shared_bytes` is
    the dynamic shared memory of one block.
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

    `images` maps keys to images, with the kernels in them and their dynamic shared memory. `bundle`
    identifies all of them.
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
    """Quotes names that are not identifiers, such as most keys."""
    named = {n.encode() if n.isidentifier() else quoted(n.encode()): v for n, v in fields.items()}
    return b"{" + b", ".join(b"%s = %s" % item for item in named.items()) + b"}"


_ESCAPES = tuple(
    bytes([c]) if 32 <= c < 127 and c not in b'"\\' else b"\\%02X" % c for c in range(256)
)


def quoted(raw: bytes) -> bytes:
    """The text of an MLIR string attribute with the bytes `raw`."""
    return b'"' + b"".join(map(_ESCAPES.__getitem__, raw)) + b'"'


# Cached, since an image is rendered again for every module that uses it.
_quoted_image = functools.lru_cache(maxsize=64)(quoted)
