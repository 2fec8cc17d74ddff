"""Writing generated kernels where FUSIONSTITCH_DUMP_DIR says, before they are built.

Each has a folder of its name: what it was on its way (`codegen/snapshots/`), numbered in order, and
last its text. The headers that the texts include lie beside the folders, once.
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

#: What this writes for a kernel: those of an earlier dump go.
_OURS = re.compile(r"\d\d_[a-z_]+\.(txt|cu)")


Drawn = Callable[[], "Sequence[Snapshot]"]


def kernels(generated: Mapping[Kernel, Drawn]) -> None:
    """A folder per kernel, of which the snapshots are made only now. A folder that cannot be
    written costs a log line, not the run."""
    folder = env.DUMP_DIR.get()
    if folder is None:
        return
    from fusionstitch.runtime.emulator import header_folder  # who dumps nothing needs none

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
    """The snapshots of a kernel; none where making them fails, which the kernel did not."""
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
