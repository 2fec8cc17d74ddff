"""JAX's default configuration, for our compiles and runs while the user compiles. A user's debug
switches, guards and logs are meant for the user's program."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def defaults(device: object) -> Iterator[None]:
    """JAX's default configuration in this thread, on `device`. x64 is enabled, since types are
    those of modules."""
    import jax

    with contextlib.ExitStack() as stack:
        for context in (
            jax.enable_x64(True),
            jax.default_device(device),
            jax.disable_jit(False),
            jax.debug_nans(False),
            jax.debug_infs(False),
            jax.debug_key_reuse(False),
            jax.check_tracer_leaks(False),
            jax.log_compiles(False),
            jax.explain_cache_misses(False),
            jax.transfer_guard("allow"),
            jax.default_matmul_precision(None),
            jax.numpy_dtype_promotion("standard"),
            jax.numpy_rank_promotion("allow"),
        ):
            stack.enter_context(context)
        yield
