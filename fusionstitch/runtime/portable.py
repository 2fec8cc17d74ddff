"""HLO modules as portable StableHLO artifacts, the form in which jax.export stores programs."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.extend.mlir as extend_mlir
from jax import export
from jax.extend.lowering import JaxIrContext, upstream_dialects
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from fusionstitch.hlo.errors import ImportModuleError
from fusionstitch.hlo.graph import Shape
from fusionstitch.hlo.importer import from_proto, parse
from fusionstitch.hlo.literals import NUMPY_DTYPES

#: Temporary custom calls of this file, which become ops that XLA reads.
_PREFIX = "fusionstitch.portable."
_TYPED_FFI = 4
_FRONTEND, _SHARDING_RULE = "mhlo.frontend_attributes", "xla.sdy.sharding_rule"
_ALGORITHM = "algorithm"
_SHOWN = 2000


def portable_artifact(hlo: bytes) -> bytes:
    """The portable StableHLO artifact of an HLO module, as in `Exported.mlir_module_serialized`.
    Raises ImportModuleError if XLA refuses the module, or if StableHLO lacks an op."""
    try:
        bytecode = extend_mlir.hlo_to_stablehlo(_without_foreign_ops(hlo))
        with _context():
            module = ir.Module.parse(bytecode)
            _for_one_device(module)
            _as_xla_reads_them(module)
            _with_algorithms(module)
            text = str(module)
        return extend_mlir.serialize_portable_artifact(text, stablehlo.get_current_version())
    except Exception as error:  # the bindings raise whatever the status maps to
        if any(i.opcode == "fusion" for c in parse(hlo).computations for i in c.instructions):
            raise ImportModuleError(
                "The module holds fusions: it is what XLA has compiled. Pass what came before, "
                "such as Lowered.compiler_ir('hlo').as_hlo_text()."
            ) from error
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ImportModuleError(f"XLA refused the module: {' '.join(reason)[:_SHOWN]}") from error


def as_function(data: bytes, name: str) -> Callable[..., Any]:
    """A function of the parameters of a module (HloModuleProto bytes); under jax.jit it is that
    program.

    It returns an array, or a tuple if the module's root is one. Raises ImportModuleError as
    `portable_artifact` does, and KeyError for types that NumPy lacks.
    """
    entry = from_proto(data).entry
    signature = _signature(tuple(p.shape for p in entry.parameters), entry.root.shape)
    exported = dataclasses.replace(
        signature, fun_name=name, mlir_module_serialized=portable_artifact(data)
    )

    def module(*args: Any) -> Any:
        return exported.call(*args)

    module.__name__ = module.__qualname__ = re.sub(r"\W", "_", name)
    return module


@functools.lru_cache(maxsize=256)
def _signature(given: tuple[Shape, ...], result: Shape) -> export.Exported:
    """A function from arrays of these shapes to zeros, whose body a module replaces."""
    from fusionstitch.execution.original import plain_jit

    def zeros(*_: Any) -> Any:
        shapes = result.elements if result.is_tuple else (result,)
        made = [jax.numpy.zeros(s.dims, NUMPY_DTYPES[s.dtype]) for s in shapes]
        return tuple(made) if result.is_tuple else made[0]

    with jax.enable_x64(True):  # the configuration may be another thread's
        return export.export(
            plain_jit()(zeros, keep_unused=True),
            disabled_checks=[export.DisabledSafetyCheck.platform()],
        )(*(jax.ShapeDtypeStruct(s.dims, NUMPY_DTYPES[s.dtype]) for s in given))


@functools.cache
def _context() -> JaxIrContext:
    context = JaxIrContext()
    context.append_dialect_registry(upstream_dialects)
    context.load_all_available_dialects()
    stablehlo.register_dialect(context)
    return context


# --- how ops are partitioned ----------------------------------------------------------------------


def _for_one_device(module: Any) -> None:
    """Removes the partitioning rules of calls. They count results, which are one tuple here, and
    the op that extracts an element has the rule as well."""

    def visit(op: Any) -> ir.WalkResult:
        if _FRONTEND in op.attributes:
            given = ir.DictAttr(op.attributes[_FRONTEND])
            named = (given[i] for i in range(len(given)))
            rest = {one.name: one.attr for one in named if one.name != _SHARDING_RULE}
            if len(rest) < len(given):
                op.attributes[_FRONTEND] = ir.DictAttr.get(rest)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)


# --- ops that StableHLO lacks ---------------------------------------------------------------------


def _without_foreign_ops(hlo: bytes) -> bytes:
    """The module without copies, which only change layouts, and with other foreign ops as custom
    calls."""
    module = parse(hlo)
    if not any(i.opcode in _FOREIGN for c in module.computations for i in c.instructions):
        return hlo
    for computation in module.computations:
        _skip_copies(computation)
        for instruction in computation.instructions:
            if attributes := _CALLS.get(instruction.opcode):
                instruction.backend_config = attributes(instruction)
                instruction.custom_call_target = _PREFIX + instruction.opcode
                instruction.custom_call_api_version = _TYPED_FFI
                instruction.opcode = "custom-call"
    return bytes(module.SerializeToString(deterministic=True))


def _skip_copies(computation: Any) -> None:
    source = {i.id: i.operand_ids[0] for i in computation.instructions if i.opcode == "copy"}

    def resolve(ident: int) -> int:
        while ident in source:
            ident = source[ident]
        return ident

    for instruction in computation.instructions:
        instruction.operand_ids[:] = [resolve(i) for i in instruction.operand_ids]
        # the CPU runs a module's ops in data order
        rest = [i for i in instruction.control_predecessor_ids if i not in source]
        instruction.control_predecessor_ids[:] = rest
    computation.root_id = resolve(computation.root_id)
    for index in reversed(range(len(computation.instructions))):
        if computation.instructions[index].id in source:
            del computation.instructions[index]


def _topk(instruction: Any) -> bytes:
    largest = b"true" if instruction.largest else b"false"
    return b"{k = %d : i64, largest = %s}" % (instruction.k, largest)


#: Ops that become custom calls, with the text of their attributes.
_CALLS: Mapping[str, Callable[[Any], bytes]] = {
    "erf": lambda _: b"{}",
    "mulhi": lambda _: b"{}",
    "topk": _topk,
}
_FOREIGN = frozenset({"copy", *_CALLS})


def _as_xla_reads_them(module: Any) -> None:
    """Gives these custom calls the names, attributes and results of XLA's ops."""
    for op in _ops(module, "stablehlo.custom_call"):
        target = ir.StringAttr(op.attributes["call_target_name"]).value
        if not target.startswith(_PREFIX):
            continue
        [result] = op.results
        parts = _parts(result.type)
        call = ir.Operation.create(
            "stablehlo.custom_call",
            results=parts or [result.type],
            operands=list(op.operands),
            attributes={
                "call_target_name": ir.StringAttr.get(f"mhlo.{target.removeprefix(_PREFIX)}"),
                "mhlo.attributes": op.attributes["backend_config"],
            },
            loc=op.location,
            ip=ir.InsertionPoint(op),
        )
        if parts:
            for reader in [use.owner for use in result.uses]:
                index = ir.IntegerAttr(reader.attributes["index"]).value
                reader.results[0].replace_all_uses_with(call.results[index])
                reader.operation.erase()
        else:
            result.replace_all_uses_with(call.results[0])
        op.erase()


