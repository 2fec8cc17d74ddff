"""Programs that fail stitched, in XLA or while running, are jax.jit's from then on.

Only what is ours is taken back: a module that XLA refuses, a kernel that cannot be loaded or
launched, alone or in a CUDA graph, a lack of memory. The last may be ours, since kernels take
scratch and keep alive what XLA would have freed between their ops: the program is tried without
them, and where jax.jit lacks memory as well, its error is the one to raise. All else that a run
raises is the user's (a callback, another library's custom call, what an argument waited for): it
passes as it is, and nothing is called a second time.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from fusionstitch.errors import NOT_RUN, REFUSED, StitchError, why_failed

Stage = TypeVar("Stage")


class _Thread(threading.local):
    """Whether this thread's next call is the first of what was just compiled."""

    first = False  # of the class: a missing attribute would cost each call 0.3 us


class Recovery:
    """Calls of one function that was stitched, with jax.jit's version of it to go back to.

    The first run of everything that is traced anew is waited for: a kernel that cannot be loaded
    or launched, or a lack of memory, shows there and not in a later use of its results.
    `warn` is told, once, why the function is left to XLA.
    """

    def __init__(self, name: str, plain: Any, fallback: str, warn: Callable[[str, str], None]):
        self.name, self.plain, self.fallback, self.warn = name, plain, fallback, warn
        #: why the function is left to XLA, '' while it is not
        self.failed = ""
        self.thread = _Thread()

    def tracing(self) -> None:
        """Called while the function is traced: its next run on this thread is a first one."""
        self.thread.first = True

    def compile(self, stitched: Callable[[], Stage], plain: Callable[[], Stage]) -> Stage:
        """What `stitched` compiles ahead of time, or `plain` where XLA refuses that.

        Raises what `plain` raises; under fallback="error" a StitchError where only the stitched
        program is refused. Where other processes take part the error stays as it is.
        """
        import jax

        if self.failed:
            return plain()
        try:
            return stitched()
        except jax.errors.JaxRuntimeError as error:
            if jax.process_count() > 1:
                raise
            failure = error
        compiled = plain()  # what fails here as well is not ours to tell
        self.leave(why_failed(REFUSED, failure), failure)
        return compiled

    def call(self, jitted: Any, args: Any, kwargs: Any) -> Any:
        """The results of `jitted`, or of jax.jit where those cannot be had and that is ours.

        Raises what jax.jit raises; under fallback="error" a StitchError where only the stitched
        program fails. An error stays as it is where it is the user's, or the program cannot run
        once more: its arguments were donated and are gone, it has side effects, or other processes
        take part.
        """
        if self.failed:
            return self.plain(*args, **kwargs)
        try:
            results = jitted(*args, **kwargs)
        except jax_runtime_error() as error:
            return self.instead(error, jitted, args, kwargs)
        return self.waited(results, jitted, args, kwargs) if self.thread.first else results

    def waited(self, results: Any, jitted: Any, args: Any, kwargs: Any) -> Any:
        """The results of a first run once they are there, or those of jax.jit as in `call`."""
        self.thread.first = False
        try:
            _wait(results)
        except jax_runtime_error() as error:
            return self.instead(error, jitted, args, kwargs)
        return results

    def instead(self, failure: BaseException, jitted: Any, args: Any, kwargs: Any) -> Any:
        """The results of jax.jit after a run that failed; raises as `call` does."""
        first, self.thread.first = self.thread.first, False
        if _ASSERTED in str(failure):
            failure.add_note(_GAVE_UP)
        if _is_ours(failure):
            what = NOT_RUN
        elif first and _is_refused(jitted, args, kwargs):
            what = REFUSED
        else:
            raise failure
        if not self._repeatable(args, kwargs):
            raise failure
        results = self.plain(*args, **kwargs)  # what fails here as well is not ours to tell
        _wait(results)
        self.leave(why_failed(what, failure), failure)
        return results

    def leave(self, why: str, failure: BaseException) -> None:
        """Leaves the function to XLA; raises where the user wants to know."""
        if self.fallback == "error":
            raise StitchError(
                f'{self.name} could not be stitched: {why} Use fallback="xla" to leave it to XLA.'
            ) from failure
        self.failed = why
        self.warn(self.name, why)

    def _repeatable(self, args: Any, kwargs: Any) -> bool:
        import jax

        if _are_gone(args, kwargs) or jax.process_count() > 1:
            return False
        return not self.plain.trace(*args, **kwargs).jaxpr.effects


#: What XLA says where a kernel ended itself: ours do where blocks wait for others for too long
#: (`codegen/cuda/counters.cuh`), and the GPU's context is gone then.
_ASSERTED = "CUDA_ERROR_ASSERT"
_GAVE_UP = (
    'If standard error says "fusionstitch: a block has waited for others", a kernel of '
    "fusionstitch gave up: some of its blocks did not come for 10 seconds. Others may hold the "
    'multiprocessors of the GPU; fs.Options(scope="block") makes no kernels of blocks that wait.'
)
#: What XLA says where a program has no memory, and where its CUDA graph cannot be made or launched.
_MEMORY_OR_GRAPH = re.compile(r"RESOURCE_EXHAUSTED|[^\n]*CUDA graph")


def _is_ours(error: BaseException) -> bool:
    """Whether a run failed in a kernel of ours, or for lack of memory.

    The launchers' errors begin with "fusionstitch: ", after what XLA puts before; a callback's
    error quotes what was raised in it, which may be anything.
    """
    text = str(error)
    before, found, _ = text.partition("fusionstitch: ")
    quoted = "allback" in before or "Traceback" in before
    return bool(found and not quoted) or _MEMORY_OR_GRAPH.match(text) is not None


def _is_refused(jitted: Any, args: Any, kwargs: Any) -> bool:
    """Whether compiling a program is what fails, and not running it: by compiling it once more."""
    import jax

    if _are_gone(args, kwargs):
        return False
    try:
        jitted.lower(*args, **kwargs).compile()
    except jax.errors.JaxRuntimeError:
        return True
    except Exception:  # JAX lowers none whose arguments are of a class that takes arrays alone
        return False
    return False


def _are_gone(args: Any, kwargs: Any) -> bool:
    """Whether an argument was donated to a run, and so cannot be used again."""
    import jax

    leaves = jax.tree.leaves((args, kwargs))
    return any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in leaves)


def jax_runtime_error() -> type[Exception]:
    """Looked for where something failed: each call would pay for it otherwise."""
    import jax

    return jax.errors.JaxRuntimeError


def _wait(results: Any) -> None:
    import jax

    leaves = jax.tree.leaves(results)
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        jax.block_until_ready(leaves)
