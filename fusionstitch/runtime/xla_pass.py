"""The pass inside XLA: XLA shows it every module it compiles, marked ones are stitched.

A mark travels in the name of the jitted function, hence of the module. The pass runs once per
compile, before layout assignment and fusion, on a thread of XLA's choosing, which waits while a
thread of ours stitches.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fusionstitch.hlo.importer import parse
from fusionstitch.hlo.verdict import Verdict, allow, forbid
from fusionstitch.runtime.apart import Stopped, apart
from fusionstitch.runtime.artifact import TARGET
from fusionstitch.runtime.entry import Entry
from fusionstitch.runtime.outcome import Failed

logger = logging.getLogger(__name__)

_PASS_NAME = "fusionstitch"


#: Of compiles that were given up.
_numbers = itertools.count()


class GivenUp(Exception):
    """Raised by the stitch callback: nobody wants what would be compiled. XLA's compile fails, with
    this text, which has a number of its own."""

    def __init__(self, why: str):
        super().__init__(f"{why} (given up: {next(_numbers)})")


#: HLO module bytes and the token of the mark in, the stitched module or None (leave it) out.
StitchCallback = Callable[[bytes, str], bytes | None]


# ---- marks --------------------------------------------------------------------------------------

_SIGN = b"__fs_"
_MARKED = re.compile(r"(?:jit_|pmap_)?(?P<name>.*)__fs_(?P<token>[0-9a-f]+)(?:\.\d+)?")


def mark(name: str, token: str) -> str:
    """The name for a function whose module is to be stitched; `token` is lower-case hex.

    The token should cover all that decides the generated code, since it becomes part of the key of
    XLA's persistent compilation cache. An older mark in `name` is replaced.
    """
    if not re.fullmatch("[0-9a-f]+", token):
        raise ValueError(f"A mark's token is lower-case hex, not {token!r}.")
    previous = _MARKED.fullmatch(name)
    return f"{previous['name'] if previous else name}__fs_{token}"


def read_mark(module: bytes | str) -> tuple[str, str] | None:
    """(function name, token) of a serialized HloModuleProto or of a module's name, or None."""
    name = module_name(module) if isinstance(module, bytes) else module
    found = _MARKED.fullmatch(name)
    return (found["name"], found["token"]) if found else None


def spelt(name: str) -> str:
    """A function's name as JAX spells it in that of a module."""
    return re.sub(r"[^\w.-]", "_", name)


_TOKEN = re.compile("__fs_[0-9a-f]+")


def without_marks(text: str) -> str:
    """Text of JAX or XLA, where the names of functions carry marks, as under jax.jit."""
    return _TOKEN.sub("", text)


def unmark(module: Any) -> None:
    """Takes marks out of the names of ops in an HloModule message, where jax.jit's scopes carry
    them: kernels must not be other kernels because a token changed."""
    for computation in module.computations:
        for instruction in computation.instructions:
            if "__fs_" in (name := instruction.metadata.op_name):
                instruction.metadata.op_name = without_marks(name)


def module_name(module: bytes) -> str:
    """The name of a serialized HloModuleProto, without parsing more than it takes to find it.

    It is field 1, which serializers write first. Empty for anything else.
    """
    if module[:1] != b"\x0a":
        return ""
    length = shift = 0
    for start, byte in enumerate(module[1:6], 2):
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return module[start : start + length].decode("utf-8", "replace")
    return ""


_KEY = re.compile(r'[{ ]key = "((?:[a-z]+-)?[0-9a-f]{64})"')


def keys_in(text: str) -> list[str]:
    """The keys of the stitched kernels in the HLO text of a compiled program, in order, once each.

    They are there also when the program came out of XLA's persistent cache and no pass ran.
    """
    calls = (line for line in text.splitlines() if f'custom_call_target="{TARGET}"' in line)
    return list(dict.fromkeys(key for line in calls for key in _KEY.findall(line)))


def _keys_of(module: bytes) -> tuple[str, ...]:
    configs = [
        instruction.backend_config.decode("latin-1")
        for computation in parse(module).computations
        for instruction in computation.instructions
        if instruction.custom_call_target == TARGET
    ]
    return tuple(dict.fromkeys(key for config in configs for key in _KEY.findall(config)))


def flags() -> str:
    """What changes the code that XLA makes in this process."""
    return " ".join(sorted(os.environ.get("XLA_FLAGS", "").split()))


# ---- what happened ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Event:
    """One marked module that XLA offered, and what became of it.

    `keys` are those of the kernels in the module handed back; none when it was left alone.
    `result` is what the callback gave to `publish`, such as its Plan; `error` what it raised.
    """

    name: str
    token: str
    keys: tuple[str, ...]
    result: object | None
    error: BaseException | None

    @property
    def given_up(self) -> bool:
        """Whether the compile was made to fail, as nobody wants what it would give."""
        return isinstance(self.error, GivenUp)

    @property
    def replaced(self) -> bool:
        """Whether XLA got another module back."""
        return bool(self.keys)


