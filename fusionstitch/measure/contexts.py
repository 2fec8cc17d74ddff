"""JAX as it is by default, for what we compile and run while the user compiles: a program's debug
switches, guards and logs are about the program."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def defaults(device: object) -> Iterator[None]:
    """JAX's switches in this thread, on `device`. x64 is on, since types are those of modules."""
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
