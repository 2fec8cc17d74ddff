"""The road inside XLA: a marked function, whose module XLA hands to the pass while compiling."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from fusionstitch import env
from fusionstitch.compiler import progress
from fusionstitch.errors import StitchError, reason
from fusionstitch.options import Options
from fusionstitch.roads import behind
from fusionstitch.roads.recovery import Recovery, jax_runtime_error
from fusionstitch.roads.road import Find, Jit, Lower, Once, left, name_of, warn

if TYPE_CHECKING:
    from fusionstitch.compiler.stitched import Stitched
    from fusionstitch.costmodel.devices import Device
    from fusionstitch.roads.recall import Kept
    from fusionstitch.runtime.xla_pass import Event
    from fusionstitch.tuning.tuned import Tuned

logger = logging.getLogger(__name__)

#: What decides the code of a marked module, by the token in its mark.
_marked: dict[str, tuple[Options, Device, Tuned]] = {}


class _Marked:
    """The user's function under a marked name; JAX's messages show the function itself.

    It lives as long as that function (see `_marked_function`), so it may not keep it alive: `held`
    gives it.
    """

    def __init__(self, held: Callable[[], Callable[..., Any] | None], name: str):
        self._held = held
        #: who wants to know that it is traced anew
        self.recoveries: WeakSet[Recovery] = WeakSet()
        self.__module__ = getattr(self.__wrapped__, "__module__", __name__)
        self.__doc__ = self.__wrapped__.__doc__
        self.__name__ = name
        self.__qualname__ = getattr(self.__wrapped__, "__qualname__", name_of(self.__wrapped__))

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        fun = self._held()
        assert fun is not None, "a Jitted holds its function"
        return fun

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        for recovery in self.recoveries:
            recovery.tracing()
        return self.__wrapped__(*args, **kwargs)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)


#: The marked functions of each function, by name.
_functions: WeakKeyDictionary[Callable[..., Any], dict[str, _Marked]] = WeakKeyDictionary()


def _marked_function(fun: Callable[..., Any], name: str) -> _Marked:
    """`fun` under a marked name: the same object each time, so that, as under jax.jit, two jits of
    one function share what was traced and compiled."""
    try:
        known = _functions.setdefault(fun, {})
    except TypeError:  # neither hashable nor weakly referable
        return _Marked(lambda: fun, name)
    marked = known.get(f"{name}")
    if marked is None:
        marked = known[f"{name}"] = _Marked(weakref.ref(fun), name)
    # equal but not the same: bound methods
    return marked if marked._held() is fun else _Marked(lambda: fun, name)


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
    token = hashlib.sha256(content.encode()).hexdigest()[:16]
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
        from fusionstitch.roads.marked_name import marked_name
        from fusionstitch.roads.unmarked import hide_marks_in_log

        hide_marks_in_log()
        self.token, self.device = prepared.token, prepared.device
        self.name, self.tell = name_of(fun), Once()
        self.recovery = Recovery(self.name, plain, options.fallback, warn)
        self.plain = plain
        marked = _marked_function(fun, marked_name(self.name, self.token))
        marked.recoveries.add(self.recovery)
        self.own = self.jitted = jit(marked, **keywords)
        self.whose = behind.known(self.name, self.token)

    def call(self, /, *args: Any, **kwargs: Any) -> Any:
        # Recovery.call once more: each Python frame costs a call a quarter of a microsecond
        recovery = self.recovery
        if recovery.failed:
            return self.plain(*args, **kwargs)
        try:
            results = self.jitted(*args, **kwargs)
        except jax_runtime_error() as error:
            results = recovery.instead(error, self.jitted, args, kwargs)
        if recovery.thread.first:
            results = recovery.waited(results, self.jitted, args, kwargs)
        if behind.reasons or behind.errors:
            behind.settle(self.whose, self.tell)
        return results

    def trace(self, args: Any, kwargs: Any, platforms: Any) -> Any:
        return self.jitted.trace(*args, **kwargs)

    def compile(
        self, traced: Any, plain: Lower, lowered: Any, *args: Any, **keywords: Any
    ) -> tuple[Any, Find]:
        from fusionstitch.roads import recall
        from fusionstitch.runtime import xla_pass

        def stitched() -> tuple[Any, Find]:
            stage = lowered.compile(*args, **keywords)
            return stage, lambda: recall.find(stage.as_text(), events)

        def unstitched() -> tuple[Any, Find]:
            return plain().compile(*args, **keywords), lambda: self._unstitched(events)

        with xla_pass.collect(self.token) as events:
            found = self.recovery.compile(stitched, unstitched)
        behind.settle(self.whose, self.tell)
        return found

    def _unstitched(self, events: Sequence[Event]) -> Stitched:
        """What was planned for a program that is left to XLA, and why."""
        from fusionstitch.compiler.stitched import Fallback, Stitched
        from fusionstitch.roads import recall

        planned = recall.find("", events) or Stitched(self.name, b"", self.device)
        fallbacks = (*planned.fallbacks, Fallback((), self.recovery.failed))
        return dataclasses.replace(planned, module=planned.given, stitches=(), fallbacks=fallbacks)

    def clear_cache(self) -> None:
        self.plain.clear_cache()
        self.jitted.clear_cache()


def _inside_xla(module: bytes, token: str) -> bytes | None:
    """The pass: what XLA compiles instead of a marked module, or None to leave it."""
    from fusionstitch.runtime import xla_pass

    if token not in _marked:
        return None
    name = (xla_pass.read_mark(module) or ("a program", ""))[0]
    try:
        return _stitched(module, token, name)
    except StitchError as error:
        behind.leave_error(name, token, error)
        raise
    except Exception as error:  # XLA's threads are no place for it: the caller hears of it
        why = reason(error)
        if _marked[token][0].fallback == "error":
            asked_for = StitchError(f"{name} could not be stitched: {why}")
            behind.leave_error(name, token, asked_for)
        else:
            behind.leave_reason(name, why)
        raise


def _stitched(module: bytes, token: str, name: str) -> bytes | None:
    from fusionstitch.runtime import xla_pass

    if (kept := _kept(module, token)) is not None:
        logger.info("%s is known: what became of it is taken from the cache", name)
        xla_pass.publish(kept)
        return kept.module
    from fusionstitch.compiler import builders, core
    from fusionstitch.guard.live import judge_for
    from fusionstitch.runtime import nvrtc

    options, device, tuned = _marked[token]

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
            step=step,
            tuned=tuned,
            judge=judge_for(options, device, tuned),
            ahead=ahead,
        )
    xla_pass.publish(result)
    if (why := left(result)) is not None:
        behind.leave_reason(name, *why)
    _keep(module, token, options, result)
    return result.module if result.stitches else None


def _kept(module: bytes, token: str) -> Kept | None:
    """What an earlier process made of a module; a cache that fails costs time alone."""
    from fusionstitch.roads import recall

    try:
        return recall.look(module, token)
    except Exception:
        logger.debug("a kept program was not read", exc_info=True)
        return None


def _keep(module: bytes, token: str, options: Options, result: Stitched) -> None:
    from fusionstitch.roads import recall

    try:
        recall.keep(module, token, options, result)
    except Exception:
        logger.debug("%s was not kept", result.name, exc_info=True)
