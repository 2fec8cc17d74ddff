"""Execution inside XLA: XLA passes the module of a marked function to our pass while compiling."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fusionstitch import env
from fusionstitch.compiler import progress
from fusionstitch.errors import StitchError, reason
from fusionstitch.execution import deferred, recall
from fusionstitch.execution.path import Find, Holder, Jit, Lower, Once, left, name_of, warn
from fusionstitch.execution.recovery import Recovery, jax_runtime_error
from fusionstitch.execution.tracebacks import hide_own_frames
from fusionstitch.execution.variants import variant
from fusionstitch.options import Options
from fusionstitch.trial.outcome import ATTEMPTS
from fusionstitch.trial.request import request_of

if TYPE_CHECKING:
    from fusionstitch.compiler.stitched import Stitched
    from fusionstitch.costmodel.devices import Device
    from fusionstitch.execution.recall import StoredProgram
    from fusionstitch.tuning.tuned import Tuned

logger = logging.getLogger(__name__)

#: Length of the part of a mark's token that all attempts at a function share.
_TOKEN = 16
#: What determines the code of a marked module, by that part of its token.
_marked: dict[str, tuple[Options, Device, Tuned]] = {}


@dataclass(frozen=True)
class Prepared:
    """What functions with the same options share: the token of their marks, and the device."""

    token: str
    device: Device


def prepare(options: Options) -> Prepared:
    """Prepares XLA and the pass for functions with these options.

    Raises StitchError if they cannot be stitched, and whatever a broken installation raises.
    """
    from fusionstitch.compiler import builders
    from fusionstitch.runtime import cuda, delays, xla_pass
    from fusionstitch.runtime.artifact import CALL_FORMAT
    from fusionstitch.tuning import tuned
    from fusionstitch.version import __version__

    device = builders.profile(options)
    results = tuned.load(device)
    content = f"{__version__} {CALL_FORMAT} {options.token} {device} {results.token}".rstrip()
    content = " ".join((content, *delays.flags()))
    if env.OVERRIDE_DIR.get() is not None:
        from fusionstitch.compiler import override

        content += override.token()
    token = hashlib.sha256(content.encode()).hexdigest()[:_TOKEN]
    for verdict in (
        cuda.register_launcher(builders.store()),
        xla_pass.register(_inside_xla),
    ):
        if not verdict:
            raise StitchError(verdict.reason)
    _marked[token] = (options, device, results)
    return Prepared(token, device)


class Cuda:
    """A jax.jit of the function under a marked name: XLA passes its module to the pass."""

    def __init__(
        self,
        fun: Callable[..., Any],
        plain: Any,
        jit: Jit,
        keywords: Any,
        options: Options,
        prepared: Prepared,
    ):
        from fusionstitch.execution.marked_name import marked_name
        from fusionstitch.execution.unmarked import hide_marks_in_log

        hide_marks_in_log()
        self.token, self.device = prepared.token, prepared.device
        self.name, self.warn_user = name_of(fun), Once()
        self.recovery = Recovery(self.name, plain, options.fallback, warn)
        self.plain = plain
        marked = variant(fun, marked_name(self.name, self.token))
        marked.recoveries.add(self.recovery)
        self.own = self.jitted = jit(marked, **keywords)
        self.marked_function = deferred.marked(self.name, self.token)

    @property
    def call(self) -> Callable[..., Any]:
        recovery, reasons, errors = self.recovery, deferred.reasons, deferred.errors

        # Recovery.call inlined, no method, and no keywords if there are none: each would add some
        # tenths of a microsecond to every call
        def call(*args: Any, **kwargs: Any) -> Any:
            if recovery.failed:
                return self.plain(*args, **kwargs)
            try:
                try:
                    results = self.jitted(*args, **kwargs) if kwargs else self.jitted(*args)
                except jax_runtime_error() as error:
                    results = recovery.instead(error, self.jitted, args, kwargs)
                if recovery.thread.first:
                    results = recovery.waited(results, self.jitted, args, kwargs)
                if reasons or errors:
                    deferred.deliver(self.marked_function, self.warn_user)
            except Exception as error:
                hide_own_frames(error)
                raise
            return results

        return call

    def held_by(self, holder: Holder) -> None:
        holder._call = self.call

    def trace(self, args: Any, kwargs: Any, platforms: Any) -> Any:
        return self.jitted.trace(*args, **kwargs)

    def compile(
        self, traced: Any, plain: Lower, lowered: Any, *args: Any, **keywords: Any
    ) -> tuple[Any, Find]:
        from fusionstitch.runtime import xla_pass

        def stitched() -> tuple[Any, Find]:
            stage = lowered.compile(*args, **keywords)
            return stage, lambda: recall.find(stage.as_text(), events)

        def unstitched() -> tuple[Any, Find]:
            compiled = plain().compile(*args, **keywords)
            return compiled, lambda: self.unstitched(recall.find("", events))

        with xla_pass.collect(self.token, self.name) as events:
            found = self.recovery.compile(stitched, unstitched)
        deferred.deliver(self.marked_function, self.warn_user)
        return found

    def unstitched(self, planned: Stitched | None) -> Stitched:
        """The plan of a program that is left to XLA, with the reason."""
        from fusionstitch.compiler.stitched import Fallback, Stitched

        planned = planned or Stitched(self.name, b"", self.device)
        fallbacks = (*planned.fallbacks, Fallback((), self.recovery.failed))
        return dataclasses.replace(planned, module=planned.given, stitches=(), fallbacks=fallbacks)

    def cache_size(self) -> int:
        size: int = self.jitted._cache_size()
        return size

    def clear_cache(self) -> None:
        self.plain.clear_cache()
        self.jitted.clear_cache()


def _inside_xla(module: bytes, mark: str) -> bytes | None:
    """The pass: returns what XLA compiles instead of a marked module, or None to leave it."""
    from fusionstitch.runtime import xla_pass

    token = mark[:_TOKEN]
    if token not in _marked:
        return None
    name = (xla_pass.read_mark(module) or ("a program", ""))[0]
    try:
        return _stitched(module, mark, name)
    except StitchError as error:
        deferred.defer_error(name, token, error)
        raise
    except xla_pass.GivenUp:
        raise
    except Exception as error:  # not raised on XLA's threads: the caller gets it later
        why = reason(error)
        if _marked[token][0].fallback == "error":
            raised = StitchError(f"{name} could not be stitched: {why}")
            deferred.defer_error(name, token, raised)
        else:
            deferred.defer_warning(name, why)
        raise


def _stitched(module: bytes, mark: str, name: str) -> bytes | None:
    from fusionstitch.runtime import xla_pass

    if (stored := _stored(module, mark)) is not None:
        logger.info("%s is in the cache: its earlier result is used", name)
        xla_pass.publish(stored)
        return _compiled(stored.module, mark, name)
    options = _marked[mark[:_TOKEN]][0]
    result = _requested(module, mark) or _planned(module, mark, name)
    result = dataclasses.replace(result, program=_store(module, mark, options, result))
    xla_pass.publish(result)
    return _compiled(result.module if result.stitches else None, mark, name)


def _compiled(module: bytes | None, mark: str, name: str) -> bytes | None:
    """The module for XLA to continue with.

    If an attempt of a trial has no kernel, it is XLA's own program, whose executable exists
    already, so its compile is given up. It is compiled if a call needs it: when JAX compiles again
    for other devices, or when a stored plan is lost. Nobody collects events then.
    """
    from fusionstitch.runtime import xla_pass

    if module is None and mark[_TOKEN:] and xla_pass.is_collected(mark, name):
        raise xla_pass.GivenUp("Nothing is stitched in it: XLA's executable serves.")
    return module


def _requested(module: bytes, mark: str) -> Stitched | None:
    """The program that a trial wants compiled instead of a full plan. A later process whose cache
    has lost it plans again and holds a trial again."""
    if mark[_TOKEN:] in ("", ATTEMPTS[0]):
        return None
    request = request_of(mark[:_TOKEN])
    return request.instead if request is not None else None


def _planned(module: bytes, mark: str, name: str) -> Stitched:
    from fusionstitch.compiler import builders, core
    from fusionstitch.guard.live import judge_for, put_off
    from fusionstitch.runtime import nvrtc

    options, device, tuned = _marked[mark[:_TOKEN]]
    request = request_of(mark[:_TOKEN])
    judge = judge_for(options, device, tuned, tried=bool(mark[_TOKEN:]))
    if judge is not None and request is not None and options.scorer == "guarded":
        judge = put_off(judge, request.put_off)

    def ahead() -> None:
        if nvrtc.remembered(builders.store()) is None:
            nvrtc.prepare()

    with progress.line(name) as step:
        result = core.stitch(
            module,
            options,
            device,
            builders.cuda(device, options),
            aliasing=True,
            simplified=True,
            step=step,
            tuned=tuned,
            judge=judge,
            ahead=ahead,
            truth=request.truth() if request is not None else None,
        )
    if (why := left(result)) is not None:
        deferred.defer_warning(name, *why)
    return result


def _stored(module: bytes, mark: str) -> StoredProgram | None:
    """What an earlier process made of a module. A failing cache only costs time."""
    try:
        return recall.look_up(module, mark)
    except Exception:
        logger.debug("a stored program was not read", exc_info=True)
        return None


def _store(module: bytes, mark: str, options: Options, result: Stitched) -> str:
    try:
        return recall.remember(module, mark, options, result)
    except Exception:
        logger.debug("%s was not stored", result.name, exc_info=True)
        return ""
