"""Recovery: programs that fail stitched, in XLA or while running, use jax.jit from then on.

Only our own failures are undone: a module that XLA refuses, a kernel that cannot be loaded or
launched, alone or in a CUDA graph, and lack of memory. Lack of memory may be ours, because kernels
take scratch memory and keep values alive that XLA would have freed between their ops. The program
is then run without kernels; if jax.jit lacks memory too, its error is raised. Every other error is
the user's (a callback, another library's custom call, a failed argument). It passes through
unchanged, and nothing is called again.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from fusionstitch.errors import NOT_RUN, REFUSED, StitchError, why_failed

Stage = TypeVar("Stage")


class _Thread(threading.local):
    """Whether this thread's next call is the first one of a new compile."""

    first = False  # on the class: a missing attribute would cost each call 0.3 us


class Recovery:
    """Calls of one stitched function, with jax.jit's version of it as fallback.

    The first run after every new trace is waited for. A kernel that cannot be loaded or launched,
    or lack of memory, shows there and not in a later use of the results. `warn` is called once,
    with the reason why the function is left to XLA.
    """

    def __init__(self, name: str, plain: Any, fallback: str, warn: Callable[[str, str], None]):
        self.name, self.plain, self.fallback, self.warn = name, plain, fallback, warn
        #: why the function is left to XLA; '' if it is not
        self.failed = ""
        self.thread = _Thread()

    def tracing(self) -> None:
        """Called while the function is traced: its next run on this thread is a first run."""
        self.thread.first = True

    def compile(self, stitched: Callable[[], Stage], plain: Callable[[], Stage]) -> Stage:
        """What `stitched` compiles ahead of time, or `plain` if XLA refuses that.

        Raises what `plain` raises. Under fallback="error" it raises a StitchError if only the
        stitched program is refused. In programs of several processes, errors are unchanged.
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
        compiled = plain()  # if this fails too, the error is not ours
        self.leave(why_failed(REFUSED, failure), failure)
        return compiled

    def call(self, jitted: Any, args: Any, kwargs: Any) -> Any:
        """The results of `jitted`, or of jax.jit after a failure of ours.

        Raises what jax.jit raises. Under fallback="error" it raises a StitchError if only the
        stitched program fails. The user's errors are unchanged. So are errors of programs that
        cannot run again: with donated arguments that are gone, side effects, or several processes.
        """
        if self.failed:
            return self.plain(*args, **kwargs)
        try:
            results = jitted(*args, **kwargs)
        except jax_runtime_error() as error:
            return self.instead(error, jitted, args, kwargs)
        return self.waited(results, jitted, args, kwargs) if self.thread.first else results

    def waited(self, results: Any, jitted: Any, args: Any, kwargs: Any) -> Any:
        """The results of a first run once they are ready, or those of jax.jit as in `call`."""
        self.thread.first = False
        try:
            _wait(results)
        except jax_runtime_error() as error:
            return self.instead(error, jitted, args, kwargs)
        return results

    def instead(self, failure: BaseException, jitted: Any, args: Any, kwargs: Any) -> Any:
        """The results of jax.jit after a failed run; raises as `call` does."""
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
        results = self.plain(*args, **kwargs)  # if this fails too, the error is not ours
        _wait(results)
        self.leave(why_failed(what, failure), failure)
        return results

    def leave(self, why: str, failure: BaseException) -> None:
        """Leaves the function to XLA. Raises under fallback="error"."""
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


#: XLA's message if a kernel stopped itself, as ours do when blocks wait too long for others
#: (`codegen/cuda/counters.cuh`). The GPU's context is lost then.
_ASSERTED = "CUDA_ERROR_ASSERT"
_GAVE_UP = (
    'If standard error says "fusionstitch: a block has waited for others", a kernel of '
    "fusionstitch gave up: some of its blocks did not come for 10 seconds. Others may hold the "
    'multiprocessors of the GPU; fs.Options(scope="block") makes no kernels of blocks that wait.'
)
#: XLA's messages if a program lacks memory, or its CUDA graph cannot be made or launched.
_MEMORY_OR_GRAPH = re.compile(r"RESOURCE_EXHAUSTED|[^\n]*CUDA graph")


def _is_ours(error: BaseException) -> bool:
    """Whether a run failed in one of our kernels, or for lack of memory.

    The launchers' errors begin with "fusionstitch: ", after XLA's own prefix. The error of a
    callback quotes whatever was raised in it.
    """
    text = str(error)
    before, found, _ = text.partition("fusionstitch: ")
    quoted = "allback" in before or "Traceback" in before
    return bool(found and not quoted) or _MEMORY_OR_GRAPH.match(text) is not None


def _is_refused(jitted: Any, args: Any, kwargs: Any) -> bool:
    """Whether compiling a program fails, and not running it. Compiles it again to find out."""
    import jax

    if _are_gone(args, kwargs):
        return False
    try:
        jitted.lower(*args, **kwargs).compile()
    except jax.errors.JaxRuntimeError:
        return True
    except Exception:  # JAX does not lower calls with classes that accept only arrays
        return False
    return False


def _are_gone(args: Any, kwargs: Any) -> bool:
    """Whether an argument was donated to a run, and so cannot be used again."""
    import jax

    leaves = jax.tree.leaves((args, kwargs))
    return any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in leaves)


def jax_runtime_error() -> type[Exception]:
    """JAX's runtime error class, looked up only after a failure: otherwise every call would pay for
    it."""
    import jax

    return jax.errors.JaxRuntimeError


def _wait(results: Any) -> None:
    import jax

    leaves = jax.tree.leaves(results)
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        jax.block_until_ready(leaves)
