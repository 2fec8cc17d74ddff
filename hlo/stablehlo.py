"""StableHLO, as text or portable bytecode, to an HloModuleProto through JAX's public doors."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from fusionstitch.hlo.errors import ImportModuleError
from fusionstitch.hlo.literals import NUMPY_DTYPES

if TYPE_CHECKING:
    import jax

_BRACKETS = re.compile(r"->|[(){}\[\]<>]")
_MAX_DEPTH = 500
#: What MLIR bytecode begins with.
BYTECODE_MAGIC = b"ML\xefR"

_FLOAT_NAMES = {name.replace("f8e", "f8E").replace("m", "M"): name for name in NUMPY_DTYPES}
#: MLIR element type -> HLO type name
_ELEMENTS = {
    **{f"i{bits}": f"s{bits}" for bits in (8, 16, 32, 64)},
    **{f"ui{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
    **{mlir.replace("fn", "FN").replace("uz", "UZ"): hlo for mlir, hlo in _FLOAT_NAMES.items()},
    "i1": "pred",
    "complex<f32>": "c64",
    "complex<f64>": "c128",
}
#: Attributes by which an argument is donated.
_DONATED = ("tf.aliasing_output", "jax.buffer_donor")


def stablehlo_to_proto(source: str | bytes) -> bytes:
    """The serialized HloModuleProto of a StableHLO module with a public function `main`.

    `source` is the text of a module or a portable artifact (`Exported.mlir_module_serialized`).
    Donated arguments stay donated. Raises ImportModuleError when JAX cannot read it or `main`
    takes or returns something other than arrays of static shape.
    """
    if isinstance(source, str):
        _check_nesting(source)
    try:
        return _lowered(source)
    except ImportModuleError:
        raise
    except Exception as error:  # MLIR's bindings raise classes of their own
        raise ImportModuleError(
            f"JAX cannot read this StableHLO module: {error}. Write it again with "
            "Lowered.as_text() or jax.export."
        ) from None


def _check_nesting(text: str) -> None:
    """MLIR's parser recurses, and takes the process down when its stack ends."""
    depth = 0
    for bracket in _BRACKETS.findall(text):
        if bracket in "({[<":
            depth += 1
        elif bracket != "->":
            depth -= 1
        if depth > _MAX_DEPTH:
            raise ImportModuleError(
                f"The StableHLO module nests brackets more than {_MAX_DEPTH} deep, more than can "
                "be read."
            )


def _lowered(source: str | bytes) -> bytes:
    import jax
    from jax import export
    from jax.extend import mlir
    from jax.extend.mlir.dialects import stablehlo

    text, takes, returns, donated = _read(source)
    artifact = mlir.serialize_portable_artifact(text, stablehlo.get_current_version())

    def stand_in(*args: jax.Array) -> list[jax.Array]:
        return [jax.numpy.zeros(r.shape, r.dtype) for r in returns]

    with jax.enable_x64(True):
        shapes = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in takes]
        exported = export.export(jax.jit(stand_in, keep_unused=True))(*shapes)
        exported = dataclasses.replace(exported, mlir_module_serialized=artifact)
        call = jax.jit(exported.call, donate_argnums=donated, keep_unused=True)
        lowered = call.lower(*shapes)
        hlo: Any = lowered.compiler_ir("hlo")
        return hlo.as_serialized_hlo_module_proto()


@dataclasses.dataclass(frozen=True)
class _Array:
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def _read(source: str | bytes) -> tuple[str, list[_Array], list[_Array], tuple[int, ...]]:
    """The module's text, what `main` takes and returns, and which arguments are donated."""
    from jax.extend import mlir
    from jax.extend.lowering import JaxIrContext, upstream_dialects
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import chlo, stablehlo

    context = JaxIrContext()
    context.append_dialect_registry(upstream_dialects)
    context.load_all_available_dialects()
    stablehlo.register_dialect(context)
    chlo.register_dialect(context)  # JAX lowers square, erf and others to it
    with context:
        module: Any
        if isinstance(source, bytes):
            module = mlir.deserialize_portable_artifact(source)
        else:
            module = ir.Module.parse(source)
        for function in module.body.operations:
            attributes = function.operation.attributes
            if "sym_name" in attributes and ir.StringAttr(attributes["sym_name"]).value == "main":
                kind = ir.FunctionType(ir.TypeAttr(attributes["function_type"]).value)
                takes, returns = (list(map(_array, t)) for t in (kind.inputs, kind.results))
                facts: Any = attributes.get("arg_attrs", ())
                donated = tuple(n for n, f in enumerate(facts) if any(d in f for d in _DONATED))
                # with the locations in the user's program, which plain text leaves out
                text = module.operation.get_asm(enable_debug_info=True)
                return text, takes, returns, donated
    raise ImportModuleError("The StableHLO module has no function `main`; name the entry `main`.")


def _array(kind: Any) -> _Array:
    from jax.extend.mlir import ir

    try:
        tensor = ir.RankedTensorType(kind)
        name = _ELEMENTS[str(tensor.element_type)]
        if not tensor.has_static_shape:
            raise ValueError
    except (KeyError, ValueError):
        raise ImportModuleError(
            f"`main` takes or returns {kind}; only arrays of static shapes can be read."
        ) from None
    return _Array(tuple(tensor.shape), NUMPY_DTYPES[name])
