"""Execution by the emulator: exports the lowered program, and imports the stitched one, on the
CPU."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import threading
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from fusionstitch.compiler import progress
from fusionstitch.errors import StitchError, reason
from fusionstitch.execution.around import Around, calls_back
from fusionstitch.execution.path import Find, Holder, Jit, Lower, Once, left, name_of, warn
from fusionstitch.execution.recovery import Recovery
from fusionstitch.execution.tracebacks import without_own_frames
from fusionstitch.options import Options
from fusionstitch.runtime.apart import apart
from fusionstitch.runtime.outcome import Failed
from fusionstitch.runtime.signals import held
from fusionstitch.runtime.threads import start

if TYPE_CHECKING:
    from fusionstitch.compiler.stitched import Fallback, Stitched
    from fusionstitch.costmodel.devices import Device


T = TypeVar("T")


class _Nesting(threading.local):
    """Whether this thread is lowering a function that will be stitched as a whole."""

    active = False


_nesting = _Nesting()
#: JAX flags under which functions are inspected: they run op by op, are rerun so when a value is
#: bad, or the running program reports which keys it used.
_LOOKED_INTO = ("jax_disable_jit", "jax_debug_nans", "jax_debug_infs", "jax_debug_key_reuse")
_NO_ARRAY = (
    "It takes or returns something other than arrays (a token, say), which JAX cannot export, so "
    "the emulator leaves it to XLA."
)
#: Constants of at least this many bytes are passed as arguments.
_LARGE = 1 << 20


class _Theirs(Exception):
    """Raised out of a trace: JAX itself does not lower the function, and JAX must say so."""


class Emulated:
    """A jax.jit whose function, when traced, stitches the program and traces the result.

    So jax.jit's own cache decides when this happens, and jax.jit handles donation, static arguments
    and pytrees. Only `plain` traces the user's function, and both share its cache.
    """

    def __init__(
        self, fun: Callable[..., Any], plain: Any, jit: Jit, keywords: Any, options: Options
    ):
        self.own = self.plain = plain
        self.jit, self.options, self.spread = jit, options, _spread(keywords)
        # JAX accepts compiler options at the outermost jit only
        inner = {name: value for name, value in keywords.items() if name != "compiler_options"}
        self.inner = plain if len(inner) == len(keywords) else jit(fun, **inner)
        self.name = name_of(fun)
        self.known: dict[str, Stitched] = {}
        self.recovery = Recovery(self.name, plain, options.fallback, warn)
        self.reasons, self.warn_user = _Reasons(), Once()
        itself = weakref.ref(self)  # no cycle: unused objects are freed at once, as under jax.jit

        @functools.wraps(fun)
        def stitched(*args: Any, **kwargs: Any) -> Any:
            execution = itself()
            assert execution is not None, "who has it traced holds it"
            execution.recovery.tracing()
            with _unexplained():
                return execution.traced(args, kwargs)

        self.jitted = jit(stitched, **keywords)

    @without_own_frames
    def call(self, /, *args: Any, **kwargs: Any) -> Any:
        if _composes(args, kwargs):
            return self.plain(*args, **kwargs)
        try:
            results = self.recovery.call(self.jitted, args, kwargs)
        except _Theirs:
            results = self.plain(*args, **kwargs)
        except BaseException:
            self.reasons.found.clear()
            raise
        self.settle()
        return results

    def held_by(self, holder: Holder) -> None:
        holder._call = self.call

    def settle(self) -> None:
        """Warns about what was left to XLA. This happens after the program has run or was compiled:
        if that raises, its error is all that is reported."""
        reasons, self.reasons.found = self.reasons.found, []
        for found in reasons:
            self.warn_user(self.name, *found)

    def trace(self, args: Any, kwargs: Any, platforms: Any) -> Any:
        elsewhere = platforms is not None and tuple(platforms) != ("cpu",)
        shown = self.plain.trace(*args, **kwargs)
        if elsewhere or _composes(args, kwargs):
            return shown
        try:
            return _AsWritten(shown, self.jitted.trace(*args, **kwargs))
        except _Theirs:
            return shown

    def compile(
        self, traced: Any, plain: Lower, lowered: Any, *args: Any, **keywords: Any
    ) -> tuple[Any, Find]:
        runs = traced.runs if isinstance(traced, _AsWritten) else traced
        names = [equation.params.get("name") for equation in runs.jaxpr.eqns]
        found = next((self.known[name] for name in names if name in self.known), None)
        compiled = lowered.compile(*args, **keywords)
        self.settle()
        return compiled, lambda: found

    def cache_size(self) -> int:
        size: int = self.jitted._cache_size()
        return size

    def clear_cache(self) -> None:
        self.plain.clear_cache()
        self.jitted.clear_cache()
        self.known.clear()

    def traced(self, args: Any, kwargs: Any) -> Any:
        """The outputs as tracers, computed by the stitched program, or by `plain` if that fails.

        The nested function is named by content, so `compile` finds the plan of a cached trace.
        """
        import jax

        program = self.plain.trace(*args, **kwargs)  # errors in the user's function pass through
        # the dynamic values in trace order: static ones are part of the trace
        values = [x for x in jax.tree.leaves((args, kwargs)) if isinstance(x, jax.core.Tracer)]
        if len(program.jaxpr.in_avals) > len(values):
            return self.inner(*args, **kwargs)  # it closes over tracers of an outer trace
        # the user's classes are built from the results only: they may accept nothing but arrays
        results = self.flat(program.jaxpr, values)
        return jax.tree.unflatten(program.out_tree, results)

    def flat(self, jaxpr: Any, values: list[Any]) -> list[Any]:
        """The outputs of a traced function for `values`, both without the user's pytrees."""
        large = _large_constants(jaxpr)
        values = [*large.values(), *values]
        function = self.with_arguments(jaxpr, large, partial(_evaluate, jaxpr))
        flat = self.jit(function)
        if calls_back(jaxpr):
            around = Around(jaxpr)
            cut = self.jit(self.with_arguments(jaxpr, large, around.evaluate), keep_unused=True)
            lower = partial(_cut, around, cut, values)
        else:
            lower = partial(_exported, flat, values)
        result, run = self.stitch(flat, values, lower, jaxpr)
        if not _is_of_arrays(
            jaxpr
        ):  # JAX before 0.12 does not lower a jit in a jit that returns a token
            return function(*values)
        content = hashlib.sha256(
            result.module + repr([(*f.ops, f.reason) for f in result.fallbacks]).encode()
        ).hexdigest()
        name = f"{self.name}_stitched_{content[:16]}"
        self.known[name] = result

        def named(*values: Any) -> Any:
            return run(*values)

        named.__name__ = named.__qualname__ = name
        return self.jit(named)(*values)

    def with_arguments(
        self, jaxpr: Any, large: dict[int, Any], evaluate: Callable[..., list[Any]]
    ) -> Callable[..., list[Any]]:
        """A traced function that takes its constants `large` as its first arguments. A program is
        serialized several times on its way to the kernels and back."""

        def flat(*values: Any) -> list[Any]:
            given = dict(zip(large, values, strict=False))
            constants = [given.get(i, value) for i, value in enumerate(jaxpr.consts)]
            return evaluate(constants, values[len(large) :])

        flat.__name__ = flat.__qualname__ = self.name
        return flat

    def stitch(
        self, flat: Any, values: list[Any], lower: Callable[[], _Lowered], jaxpr: Any
    ) -> tuple[Stitched, Callable[..., Any]]:
        """The plan, and the function of `values` to run."""
        import jax

        from fusionstitch.compiler import builders

        device = builders.profile(self.options)
        if (platform := jax.default_backend()) != "cpu":
            why = (
                f"The emulator runs on the CPU, but JAX runs on {platform}: set JAX_PLATFORMS=cpu."
            )
            return self.unstitched(device, why), flat
        if self.spread or any(_devices(value) > 1 for value in values):
            return self.unstitched(device, "Its arguments live on several devices."), flat
        if _has_references(jaxpr):
            why = "It reads or writes arrays by reference (jax.new_ref), which JAX cannot export."
            return self.unstitched(device, why), flat
        if not _is_of_arrays(jaxpr):
            return self.unstitched(device, _NO_ARRAY), flat
        program = held(lambda: _nested(lower))
        if isinstance(program, Failed) and not isinstance(program.error, StitchError):
            again = held(lambda: _nested(lower))
            if not isinstance(again, Failed):  # another thread raised the error in this one
                raise program.error
        if isinstance(program, Failed):
            if isinstance(held(lambda: _nested(lambda: flat.lower(*values))), Failed):
                raise _Theirs
            return self.unstitched(device, reason(program.error)), flat
        found = apart(lambda: self.stitched(program, device))
        if isinstance(found, Failed):
            if isinstance(found.error, StitchError):
                raise found.error
            return self.unstitched(device, reason(found.error)), flat
        result, run = found
        if (said := left(result)) is not None:
            self.reasons.found.append(said)
        return result, flat if run is None else run

    def stitched(
        self, program: _Lowered, device: Device
    ) -> tuple[Stitched, Callable[..., Any] | None]:
        """The plan, and the function that runs it, if anything was stitched."""
        from fusionstitch.compiler import builders, core
        from fusionstitch.tuning import tuned

        with progress.line(self.name) as step:
            known, build = tuned.load(device), builders.emulated(device)
            result = core.stitch(program.hlo, self.options, device, build, step=step, tuned=known)
        if program.left and self.options.fallback == "error":
            raise StitchError(f"{self.name} could not be stitched: {program.left[0].reason}")
        result = dataclasses.replace(result, fallbacks=(*result.fallbacks, *program.left))
        return result, program.running(result.module) if result.stitches else None

    def unstitched(self, device: Device, why: str) -> Stitched:
        """A program that is left to XLA."""
        from fusionstitch.compiler.stitched import Fallback, Stitched

        if self.options.fallback == "error":
            raise StitchError(f"{self.name} could not be stitched: {why}")
        self.reasons.found.append((why, ""))
        return Stitched(self.name, b"", device, fallbacks=(Fallback((), why),))


