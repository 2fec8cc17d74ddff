"""How a jitted function reaches the compiler: inside XLA, through the emulator, or not at all."""

from __future__ import annotations

import functools
import hashlib
import threading
import warnings
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from fusionstitch import progress
from fusionstitch.errors import FusionStitchError, FusionStitchWarning, StitchError, reason
from fusionstitch.options import Options

if TYPE_CHECKING:
    from costmodel.devices import Device
    from fusionstitch.core import Stitched

#: Finds, when asked, what was stitched in a compiled program.
Find = Callable[[], "Stitched | None"]
Jit = Callable[..., Any]


class Road(Protocol):
    """What `fs.jit` hands its work to."""

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the function as jax.jit would."""

    def trace(self, args: Any, kwargs: Any, platforms: Any) -> Any:
        """JAX's Traced of what is to be lowered."""

    def compile(self, traced: Any, lowered: Any, *args: Any, **keywords: Any) -> tuple[Any, Find]:
        """JAX's Compiled, and how to find what was stitched in it."""

    def clear_cache(self) -> None:
        """Forgets what was traced and compiled."""


def choose(fun: Callable[..., Any], plain: Any, jit: Jit, keywords: Any, options: Options) -> Road:
    """The road for `options` on this machine; initializes JAX's backends.

    Where the CUDA road cannot be taken although it was asked for, or although there is a GPU,
    one warning says why, or a StitchError under fallback="error".
    """
    from fusionstitch import builders

    if options.backend == "emulate":
        return Emulated(fun, plain, jit, keywords, options)
    found = builders.gpu()
    if not found and options.backend == "auto":
        return Plain(plain)
    try:
        if not found:
            raise StitchError(f"{found.reason} backend='emulate' runs the kernels on the host.")
        return Cuda(fun, plain, jit, keywords, options, builders.profile(options))
    except FusionStitchError as error:
        if options.fallback == "error":
            raise
        _warn(_name_of(fun), str(error))
        return Plain(plain)


class Plain:
    """jax.jit itself."""

    def __init__(self, plain: Any):
        self.call = plain

    def trace(self, args: Any, kwargs: Any, platforms: Any) -> Any:
        return self.call.trace(*args, **kwargs)

    def compile(self, traced: Any, lowered: Any, *args: Any, **keywords: Any) -> tuple[Any, Find]:
        return lowered.compile(*args, **keywords), lambda: None

    def clear_cache(self) -> None:
        self.call.clear_cache()


# ---- the emulator -------------------------------------------------------------------------------


class _Nesting(threading.local):
    """Whether this thread is lowering a function that will be stitched as a whole."""

    active = False


_nesting = _Nesting()


class Emulated:
    """A jax.jit whose function, when traced, stitches the program and traces the result.

    So jax.jit's own cache decides when to do so, and donation, static arguments and pytrees are
    jax.jit's. The user's function is only ever traced by `plain`, whose cache both share.
    """

    def __init__(
        self, fun: Callable[..., Any], plain: Any, jit: Jit, keywords: Any, options: Options
    ):
        self.plain, self.jit, self.options = plain, jit, options
        self.name = _name_of(fun)
        self.known: dict[str, Stitched] = {}

        @functools.wraps(fun)
        def stitched(*args: Any, **kwargs: Any) -> Any:
            return self.traced(args, kwargs)

        self.jitted = jit(stitched, **keywords)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        return (self.plain if _composes(args, kwargs) else self.jitted)(*args, **kwargs)

    def trace(self, args: Any, kwargs: Any, platforms: Any) -> Any:
        elsewhere = platforms is not None and tuple(platforms) != ("cpu",)
        plain = elsewhere or _composes(args, kwargs)
        return (self.plain if plain else self.jitted).trace(*args, **kwargs)

    def compile(self, traced: Any, lowered: Any, *args: Any, **keywords: Any) -> tuple[Any, Find]:
        names = [equation.params.get("name") for equation in traced.jaxpr.eqns]
        found = next((self.known[name] for name in names if name in self.known), None)
        return lowered.compile(*args, **keywords), lambda: found

    def clear_cache(self) -> None:
        self.plain.clear_cache()
        self.jitted.clear_cache()
        self.known.clear()

    def traced(self, args: Any, kwargs: Any) -> Any:
        """The outputs as tracers, computed by the stitched program, or by `plain` if that fails.

        The nested function is named by content: so `compile` finds the plan of a cached trace.
        """
        import jax

        program = self.plain.trace(*args, **kwargs)  # errors in the user's function are the user's
        if len(program.jaxpr.in_avals) > program.in_tree.num_leaves:
            return self.plain(*args, **kwargs)  # it closes over tracers of something larger
        leaves, tree = jax.tree.flatten((args, kwargs))
        dynamic = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.core.Tracer)]

        def flat(*values: Any) -> Any:
            filled = list(leaves)
            for i, value in zip(dynamic, values, strict=True):
                filled[i] = value
            filled_args, filled_kwargs = jax.tree.unflatten(tree, filled)
            return self.plain(*filled_args, **filled_kwargs)

        flat.__name__ = flat.__qualname__ = self.name
        values = [leaves[i] for i in dynamic]
        result, run = self.stitch(self.jit(flat), values)
        content = hashlib.sha256(result.module + repr(result.fallbacks).encode()).hexdigest()
        name = f"{self.name}_stitched_{content[:16]}"
        self.known[name] = result
        named = functools.wraps(flat)(lambda *values: run(*values))
        named.__name__ = named.__qualname__ = name
        return self.jit(named)(*values)

    def stitch(self, flat: Any, values: list[Any]) -> tuple[Stitched, Callable[..., Any]]:
        """What was stitched, and the function of `values` to run."""
        import jax

        from fusionstitch import builders, core
        from fusionstitch.runtime import emulated_call

        device = builders.profile(self.options)
        if any(jax.typeof(value).sharding.mesh.size > 1 for value in values):
            return self.unstitched(device, "Its arguments live on several devices."), flat
        try:
            _nesting.active = True
            program = emulated_call.lower(flat, values)
        except FusionStitchError as error:
            return self.unstitched(device, str(error)), flat
        except Exception as error:
            return self.unstitched(device, reason(error)), flat
        finally:
            _nesting.active = False
        with progress.line(self.name) as step:
            result = core.stitch(program.hlo, self.options, device, builders.emulated(), step=step)
        _warn_fallbacks(self.name, result)
        if not result.stitches:
            return result, flat
        try:
            return result, emulated_call.stitched(program, result.module)
        except FusionStitchError as error:
            return self.unstitched(device, str(error)), flat

    def unstitched(self, device: Device, why: str) -> Stitched:
        from fusionstitch import core

        if self.options.fallback == "error":
            raise StitchError(f"{self.name} could not be stitched: {why}")
        _warn(self.name, why)
        return core.Stitched(self.name, b"", device, fallbacks=(core.Fallback((), why),))


