"""What XLA calls for the custom calls: the functions of the launchers, by target and stage."""

from __future__ import annotations

import ctypes
import logging
from typing import Any

from fusionstitch.runtime.artifact import LOAD_TARGET, TARGET

logger = logging.getLogger(__name__)

#: Handlers of each target, by platform name of jax.ffi. A state holds what a program loads; the
#: instantiate stage makes it, and XLA destroys it with the executable. On CUDA, images are loaded
#: at a stage before each run, since loading is per CUDA context. XLA's CPU client has no such
#: stage.
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
#: XLA's name for the type of that state.
STATE = "fusionstitch_images"


def register(library: ctypes.CDLL, platform: str) -> None:
    """Registers the functions of a launcher with JAX; functions that are already registered stay.

    If JAX does not accept the type of the state, images stay loaded until the process ends.
    """
    import jax.ffi

    for target, stages in HANDLERS[platform].items():
        handlers = {s: jax.ffi.pycapsule(getattr(library, name)) for s, name in stages.items()}
        try:
            jax.ffi.register_ffi_target(target, handlers, platform=platform)
        except jax.errors.JaxRuntimeError as error:
            # this module was imported again; the functions registered before stay in use
            if "Duplicate FFI handler" not in str(error):
                raise
            return
    for find in (library.fs_state_id, library.fs_state_info):
        find.restype = ctypes.c_void_p
    # the capsule of a type contains its address, as that of a handler does for the function
    state: Any = {
        "type_id": jax.ffi.pycapsule(library.fs_state_id()),
        "type_info": jax.ffi.pycapsule(library.fs_state_info()),
    }
    try:
        jax.ffi.register_ffi_type(STATE, state, platform)
    except RuntimeError as error:
        logger.info("kernel images are not unloaded: %s", error)