class _Reasons(threading.local):
    """Reasons, not reported yet, why programs that this thread traces are left to XLA."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []


@dataclass(frozen=True)
class _Lowered:
    """A program as HLO; what turns the edited one into a function of values; and what is left to
    XLA in any case."""

    hlo: bytes
    running: Callable[[bytes], Callable[..., Any]]
    left: tuple[Fallback, ...] = ()


def _exported(flat: Any, values: list[Any]) -> _Lowered:
    from fusionstitch.runtime import emulated_call

    program = emulated_call.lower(flat, values)
    return _Lowered(program.hlo, partial(emulated_call.stitched, program))


def _cut(around: Around, cut: Any, values: list[Any]) -> _Lowered:
    """Like `_exported`, around host callbacks, which JAX cannot export."""
    from fusionstitch.runtime import emulate

    hlo = cut.lower(*values).compiler_ir("hlo").as_serialized_hlo_module_proto()
    emulate.register()
    return _Lowered(hlo, around.running, around.left)


def _nested(lower: Callable[[], T]) -> T:
    """The result of `lower`, for which inner functions are not stitched by themselves."""
    _nesting.active = True
    try:
        return lower()
    finally:
        _nesting.active = False


class _AsWritten:
    """A stage of the user's program, as on a GPU, that compiles to the stitched one."""

    def __init__(self, shown: Any, runs: Any):
        self.shown, self.runs = shown, runs

    def __getattr__(self, name: str) -> Any:
        return getattr(self.shown, name)

    def lower(self, **keywords: Any) -> _AsWritten:
        runs = self.runs.lower(**keywords)
        with warnings.catch_warnings(action="ignore"):  # JAX has already warned for what runs
            return _AsWritten(self.shown.lower(**keywords), runs)

    def compile(self, *args: Any, **keywords: Any) -> Any:
        return self.runs.compile(*args, **keywords)


