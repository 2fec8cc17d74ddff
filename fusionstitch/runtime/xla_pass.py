"""The pass inside XLA: XLA shows it every module it compiles; marked modules are stitched.

A mark is part of the name of the jitted function, hence of the module. The pass runs once per
compile, before layout assignment and fusion, on a thread that XLA chooses. That thread waits while
a thread of ours stitches.
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


#: Counts compiles that were given up.
_numbers = itertools.count()


class GivenUp(Exception):
    """Raised by the stitch callback if nobody wants the compile. XLA's compile fails with this
    text, which contains a unique number."""

    def __init__(self, why: str):
        super().__init__(f"{why} (given up: {next(_numbers)})")


#: Takes HLO module bytes and the token of the mark; returns the stitched module, or None to leave
#: it.
StitchCallback = Callable[[bytes, str], bytes | None]


# ---- marks --------------------------------------------------------------------------------------

_SIGN = b"__fs_"
_MARKED = re.compile(r"(?:jit_|pmap_)?(?P<name>.*)__fs_(?P<token>[0-9a-f]+)(?:\.\d+)?")


def mark(name: str, token: str) -> str:
    """The name for a function whose module is to be stitched; `token` is lower-case hex.

    The token should cover everything that decides the generated code, since it becomes part of the
    key of XLA's persistent compilation cache. It replaces an older mark in `name`.
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
    """A function's name in JAX's spelling for module names."""
    return re.sub(r"[^\w.-]", "_", name)


_TOKEN = re.compile("__fs_[0-9a-f]+")


def without_marks(text: str) -> str:
    """Text of JAX or XLA with marks removed from the names of functions, as under jax.jit."""
    return _TOKEN.sub("", text)


def unmark(module: Any) -> None:
    """Removes marks from op names in an HloModule message, which come from jax.jit's scopes: a
    changed token must not change kernels."""
    for computation in module.computations:
        for instruction in computation.instructions:
            if "__fs_" in (name := instruction.metadata.op_name):
                instruction.metadata.op_name = without_marks(name)


def module_name(module: bytes) -> str:
    """The name of a serialized HloModuleProto, without parsing the rest.

    It is field 1, which serializers write first. Empty for any other data.
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

    They are also there if the program came from XLA's persistent cache and no pass ran.
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
    """Everything that changes the code that XLA generates in this process."""
    return " ".join(sorted(os.environ.get("XLA_FLAGS", "").split()))


# ---- what happened ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Event:
    """One marked module that XLA offered, and the result.

    `keys` are those of the kernels in the returned module; empty if it was left alone. `result` is
    what the callback passed to `publish`, such as its Plan; `error` is what it raised.
    """

    name: str
    token: str
    keys: tuple[str, ...]
    result: object | None
    error: BaseException | None

    @property
    def given_up(self) -> bool:
        """Whether the compile was made to fail because nobody wants it."""
        return isinstance(self.error, GivenUp)

    @property
    def replaced(self) -> bool:
        """Whether XLA got a different module back."""
        return bool(self.keys)


class _State:
    """The one pass of this process: its callback and its listeners."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.callback: StitchCallback | None = None
        self.platforms: set[str] = set()
        self.listeners: list[tuple[str | None, str | None, list[Event]]] = []
        self.local = threading.local()


_state = _State()


def publish(result: object) -> None:
    """Called by the stitch callback: attaches `result` to the event of the present module."""
    _results().append(result)


@contextlib.contextmanager
def collect(token: str | None = None, name: str | None = None) -> Iterator[list[Event]]:
    """Collects the events, on any thread, of modules marked with `token` (None: all) and of
    functions called `name`.

    This includes concurrent compiles elsewhere: see `find`, `event_of` and `event_of_failure`.
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
    """Whether anybody collects the events of modules with exactly this token and function."""
    with _state.lock:
        return any((token, spelt(name)) == other[:2] for other in _state.listeners)


def find(text: str, events: Sequence[Event]) -> Event | None:
    """The newest of `events` with the kernels of a compiled program's HLO text.

    XLA may have dropped some calls as dead, so an event with more keys than the text also counts.
    None without any key.
    """
    keys = set(keys_in(text))
    fitting = [event for event in events if keys and keys <= set(event.keys)]
    return min(reversed(fitting), key=lambda event: len(event.keys), default=None)


def event_of(events: Sequence[Event], text: Callable[[], str]) -> Event | None:
    """The one of `events` for a compiled program. Its HLO `text` is read only if other programs of
    its name were compiled meanwhile."""
    if len(events) < 2:
        return events[0] if events else None
    plain = (event for event in reversed(events) if not event.keys)
    return find(found, events) if keys_in(found := text()) else next(plain, None)


def event_of_failure(events: Sequence[Event], error: str) -> Event | None:
    """The event of a compile that failed with the text `error`: the one given up with it, or else
    the newest."""
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
    """Called by XLA, through an `Entry`. It raises nothing of ours, since that would fail the
    user's compile, except to give up a compile. Anything else that is raised is the user's (see
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
    # A callback that measures also compiles programs, whose events must not get its results.
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
    """Whether this JAX has the pass and a device of `platform`. Initializes JAX's backends."""
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
    """Makes XLA offer marked modules to `callback`, which may be called on any thread.

    XLA gets the pass once per process and platform, after the plugin is loaded; a later call only
    replaces the callback. Forbids, with the reason, without a pass or a device.
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
    """Removes the pass from XLA."""
    with _state.lock:
        for platform in sorted(_state.platforms):
            _door().clear_hlo_module_transformation(_PASS_NAME, platforms=platform)
        _state.platforms.clear()
        _state.callback = None