class _State:
    """The one pass of this process: its callback and who listens."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.callback: StitchCallback | None = None
        self.platforms: set[str] = set()
        self.listeners: list[tuple[str | None, str | None, list[Event]]] = []
        self.local = threading.local()


_state = _State()


def publish(result: object) -> None:
    """Called by the stitch callback: attach `result` to the event of the module at hand."""
    _results().append(result)


@contextlib.contextmanager
def collect(token: str | None = None, name: str | None = None) -> Iterator[list[Event]]:
    """Gathers the events, on any thread, of modules marked with `token` (of all when None), of
    functions called `name`.

    Compiles that run at the same time elsewhere are gathered too: see `find`, `event_of` and
    `event_of_failure`.
    """
    listener: tuple[str | None, str | None, list[Event]] = (token, name and spelt(name), [])
    with _state.lock:
        _state.listeners.append(listener)
    try:
        yield listener[2]
    finally:
        with _state.lock:
            # by identity: two listeners may be equal
            _state.listeners = [other for other in _state.listeners if other is not listener]


def is_collected(token: str, name: str) -> bool:
    """Whether somebody gathers the events of modules of just this token and function."""
    with _state.lock:
        return any((token, spelt(name)) == other[:2] for other in _state.listeners)


def find(text: str, events: Sequence[Event]) -> Event | None:
    """The newest of `events` whose kernels are those in a compiled program's HLO text.

    XLA may have dropped some calls as dead, so an event with more keys than the text counts too.
    None without any key.
    """
    keys = set(keys_in(text))
    fitting = [event for event in events if keys and keys <= set(event.keys)]
    return min(reversed(fitting), key=lambda event: len(event.keys), default=None)


def event_of(events: Sequence[Event], text: Callable[[], str]) -> Event | None:
    """The one of `events` that is of a compiled program, whose HLO `text` is read only where others
    of its name were compiled meanwhile."""
    if len(events) < 2:
        return events[0] if events else None
    plain = (event for event in reversed(events) if not event.keys)
    return find(found, events) if keys_in(found := text()) else next(plain, None)


def event_of_failure(events: Sequence[Event], error: str) -> Event | None:
    """The one of a compile that has failed with the text `error`: what was given up with it, or
    else the newest."""
    given_up = (event for event in events if event.given_up and str(event.error) in error)
    return next(given_up, events[-1] if events else None)


def _results() -> list[object]:
    local = _state.local
    if not hasattr(local, "results"):
        local.results = []
    results: list[object] = local.results
    return results


# ---- the pass -----------------------------------------------------------------------------------


def transform(module: bytes) -> bytes | None:
    """What XLA calls, through an `Entry`. Nothing of ours is raised here, since that would fail the
    user's compile, but where just that is wanted; all else that is raised is the user's (see
    `apart`)."""
    if _SIGN not in module:
        return None
    found = apart(lambda: _transformed(module))
    if isinstance(found, Failed):
        if isinstance(found.error, GivenUp):
            raise found.error
        logger.error(
            "fusionstitch could not handle a module; XLA compiles it as it is.",
            exc_info=found.error,
        )
        return None
    return found


def _transformed(module: bytes) -> bytes | None:
    marked, callback = read_mark(module), _state.callback
    if marked is None or callback is None:
        return None
    return _stitch(module, callback, *marked)


def _stitch(module: bytes, callback: StitchCallback, name: str, token: str) -> bytes | None:
    # A callback that measures compiles programs of its own, whose events must not take its results.
    outer = _results()
    results: list[object] = []
    _state.local.results = results
    stitched: bytes | None = None
    error: BaseException | None = None
    try:
        stitched = callback(module, token)
    except Stopped:
        raise
    except BaseException as raised:
        error = raised
    finally:
        _state.local.results = outer
    keys = _keys_of(stitched) if stitched else ()
    _emit(Event(name, token, keys, results[-1] if results else None, error))
    if isinstance(error, GivenUp):
        raise error
    return stitched


def _emit(event: Event) -> None:
    with _state.lock:
        for token, name, events in _state.listeners:
            if token in (None, event.token) and name in (None, event.name):
                events.append(event)


def _door() -> Any:
    """jax.extend.xla, or None in a JAX without the pass."""
    try:
        from jax.extend import xla
    except ImportError:
        return None
    return xla if hasattr(xla, "register_hlo_module_transformation") else None


def has_door() -> bool:
    """Whether this JAX has the pass."""
    return _door() is not None


def available(platform: str = "cuda") -> Verdict:
    """Whether this JAX has the pass and a device of `platform`; initializes JAX's backends."""
    if _door() is None:
        return forbid(
            "This JAX has no compiler passes (jax.extend.xla): install JAX 0.10.2 or newer. "
            "Functions run as under jax.jit."
        )
    import jax

    try:
        jax.devices(platform)
    except RuntimeError as error:
        return forbid(f"JAX has no {platform} device: {error}")
    return allow("XLA offers its modules")


def register(callback: StitchCallback, platform: str = "cuda") -> Verdict:
    """Have XLA offer marked modules to `callback`, which may be called on any thread.

    XLA gets the pass once per process and platform, after the plugin is loaded; a later call only
    replaces the callback. Forbids, with the reason, where there is no pass or no device.
    """
    with _state.lock:
        if platform not in _state.platforms:
            if not (verdict := available(platform)):
                return verdict
            _door().register_hlo_module_transformation(
                Entry(transform, (GivenUp,)), name=_PASS_NAME, platforms=platform
            )
            _state.platforms.add(platform)
        _state.callback = callback
    return allow("XLA offers its modules")


def unregister() -> None:
    """Take the pass out of XLA again."""
    with _state.lock:
        for platform in sorted(_state.platforms):
            _door().clear_hlo_module_transformation(_PASS_NAME, platforms=platform)
        _state.platforms.clear()
        _state.callback = None