def _composes(args: Any, kwargs: Any) -> bool:
    """Whether the call is part of something larger (vmap, grad, an outer jit) that decides."""
    import jax

    if _nesting.active or jax.config.jax_disable_jit:  # type: ignore[attr-defined]
        return True
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((args, kwargs)))


# ---- inside XLA ---------------------------------------------------------------------------------

#: What decides the code of a marked module, by the token in its mark.
_marked: dict[str, tuple[Options, Device]] = {}
#: What compiles inside calls left behind for the caller: errors and reasons, with the name.
_left: deque[tuple[str, StitchError | str]] = deque()


class Cuda:
    """A jax.jit of the function under a marked name: XLA hands its module to the pass."""

    def __init__(
        self,
        fun: Callable[..., Any],
        plain: Any,
        jit: Jit,
        keywords: Any,
        options: Options,
        device: Device,
    ):
        from fusionstitch import __version__, builders
        from fusionstitch.runtime import cuda, xla_pass

        content = f"{__version__} {options.token} {device}"
        self.token = hashlib.sha256(content.encode()).hexdigest()[:16]
        self.name = _name_of(fun)
        for verdict in (
            cuda.register_launcher(builders.store()),
            xla_pass.register(_inside_xla),
        ):
            if not verdict:
                raise StitchError(verdict.reason)
        _marked[self.token] = (options, device)

        @functools.wraps(fun)
        def marked(*args: Any, **kwargs: Any) -> Any:
            return fun(*args, **kwargs)

        marked.__name__ = marked.__qualname__ = xla_pass.mark(self.name, self.token)
        self.plain = plain
        self.jitted = jit(marked, **keywords)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        result = self.jitted(*args, **kwargs)
        if _left:
            _settle()
        return result

    def trace(self, args: Any, kwargs: Any, platforms: Any) -> Any:
        return self.jitted.trace(*args, **kwargs)

    def compile(self, traced: Any, lowered: Any, *args: Any, **keywords: Any) -> tuple[Any, Find]:
        from fusionstitch import recall
        from fusionstitch.runtime import xla_pass

        with xla_pass.collect(self.token) as events:
            stage = lowered.compile(*args, **keywords)
        _settle()
        return stage, lambda: recall.find(stage.as_text(), events)

    def clear_cache(self) -> None:
        self.plain.clear_cache()
        self.jitted.clear_cache()


def _inside_xla(module: bytes, token: str) -> bytes | None:
    """The pass: what XLA compiles instead of a marked module, or None to leave it."""
    from fusionstitch import builders, core, recall
    from fusionstitch.runtime import xla_pass

    found = _marked.get(token)
    if found is None:
        return None
    options, device = found
    name = (xla_pass.read_mark(module) or ("a program", ""))[0]
    try:
        with progress.line(name) as step:
            builder = builders.cuda(device, options)
            result = core.stitch(module, options, device, builder, aliasing=True, step=step)
    except StitchError as error:
        _left.append((name, error))
        raise
    xla_pass.publish(result)
    _left.extend((name, fallback.reason) for fallback in result.fallbacks)
    if not result.stitches:
        return None
    recall.keep(module, options, result)
    return result.module


def _settle() -> None:
    """Raises the errors and warns of the reasons that the pass left behind."""
    while _left:
        name, left = _left.popleft()
        if isinstance(left, StitchError):
            raise left
        _warn(name, left)


# ---- common -------------------------------------------------------------------------------------


def _name_of(fun: Callable[..., Any]) -> str:
    return getattr(fun, "__name__", None) or type(fun).__name__


def _warn(name: str, why: str) -> None:
    warnings.warn(f"{name} runs as under jax.jit: {why}", FusionStitchWarning, stacklevel=2)


def _warn_fallbacks(name: str, result: Stitched) -> None:
    """One warning per program, whatever the number of reasons."""
    if not result.fallbacks:
        return
    first, more = result.fallbacks[0], len(result.fallbacks) - 1
    also = f" ({more} more: see explain())" if more else ""
    what = "" if not first.ops else " in part"
    warnings.warn(
        f"{name} runs as under jax.jit{what}: {first.reason}{also}",
        FusionStitchWarning,
        stacklevel=2,
    )
