"""Writing generated kernels where FUSIONSTITCH_DUMP_DIR says, before they are built."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from fusionstitch import env
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.runtime import files

logger = logging.getLogger(__name__)


def kernels(generated: Iterable[Kernel]) -> None:
    """One .cu file per kernel. A folder that cannot be written costs a log line, not the run."""
    folder = env.DUMP_DIR.get()
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for kernel in generated:
            files.replace(folder / f"{kernel.name}.cu", kernel.source)
    except OSError as error:
        logger.warning("FUSIONSTITCH_DUMP_DIR cannot be written: %s", error)
