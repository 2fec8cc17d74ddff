"""Writes generated kernels to FUSIONSTITCH_DUMP_DIR before they are built.

Each kernel has a folder of its name, with its intermediate forms (`codegen/snapshots/`), numbered
in order, and its text last. The included headers are beside these folders, once.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fusionstitch import env
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.runtime import files

if TYPE_CHECKING:
    from fusionstitch.codegen.snapshots.snapshots import Snapshot

logger = logging.getLogger(__name__)

#: Files that this writes for a kernel; those of an earlier dump are deleted.
_OURS = re.compile(r"\d\d_[a-z_]+\.(txt|cu)")


Drawn = Callable[[], "Sequence[Snapshot]"]


def kernels(generated: Mapping[Kernel, Drawn]) -> None:
    """Writes a folder per kernel; snapshots are made only here. If a folder cannot be written, a
    warning is logged and the run continues."""
    folder = env.DUMP_DIR.get()
    if folder is None:
        return
    from fusionstitch.runtime.emulator import header_folder  # needed only for dumps

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for header in sorted(header_folder().iterdir()):
            if header.suffix in (".h", ".cuh"):
                files.replace(folder / header.name, header.read_text("utf-8"))
        for kernel, draw in generated.items():
            _write(folder / kernel.name, kernel, _drawn(kernel, draw))
    except OSError as error:
        logger.warning("FUSIONSTITCH_DUMP_DIR cannot be written: %s", error)


def _drawn(kernel: Kernel, draw: Callable[[], Sequence[Snapshot]]) -> Sequence[Snapshot]:
    """The snapshots of a kernel; empty if making them fails, although the kernel itself is fine."""
    try:
        return draw()
    except Exception:
        logger.warning("%s cannot be drawn: its dump is its text alone", kernel.name, exc_info=True)
        return ()


def _write(folder: Path, kernel: Kernel, drawn: Sequence[Snapshot]) -> None:
    texts = {f"{n:02}_{_word(one.name)}.txt": one.text for n, one in enumerate(drawn)}
    texts[f"{len(drawn):02}_kernel.cu"] = kernel.source
    files.folder(folder)
    for path in folder.iterdir():
        if _OURS.fullmatch(path.name) and path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        files.replace(folder / name, text, linked=False)


def _word(name: str) -> str:
    return re.sub(r"[^a-z]+", "_", name)
