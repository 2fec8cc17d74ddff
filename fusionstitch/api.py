"""What a user calls: `fs.jit`, which replaces jax.jit, `fs.report`, `fs.tune` and `fs.install`."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from fusionstitch.errors import FusionStitchWarning
from fusionstitch.execution.call import Call
from fusionstitch.execution.choice import choose
from fusionstitch.execution.original import jit_again, jit_for_us, plain_jit
from fusionstitch.execution.original import replaced as _original
from fusionstitch.execution.path import ExecutionPath, name_of
from fusionstitch.execution.stages import Lowered, Traced
from fusionstitch.execution.tracebacks import hide_own_frames, without_own_frames
from fusionstitch.hlo.brief import brief
from fusionstitch.hlo.verdict import Verdict, allow, forbid
from fusionstitch.options import Options
from fusionstitch.supported import jax_version
from fusionstitch.tuning.tune import BUDGET, tune_call

if TYPE_CHECKING:
    from fusionstitch.reports.report import Report
    from fusionstitch.tuning.outcome import TuneReport

#: Looked up once: every call of a method binds it.
_bound = types.MethodType
#: A keyword that only jax.export passes to `Traced.lower`. It saves the user's own program, which
#: must run on any machine.
_EXPORTING = "_private_parameters"


@overload
def jit(
    fun: Callable[..., Any], /, *, options: Options | None = None, **keywords: Any
) -> Jitted: ...
@overload
def jit(
    *, options: Options | None = None, **keywords: Any
) -> Callable[[Callable[..., Any]], Jitted]: ...
@without_own_frames
def jit(
    fun: Callable[..., Any] | None = None, /, *, options: Options | None = None, **keywords: Any
) -> Jitted | Callable[[Callable[..., Any]], Jitted]:
    """Like `jax.jit`, and stitches memory-bound ops into single kernels.

    Use it bare (`@fs.jit`) or with keywords (`@fs.jit(donate_argnums=0)`). Without a GPU it behaves
    as jax.jit, unless `options` or FUSIONSTITCH_BACKEND ask for the emulator. Under vmap, grad or
    an outer jit it also behaves as jax.jit: only the outermost `fs.jit` stitches.

    Results have the shapes and dtypes that jax.jit gives them.

    Args:
        fun: a function of arrays and pytrees of arrays, as for jax.jit
        options: how programs are stitched; by default `Options()`
        keywords: keywords of the installed jax.jit, such as `static_argnames` or `donate_argnums`

    Returns:
        A `Jitted`, which is called like `fun`; without `fun`, a decorator that makes one.

    Raises:
        TypeError: `options` is not an `Options`, or jax.jit has no such keyword.

    Calls of the result raise what `fun` raises. Under `fallback="error"` they also raise
    StitchError if something cannot be stitched.

    Example:
        >>> import jax.numpy as jnp
        >>> import fusionstitch as fs
        >>> @fs.jit(static_argnames="axis")
        ... def normalize(x, axis):
        ...     return x / x.sum(axis, keepdims=True)
        >>> normalize(jnp.array([[1.0, 3.0]]), axis=1).tolist()
        [[0.25, 0.75]]
    """
    options = Options() if options is None else options
    if not isinstance(options, Options):
        raise TypeError(f"options takes a fusionstitch.Options, not {type(options).__name__}.")
    taken = [name for name in inspect.signature(plain_jit()).parameters if name != "fun"]
    if unknown := sorted(set(keywords) - set(taken)):
        raise TypeError(
            f"fs.jit got unexpected keywords {', '.join(unknown)}; it takes options and those of "
            f"jax.jit: {', '.join(taken)}."
        )
    if fun is None:
        return functools.partial(Jitted, options=options, keywords=keywords)
    return Jitted(fun, options=options, keywords=keywords)


@dataclass(eq=False)
class Wrapping:
    """The arguments of `fs.jit`, and the execution path chosen for them."""

    fun: Callable[..., Any]
    options: Options
    keywords: dict[str, Any]

    def __post_init__(self) -> None:
        self.plain = jit_for_us(self.fun, **self.keywords)

    @functools.cached_property
    def execution(self) -> ExecutionPath:
        # on first use, not on decoration: choosing initializes JAX's backends
        return choose(self.fun, self.plain, jit_again, self.keywords, self.options)


class Jitted:
    """A function under `fs.jit`; satisfies `jax.stages.Wrapped`.

    It is called like the function, and has its attributes, name and documentation.
    """

    # As with jax.jit, __dict__ is the function's own, names included. Wrappers such as
    # functools.wraps and jax.grad copy it, and wrapped objects may have put anything there. So our
    # own state is in slots, and we read nothing from __dict__.
    __slots__ = ("__dict__", "__weakref__", "_call", "_fusionstitch")
    __wrapped__: Callable[..., Any]
    __name__: str

    def __init__(self, fun: Callable[..., Any], *, options: Options, keywords: dict[str, Any]):
        own = self._fusionstitch = Wrapping(fun, options, keywords)
        self.__dict__.update(getattr(fun, "__dict__", {}))
        functools.update_wrapper(self, own.plain, updated=())  # with the names that jax.jit gives
        self.__wrapped__ = fun
        self._call: Callable[..., Any] = _First(self)

    if TYPE_CHECKING:

        def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else _bound(self, instance)

    def __reduce__(self) -> Any:
        # copying wraps the function again: what JAX compiled cannot be copied
        own = self._fusionstitch
        return _again, (own.fun, own.options, own.keywords)

    def __repr__(self) -> str:
        try:
            return brief(f"fusionstitch.jit of {self._fusionstitch.fun!r}")
        except Exception:  # as jax.jit does: repr of an object may fail
            return "<fusionstitch.jit>"

    @without_own_frames
    def trace(self, /, *args: Any, **kwargs: Any) -> Traced:
        """Like jax.jit's `trace`; `lower` of the result leads to the stitched program.

        Arguments may be arrays or `jax.ShapeDtypeStruct`. Raises what the function raises.
        """
        own = self._fusionstitch
        stage = own.execution.own.trace(*args, **kwargs)
        return Traced(stage, name_of(own.fun), functools.partial(_lower, own, args, kwargs))

    @without_own_frames
    def lower(self, /, *args: Any, **kwargs: Any) -> Lowered:
        """Like jax.jit's `lower`; `compile()` of the result returns a `Compiled`.

        Arguments may be arrays or `jax.ShapeDtypeStruct`. Raises what the function raises.
        """
        return _lower(self._fusionstitch, args, kwargs)

    @without_own_frames
    def eval_shape(self, /, *args: Any, **kwargs: Any) -> Any:
        """Like jax.jit's `eval_shape`: the results as `jax.ShapeDtypeStruct`. Compiles nothing."""
        return self._fusionstitch.execution.own.eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """Forgets everything traced, stitched and compiled for this function."""
        self._fusionstitch.execution.clear_cache()

    def _cache_size(self) -> int:
        # jax.jit's own has no public name either, yet users count compiles with it
        size: int = self._fusionstitch.execution.cache_size()
        return size


