"""Which backend a scheduler runs on."""

from __future__ import annotations

from typing import Literal

from fusionstitch import env
from fusionstitch.dag.backends.backend import Backend
from fusionstitch.hlo.errors import OptionError
from fusionstitch.hlo.verdict import Verdict, allow, forbid

Name = Literal["auto", "cuda", "emulate"]


def backend(wanted: Name | Backend, seed: int) -> Backend:
    """The backend of this name, or the given backend.

    "auto" is the emulator if FUSIONSTITCH_BACKEND=emulate or there is no GPU, else CUDA. Raises
    OptionError.
    """
    if not isinstance(wanted, str):
        return wanted
    if wanted == "auto":
        emulates = env.BACKEND.get() == "emulate" or not has_gpu()
        wanted = "emulate" if emulates else "cuda"
    if wanted == "emulate":
        from fusionstitch.dag.backends.emulated import Emulated

        return Emulated(seed)
    if wanted == "cuda":
        if not (found := has_gpu()):
            raise OptionError(
                f"backend='cuda' cannot be used: {found.reason}. backend='emulate' runs on the CPU."
            )
        from fusionstitch.dag.backends.cuda import Cuda

        return Cuda()
    raise OptionError(
        f"backend={wanted!r} is not allowed: it is 'auto', 'cuda', 'emulate' or a backend."
    )


def has_gpu() -> Verdict:
    """Whether CuPy is installed and finds a GPU."""
    try:
        import cupy

        count = cupy.cuda.runtime.getDeviceCount()
    except ImportError as error:
        return forbid(f"CuPy cannot be imported ({error})")
    except Exception as error:  # a broken or missing driver may raise anything
        return forbid(f"CuPy finds no GPU ({error})")
    return allow("CuPy finds a GPU") if count else forbid("CuPy finds no GPU")
