"""What XLA calls for the custom calls: the functions of the launchers, by target and stage."""

from __future__ import annotations

import ctypes
import logging
from typing import Any

from fusionstitch.runtime.artifact import LOAD_TARGET, TARGET

logger = logging.getLogger(__name__)

#: Per platform, as jax.ffi spells it: the handlers of each target. What a program loads is held by
#: a state that its instantiate stage makes and that XLA destroys with the executable. On CUDA the
#: images are loaded at a stage that XLA runs before each run of the program, for loading is per
#: CUDA context; XLA's CPU client has none.
HANDLERS = {
    "CUDA": {
        TARGET: {"execute": "fs_launch"},
        LOAD_TARGET: {"instantiate": "fs_hold", "initialize": "fs_load", "execute": "fs_nothing"},
    },
    "cpu": {
        TARGET: {"execute": "fs_launch"},
        LOAD_TARGET: {"instantiate": "fs_load", "execute": "fs_nothing"},
    },
}
#: The name that XLA knows the type of that state by.
STATE = "fusionstitch_images"


def register(library: ctypes.CDLL, platform: str) -> None:
    """Makes the functions of a launcher known to JAX; those that it knows already stay.

    Where JAX does not take the type of the state, images stay loaded for the rest of the process.
    """
    import jax.ffi

    for target, stages in HANDLERS[platform].items():
        handlers = {s: jax.ffi.pycapsule(getattr(library, name)) for s, name in stages.items()}
        try:
            jax.ffi.register_ffi_target(target, handlers, platform=platform)
        except jax.errors.JaxRuntimeError as error:
            # this module was read again, and what was loaded before goes on serving this process
            if "Duplicate FFI handler" not in str(error):
                raise
            return
    for find in (library.fs_state_id, library.fs_state_info):
        find.restype = ctypes.c_void_p
    # the capsule of a type holds its address, as that of a handler holds the function's
    state: Any = {
        "type_id": jax.ffi.pycapsule(library.fs_state_id()),
        "type_info": jax.ffi.pycapsule(library.fs_state_info()),
    }
    try:
        jax.ffi.register_ffi_type(STATE, state, platform)
    except RuntimeError as error:
        logger.info("kernel images are not unloaded: %s", error)
