"""Reads a module's file in a child process first.

XLA and MLIR crash or hang on some malformed modules. If a child has read a module within limits of
time and memory, this process can read it too.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from fusionstitch.hlo.errors import FusionStitchError, ImportModuleError
from fusionstitch.runtime import temporary

_SECONDS = 300.0
#: Address space of the child: what JAX maps, plus this much per byte of the module.
_BYTES, _BYTES_PER_BYTE = 8 << 30, 64
_SHOWN_BYTES = 4096
_REFUSED = 2


def read(path: Path) -> bytes:
    """The module in a file of any form as HloModuleProto bytes, which XLA has accepted.

    Raises ImportModuleError for a malformed module. This includes one that crashes the child, takes
    more than five minutes, or more memory than its size explains.
    """
    with temporary.folder() as folder:
        output = folder / "module.pb"
        command = [sys.executable, "-m", __name__, str(path), str(output)]
        environment = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        with tempfile.TemporaryFile() as errors:
            try:
                code = subprocess.run(
                    command, stderr=errors, env=environment, timeout=_SECONDS, check=False
                ).returncode
            except subprocess.TimeoutExpired:
                raise ImportModuleError(
                    f"{path} was not read within {_SECONDS:.0f} seconds: it is too large, or "
                    "malformed. Export the module again."
                ) from None
            errors.seek(0)
            said = errors.read(_SHOWN_BYTES).decode(errors="replace").strip()
        if code == 0:
            return output.read_bytes()
    if code == _REFUSED:
        raise ImportModuleError(said)
    how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
    last = next(reversed(said.splitlines()), "no message")
    raise ImportModuleError(
        f"{path} is malformed: reading it ended the reader ({how}, {last}). Export the module "
        "again."
    )


def _main(source: str, output: str) -> int:
    from fusionstitch.hlo.importer import from_proto
    from fusionstitch.hlo.load import load
    from fusionstitch.runtime.portable import portable_artifact

    limit = _BYTES + _BYTES_PER_BYTE * Path(source).stat().st_size
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        data = load(Path(source))
        from_proto(data)
        portable_artifact(data)
    except FusionStitchError as error:
        print(error, file=sys.stderr)
        return _REFUSED
    Path(output).write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
