"""JAX's ahead-of-time stages with the plan added; everything else is delegated to JAX."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fusionstitch.execution.call import Call
from fusionstitch.execution.tracebacks import without_own_frames
from fusionstitch.hlo.brief import brief

if TYPE_CHECKING:
    from fusionstitch.codegen.kernel import Kernel
    from fusionstitch.compiler.stitched import Fallback, Stitched
    from fusionstitch.plan.plan import Plan
    from fusionstitch.reports.report import Report


class _Delegate:
    """Attributes that are not found here come from JAX's stage."""

    def __init__(self, stage: Any):
        self._stage = stage

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._stage, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._stage)})

    def __repr__(self) -> str:
        return brief(f"fusionstitch {type(self).__name__} of {self._stage!r}")


class Traced(_Delegate):
    """Like `jax.stages.Traced`; its `lower` leads to a stitched program."""

    def __init__(self, stage: Any, fun_name: str, lower: Callable[..., Lowered]):
        super().__init__(stage)
        self.fun_name = fun_name  # without a mark
        self._lower = lower

    @without_own_frames
    def lower(self, **keywords: Any) -> Lowered:
        """Like `jax.stages.Traced.lower`: the program before XLA, as a `Lowered`."""
        return self._lower(**keywords)


class _Program(_Delegate):
    """A stage that has a text."""

    def as_text(self, *args: Any, **keywords: Any) -> str | None:
        """Like the method of JAX's stage; functions have the names that the user gave them."""
        from fusionstitch.runtime.xla_pass import without_marks

        text: str | None = self._stage.as_text(*args, **keywords)
        return None if text is None else without_marks(text)


class Lowered(_Program):
    """Like `jax.stages.Lowered`; its `compile` returns a `Compiled` of ours."""

    # compile_stage compiles; it returns JAX's stage, and how to find what was stitched in it
    def __init__(
        self,
        stage: Any,
        call: Call,
        compile_stage: Callable[..., tuple[Any, Callable[[], Stitched | None]]],
    ):
        super().__init__(stage)
        self._call = call
        self._compile_stage = compile_stage

    @without_own_frames
    def compile(self, *args: Any, **keywords: Any) -> Compiled:
        """Like `jax.stages.Lowered.compile`. Raises StitchError under `fallback="error"` if
        something cannot be stitched."""
        stage, stitched = self._compile_stage(self._stage, *args, **keywords)
        return Compiled(stage, self._call, stitched)


class Compiled(_Program):
    """Like `jax.stages.Compiled`, with its plan, kernels, explanation and report.

    Call it with arguments of the shapes and dtypes it was compiled for. It also has the methods of
    JAX's class, such as `cost_analysis` and `memory_analysis`.

    Example:
        >>> import jax.numpy as jnp
        >>> import fusionstitch as fs
        >>> def center(x):
        ...     return x - x.mean(1, keepdims=True), x.mean(0)
        >>> emulated = fs.jit(center, options=fs.Options(backend="emulate"))
        >>> compiled = emulated.lower(jnp.ones((64, 96))).compile()
        >>> len(compiled.kernels), len(compiled.fallbacks)
        (1, 0)
        >>> compiled.plan
        (<Plan of ...: ... ops, 1 pattern, ...>,)
    """

    __slots__ = ("_run",)

    def __init__(self, stage: Any, call: Call, stitched: Callable[[], Stitched | None]):
        import jax

        super().__init__(stage)
        self._call = call
        self._find = stitched
        self._found: Stitched | None = None
        # errors of JAX's own stage have no frames of ours
        self._run = (
            stage if isinstance(stage, jax.stages.Compiled) else without_own_frames(stage.__call__)
        )

    def __repr__(self) -> str:
        found = self._found  # a repr does not look anything up or plan again
        return super().__repr__() if found is None else brief(f"fusionstitch Compiled: {found!r}")

    if TYPE_CHECKING:

        def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...

    @property
    def stitched(self) -> Stitched | None:
        """What the compiler did; None if nothing was to be stitched, for example without a GPU.
        Before a trial has decided, this describes the stitched program."""
        if self._found is None:
            found = self._find()
            if getattr(self._stage, "is_undecided", False):
                return found
            self._found = found
        return self._found

    @property
    def plan(self) -> tuple[Plan, ...]:
        """The plans of the program's graphs, callees first; empty if nothing was stitched."""
        return self.stitched.plans if self.stitched else ()

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The generated kernels in the order of their first use, each with its `source`."""
        return self.stitched.kernels if self.stitched else ()

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """What was left to XLA although it was to be stitched, with the reasons."""
        return self.stitched.fallbacks if self.stitched else ()

    def explain(self, what: str | None = None, *, rejected: bool = False) -> str:
        """Each kernel with its ops, source lines, times in microseconds and schedule, and what is
        left to XLA with the reasons, as text.

        Args:
            what: describe only these ops: the name of an HLO op, a JAX name scope or function, a
                Python function that was called (yours or JAX's), a line ("model.py:12") or a
                kernel; `*` and `?` are wildcards
            rejected: also list each candidate pattern that was rejected, with its costs and the
                reason; with `what`, rejected candidates that contain these ops are always listed

        Raises:
            TargetError: nothing matches `what`.
        """
        from fusionstitch.reports.explained import OFF, Explained, explained

        if self._call.options.backend == "xla":
            return Explained(OFF)
        return explained(self.stitched, what, rejected)

    @without_own_frames
    def report(self) -> Report:
        """Kernels, traffic, times and errors against XLA, for the arguments of `lower`: see
        `fs.report`, which raises the same errors."""
        from fusionstitch.reports.report import report_call

        return report_call(self._call)


# The slot's descriptor: a call reaches what the slot holds without a Python frame in between. It is
# no function whose signature could be asked for.
setattr(Compiled, "__call__", Compiled.__dict__["_run"])  # noqa: B010
setattr(Compiled, "__signature__", inspect.signature(lambda *args, **kwargs: None))  # noqa: B010
