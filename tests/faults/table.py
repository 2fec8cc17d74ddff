"""Every fault that is injected, as data: what is broken, and what the user hears of it.

`heard` counts warnings: FusionStitchWarnings, and warnings in the log. `left` says whether the
program is left to XLA, so that fallback="error" is an error. `start` is the cache beforehand:
"filled" with all that the program needs, or "empty".
"""

from __future__ import annotations

import dataclasses
import errno
import os
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from fusionstitch.compiler import builders
from fusionstitch.errors import ImportModuleError, StitchError
from fusionstitch.runtime import emulator
from tests.faults.sandbox import Sandbox, full, sqlite_error, widen


@dataclass(frozen=True)
class Fault:
    name: str
    inject: Callable[[Sandbox], Any]
    heard: int = 1
    left: bool = False
    start: str = "filled"


TABLE: dict[str, list[Fault]] = {}


def _faults(area: str, faults: list[tuple[str, Callable[[Sandbox], Any]]], **facts: Any) -> None:
    TABLE.setdefault(area, []).extend(Fault(name, inject, **facts) for name, inject in faults)


# ---- the host compiler --------------------------------------------------------------------------

_REAL = 'exec $real "$@"'
_LIMIT, _VERSION = ("_LIMIT_SECONDS",), ("_VERSION_SECONDS",)
_faults(
    "compiler",
    [
        ("none in the path", lambda p: (
            p.patch.setenv("PATH", str(p.tmp)), p.patch.delenv("CXX", raising=False)
        )),
        ("named but missing", lambda p: p.patch.setenv("CXX", "no-such-compiler")),
        ("named by half a quote", lambda p: p.patch.setenv("CXX", "g++ 'half")),
        ("a folder", lambda p: p.patch.setenv("CXX", str(p.tmp))),
        ("not executable", lambda p: (p.compiler(_REAL), (p.tmp / "compiler").chmod(0o600))),
        ("no program", lambda p: (p.compiler(""), (p.tmp / "compiler").write_bytes(b"\x7fELF\0"))),
        ("refuses without a word", lambda p: p.compiler("exit 1")),
        ("refuses with many words", lambda p: p.compiler("yes e | head -c 3000000 >&2; exit 1")),
        ("refuses in no encoding", lambda p: p.compiler("printf '\\377\\376 error' >&2; exit 1")),
        ("answers no --version", lambda p: p.compiler("exit 3")),
        ("hangs at --version", lambda p: p.compiler("sleep 600", *_VERSION)),
        ("hangs", lambda p: p.compiler('[ "$1" = --version ] || sleep 600', *_LIMIT)),
        ("leaves a child that hangs", lambda p: p.compiler("sleep 600 & wait", *_VERSION)),
        ("waits for input", lambda p: p.compiler("cat; exit 1")),
        ("kills itself", lambda p: p.compiler("kill -9 $$")),
        ("writes nothing", lambda p: p.compiler("exit 0")),
        ("writes an empty file", lambda p: p.compiler(': > "$out"')),
        ("writes garbage", lambda p: p.compiler(
            '[ -n "$out" ] && head -c 9999 /dev/urandom > "$out"'
        )),
        ("writes text", lambda p: p.compiler('echo "not an object" > "$out"')),
        ("writes a folder", lambda p: p.compiler('mkdir "$out"')),
        ("writes half", lambda p: p.compiler(_other("") + 'truncate -s 5000 "$out"')),
        ("writes another program", lambda p: p.compiler(_other("int x;"))),
        ("leaves symbols open", lambda p: p.compiler(_other("int f(); int x = f();"))),
        ("no room for its files", lambda p: p.patch.setattr("tempfile.tempdir", "/no/such/folder")),
    ],
    left=True,
    start="empty",
)  # fmt: skip


def _other(source: str) -> str:
    """Compiles something that was not asked for."""
    return f'[ -n "$out" ] && echo "{source}" | $real -shared -fPIC -x c++ - -o "$out"\n'


_faults(
    "compiler",
    [
        ("fails at the first try", lambda p: p.compiler(
            f'[ "$1" = --version ] && exit; [ -e {p.tmp}/tried ] && {_REAL}; '
            f"touch {p.tmp}/tried; exit 1"
        )),
    ],
    heard=0,
    start="empty",
)  # fmt: skip


# ---- the emulator -------------------------------------------------------------------------------


