"""`fs.jit`: jax.jit's look-alike."""

from __future__ import annotations

import functools
import inspect
import types
import warnings
from collections.abc import Callable
from typing import Any, overload

from fusionstitch.errors import FusionStitchWarning
from fusionstitch.options import Options
from fusionstitch.roads import Road, choose, name_of
from fusionstitch.stages import Call, Lowered, Traced
from hlo.verdict import Verdict, allow, forbid

#: What only jax.export passes to `Traced.lower`: it saves the user's program, for any machine.
_EXPORTING = "_private_parameters"
#: What jax.jit was before `install`.
_original: list[Any] = []


def plain_jit() -> Any:
    """jax.jit itself, also while `install` has put `fs.jit` in its place."""
    import jax

    return _original[0] if _original else jax.jit


@overload
def jit(
    fun: Callable[..., Any], /, *, options: Options | None = None, **keywords: Any
) -> Jitted: ...
@overload
def jit(
    *, options: Options | None = None, **keywords: Any
) -> Callable[[Callable[..., Any]], Jitted]: ...
def jit(
    fun: Callable[..., Any] | None = None, /, *, options: Options | None = None, **keywords: Any
) -> Jitted | Callable[[Callable[..., Any]], Jitted]:
    """As `jax.jit`, with its keywords, and memory-bound ops stitched into single kernels.

    Usable bare (`@fs.jit`) and as a factory (`@fs.jit(donate_argnums=0)`). Without a GPU it is
    jax.jit, unless `options` (or FUSIONSTITCH_BACKEND) ask for the emulator. Called under vmap,
    grad or an outer jit it is jax.jit: the outermost `fs.jit` does the stitching.
    Raises TypeError for a keyword that this JAX's jax.jit does not have.
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


class Jitted:
    """A function under `fs.jit`; satisfies `jax.stages.Wrapped`."""

    __wrapped__: Callable[..., Any]
    __name__: str

    def __init__(self, fun: Callable[..., Any], *, options: Options, keywords: dict[str, Any]):
        self._plain = plain_jit()(fun, **keywords)
        self.options = options
        self.keywords = keywords
        functools.update_wrapper(self, fun)
        self.__wrapped__ = fun

    @functools.cached_property
    def _road(self) -> Road:
        # on first use, not on decoration: it initializes JAX's backends
        return choose(self.__wrapped__, self._plain, plain_jit(), self.keywords, self.options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._road.call(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> Any:
        # a copy is a function of its own: what JAX compiled cannot be copied piece by piece
        return _again, (self.__wrapped__, self.options, self.keywords)

    def __repr__(self) -> str:
        return f"<fusionstitch.jit of {self.__wrapped__!r}>"

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """As jax.jit's `trace`; `lower` of the result leads to the stitched program."""
        stage = self._road.own.trace(*args, **kwargs)
        return Traced(
            stage, name_of(self.__wrapped__), functools.partial(self._lower, args, kwargs)
        )

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """As jax.jit's `lower`; `compile()` of the result has plan, kernels, explain, report."""
        return self._lower(args, kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """As jax.jit's `eval_shape`."""
        return self._road.own.eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """Forgets what was traced, stitched and compiled for this function."""
        self._road.clear_cache()

    def _lower(self, args: Any, kwargs: Any, **keywords: Any) -> Any:
        def plain() -> Any:
            return self._plain.trace(*args, **kwargs).lower(**keywords)

        if _EXPORTING in keywords:
            return plain()
        road = self._road
        traced = road.trace(args, kwargs, keywords.get("lowering_platforms"))
        call = Call(self.__wrapped__, args, kwargs, self.options, self.keywords)
        compiled = functools.partial(road.compile, traced, plain)
        return Lowered(traced.lower(**keywords), call, compiled)


def _again(fun: Callable[..., Any], options: Options, keywords: dict[str, Any]) -> Jitted:
    return Jitted(fun, options=options, keywords=keywords)


def install(options: Options | None = None) -> Verdict:
    """Puts `fs.jit` in the place of jax.jit, for all functions jitted from now on.

    Only where JAX has a GPU; elsewhere nothing happens, and a warning and the verdict say why.
    """
    import jax

    from fusionstitch import builders

    if not (found := builders.gpu()):
        verdict = forbid(f"fusionstitch.install() does nothing: {found.reason}")
        warnings.warn(verdict.reason, FusionStitchWarning, stacklevel=2)
        return verdict
    if not _original:
        _original.append(jax.jit)
    installed = functools.partial(jit, options=Options() if options is None else options)
    setattr(jax, "jit", installed)  # noqa: B010
    return allow("jax.jit is fusionstitch.jit")


def uninstall() -> None:
    """Gives jax.jit back; functions jitted in between stay stitched."""
    import jax

    if _original:
        jax.jit = _original.pop()