class _First:
    """The first call of a `Jitted`. Later calls go straight to its execution path."""

    def __init__(self, jitted: Jitted):
        self._jitted = weakref.ref(jitted)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        jitted = self._jitted()
        assert jitted is not None, "it is being called"
        try:
            jitted._fusionstitch.execution.held_by(jitted)
            return jitted._call(*args, **kwargs)
        except Exception as error:
            hide_own_frames(error)
            raise


# The slot's descriptor: a call reaches what the slot holds without a Python frame in between.
setattr(Jitted, "__call__", Jitted.__dict__["_call"])  # noqa: B010


def _again(fun: Callable[..., Any], options: Options, keywords: dict[str, Any]) -> Jitted:
    return Jitted(fun, options=options, keywords=keywords)


def _lower(own: Wrapping, args: Any, kwargs: Any, **keywords: Any) -> Any:
    def plain(jitted: Any = own.plain) -> Any:
        return jitted.trace(*args, **kwargs).lower(**keywords)

    if _EXPORTING in keywords:
        return plain()
    traced = own.execution.trace(args, kwargs, keywords.get("lowering_platforms"))
    call = Call(own.fun, args, kwargs, own.options, own.keywords, jit)
    compiled = functools.partial(own.execution.compile, traced, plain)
    return Lowered(traced.lower(**keywords), call, compiled)


def call_of(
    fun: Callable[..., Any], args: Any, kwargs: Any, options: Options | None = None
) -> Call:
    """A call to report on or to tune. If `fun` is a jitted function, the call uses what `fs.jit` or
    jax.jit was given; `options` override those of `fs.jit`."""
    import jax

    from fusionstitch.arguments import static_of

    if isinstance(fun, types.MethodType) and isinstance(fun.__func__, jax.stages.Wrapped):
        args = (fun.__self__, *args)
        fun = fun.__func__
    if not isinstance(fun, Jitted):
        keywords = static_of(fun, args, kwargs)
        return Call(fun, args, kwargs, Options() if options is None else options, keywords, jit)
    own = fun._fusionstitch
    options = own.options if options is None else options
    return Call(own.fun, args, kwargs, options, own.keywords, jit)