def _unloaded(sandbox: Sandbox) -> None:
    sandbox.patch.setattr(emulator, "_loaded", [])
    sandbox.patch.setattr(emulator, "_failed", [])
    sandbox.returns("fusionstitch.runtime.prebuilt.image", None)  # else nothing is built


_faults(
    "emulator",
    [
        ("cannot be built", lambda p: (_unloaded(p), p.compiler("exit 1"))),
        ("is built as garbage", lambda p: (_unloaded(p), p.compiler('echo no > "$out"'))),
        ("takes for ever to build", lambda p: (
            _unloaded(p), p.compiler("sleep 600", *_VERSION, *_LIMIT)
        )),
        ("cannot be written", lambda p: (_unloaded(p), p.raises("os.memfd_create", full()))),
        ("cannot be loaded", lambda p: (_unloaded(p), p.raises("ctypes.CDLL", OSError("no")))),
        ("cannot be registered", lambda p: (
            _unloaded(p), p.raises("fusionstitch.runtime.handlers.register", ValueError("twice"))
        )),
        ("is of another version", lambda p: (
            _unloaded(p), p.raises("fusionstitch.runtime.emulator._load", AttributeError("symbol"))
        )),
    ],
    left=True,
    start="empty",
)  # fmt: skip


# ---- the cache's folder -------------------------------------------------------------------------


def _file_for_folder(sandbox: Sandbox, where: str) -> None:
    path = sandbox.folder / where if where else sandbox.folder
    if path.exists():
        path.rename(sandbox.tmp / "aside")
    path.write_text("")


def _link_for(path: Path, target: Path) -> None:
    path.rename(target)
    path.symlink_to(target)


def _in_an_open_folder(sandbox: Sandbox) -> None:
    sandbox.patch.setenv("FUSIONSTITCH_CACHE_DIR", str(sandbox.shared() / "cache"))


def _through_a_link_of_others(sandbox: Sandbox) -> None:
    link = sandbox.shared() / "link"
    link.symlink_to(sandbox.folder)
    sandbox.patch.setenv("FUSIONSTITCH_CACHE_DIR", str(link))


def _homeless(sandbox: Sandbox) -> None:
    for name in ("FUSIONSTITCH_CACHE_DIR", "XDG_CACHE_HOME"):
        sandbox.patch.delenv(name, raising=False)
    sandbox.patch.setattr("tempfile.tempdir", str(sandbox.tmp))
    sandbox.raises("fusionstitch.runtime.cache.Path.home", RuntimeError("no home"))


_faults(
    "cache folder",
    [
        ("writable for others", lambda p: widen(p.folder)),
        ("of another user", lambda p: p.foreign(p.folder)),
        ("in a folder open to all", _in_an_open_folder),
        ("behind a link of others", _through_a_link_of_others),
        ("a link to nowhere", lambda p: (
            p.folder.rename(p.tmp / "aside"), p.folder.symlink_to(p.tmp / "gone")
        )),
        ("a link to itself", lambda p: (
            p.folder.rename(p.tmp / "aside"), p.folder.symlink_to(p.folder)
        )),
        ("in a folder that is a file", lambda p: (
            (p.tmp / "f").write_text(""),
            p.patch.setenv("FUSIONSTITCH_CACHE_DIR", str(p.tmp / "f" / "cache")),
        )),
        ("on a disk that cannot be written", lambda p: p.patch.setenv(
            "FUSIONSTITCH_CACHE_DIR", "/proc/self/cache"
        )),
        ("cannot be looked at", lambda p: p.raises(
            "fusionstitch.runtime.trust.folder", OSError(errno.EIO, "I/O error")
        )),
        ("objects is a file", lambda p: _file_for_folder(p, "objects")),
    ],
    start="empty",
)  # fmt: skip
_faults(
    "cache folder",
    [
        ("objects is open to others", lambda p: widen(p.folder / "objects")),
        ("objects is a link", lambda p: _link_for(p.folder / "objects", p.tmp / "elsewhere")),
        ("its folders are open to others", lambda p: p.each_entry(lambda e: widen(e.parent))),
    ],
)
_faults(
    "cache folder",
    [
        ("is a link of our own", lambda p: _link_for(p.folder, p.tmp / "elsewhere")),
        ("vanishes", lambda p: p.folder.rename(p.tmp / "aside")),
        ("has a file of somebody's", lambda p: (p.folder / "objects" / "note").write_text("hello")),
        ("has what a killed process left", lambda p: (
            p.entries()[0].parent / ".tmp1234"
        ).write_bytes(b"half")),
        ("without a home", _homeless),
    ],
    heard=0,
)  # fmt: skip

