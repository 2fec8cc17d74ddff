"""Execution inside XLA with trials: each new program runs both ways, and the faster one serves
it."""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fusionstitch.arguments import Statics
from fusionstitch.errors import reason
from fusionstitch.execution import deferred, recall
from fusionstitch.execution.cuda import Cuda, Prepared
from fusionstitch.execution.marked_name import marked_name
from fusionstitch.execution.path import Find, Holder, Jit, Lower, name_of
from fusionstitch.execution.programs import Contest, Program, lost, with_trial
from fusionstitch.execution.recovery import jax_runtime_error
from fusionstitch.execution.served import Left, Served
from fusionstitch.execution.tracebacks import hide_own_frames
from fusionstitch.execution.variants import (
    FunctionRef,
    NewProgram,
    frozen,
    is_op_by_op,
    shared,
    tracing,
    under_a_trace,
    variant,
)
from fusionstitch.options import Options
from fusionstitch.trial import outcome, triable
from fusionstitch.trial.outcome import ATTEMPTS, DIRECT, XLA

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class _Variants:
    """The jits of one function, for as long as it lives. One that is `free` lets every trace
    pass. If they are `guarded`, calls of XLA's never bypass us."""

    function: FunctionRef
    make: Jit
    keywords: Mapping[str, Any]
    token: str
    guarded: bool

    def jit(self, kind: str, free: bool = False) -> Any:
        """The jit for XLA, for an attempt, or for the pass alone."""
        fun = self.function()
        assert fun is not None, "a Jitted holds its function"
        mark = self.token + ("" if kind == DIRECT else kind)
        name = name_of(fun) if kind == XLA else marked_name(name_of(fun), mark)
        given = variant(fun, name, self.keywords, free, self.guarded and not free)
        return self.make(given, **self.keywords)

    @property
    def donates(self) -> bool:
        given = (self.keywords.get(name) for name in ("donate_argnums", "donate_argnames"))
        return any(one not in (None, (), [], "") for one in given)


