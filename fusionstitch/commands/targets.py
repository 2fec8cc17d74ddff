"""What a command works on: a user's function with its arguments, or a module in a file."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from fusionstitch.api import call_of
from fusionstitch.errors import FusionStitchError, TargetError
from fusionstitch.execution.call import Call
from fusionstitch.execution.original import plain_jit
from fusionstitch.hlo.frames import Frame, is_users
from fusionstitch.supported import jax_version

#: File name endings of modules.
MODULE_FILES = (".hlo", ".txt", ".mlir", ".stablehlo", ".bc", ".pb")
HOW = (
    "A target is file.py:name or package.module:name, where name() returns (function, arguments), "
    f"or a file with a module ({', '.join(MODULE_FILES)})."
)


def templates(files: Sequence[Path]) -> dict[str, str]:
    """Texts of template files by kernel name, which is the file name up to the first dot. Raises
    TargetError."""
    found: dict[str, str] = {}
    for path in files:
        name = path.name.partition(".")[0]
        if name in found:
            raise TargetError(f"{path} is the second template of {name}.")
        try:
            found[name] = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TargetError(f"The template {path} cannot be read: {error}.") from None
    return found


def load(target: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function and the arguments that `target` names.

    A module in a file becomes a function of its parameters, with their shapes as arguments. Raises
    TargetError, which says what is wrong with the target.
    """
    path = Path(target)
    if path.suffix in MODULE_FILES:
        if not path.is_file():
            raise TargetError(f"There is no file {target}. {HOW}")
        return _module(path)
    source, colon, name = target.rpartition(":")
    if not colon or not source or not name:
        raise TargetError(f"{target!r} names no function. {HOW}")
    module = _python(source)
    if not hasattr(module, name):
        close = difflib.get_close_matches(name, [n for n in vars(module) if n[0] != "_"])
        nearest = f" Close to it: {', '.join(close)}." if close else ""
        raise TargetError(f"{target}: its module has no such name.{nearest} {HOW}")
    made = _call(getattr(module, name), target)
    if not isinstance(made, tuple):
        raise TargetError(f"{target} returned a {type(made).__name__}. {HOW}")
    if len(made) != 2:
        raise TargetError(
            f"{target} returned {len(made)} things and not two. Keyword arguments are given with "
            f"functools.partial. {HOW}"
        )
    fun, args = made
    if not callable(fun):
        raise TargetError(f"{target} returned a {type(fun).__name__} for the function. {HOW}")
    return fun, tuple(args) if isinstance(args, (tuple, list)) else (args,)


def call(target: str) -> Call:
    """The call that `target` names. Raises TargetError, also if JAX cannot trace the function with
    its arguments. JAX caches the trace, so the check is free."""
    fun, args = load(target)
    try:
        found = call_of(fun, args, {})
        if jax_version():
            plain_jit()(found.fun, **found.jit_keywords).trace(*found.args, **found.kwargs)
    except FusionStitchError:
        raise
    except Exception as error:
        raise TargetError(f"{target}: its function {_failed(error)}") from error
    return found


@contextlib.contextmanager
def heard_on_stderr() -> Iterator[None]:
    """Sends whatever a target prints, also from other processes, to stderr: stdout has the
    answer."""
    with contextlib.ExitStack() as stack:
        if sys.stdout is not None:
            sys.stdout.flush()
        with contextlib.suppress(OSError):  # a stream may be closed
            saved = os.dup(1)
            stack.callback(os.close, saved)
            os.dup2(2, 1)
            stack.callback(os.dup2, saved, 1)
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


def _call(maker: Any, target: str) -> Any:
    if not callable(maker):
        raise TargetError(f"{target} is a {type(maker).__name__}, not a function. {HOW}")
    if required := _required(maker):
        raise TargetError(f"{target} needs arguments ({', '.join(required)}). {HOW}")
    try:
        return maker()
    except (Exception, SystemExit) as error:
        raise TargetError(f"{target} {_failed(error)}") from error


def _required(maker: Callable[..., Any]) -> list[str]:
    """Names of the parameters without a default."""
    try:
        parameters = inspect.signature(maker).parameters.values()
    except ValueError:
        return []
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in variable]


def _failed(error: BaseException) -> str:
    """The message and location of an error in the user's code."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    stack = [Frame(frame.filename, frame.name, frame.lineno or 0) for frame in frames]
    frame = next(filter(is_users, stack), None)
    where = f" at {frame.file}:{frame.line}" if frame else ""
    said = f": {error}" if str(error) else ""
    return f"raised {type(error).__name__}{where}{said}"


def _python(source: str) -> ModuleType:
    if source.endswith(".py"):
        return _python_file(Path(source))
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(source)
    except ModuleNotFoundError as error:
        if error.name is not None and (source == error.name or source.startswith(error.name + ".")):
            raise TargetError(f"There is no module {source}. {HOW}") from None
        raise TargetError(f"{source} {_failed(error)}") from error
    except (Exception, SystemExit) as error:
        raise TargetError(f"{source} {_failed(error)}") from error


def _python_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise TargetError(f"There is no file {path}. {HOW}")
    # as for a script: modules in the same folder can be imported
    sys.path.insert(0, str(path.parent.resolve()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise TargetError(f"{path} {_failed(error)}") from error
    return module


def _module(path: Path) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The module as a function of its parameters, and their shapes; runs use random values."""
    import jax

    from fusionstitch.hlo.importer import from_proto
    from fusionstitch.hlo.literals import NUMPY_DTYPES
    from fusionstitch.runtime import guarded
    from fusionstitch.runtime.portable import as_function

    data = guarded.read(path)
    entry = from_proto(data).entry
    results = entry.root.shape.elements if entry.root.shape.is_tuple else (entry.root.shape,)
    shapes = [p.shape for p in entry.parameters]
    for shape in (*shapes, *results):
        if shape.dtype not in NUMPY_DTYPES:
            raise TargetError(f"{path}: a parameter or result of type {shape} is not supported.")
        if NUMPY_DTYPES[shape.dtype].itemsize == 8:
            jax.config.update("jax_enable_x64", True)
    args = tuple(jax.ShapeDtypeStruct(s.dims, NUMPY_DTYPES[s.dtype]) for s in shapes)
    return as_function(data, path.stem), args