# ---- the cache's files --------------------------------------------------------------------------


def _swap(sandbox: Sandbox) -> None:
    first, *others = sandbox.entries()
    for path in others:
        path.write_bytes(first.read_bytes())


def _flip(position: float) -> Callable[[Sandbox], None]:
    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int(position * (len(data) - 1))] ^= 0x10
        path.write_bytes(data)

    return lambda sandbox: sandbox.each_entry(flip)


def _cut(size: int) -> Callable[[Sandbox], None]:
    return lambda p: p.each_entry(
        lambda e: os.truncate(e, max(0, size + (size < 0) * e.stat().st_size))
    )


_READ = "fusionstitch.runtime.trust.read"


def _replaced(make: Callable[[Path], object]) -> Callable[[Sandbox], None]:
    return lambda p: p.each_entry(lambda e: (e.unlink(), make(e)))


_faults(
    "cache entry",
    [
        *((f"cut to {size} bytes", _cut(size)) for size in (0, 7, 32, 33, 4096)),
        ("short of a byte", _cut(-1)),
        *((f"a bit flipped at {sandbox}", _flip(sandbox)) for sandbox in (0.0, 0.001, 0.5, 1.0)),
        ("longer than it was", lambda p: p.each_entry(
            lambda e: e.write_bytes(e.read_bytes() + b"more")
        )),
        ("of another key", _swap),
        ("zeros", lambda p: p.each_entry(lambda e: e.write_bytes(bytes(e.stat().st_size)))),
        ("unreadable", lambda p: p.raises(_READ, PermissionError("no"))),
        ("on a broken disk", lambda p: p.raises(_READ, full(errno.EIO))),
        ("text of an older form", lambda p: p.sealed(b'{"log": 1}\nno image')),
        ("half an image", lambda p: p.sealed(p.entries()[0].read_bytes()[32:9000])),
        ("a link", _replaced(lambda e: e.symlink_to("/etc/passwd"))),
        ("gone", lambda p: p.each_entry(os.unlink)),
        ("larger than any memory", lambda p: p.each_entry(lambda e: os.truncate(e, 1 << 42))),
    ],
    heard=0,
)  # fmt: skip
_faults(
    "cache entry",
    [
        ("writable for others", lambda p: p.each_entry(widen)),
        ("of another user", lambda p: p.each_entry(p.foreign)),
        ("a folder", _replaced(lambda e: e.mkdir())),
        ("a pipe", _replaced(os.mkfifo)),
    ],
)
_STEPS = [
    ("open", errno.ENOSPC), ("write", errno.ENOSPC), ("rename", errno.ENOSPC),
    ("open", errno.EROFS), ("open", errno.EACCES), ("open", errno.EMFILE),
    ("write", errno.EDQUOT), ("write", errno.EIO), ("rename", errno.EACCES),
    ("rename", errno.EXDEV),
]  # fmt: skip
_faults(
    "cache disk",
    [
        (f"{errno.errorcode[number]} at {step}", lambda p, s=step, n=number: p.disk(s, n))
        for step, number in _STEPS
    ],
    start="empty",
)
_faults(
    "cache disk",
    [("read-only, and filled", lambda p: p.disk("open", errno.EROFS))],
    heard=0,
)

# ---- the database -------------------------------------------------------------------------------