@without_own_frames
def report(
    fun: Any,
    /,
    *args: Any,
    options: Options | None = None,
    device: str | None = None,
    **kwargs: Any,
) -> Report:
    """Stitches `fun` for `args`, runs it where possible, and compares it with XLA.

    On a GPU everything is measured. Without one, the emulator runs the kernels: this gives errors
    but no times. With `device` naming a GPU that this machine does not have, the program is only
    planned.

    Args:
        fun: a function, or one jitted by `fs.jit`, whose options then apply
        args, kwargs: its arguments: arrays, or `jax.ShapeDtypeStruct`, for which random values
            are used if the program runs
        options: replaces the options that `fs.jit` was given
        device: name of the device profile to plan for, such as "h200", or the path of its JSON
            file; None: the GPU in use

    Returns:
        A `Report`: times in microseconds, traffic in bytes, relative L2 errors.

    Raises:
        OptionError: `device` names no profile, or the arguments exceed this machine's memory.
        StitchError: something could not be stitched, under `fallback="error"`.
        Exception: whatever `fun` raises.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import fusionstitch as fs
        >>> def center(x):
        ...     return x - x.mean(1, keepdims=True), x.mean(0)
        >>> x = jax.ShapeDtypeStruct((512, 512), jnp.float32)
        >>> found = fs.report(center, x, device="h200", options=fs.Options(scorer="model"))
        >>> found.device, found.kernels["xla"], found.kernels["fusionstitch"]
        ('h200', 2, 1)
    """
    from fusionstitch.reports.report import report_call

    call = call_of(fun, args, kwargs, options)
    if device is not None:
        call = dataclasses.replace(call, options=call.options.replace(device=device))
    return report_call(call)


@without_own_frames
def tune(
    fun: Any, /, *args: Any, budget: float = BUDGET, options: Options | None = None, **kwargs: Any
) -> TuneReport:
    """Searches schedules for the kernels of `fun` on the present GPU, for about `budget` seconds.

    Each pattern of the program gets the fastest schedule found, and a verdict against XLA's own
    compile of the same ops. Both are stored in the cache folder. Functions jitted later, in any
    process, use them without measuring. A later call continues where the budget ended an earlier
    one. Several GPUs share the patterns among them.

    Args:
        fun: a function, or one jitted by `fs.jit`
        args, kwargs: its arguments: arrays, or `jax.ShapeDtypeStruct`; of arrays only
            shapes and dtypes matter
        budget: approximate time limit, in seconds
        options: replaces the options that `fs.jit` was given

    Returns:
        A `TuneReport`: times of each pattern in microseconds.

    Raises:
        MeasureError: this machine has no GPU, or the program came from JAX's persistent
            compilation cache, without its plan.
        Exception: whatever `fun` raises.

    Example::

        print(fs.tune(step, weights, x, labels, budget=120))
    """
    return tune_call(call_of(fun, args, kwargs, options), budget)


def install(options: Options | None = None) -> Verdict:
    """Replaces jax.jit by `fs.jit` for every function jitted from now on.

    This takes effect only if JAX has a GPU, or if `options` or FUSIONSTITCH_BACKEND ask for the
    emulator. Otherwise nothing happens, and a `FusionStitchWarning` and the verdict say why. With
    backend="xla" nothing happens either, without a warning.

    Args:
        options: for all of these functions; by default `Options()`

    Returns:
        True if installed, otherwise a false `Verdict` with the reason.

    Example:
        >>> import jax
        >>> import fusionstitch as fs
        >>> bool(fs.install(fs.Options(backend="emulate")))
        True
        >>> jax.jit(lambda x: x + 1)
        <fusionstitch.jit of <function <lambda> at 0x...>>
        >>> fs.uninstall()
    """
    import jax

    from fusionstitch.compiler import builders

    options = Options() if options is None else options
    if options.backend == "xla":
        return forbid("fusionstitch.install() does nothing: backend='xla' asks for jax.jit.")
    able = jax_version()
    if able and options.backend != "emulate":
        able = builders.gpu()
    if not able:
        verdict = forbid(f"fusionstitch.install() does nothing: {able.reason}")
        warnings.warn(verdict.reason, FusionStitchWarning, stacklevel=2)
        return verdict
    if not _original:
        _original.append(jax.jit)
    installed = functools.partial(jit, options=options)
    setattr(jax, "jit", installed)  # noqa: B010
    return allow("jax.jit is fusionstitch.jit")


def uninstall() -> None:
    """Restores jax.jit. Functions jitted since `install` stay stitched."""
    import jax

    if _original:
        jax.jit = _original.pop()
