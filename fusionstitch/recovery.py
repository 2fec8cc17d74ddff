"""Programs that fail stitched, in XLA or while running, are jax.jit's from then on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from fusionstitch.errors import StitchError
from hlo import foreign

Stage = TypeVar("Stage")


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
        self._thread = threading.local()

    def tracing(self) -> None:
        """Called while the function is traced: its next run on this thread is a first one."""
        self._thread.first = True

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
        self._leave(f"XLA refused the stitched program: {_first_line(failure)}", failure)
        return compiled

    def call(self, jitted: Any, args: Any, kwargs: Any) -> Any:
        """The results of `jitted`, or of jax.jit where those cannot be had.

        Raises what jax.jit raises; under fallback="error" a StitchError where only the stitched
        program fails. An error stays as it is where the program cannot run once more: its
        arguments were donated and are gone, it has side effects, or other processes take part.
        """
        import jax

        if self.failed:
            return self.plain(*args, **kwargs)
        try:
            results = jitted(*args, **kwargs)
            if getattr(self._thread, "first", False):
                self._thread.first = False
                _wait(results)
            return results
        except jax.errors.JaxRuntimeError as error:
            self._thread.first = False
            if not self._repeatable(args, kwargs):
                raise
            failure = error
        results = self.plain(*args, **kwargs)  # what fails here as well is not ours to tell
        _wait(results)
        self._leave(f"Its kernels could not be run: {_first_line(failure)}", failure)
        return results

    def _leave(self, why: str, failure: BaseException) -> None:
        """Leaves the function to XLA; raises where the user wants to know."""
        if self.fallback == "error":
            raise StitchError(
                f'{self.name} could not be stitched: {why} Use fallback="xla" to leave it to XLA.'
            ) from failure
        self.failed = why
        self.warn(self.name, why)

    def _repeatable(self, args: Any, kwargs: Any) -> bool:
        import jax

        leaves = jax.tree.leaves((args, kwargs))
        if any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in leaves):
            return False
        return jax.process_count() == 1 and not self.plain.trace(*args, **kwargs).jaxpr.effects


def _wait(results: Any) -> None:
    import jax

    leaves = jax.tree.leaves(results)
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        jax.block_until_ready(leaves)


def _first_line(error: BaseException) -> str:
    text = foreign.line(next(iter(str(error).strip().splitlines()), type(error).__name__))
    return text if text.endswith(".") else f"{text}."
