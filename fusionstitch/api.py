"""What a user calls: `fs.jit`, jax.jit's look-alike, `fs.report`, `fs.tune`, `fs.install`."""

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

#: What only jax.export passes to `Traced.lower`: it saves the user's program, for any machine.
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
    """As `jax.jit`, with its keywords, and memory-bound ops stitched into single kernels.

    Usable bare (`@fs.jit`) and as a factory (`@fs.jit(donate_argnums=0)`). Without a GPU it is
    jax.jit, unless `options` (or FUSIONSTITCH_BACKEND) ask for the emulator. Called under vmap,
    grad or an outer jit it is jax.jit: the outermost `fs.jit` does the stitching.

    Args:
        fun: a function of arrays and pytrees of them, as for jax.jit
        options: how programs are stitched; by default `Options()`
        keywords: those of this JAX's jax.jit, such as `static_argnames` or `donate_argnums`

    Returns:
        A `Jitted`, which is called as `fun` is; without `fun` a decorator that makes one.

    Raises:
        TypeError: jax.jit has no such keyword, or `options` are no `Options`.

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
    """What `fs.jit` was given, and the execution path that it chose for that."""

    fun: Callable[..., Any]
    options: Options
    keywords: dict[str, Any]

    def __post_init__(self) -> None:
        self.plain = jit_for_us(self.fun, **self.keywords)

    @functools.cached_property
    def execution(self) -> ExecutionPath:
        # on first use, not on decoration: it initializes JAX's backends
        return choose(self.fun, self.plain, jit_again, self.keywords, self.options)


class Jitted:
    """A function under `fs.jit`; satisfies `jax.stages.Wrapped`.

    It is called as the function is, and shares its attributes, name and documentation.
    """

    # As with jax.jit its __dict__ is that of the function, names included. Whoever wraps it copies
    # that (functools.wraps, jax.grad, ...) and whom it wraps may have put anything there: so
    # nothing of ours is in it, but in slots, and nothing of ours is read from it.
    __slots__ = ("__dict__", "__weakref__", "_call", "_fusionstitch")
    __wrapped__: Callable[..., Any]
    __name__: str

    def __init__(self, fun: Callable[..., Any], *, options: Options, keywords: dict[str, Any]):
        own = self._fusionstitch = Wrapping(fun, options, keywords)
        self.__dict__.update(getattr(fun, "__dict__", {}))
        functools.update_wrapper(self, own.plain, updated=())  # by the names that jax.jit gives
        self.__wrapped__ = fun
        self._call: Callable[..., Any] = _First(self)

    if TYPE_CHECKING:

        def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> Any:
        # a copy is a function of its own: what JAX compiled cannot be copied piece by piece
        own = self._fusionstitch
        return _again, (own.fun, own.options, own.keywords)

    def __repr__(self) -> str:
        try:
            return brief(f"fusionstitch.jit of {self._fusionstitch.fun!r}")
        except Exception:  # as jax.jit's: an object need not have a text
            return "<fusionstitch.jit>"

    @without_own_frames
    def trace(self, /, *args: Any, **kwargs: Any) -> Traced:
        """As jax.jit's `trace`; `lower` of the result leads to the stitched program.

        Arguments may be arrays or `jax.ShapeDtypeStruct`. Raises what the function raises.
        """
        own = self._fusionstitch
        stage = own.execution.own.trace(*args, **kwargs)
        return Traced(stage, name_of(own.fun), functools.partial(_lower, own, args, kwargs))

    @without_own_frames
    def lower(self, /, *args: Any, **kwargs: Any) -> Lowered:
        """As jax.jit's `lower`; `compile()` of the result gives a `Compiled`.

        Arguments may be arrays or `jax.ShapeDtypeStruct`. Raises what the function raises.
        """
        return _lower(self._fusionstitch, args, kwargs)

    @without_own_frames
    def eval_shape(self, /, *args: Any, **kwargs: Any) -> Any:
        """As jax.jit's `eval_shape`: the results as `jax.ShapeDtypeStruct`; nothing is compiled."""
        return self._fusionstitch.execution.own.eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """Forgets what was traced, stitched and compiled for this function."""
        self._fusionstitch.execution.clear_cache()

    def _cache_size(self) -> int:
        # JAX's own has no public name, yet it is how users count what was compiled
        size: int = self._fusionstitch.execution.cache_size()
        return size


class _First:
    """The first call of a `Jitted`: from then on its execution path is called."""

    def __init__(self, jitted: Jitted):
        self._jitted = weakref.ref(jitted)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        jitted = self._jitted()
        assert jitted is not None, "it is being called"
        try:
            jitted._call = jitted._fusionstitch.execution.call
            return jitted._call(*args, **kwargs)
        except Exception as error:
            hide_own_frames(error)
            raise


# A slot's descriptor: what is called is what the slot holds, without a frame of Python's between.
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
    """A call to report on or to tune: by what `fs.jit` or jax.jit was given if `fun` comes from it,
    with other options if there are any."""
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
    """Stitches `fun` for `args`, runs it where that is possible, and compares.

    On a GPU everything is measured. Without one the emulator runs the kernels, which gives the
    error but no times; with `device` (a profile such as "h200") of a GPU that is not there, the
    program is only planned.

    Args:
        fun: a function, or what `fs.jit` made of one: then by the options it was given there
        args, kwargs: its arguments: arrays, or `jax.ShapeDtypeStruct` where only a plan is wanted
        options: other options than those
        device: profile to plan for, or the path of its JSON file; None: the GPU in use

    Raises:
        StitchError: something could not be stitched, under `fallback="error"`. What `fun` raises
            is raised, too.

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
    """Searches schedules for the kernels of `fun` on the GPU at hand, for about `budget` seconds.

    Each pattern of the program gets the fastest schedule found, and a verdict against XLA's own
    compile of the same ops. Both are kept in the cache folder: functions jitted from then on, in
    any process, follow them without measuring. A call that the budget cut short goes on where
    it stopped; several GPUs share the patterns.

    Args:
        fun: a function, or what `fs.jit` made of one
        args, kwargs: its arguments
        budget: seconds, about
        options: other options than those that `fs.jit` was given

    Raises:
        MeasureError: there is no GPU. What `fun` raises is raised, too.

    Example::

        print(fs.tune(step, weights, x, labels, budget=120))
    """
    return tune_call(call_of(fun, args, kwargs, options), budget)


def install(options: Options | None = None) -> Verdict:
    """Puts `fs.jit` in the place of jax.jit, for all functions jitted from now on.

    Only where JAX has a GPU, or where `options` (or FUSIONSTITCH_BACKEND) ask for the emulator;
    elsewhere nothing happens, and a `FusionStitchWarning` and the verdict say why. Nor does it
    under backend="xla", of which nobody is warned.

    Args:
        options: for all of these functions; by default `Options()`

    Returns:
        A verdict, true if it is installed, with the reason if it is not.

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
    """Gives jax.jit back; functions jitted in between stay stitched."""
    import jax

    if _original:
        jax.jit = _original.pop()