def _with_algorithms(module: Any) -> None:
    """Makes plain products of two matrices or vectors general if they name an algorithm: the plain
    op has no such attribute."""
    for op in _ops(module, "stablehlo.dot"):
        if _ALGORITHM not in op.attributes:
            continue
        last = ir.RankedTensorType(op.operands[0].type).rank - 1
        dims = stablehlo.DotDimensionNumbers.get([], [], [last], [0])
        named = (op.attributes[i] for i in range(len(op.attributes)))
        general = ir.Operation.create(
            "stablehlo.dot_general",
            results=[op.results[0].type],
            operands=list(op.operands),
            attributes={one.name: one.attr for one in named} | {"dot_dimension_numbers": dims},
            loc=op.location,
            ip=ir.InsertionPoint(op),
        )
        op.results[0].replace_all_uses_with(general.results[0])
        op.erase()


def _ops(module: Any, name: str) -> list[Any]:
    """The ops of a module with this name, as a list: they may be replaced."""
    found: list[Any] = []

    def visit(op: Any) -> ir.WalkResult:
        if op.name == name:
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def _parts(kind: Any) -> list[Any]:
    """The types of a tuple's elements; empty for a type that is not a tuple."""
    if not isinstance(kind, ir.TupleType):
        return []
    return [kind.get_type(i) for i in range(kind.num_types)]
