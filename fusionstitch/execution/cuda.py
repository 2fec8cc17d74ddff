"""Execution inside XLA: a marked function, whose module XLA hands to the pass while compiling."""

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
from fusionstitch.execution import behind, recall
from fusionstitch.execution.path import Find, Jit, Lower, Once, left, name_of, warn
from fusionstitch.execution.recovery import Recovery, jax_runtime_error
from fusionstitch.execution.tracebacks import hide_own_frames
from fusionstitch.execution.variants import variant
from fusionstitch.options import Options
from fusionstitch.trial.asked import asked_of
from fusionstitch.trial.outcome import ATTEMPTS

if TYPE_CHECKING:
    from fusionstitch.compiler.stitched import Stitched
    from fusionstitch.costmodel.devices import Device
    from fusionstitch.execution.recall import Kept
    from fusionstitch.tuning.tuned import Tuned

logger = logging.getLogger(__name__)

#: How long the part of a mark's token is that all attempts at a function share.
_TOKEN = 16
#: What decides the code of a marked module, by that part.
_marked: dict[str, tuple[Options, Device, Tuned]] = {}


@dataclass(frozen=True)
class Prepared:
    """What functions with the same options share: the token of their marks, and the device."""

    token: str
    device: Device


def prepare(options: Options) -> Prepared:
    """Makes XLA and the pass ready for functions with these options.

    Raises StitchError where they cannot be stitched, and what a broken installation raises.
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
    """A jax.jit of the function under a marked name: XLA hands its module to the pass."""

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
        self.name, self.tell = name_of(fun), Once()
        self.recovery = Recovery(self.name, plain, options.fallback, warn)
        self.plain = plain
        marked = variant(fun, marked_name(self.name, self.token))
        marked.recoveries.add(self.recovery)
        self.own = self.jitted = jit(marked, **keywords)
        self.whose = behind.known(self.name, self.token)

    @property
    def call(self) -> Callable[..., Any]:
        recovery, reasons, errors = self.recovery, behind.reasons, behind.errors

        # Recovery.call once more, no method, and no keywords where there are none: each of these
        # costs a call some tenths of a microsecond
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
                    behind.settle(self.whose, self.tell)
            except Exception as error:
                hide_own_frames(error)
                raise
            return results

        return call

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
        behind.settle(self.whose, self.tell)
        return found

    def unstitched(self, planned: Stitched | None) -> Stitched:
        """What was planned for a program that is left to XLA, and why."""
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
    """The pass: what XLA compiles instead of a marked module, or None to leave it."""
    from fusionstitch.runtime import xla_pass

    token = mark[:_TOKEN]
    if token not in _marked:
        return None
    name = (xla_pass.read_mark(module) or ("a program", ""))[0]
    try:
        return _stitched(module, mark, name)
    except StitchError as error:
        behind.leave_error(name, token, error)
        raise
    except xla_pass.GivenUp:
        raise
    except Exception as error:  # XLA's threads are no place for it: the caller hears of it
        why = reason(error)
        if _marked[token][0].fallback == "error":
            asked_for = StitchError(f"{name} could not be stitched: {why}")
            behind.leave_error(name, token, asked_for)
        else:
            behind.leave_reason(name, why)
        raise


def _stitched(module: bytes, mark: str, name: str) -> bytes | None:
    from fusionstitch.runtime import xla_pass

    if (kept := _kept(module, mark)) is not None:
        logger.info("%s is known: what became of it is taken from the cache", name)
        xla_pass.publish(kept)
        return _compiled(kept.module, mark, name)
    options = _marked[mark[:_TOKEN]][0]
    result = _asked_for(module, mark) or _planned(module, mark, name)
    result = dataclasses.replace(result, program=_keep(module, mark, options, result))
    xla_pass.publish(result)
    return _compiled(result.module if result.stitches else None, mark, name)


def _compiled(module: bytes | None, mark: str, name: str) -> bytes | None:
    """What XLA goes on with. An attempt of a trial without a kernel is XLA's own program, of which
    there is an executable: nothing is compiled once more. What a call needs, as JAX compiles anew
    for other devices or a kept plan is lost, is compiled: nobody gathers its events."""
    from fusionstitch.runtime import xla_pass

    if module is None and mark[_TOKEN:] and xla_pass.is_collected(mark, name):
        raise xla_pass.GivenUp("Nothing is stitched in it: XLA's executable serves.")
    return module


def _asked_for(module: bytes, mark: str) -> Stitched | None:
    """What a trial wants tried in the place of a whole plan. A later process whose cache has lost
    that plans anew and tries again."""
    if mark[_TOKEN:] in ("", ATTEMPTS[0]):
        return None
    asked = asked_of(mark[:_TOKEN])
    return asked.instead if asked is not None else None


def _planned(module: bytes, mark: str, name: str) -> Stitched:
    from fusionstitch.compiler import builders, core
    from fusionstitch.guard.live import judge_for, put_off
    from fusionstitch.runtime import nvrtc

    options, device, tuned = _marked[mark[:_TOKEN]]
    asked = asked_of(mark[:_TOKEN])
    judge = judge_for(options, device, tuned, tried=bool(mark[_TOKEN:]))
    if judge is not None and asked is not None and options.scorer == "guarded":
        judge = put_off(judge, asked.put_off)

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
            truth=asked.truth() if asked is not None else None,
        )
    if (why := left(result)) is not None:
        behind.leave_reason(name, *why)
    return result


def _kept(module: bytes, mark: str) -> Kept | None:
    """What an earlier process made of a module; a cache that fails costs time alone."""
    try:
        return recall.look(module, mark)
    except Exception:
        logger.debug("a kept program was not read", exc_info=True)
        return None


def _keep(module: bytes, mark: str, options: Options, result: Stitched) -> str:
    try:
        return recall.keep(module, mark, options, result)
    except Exception:
        logger.debug("%s was not kept", result.name, exc_info=True)
        return ""