def _spread(keywords: Any) -> bool:
    """Whether keywords of jax.jit put arguments or results on several devices."""
    import jax

    given = jax.tree.leaves([keywords.get(name) for name in ("in_shardings", "out_shardings")])
    shardings = [getattr(s, "sharding", s) for s in given]  # a Format holds one
    return any(isinstance(s, jax.sharding.Sharding) and s.num_devices > 1 for s in shardings)


def _devices(value: Any) -> int:
    """How many devices an argument lives on, by its type; tokens have none."""
    import jax

    sharding = getattr(jax.typeof(value), "sharding", None)
    return 1 if sharding is None else sharding.mesh.size


def _composes(args: Any, kwargs: Any) -> bool:
    """Whether the call is part of a transformation (vmap, grad, an outer jit) that decides, or is
    to be inspected op by op."""
    import jax
    from jax.extend.core import get_opaque_trace_state

    config: Any = jax.config  # its flags are run-time attributes, unknown to type checkers
    if _nesting.active or any(getattr(config, flag) for flag in _LOOKED_INTO):
        return True
    if get_opaque_trace_state() != _outermost():
        return True
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((args, kwargs)))


#: JAX's trace state outside of all transformations, once requested.
_outside: list[Any] = []


def _outermost() -> Any:
    """JAX's trace state outside of all transformations, taken from a fresh thread. None if no
    thread can be started, for example while the interpreter exits."""
    from jax.extend.core import get_opaque_trace_state

    if not _outside:
        fresh = threading.Thread(target=lambda: _outside.append(get_opaque_trace_state()))
        if not start(fresh):  # not from a pool: at exit, pools take no work
            return None
        fresh.join()
    return _outside[0]


def _unexplained() -> Any:
    """For traces of our own inside a trace that JAX has explained, if explanations are on."""
    import jax

    return jax.explain_cache_misses(False)


def _large_constants(jaxpr: Any) -> dict[int, Any]:
    """The arrays of at least _LARGE bytes that a function closes over, by index."""
    arrays = {i: value for i, value in enumerate(jaxpr.consts) if hasattr(value, "nbytes")}
    return {i: value for i, value in arrays.items() if value.nbytes >= _LARGE}


def _evaluate(jaxpr: Any, constants: Any, values: Any) -> list[Any]:
    from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

    results: list[Any] = jaxpr_as_fun(ClosedJaxpr(jaxpr.jaxpr, constants))(*values)
    return results


def _has_references(jaxpr: Any) -> bool:
    """Whether a function takes or closes over references to arrays."""
    import jax
    from jax.ref import AbstractRef

    taken = any(isinstance(aval, AbstractRef) for aval in jaxpr.in_avals)
    return taken or any(isinstance(value, jax.Ref) for value in jaxpr.consts)


def _is_of_arrays(jaxpr: Any) -> bool:
    """Whether a function takes and returns arrays only: no tokens, no values of user-defined types
    (`jax.experimental.hijax`)."""
    import jax

    return all(isinstance(a, jax.core.ShapedArray) for a in (*jaxpr.in_avals, *jaxpr.out_avals))
