"""The emulator's path through JAX: exports the lowered program as HLO, and imports the edited
HLO."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax import export

from fusionstitch.execution.original import plain_jit
from fusionstitch.hlo.errors import StitchError
from fusionstitch.hlo.importer import parse
from fusionstitch.runtime import emulate
from fusionstitch.runtime.portable import portable_artifact

_NO_HLO = "JAX gives no HLO for this program, so the emulator leaves it to XLA"


@dataclasses.dataclass(frozen=True)
class Program:
    """A function lowered for the CPU: its module as XLA would get it, and how to call it."""

    exported: export.Exported
    hlo: bytes


def lower(
    jitted: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> Program:
    """Lowers a `jax.jit` function, made without donation, for arrays or ShapeDtypeStructs.

    Raises StitchError, with the reason, for programs that this path does not support: host
    callbacks, several devices, dimension variables.
    """
    kwargs = dict(kwargs or {})
    try:
        lowered = jitted.lower(*args, **kwargs).compiler_ir("hlo")
    except jax.errors.JaxRuntimeError as error:  # shapes that only XLA can determine
        raise StitchError(f"{_NO_HLO}: {str(error).splitlines()[0]}") from error
    if lowered is None:
        raise StitchError(f"{_NO_HLO}.")
    hlo = lowered.as_serialized_hlo_module_proto()
    module = parse(hlo)
    checks = [export.DisabledSafetyCheck.custom_call(t) for t in _custom_call_targets(module)]
    try:
        exported = export.export(jitted, platforms=("cpu",), disabled_checks=checks)(
            *args, **kwargs
        )
    except NotImplementedError as error:
        raise StitchError(
            f"JAX cannot export this program, so the emulator leaves it to XLA: {error}"
        ) from error
    if exported.nr_devices != 1:
        raise StitchError(
            f"This program runs on {exported.nr_devices} devices; the emulator takes programs of "
            "one device, so it is left to XLA."
        )
    parameters, expected = (
        len(module.host_program_shape.parameters),
        len(exported.module_kept_var_idx),
    )
    if parameters != expected:
        raise StitchError(
            f"The module of this program has {parameters} parameters where its signature has "
            f"{expected} (tokens or hoisted constants), so the emulator leaves it to XLA."
        )
    return Program(exported, hlo)


def stitched(program: Program, hlo: bytes, **jit_options: Any) -> Any:
    """A `jax.jit` function with the program's signature that runs the edited module `hlo`.

    `jit_options` are keywords of jax.jit for this function, such as donate_argnums. Raises
    ImportModuleError if XLA refuses the module.
    """
    return calling(edited(program, hlo), **jit_options)


def edited(program: Program, hlo: bytes) -> export.Exported:
    """The program with the edited module `hlo`, for the emulator to run.

    Raises ImportModuleError if XLA refuses the module.
    """
    emulate.register()
    # gradients never pass through here, and their function holds the user's function
    return dataclasses.replace(
        program.exported, mlir_module_serialized=portable_artifact(hlo), _get_vjp=None
    )


def calling(exported: export.Exported, **jit_options: Any) -> Any:
    """A `jax.jit` function that calls an exported program."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return exported.call(*args, **kwargs)

    call.__name__ = call.__qualname__ = exported.fun_name
    return plain_jit()(call, **jit_options)


def _custom_call_targets(module: Any) -> list[str]:
    return sorted(
        {
            instruction.custom_call_target
            for computation in module.computations
            for instruction in computation.instructions
            if instruction.opcode == "custom-call"
        }
    )