_TUNED = "INSERT OR REPLACE INTO tuned_v1 VALUES ('k', 'emulated', 'v', '{}');"
_MAKE = "CREATE TABLE IF NOT EXISTS tuned_v1 (key, device, versions, record);"
_faults(
    "database",
    [
        ("garbage", lambda p: (p.folder / "timings.sqlite3").write_bytes(b"no database" * 999)),
        ("a broken page", lambda p: (
            p.database("CREATE TABLE a (b); CREATE TABLE tuned_v1 (key)"),
            _overwrite(p.folder / "timings.sqlite3", 100, b"\xff" * 900),
        )),
        ("an older form", lambda p: p.database("CREATE TABLE tuned_v1 (name TEXT)")),
        ("a view in its place", lambda p: p.database(
            "CREATE VIEW tuned_v1 AS SELECT 1 AS key, 2 AS other"
        )),
        ("a folder", lambda p: (p.folder / "timings.sqlite3").mkdir()),
        ("a link", lambda p: (
            (p.folder / "timings.sqlite3").unlink(missing_ok=True),
            (p.folder / "timings.sqlite3").symlink_to(p.tmp / "other"),
        )),
        ("of another user", lambda p: (p.database(_MAKE), p.foreign(p.folder / "timings.sqlite3"))),
        ("locked", lambda p: (p.database(_MAKE), p.locked("EXCLUSIVE"))),
        ("cannot be opened", lambda p: p.raises(
            "fusionstitch.runtime.cache.sqlite3.connect", sqlite3.OperationalError("unable to open")
        )),
        *(
            (name, lambda p, c=code, n=name: p.statements(sqlite_error(c, n)))
            for name, code in [
                ("database disk image is malformed", sqlite3.SQLITE_CORRUPT),
                ("database or disk is full", sqlite3.SQLITE_FULL),
                ("disk I/O error", sqlite3.SQLITE_IOERR),
                ("attempt to write a readonly database", sqlite3.SQLITE_READONLY),
                ("out of memory", sqlite3.SQLITE_NOMEM),
                ("locking protocol", sqlite3.SQLITE_PROTOCOL),
            ]
        ),
        ("no longer answers", lambda p: p.statements(sqlite_error(sqlite3.SQLITE_IOERR, "io"), 1)),
    ],
    start="empty",
)  # fmt: skip


