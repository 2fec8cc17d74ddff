"""What XLA calls for the custom calls: the functions of the launchers, by target and stage."""

from __future__ import annotations

import ctypes

from fusionstitch.runtime.artifact import LOAD_TARGET, TARGET

#: Per platform, as jax.ffi spells it: the handlers of each target. On CUDA images are loaded at a
#: stage that XLA runs before each run of the program, for it skips the instantiate stage of
#: programs out of its persistent cache, and loading is per CUDA context. XLA's CPU client has none.
HANDLERS = {
    "CUDA": {
        TARGET: {"execute": "fs_launch"},
        LOAD_TARGET: {"initialize": "fs_load", "execute": "fs_nothing"},
    },
    "cpu": {
        TARGET: {"execute": "fs_launch"},
        LOAD_TARGET: {"instantiate": "fs_load", "execute": "fs_nothing"},
    },
}


def register(library: ctypes.CDLL, platform: str) -> None:
    """Makes the functions of a launcher known to JAX; those that it knows already stay."""
    import jax.ffi

    for target, stages in HANDLERS[platform].items():
        handlers = {s: jax.ffi.pycapsule(getattr(library, name)) for s, name in stages.items()}
        try:
            jax.ffi.register_ffi_target(target, handlers, platform=platform)
        except jax.errors.JaxRuntimeError as error:
            # this module was read again, and what was loaded before goes on serving this process
            if "Duplicate FFI handler" not in str(error):
                raise
