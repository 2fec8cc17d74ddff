"""Programs with host callbacks on the emulator's execution path. JAX cannot export them, so they
are stitched around their callbacks.

The equations that call back are cut out of the traced program. While the program is lowered and
stitched as a whole, a custom call replaces each of them. The result is split into parts at these
calls. The parts run one after another, and JAX runs the cut equations in between. Equations with an
effect keep their order, because each reads a number that the previous one returned. Called
functions are searched for callbacks; a loop or a branch that calls back is cut out whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fusionstitch.hlo.errors import StitchError

if TYPE_CHECKING:
    from fusionstitch.compiler.stitched import Fallback

#: The custom call that replaces an equation.
TARGET = "fusionstitch_hole"
#: Primitives that call back to the host.
_CALLBACKS = frozenset({"pure_callback", "io_callback", "debug_callback", "debug_print"})
#: Primitives that run a function once, and the parameter that holds it.
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
}
_LOOPS = ("scan", "while")
_IN_A_LOOP = "A loop runs a host callback, so the emulator leaves it to XLA."

_NO_ARRAY = (
    "It calls back to the host and works on something other than arrays, so the emulator leaves it "
    "to XLA."
)


def calls_back(jaxpr: Any) -> bool:
    """Whether a traced function calls back to the host, directly or in a loop, branch or call."""
    return any(map(_calls_back, jaxpr.eqns))


def _calls_back(equation: Any) -> bool:
    from jax.extend.core import jaxprs_in_params

    inner = jaxprs_in_params(equation.params)
    return equation.primitive.name in _CALLBACKS or any(map(calls_back, inner))


@dataclass(frozen=True)
class Hole:
    """An equation that was cut out. `run` has the arguments and results of its custom call."""

    primitive: str
    run: Callable[..., list[Any]]


class Around:
    """A traced function, cut for stitching.

    `evaluate` is the function with custom calls instead of the equations that call back. It is
    jitted and lowered once.
    """

    def __init__(self, jaxpr: Any):
        self.jaxpr = jaxpr
        self.holes: list[Hole] = []
        #: the number returned by the last equation with an effect; the next one reads it
        self._last: list[Any] = []

    def evaluate(self, constants: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        """Raises StitchError for an equation that no custom call can replace."""
        if not all(map(_is_array, (*self.jaxpr.in_avals, *self.jaxpr.out_avals))):
            raise StitchError(_NO_ARRAY)
        self.holes.clear()
        self._last.clear()
        return self._evaluate(self.jaxpr, constants, values)

    def _evaluate(self, jaxpr: Any, constants: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        from jax.extend.core import Literal
        from jax.extend.source_info_util import current_name_stack, user_context

        jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *values), strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, Literal) else known[atom]

        for equation in jaxpr.eqns:
            names = current_name_stack() + equation.source_info.name_stack
            with user_context(equation.source_info.traceback, name_stack=names):
                made = self._made(equation, list(map(read, equation.invars)))
            known.update(zip(equation.outvars, made, strict=True))
        return list(map(read, jaxpr.outvars))

    def _made(self, equation: Any, given: list[Any]) -> list[Any]:
        from jax.extend.source_info_util import extend_name_stack

        if not _calls_back(equation):
            return _bound(equation, given)
        if (called := _called(equation)) is None:
            return self._hole(equation, given)
        with extend_name_stack(str(equation.params.get("name", equation.primitive.name))):
            return self._evaluate(called, getattr(called, "consts", ()), given)

    def _hole(self, equation: Any, given: list[Any]) -> list[Any]:
        """The results of the custom call that replaces an equation."""
        import jax

        avals = [variable.aval for variable in equation.outvars]
        if not all(map(_is_array, (*map(jax.typeof, given), *avals))):
            raise StitchError(_NO_ARRAY)
        number, kinds = len(self.holes), [_key_kind(value) for value in given]
        has_effects = bool(equation.effects)

        def run(*taken: Any) -> list[Any]:
            keys = zip(taken, kinds, strict=False)
            made = _bound(equation, [_keyed(one, kind) for one, kind in keys])
            return [*map(_words, made), *[_order()] * has_effects]

        self.holes.append(Hole(equation.primitive.name, run))
        shapes = [jax.eval_shape(_words, _shape(aval)) for aval in avals]
        shapes += [jax.eval_shape(_order)] * has_effects
        call = jax.ffi.ffi_call(TARGET, shapes, has_side_effect=has_effects)
        after = self._last if has_effects else []
        made = call(*map(_words, given), *after, number=np.int64(number))
        if has_effects:
            self._last = list(made[len(avals) :])
        return [_keyed(one, _key_kind(aval)) for one, aval in zip(made, avals, strict=False)]

    @property
    def left(self) -> tuple[Fallback, ...]:
        """The cut equations that contain more than callbacks, as fallbacks."""
        from fusionstitch.compiler.stitched import Fallback

        loops = [hole.primitive for hole in self.holes if hole.primitive in _LOOPS]
        return tuple(Fallback((name,), _IN_A_LOOP) for name in loops)

    def running(self, module: bytes) -> Callable[..., list[Any]]:
        """A function of values (large constants first) that runs a stitched module around the
        equations cut out of it. Raises StitchError if the module cannot be split at them, and
        ImportModuleError if XLA rejects a part."""
        from fusionstitch.hlo.parted import Part, part
        from fusionstitch.runtime.portable import as_function

        parted = part(module, TARGET)
        steps = []
        for number, step in enumerate(parted.steps):
            if isinstance(step, Part):
                run: Any = as_function(step.module, f"part_{number}")
            else:
                run = self.holes[step.number].run
            steps.append((run, step.takes, step.gives))

        def running(*values: Any) -> list[Any]:
            known = dict(zip(parted.parameters, map(_words, values), strict=True))
            for run, takes, gives in steps:
                known.update(zip(gives, run(*(known[value] for value in takes)), strict=False))
            results = (known[value] for value in parted.results)
            return [_typed(*one) for one in zip(results, self.jaxpr.out_avals, strict=True)]

        return running


def _bound(equation: Any, given: list[Any]) -> list[Any]:
    """The results of an equation, as JAX computes them."""
    with equation.ctx.manager:
        parameters = equation.primitive.get_bind_params(equation.params)
        made = equation.primitive.bind(*given, **parameters)
    return list(made) if equation.primitive.multiple_results else [made]


def _called(equation: Any) -> Any:
    """The function that an equation only calls, or None."""
    import jax

    found = equation.params.get(_CALLS.get(equation.primitive.name, ""))
    placed = (equation.params.get(name, ()) for name in ("in_shardings", "out_shardings"))
    if any(isinstance(one, jax.sharding.Sharding) for each in placed for one in each):
        return None
    return found


# --- values: custom calls take and return arrays of numbers; a PRNG key becomes its key data -----


def _order() -> Any:
    """The value by which one equation with an effect precedes the next."""
    import jax.numpy as jnp

    return jnp.zeros((), jnp.int32)


def _is_array(aval: Any) -> bool:
    import jax

    return isinstance(aval, jax.core.ShapedArray) and aval.dtype != jax.dtypes.float0


def _key_kind(value: Any) -> Any:
    """The implementation of a PRNG key or key type; None for other values."""
    import jax

    dtype = getattr(value, "dtype", None)
    if dtype is None or not jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        return None
    kinds: list[Any] = []  # JAX reveals it for keys only, not for types
    jax.eval_shape(lambda key: kinds.append(jax.random.key_impl(key)), _shape(value))
    return kinds[0]


def _words(value: Any) -> Any:
    import jax

    return value if _key_kind(value) is None else jax.random.key_data(value)


def _keyed(words: Any, kind: Any) -> Any:
    import jax

    return words if kind is None else jax.random.wrap_key_data(words, impl=kind)


def _shape(aval: Any) -> Any:
    import jax

    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _typed(value: Any, aval: Any) -> Any:
    """A result as the traced function returns it: a PRNG key, or a number of weak type."""
    from jax.extend.core.primitives import convert_element_type_p

    if not getattr(aval, "weak_type", False):
        return _keyed(value, _key_kind(aval))
    return convert_element_type_p.bind(value, new_dtype=value.dtype, weak_type=True, sharding=None)