def _overwrite(path: Path, sandbox: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(sandbox)
        file.write(data)


def _record(us: str) -> str:
    """The text of a record with a time that is none."""
    return (
        '{"template": "", "tried": 1, "complete": true, "name": "k", "gpu": "g", '
        f'"default_us": 1.0, "xla_us": 1.0, "model_us": 1.0, "us": {us}}}'
    )


_faults(
    "database",
    [
        *(
            (f"a row of {name}", lambda p, v=value: p.database(
                _MAKE + _TUNED.replace("'{}'", v)
            ))
            for name, value in [
                ("bytes that are no text", "CAST(X'FFFE7B' AS TEXT)"),
                ("a blob", "X'FF00'"),
                ("zeros without end", "CAST(zeroblob(300000000) AS TEXT)"),
                ("an integer", "7"),
            ]
        ),
        ("a key that is no text", lambda p: p.database(
            _MAKE + _TUNED.replace("'k'", "CAST(X'FF' AS TEXT)")
        )),
        ("empty", lambda p: (p.folder / "timings.sqlite3").write_bytes(b"")),
        ("of a newer form", lambda p: p.database(
            "CREATE TABLE tuned_v9 (key TEXT); PRAGMA user_version = 9"
        )),
        ("a log of another database", lambda p: (
            p.folder / "timings.sqlite3-wal"
        ).write_bytes(b"\x37\x7f\x06\x82" + bytes(5000))),
        *(
            (f"a row that is {name}", lambda p, r=record: p.database(
                _MAKE + _TUNED.replace("{}", r)
            ))
            for name, record in [
                ("no JSON", "{half"), ("null", "null"), ("a list", "[1]"), ("empty", "{}"),
                ("a number", "7"), ("of other fields", '{"template": "", "us": 1}'),
                ("of other types", '{"template": 5, "us": "fast", "default_us": [], "tried": {}}'),
                ("very deep", "[" * 100_000),
                ("deep and whole", '{"a":' * 40_000 + "1" + "}" * 40_000),
                ("a long integer", '{"us": ' + "9" * 5000 + "}"),
                ("a large integer", _record("9" * 400)),
                ("no number", _record("NaN")),
                ("endless", _record("Infinity")),
                ("before its time", _record("-1")),
            ]
        ),
    ],
    heard=0,
    start="empty",
)  # fmt: skip

# ---- tuned results that are shipped -------------------------------------------------------------


def _shipped(text: bytes | BaseException) -> Callable[[Sandbox], None]:
    class File:
        def __truediv__(self, _: str) -> File:
            return self

        def is_file(self) -> bool:
            return True

        def read_text(self, encoding: str) -> str:
            if isinstance(text, BaseException):
                raise text
            return text.decode(encoding)

    def inject(sandbox: Sandbox) -> None:
        from fusionstitch.tuning import tuned

        sandbox.patch.setattr(tuned, "_shipped", tuned._shipped.__wrapped__)
        sandbox.returns("fusionstitch.tuning.tuned.resources.files", File())

    return inject


_faults(
    "shipped results",
    [
        ("no JSON", _shipped(b"{half")),
        ("no text", _shipped(b"\xff\xfe")),
        ("of another format", _shipped(b'{"format": 99, "results": []}')),
        ("without a format", _shipped(b"{}")),
        ("a list", _shipped(b"[]")),
        ("of other fields", _shipped(b'{"format": 1, "device": "x", "results": [{"key": 1}]}')),
        ("unreadable", _shipped(OSError("I/O error"))),
    ],
)

# ---- the compiler's own passes ------------------------------------------------------------------

_ERRORS: list[BaseException] = [
    KeyError("lost"), RecursionError("maximum recursion depth exceeded"), MemoryError(),
    AssertionError(), ZeroDivisionError("division by zero"), OverflowError("too large"),
]  # fmt: skip
_PASSES = (
    *(
        "compiler.core.inline_calls",
        "compiler.core.from_message",
        "compiler.core.xla_pass.unmark",
        "compiler.core.as_xla",
        "compiler.core.simplify_module",
    ),
    *(
        "compiler.planning.graph_key",
        "compiler.core.GraphPlanner",
        "patterns.pattern.order_key",
        "compiler.kernels.kernel_name",
    ),
    *(
        "compiler.kernels.region",
        "compiler.core.overwrites",
        "compiler.core.agreed",
        "compiler.core.export",
        "compiler.core.verify_module",
        "compiler.planning._repeated",
    ),
    *(
        "compiler.planning.Planner",
        "plan.planner.candidates",
        "plan.planner.fusible_ops",
        "plan.ilp.pack",
    ),
    *("plan.search.verify_plan", "plan.search.verify_times", "plan.planner.packing"),
    "plan.scores.cost_us",
    *("plan.ilp.contracted_cycle", "compiler.dump.kernels"),
)
_faults(
    "pass",
    [
        (f"{where} raises {type(error).__name__}", lambda p, w=where, e=error: p.raises(
            f"fusionstitch.{w}", e
        ))
        for number, where in enumerate(_PASSES)
        for error in [_ERRORS[number % len(_ERRORS)]]
    ],
    left=True,
)  # fmt: skip
_faults(
    "pass",
    [
        ("the solver chooses all candidates", lambda p: p.patch.setattr(
            "fusionstitch.plan.ilp._solve", lambda part, *_: (tuple(part), True)
        )),
        ("HiGHS fails", lambda p: (
            p.returns("fusionstitch.plan.ilp.pack", None),
            p.raises("fusionstitch.plan.ilp._silent_highs", OSError("no solver")),
        )),
        ("the builder fails", lambda p: p.returns(
            "fusionstitch.compiler.builders.emulated", _raising(ValueError("no"))
        )),
        ("the builder builds too little", lambda p: p.returns(
            "fusionstitch.compiler.builders.emulated", lambda kernels: []
        )),
        ("the builder builds nonsense", lambda p: p.returns(
            "fusionstitch.compiler.builders.emulated", lambda kernels: [None for _ in kernels]
        )),
        ("no builder can be had", lambda p: p.raises(
            "fusionstitch.compiler.builders.emulated", ImportError("no module")
        )),
        ("tuned results fail", lambda p: p.raises(
            "fusionstitch.tuning.tuned.load", sqlite3.DatabaseError("not even that")
        )),
        ("tuned schedules fail", lambda p: p.raises(
            "fusionstitch.tuning.tuned.Tuned.settings", LookupError("no setting")
        )),
        ("tuned times fail", lambda p: p.raises(
            "fusionstitch.tuning.tuned.Tuned.times", TypeError("no time")
        )),
        ("the core fails", lambda p: p.raises(
            "fusionstitch.compiler.core.stitch", SystemError("broken")
        )),
    ],
    left=True,
)  # fmt: skip
_faults(
    "pass",
    [
        ("HiGHS gives nonsense", lambda p: (
            p.returns("fusionstitch.plan.ilp.pack", None),
            p.returns("pulp.LpProblem.solve", 1),
        )),
        ("inspection fails", lambda p: p.raises(
            "fusionstitch.compiler.planning.draft", KeyError("x")
        )),
        ("the progress line has no stream", lambda p: p.patch.setattr(sys, "stderr", None)),
        ("the progress line's reader is gone", lambda p: p.patch.setattr(sys, "stderr", _Gone())),
    ],
    heard=0,
)  # fmt: skip
_faults(
    "pass",
    [("kernels cannot be dumped", lambda p: (
        (p.tmp / "f").write_text(""),
        p.patch.setenv("FUSIONSTITCH_DUMP_DIR", str(p.tmp / "f" / "dump")),
    ))],
)  # fmt: skip


def _raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


class _Gone:
    """A stream that nobody reads any more."""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    def flush(self) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


# ---- execution by the emulator -------------------------------------------------------------------

_faults(
    "execution",
    [
        (f"{where} raises {type(error).__name__}", lambda p, w=where, e=error: p.raises(
            f"fusionstitch.runtime.{w}", e
        ))
        for where, error in [
            ("emulated_call.lower", StitchError("JAX gives no HLO for this program.")),
            ("emulated_call.lower", ValueError("an unknown dtype")),
            ("emulated_call.export.export", NotImplementedError("callbacks")),
            ("emulated_call.edited", ImportModuleError("XLA refused the module.")),
            ("emulated_call.edited", RuntimeError("bindings")),
            ("emulated_call.portable_artifact", ImportModuleError("XLA refused the module.")),
            ("portable.extend_mlir.hlo_to_stablehlo", RuntimeError("Unknown opcode")),
            ("portable.extend_mlir.serialize_portable_artifact", ValueError("no version")),
        ]
    ],
    left=True,
)  # fmt: skip

# ---- kernels that do not run --------------------------------------------------------------------


def _built_as(**changes: Any) -> Callable[[Sandbox], None]:
    """Kernels are built, but what is launched is another one."""

    def inject(sandbox: Sandbox) -> None:
        plain = builders.emulated()

        def build(kernels: Any) -> list[Any]:
            return [
                dataclasses.replace(one, artifact=dataclasses.replace(one.artifact, **changes))
                for one in plain(kernels)
            ]

        sandbox.returns("fusionstitch.compiler.builders.emulated", build)

    return inject


def _failing(text: str, compiled: bool = True) -> Callable[[Sandbox], None]:
    """The program fails when it runs, as a GPU's would; or, not `compiled`, XLA refuses it."""
    from fusionstitch.execution.recovery import Recovery

    def inject(sandbox: Sandbox) -> None:
        call = Recovery.call

        def failing(self: Recovery, jitted: Any, args: Any, kwargs: Any) -> Any:
            def run(*args: Any, **kwargs: Any) -> Any:
                jitted(*args, **kwargs)
                raise jax.errors.JaxRuntimeError(text)

            run.lower = jitted.lower if compiled else run  # type: ignore[attr-defined]
            return call(self, run, args, kwargs)

        sandbox.patch.setattr(Recovery, "call", failing)

    return inject


_LAUNCH = "INTERNAL: fusionstitch: cuLaunchKernelEx failed for kernel fs_add: CUDA_ERROR_"
_LOAD = "INTERNAL: fusionstitch: cuLibraryLoadData failed for kernel fs_add: CUDA_ERROR_"
_faults(
    "launch",
    [
        ("of no kernel of that name", _built_as(entry="gone")),
        ("of an image that is not there", _built_as(key="emulated-" + "0" * 64, image=b"")),
        ("of an image that cannot be loaded", _built_as(
            key="emulated-" + "1" * 64, image=b"\x7fELF" + bytes(99)
        )),
        ("of an image that is no image", _built_as(key="emulated-" + "2" * 64, image=b"text")),
        ("of no blocks", _built_as(grid=0)),
        ("of too many threads", _built_as(block=2048)),
        ("of negative memory", _built_as(shared_bytes=-1)),
        ("that the device refuses", _failing(_LAUNCH + "INVALID_VALUE")),
        ("without resources", _failing(_LAUNCH + "LAUNCH_OUT_OF_RESOURCES")),
        ("of more blocks than fit", _failing(_LAUNCH + "COOPERATIVE_LAUNCH_TOO_LARGE")),
        ("of code for another device", _failing(_LOAD + "NO_BINARY_FOR_GPU")),
        ("of code that is no code", _failing(_LOAD + "INVALID_IMAGE")),
        ("without device memory for the code", _failing(_LOAD + "OUT_OF_MEMORY")),
        ("without device memory", _failing("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes")),
        ("in a CUDA graph", _failing("INTERNAL: CUDA error: Failed to instantiate CUDA graph")),
        ("in a module that XLA refuses", _failing(
            "INVALID_ARGUMENT: Custom call has no layout", compiled=False
        )),
    ],
    left=True,
)  # fmt: skip
