"""User-provided kernels that replace generated ones: the files in FUSIONSTITCH_OVERRIDE_DIR.

`fs_reduce_1a2b3c4d.cu` in that folder replaces the kernel of that name, which depends only on the
kernel's ops and types. The folder that `fusionstitch emit` writes can be used as such a folder.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from dataclasses import replace
from pathlib import Path

from fusionstitch import env
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.launchable import launchable
from fusionstitch.codegen.text.source import uncommented
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.errors import StitchError
from fusionstitch.runtime import trust

logger = logging.getLogger(__name__)

#: The fact that names the file of a replaced kernel's text.
FACT = "override"
#: The launch line, as `fusionstitch emit` writes it.
_LAUNCH = re.compile(
    r"//\s*launch\s*<<<\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*>>>(\s*cooperatively\b)?.*"
)
#: A line that looks like a launch line.
_LAUNCH_LINE = re.compile(r"^//\s*launch\b\W*[<\d].*$", re.MULTILINE)
#: Files and texts already reported.
_said: set[tuple[str, str]] = set()


def token() -> str:
    """A hash of the folder's content; "" without a folder. It is part of the key of programs."""
    folder = env.OVERRIDE_DIR.get()
    if folder is None:
        return ""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.cu")):
        try:
            text = _read(path)
        except StitchError:  # reported when the file is used
            text = ""
        digest.update(f"{path.name}\0{text}\0".encode())
    return digest.hexdigest()


def overridden(kernel: Kernel, device: Device) -> Kernel:
    """The kernel with the text and launch of the file named after it, or the kernel itself if there
    is no file. Raises StitchError for a file that cannot replace it."""
    folder = env.OVERRIDE_DIR.get()
    if folder is None:
        return kernel
    path = folder / f"{kernel.name}.cu"
    if not os.path.lexists(path):
        logger.debug("%s: no file overrides it", path)
        return kernel
    source = _read(path)
    launch = _launch_of(source, path)
    ours = kernel.grid, kernel.block, kernel.shared_bytes, kernel.cooperative
    if _code(source) == _code(kernel.source) and launch in (None, ours):
        return kernel  # unchanged since it was emitted
    wanted, found = (_parameters(text, kernel.name) for text in (kernel.source, source))
    if found is None:
        raise wrong(path, f"it has no function {kernel.name}")
    if found != wanted:
        raise wrong(
            path, f"{kernel.name} takes ({', '.join(wanted or ())}), not ({', '.join(found)})"
        )
    own = replace(kernel, source=source, facts=(*kernel.facts, (FACT, str(path))))
    if launch is not None:
        grid, block, shared, together = launch
        own = replace(own, grid=grid, block=block, shared_bytes=shared, cooperative=together)
        verdict = launchable(own, device) if grid > 0 and block > 0 else False
        if not verdict:
            raise wrong(path, f"{device.name} cannot launch <<<{grid}, {block}, {shared}>>>")
    if (str(path), source) not in _said:
        _said.add((str(path), source))
        logger.warning("%s runs instead of the kernel of its name.", path)
    return own


def file_of(kernel: Kernel) -> Path | None:
    """The file that a kernel's text comes from."""
    found = dict(kernel.facts).get(FACT)
    return None if found is None else Path(str(found))


def wrong(path: Path, why: str) -> StitchError:
    """An error that says why a file cannot replace a kernel, and what to do."""
    return StitchError(
        f"{path} overrides a kernel, but {why}. Correct it, or take it out of "
        f"{env.OVERRIDE_DIR.name}."
    )


def _read(path: Path) -> str:
    try:
        if path.is_symlink() or path.is_dir():
            raise wrong(path, f"it is a {'link' if path.is_symlink() else 'folder'}")
        data = trust.read(path)
        if data is None:
            raise wrong(path, "another user could have written it")
        return data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise wrong(path, f"it cannot be read: {why}") from None


def _launch_of(source: str, path: Path) -> tuple[int, int, int, bool] | None:
    """The launch stated in a text: grid, block, bytes of shared memory, whether all blocks
    synchronize. None if it states none."""
    lines = _LAUNCH_LINE.findall(source)
    if not lines:
        return None
    if len(lines) > 1:
        raise wrong(path, f"it states {len(lines)} launches")
    if (found := _LAUNCH.fullmatch(lines[0])) is None:
        raise wrong(
            path,
            f"its launch cannot be read: {lines[0]!r}. Write three numbers, the grid, the block "
            "and the bytes of shared memory: // launch <<<132, 256, 0>>>",
        )
    grid, block, shared = (int(number) for number in found.groups()[:3])
    return grid, block, shared, found[4] is not None


def _code(source: str) -> list[str]:
    """The lines that a compiler reads."""
    return [line for line in uncommented(source).splitlines() if line.strip()]


def _parameters(source: str, name: str) -> list[str] | None:
    """The types of a kernel's parameters; None if it is not defined."""
    found = re.search(
        rf"\b{re.escape(name)}\s*\(([^()]*)\)\s*\{{", uncommented(source), re.MULTILINE
    )
    if found is None:
        return None
    parameters = [" ".join(one.split()) for one in found[1].split(",") if one.strip()]
    return [_type(one) for one in parameters]


def _type(parameter: str) -> str:
    """A type such as "const float*", without qualifiers that only describe its use."""
    words = re.sub(r"\b(__restrict__|__restrict|restrict)\b", " ", parameter)
    words = re.sub(r"\b\w+\s*$", "", words) if re.search(r"[*\s]\w+\s*$", words) else words
    return re.sub(r"\s*\*\s*", "*", " ".join(words.split()))
