"""Records loops as the pass gets them on a GPU: python -m benchmarks.loops.record FILE [NAME...].

FILE is a zip of HloModuleProto bytes by name, without what programs call their parts, so that the
plans for them can be made where there is no GPU. Modules of more than `MOST` bytes are left out.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.loops.table import Loop, find

#: The recorded modules, and the bytes of one at most.
MODULES = Path(__file__).with_name("modules.zip")
MOST = 1 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)


def bare(data: bytes) -> bytes:
    """A module without names of scopes, files and lines."""
    from fusionstitch.hlo import schema

    proto = schema.HloModule.FromString(data)
    proto.ClearField("stack_frame_index")
    for computation in proto.computations:
        for instruction in computation.instructions:
            instruction.ClearField("metadata")
            instruction.ClearField("frontend_attributes")
    return bytes(proto.SerializeToString(deterministic=True))


def recorded(loop: Loop) -> bytes | None:
    """The module of a loop as it was given to the pass; None where the pass was not asked."""
    import fusionstitch as fs

    fun, args = loop.program()
    options = fs.Options(scorer="model")
    compiled = fs.jit(fun, options=options, **loop.jit_keywords).lower(*args).compile()
    found = compiled.stitched
    return bare(found.given) if found and found.given else None


def write(path: Path, loops: list[Loop]) -> None:
    """A file of all that could be recorded, written anew."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for loop in loops:
            data = recorded(loop)
            if data is None or len(data) > MOST:
                print(f"{loop.name}: left out, {'not asked' if data is None else len(data)}")
                continue
            archive.writestr(zipfile.ZipInfo(loop.name, _EPOCH), data, zipfile.ZIP_DEFLATED)


def stored(path: Path = MODULES) -> Iterator[tuple[str, bytes]]:
    """The recorded modules by name; none where nothing was recorded yet."""
    if path.exists():
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                yield name, archive.read(name)


if __name__ == "__main__":
    write(Path(sys.argv[1]), find(sys.argv[2:]))
