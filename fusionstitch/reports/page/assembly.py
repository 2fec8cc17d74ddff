"""PTX and SASS of kernels, where NVRTC and NVIDIA's disassemblers are."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.hlo.errors import FusionStitchError
from fusionstitch.runtime import nvrtc

#: Lines of CUDA-C beyond which a kernel is not compiled a second time for its PTX.
MOST_LINES = 5000
#: Seconds that disassembling one kernel may take.
PATIENCE_S = 60.0
#: What reads a cubin, and the arguments that make it print SASS.
DISASSEMBLERS = {"nvdisasm": ("-c",), "cuobjdump": ("-sass",)}
_ENCODING = re.compile(r"\s*/\* 0x[0-9a-f]{16} \*/\s*$")


def ptx(kernel: Kernel, arch: str, numerics: str) -> str:
    """The PTX of a kernel, or why there is none, as a comment."""
    if not (found := nvrtc.available()):
        return f"// no PTX: {found.reason}\n"
    if kernel.source.count("\n") > MOST_LINES:
        return f"// no PTX: the kernel has more than {MOST_LINES} lines\n"
    flags = (nvrtc.NO_FMA,) if numerics == "strict" else ()
    try:
        return nvrtc.ptx(kernel.source, arch, flags)
    except FusionStitchError as error:
        lines = str(error).splitlines()
        return f"// no PTX: {lines[0] if lines else error}\n"


def sass(image: bytes) -> str:
    """The SASS of a cubin, or why there is none, as a comment."""
    if (tool := disassembler()) is None:
        return f"// no SASS: neither {' nor '.join(DISASSEMBLERS)} is installed\n"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(image)
        file.flush()
        arguments = [str(tool), *DISASSEMBLERS[tool.stem], file.name]
        try:
            done = subprocess.run(
                arguments, capture_output=True, text=True, timeout=PATIENCE_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"// no SASS: {tool.name} failed: {error}\n"
    if done.returncode:
        return f"// no SASS: {tool.name} failed: {done.stderr.strip()}\n"
    lines = (_ENCODING.sub("", line) for line in done.stdout.splitlines())
    return "\n".join(line for line in lines if line.strip()) + "\n"


@cache
def disassembler() -> Path | None:
    """One of NVIDIA's that is installed: on the path, with CUDA, or by pip."""
    for name in DISASSEMBLERS:
        if found := shutil.which(name):
            return Path(found)
        for folder in _folders():
            if (path := folder / name).is_file() and os.access(path, os.X_OK):
                return path
    return None


def _folders() -> Iterator[Path]:
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        if home := os.environ.get(variable):
            yield Path(home) / "bin"
    yield Path("/usr/local/cuda/bin")
    for entry in sys.path:
        yield from sorted(Path(entry).glob("nvidia/*/bin"))