class CudaWithTrials(Cuda):
    """Jits of the function under several names. The first call of a program decides which of them
    serves it (see `fusionstitch.trial`)."""

    def __init__(
        self,
        fun: Callable[..., Any],
        plain: Any,
        jit: Jit,
        keywords: Any,
        options: Options,
        prepared: Prepared,
    ):
        guarded = options.fallback == "error"  # an error is for the first call of a program
        self.variants = _Variants(lambda: fun, jit, keywords, prepared.token, guarded)
        own = self.variants.jit(XLA, free=True)
        super().__init__(fun, own, jit, keywords, options, prepared)
        self.own, self.options = own, options

        def serving(function: FunctionRef) -> Served:
            jits = _Variants(function, jit, keywords, prepared.token, guarded)
            return Served(jits.jit, Statics(fun, keywords), goes_direct=not guarded)

        given = frozen(keywords)
        key = None if given is None else (Served, prepared.token, given)
        self.served: Served | Left = shared(fun, key, serving)
        self._holder: Callable[[], Holder | None] = lambda: None

    def held_by(self, holder: Holder) -> None:
        super().held_by(holder)
        self._holder = weakref.ref(holder)
        self.served.attach(self)

    def directly(self, jit: Any) -> None:
        """As `served.Wrapper` says."""
        if (holder := self._holder()) is not None:
            holder._call = jit

    def indirectly(self) -> None:
        """As `served.Wrapper` says."""
        if (holder := self._holder()) is not None:
            holder._call = self.call

    @property
    def call(self) -> Callable[..., Any]:
        reasons, errors = deferred.reasons, deferred.errors

        # no method, and no keywords if there are none: either would add some tenths of a
        # microsecond to every call
        def call(*args: Any, **kwargs: Any) -> Any:
            new, serve = False, self.served.call
            try:
                try:
                    results = serve(*args, **kwargs) if kwargs else serve(*args)
                except NewProgram:
                    new = True
                except jax_runtime_error() as error:
                    if self.served.kinds == {XLA}:
                        raise
                    results = self.recovery.instead(error, serve, args, kwargs)
                    self._left()
                if new:  # outside of `except`: the user's errors get no context of ours
                    results = self._new(args, kwargs)
                if reasons or errors:
                    deferred.deliver(self.marked_function, self.warn_user)
            except Exception as error:
                hide_own_frames(error)
                raise
            return results

        return call

    def _left(self) -> None:
        """Makes XLA serve every call after a stitched program has failed."""
        if self.recovery.failed:
            self.served = Left(self.own)

    def _new(self, args: Any, kwargs: Any) -> Any:
        """The first run of a program, after deciding what serves it."""
        if under_a_trace((args, kwargs)) or is_op_by_op():
            return self.jitted(*args, **kwargs)
        served = self.served
        # another thread saw it fail; a decision made here would be taken for a GPU's
        if isinstance(served, Left) or not triable.here((args, kwargs)):
            return self.own(*args, **kwargs)
        with served.deciding():
            serving = self._serving(served, args, kwargs)
            if isinstance(serving, str):
                served.add(args, kwargs, serving)
                run = served.jit(serving)
            else:
                with tracing():
                    run = served.alternate(args, kwargs, serving.alternation)
            self._left()
            served.forget_losers()
        with tracing():
            if serving == XLA:
                return run(*args, **kwargs)
            self.recovery.tracing()
            results = self.recovery.call(run, args, kwargs)
        self._left()
        return results

    def _serving(self, served: Served, args: Any, kwargs: Any) -> str | Program:
        """What serves the program of a call, from a stored outcome or a new trial. Returns the
        program itself if its own calls are the trial."""
        jit = served.jit
        with tracing():
            traced = jit(XLA).trace(*args, **kwargs)
            try:
                text = traced.lower().as_text()
            except Exception as error:
                # lowering puts other objects than arrays into the user's classes, which a call does
                # not; and an error of lowering is for the call to raise
                logger.info("%s has no trial: %s", self.name, reason(error))
                return DIRECT
        program = self._program(
            compile=lambda kind: jit(kind).trace(*args, **kwargs).lower().compile(),
            run=lambda kind, _: jit(kind),
            key=self._key(text, {}),
        )
        if (found := outcome.known(program.key)) is not None:
            return found.serves
        if verdict := triable.program(traced.jaxpr.effects, text):
            return program.hold_trial(args, kwargs, self.variants.donates, text).serves
        if self.options.trial == "calls":
            return program
        logger.info("%s has no trial: %s", self.name, verdict.reason)
        return DIRECT

    def _program(
        self,
        compile: Callable[[str], Any],
        run: Callable[[str, Any], Callable[..., Any]],
        key: str,
    ) -> Program:
        deliver = functools.partial(deferred.deliver, self.marked_function, self.warn_user)
        leave = self.recovery.leave
        return Program(self.name, self.token, self.device, compile, run, deliver, leave, key)

    def _key(self, text: str, compiling: Mapping[str, Any]) -> str:
        """The key of the outcome of a program with this text."""
        import jax

        how = {**(self.variants.keywords.get("compiler_options") or {}), **compiling}
        where = f"{jax.local_devices()[0].device_kind} {sorted(how.items(), key=str)}"
        return outcome.key_of(text, self.token, where)

    def trace(self, args: Any, kwargs: Any, platforms: Any) -> Any:
        return self.own.trace(*args, **kwargs)

    def compile(
        self, traced: Any, plain: Lower, lowered: Any, *args: Any, **keywords: Any
    ) -> tuple[Any, Find]:
        """XLA's program, which `lowered` is, or the stitched one: by a stored outcome, or for a
        trial that the first call holds."""
        text = lowered.as_text()
        key = self._key(text, {"": args, **keywords} if args or keywords else {})
        found = outcome.known(key)
        needs_trial = found is None and triable.program(traced.jaxpr.effects, text)
        kind = found.serves if found is not None else ATTEMPTS[0] if needs_trial else DIRECT

        def compile(kind: str) -> Any:
            stage = lowered if kind == XLA else plain(self.variants.jit(kind, free=True))
            return stage.compile(*args, **keywords)

        program = self._program(compile, lambda kind, compiled: compiled, key)

        def stitched() -> tuple[Any, Find]:
            attempt = program.attempt(kind)
            if kind != DIRECT and not attempt.stitched:
                return compile(XLA), attempt.find
            if found is not None:
                return attempt.call, lambda: with_trial(attempt.find(), found)
            if not needs_trial:
                return attempt.call, attempt.find
            contest = Contest(program, attempt, self.variants.donates, text)
            return contest, contest.find

        def unstitched() -> tuple[Any, Find]:
            return compile(XLA), lambda: self.unstitched(program.planned)

        if kind == XLA and found is not None:
            return compile(XLA), lambda: lost(recall.again(found.program), found)
        compiled = self.recovery.compile(stitched, unstitched)
        deferred.deliver(self.marked_function, self.warn_user)
        return compiled

    def cache_size(self) -> int:
        return self.served.cache_size()

    def clear_cache(self) -> None:
        super().clear_cache()
        self.served.clear()
