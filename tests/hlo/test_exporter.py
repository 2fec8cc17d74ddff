"""Patterns become custom calls; everything else stays."""

import dataclasses

import jax
import jax.extend.mlir as extend_mlir
import jax.numpy as jnp
import pytest

from fusionstitch.hlo.errors import VerifyError
from fusionstitch.hlo.exporter import Preparation, Replacement, export
from fusionstitch.hlo.graph import Op, Shape
from fusionstitch.hlo.importer import from_proto, parse
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.hlo.verify import verify_module


def lower(fun, *args, **kwargs):
    lowered = jax.jit(fun, **kwargs).lower(*args)
    return inline_calls(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())


def pattern(graph, opcodes, **kwargs):
    """A replacement of all ops of `graph` with one of the opcodes."""
    ops = [op for op in graph if op.opcode in opcodes]
    inputs = {o.id: o for op in ops for o in op.operands if o not in ops}
    outputs = [
        op for op in ops if op is graph.root or any(u not in ops for u in graph.users[op.id])
    ]
    return Replacement(
        graph, tuple(outputs), tuple(inputs[i] for i in sorted(inputs)), tuple(ops), "fused",
        "launch", **kwargs,
    )  # fmt: skip


def exported(module, *replacements, preparation=None):
    data = export(module, replacements, preparation)
    verify_module(data)
    extend_mlir.hlo_to_stablehlo(data)  # XLA's own verifier
    return parse(data)


def opcodes(computation):
    return [i.opcode for i in computation.instructions]


X = jnp.ones((4, 8))


def test_single_output_is_the_call_itself():
    module = from_proto(lower(lambda x: jnp.tanh(x) * x, X))
    call = exported(module, pattern(module.entry, {"tanh"})).computations[0].instructions[1]
    assert (call.opcode, call.custom_call_target) == ("custom-call", "launch")
    assert call.custom_call_api_version == 4
    assert call.constrain_layout
    assert list(call.shape.dimensions) == [4, 8]
    assert list(call.shape.layout.minor_to_major) == [1, 0]
    assert list(call.operand_shapes_with_layout[0].dimensions) == [4, 8]
    assert call.metadata.op_name.endswith("tanh")


def test_several_outputs_and_scratch_are_read_from_a_tuple():
    module = from_proto(lower(lambda x: (jnp.tanh(x), jnp.exp(x) + 1), X))
    replacement = pattern(
        module.entry, {"tanh", "exponential"}, scratch=(Shape("f32", (7,)),), aliasing=((1, 0),),
        config=b'{key = "k"}',
    )  # fmt: skip
    entry = exported(module, replacement).computations[0]
    by_name = {i.name: i for i in entry.instructions}
    call = by_name["fused"]
    assert [list(s.dimensions) for s in call.shape.tuple_shapes] == [[4, 8], [4, 8], [7]]
    assert call.backend_config == b'{key = "k"}'
    [alias] = call.output_operand_aliasing
    assert (list(alias.output_shape_index), alias.operand_index) == ([1], 0)
    reads = [i for i in entry.instructions if i.opcode == "get-tuple-element"]
    assert sorted(i.tuple_index for i in reads) == [0, 1]
    assert all(list(i.operand_ids) == [call.id] for i in reads)
    assert "tanh" not in opcodes(entry)
    assert "exponential" not in opcodes(entry)


@pytest.mark.parametrize("operand", [0, 2], ids=["type", "dims"])
def test_a_buffer_is_shared_by_equal_shapes_only(operand):
    def fun(i, x, row):
        return i * jnp.tanh(x) + row

    module = from_proto(lower(fun, jnp.ones((4, 8), jnp.int32), X, jnp.ones((1, 8))))
    replacement = pattern(module.entry, {op.opcode for op in module.entry} - {"parameter"})
    assert [str(op.shape) for op in replacement.inputs] == ["s32[4,8]", "f32[4,8]", "f32[1,8]"]
    assert dataclasses.replace(replacement, aliasing=((0, 1),)).aliasing
    with pytest.raises(VerifyError, match=r"fused writes its output 0, f32\[4,8\], over"):
        dataclasses.replace(replacement, aliasing=((0, operand),))


def test_scratch_makes_a_tuple_of_a_single_output():
    module = from_proto(lower(jnp.tanh, X))
    entry = exported(
        module, pattern(module.entry, {"tanh"}, scratch=(Shape("s32", (3,)),))
    ).computations[0]
    assert opcodes(entry) == ["parameter", "custom-call", "get-tuple-element"]
    assert entry.root_id == entry.instructions[2].id


def test_root_array_is_replaced():
    module = from_proto(lower(jnp.tanh, X))
    entry = exported(module, pattern(module.entry, {"tanh"})).computations[0]
    assert opcodes(entry) == ["parameter", "custom-call"]
    assert entry.root_id == entry.instructions[1].id


def test_ids_follow_the_convention_of_the_computation():
    module = from_proto(lower(lambda x: jnp.tanh(x) + 1, X))
    proto = exported(module, pattern(module.entry, {"tanh"}))
    entry = proto.computations[-1]
    assert {i.id >> 32 for i in entry.instructions} == {entry.id}
    flat = parse(export(module, ()))
    flat.computations[0].root_id -= entry.id << 32
    for i in flat.computations[0].instructions:
        i.id -= entry.id << 32
        for n, operand in enumerate(i.operand_ids):
            i.operand_ids[n] = operand - (entry.id << 32)
    flat.computations[0].id = 0
    flat.entry_computation_id = 0
    module = from_proto(flat.SerializeToString())
    proto = exported(module, pattern(module.entry, {"tanh"}))
    assert max(i.id for i in proto.computations[0].instructions) < 100


def test_an_instruction_still_read_outside_stays():
    module = from_proto(lower(lambda x: (t := jnp.tanh(x), jnp.exp(t)), X))
    graph = module.entry
    [tanh] = [op for op in graph if op.opcode == "tanh"]
    [exp] = [op for op in graph if op.opcode == "exponential"]
    replacement = Replacement(graph, (exp,), (graph.parameters[0],), (tanh, exp), "f", "launch")
    entry = exported(module, replacement).computations[0]
    assert "tanh" in opcodes(entry)
    assert "exponential" not in opcodes(entry)


def test_unread_reduction_bodies_go_with_their_reduce():
    module = from_proto(lower(lambda x: x.sum(0) + 1, X))
    proto = exported(module, pattern(module.entry, {"reduce"}))
    assert [c.name for c in proto.computations] == [module.entry.name]


def test_parameters_and_side_effects_stay():
    module = from_proto(lower(lambda x, y: jnp.tanh(x), X, X, keep_unused=True))
    entry = exported(module, pattern(module.entry, {"tanh"})).computations[0]
    assert opcodes(entry) == ["parameter", "parameter", "custom-call"]


@pytest.mark.parametrize("replaced", [(), ("tanh",)])
def test_a_preparation_is_a_call_of_the_entry_that_stays(replaced):
    module = from_proto(lower(lambda x: jnp.tanh(x) * x, X))
    module.proto.schedule.SetInParent()
    replacements = [pattern(module.entry, set(replaced))] if replaced else []
    # its name is that of the call which replaces a pattern
    proto = exported(module, *replacements, preparation=Preparation("fused", "load", b"{}"))
    [load] = [i for i in proto.computations[0].instructions if i.custom_call_target == "load"]
    assert load.name == ("fused.1" if replaced else "fused")
    assert load.custom_call_has_side_effect
    assert (list(load.operand_ids), list(load.shape.dimensions)) == ([], [0])
    assert (load.backend_config, load.custom_call_api_version) == (b"{}", 4)
    assert not proto.HasField("schedule")


def test_loop_bodies_and_branches_are_edited_in_place():
    def fun(x):
        looped = jax.lax.fori_loop(0, 3, lambda _, c: jnp.tanh(c) * c, x)
        return jax.lax.cond(x[0, 0] > 0, lambda v: jnp.tanh(v) + 1, lambda v: v, looped)

    module = from_proto(lower(fun, X))
    inner = [g for g in module.stitchable if any(op.opcode == "tanh" for op in g)]
    assert len(inner) == 2
    proto = exported(module, *[pattern(g, {"tanh"}) for g in inner])
    calls = [i.name for c in proto.computations for i in c.instructions if "launch" in str(i)]
    assert calls == ["fused", "fused.1"]
    assert not any("tanh" in opcodes(c) for c in proto.computations)


def test_chained_replacements_read_each_other():
    module = from_proto(lower(lambda x: jnp.exp(jnp.tanh(x)), X))
    first, second = (pattern(module.entry, {name}) for name in ("tanh", "exponential"))
    entry = exported(module, second, first).computations[0]
    assert opcodes(entry) == ["parameter", "custom-call", "custom-call"]
    assert list(entry.instructions[2].operand_ids) == [entry.instructions[1].id]
    assert entry.root_id == entry.instructions[2].id


def test_control_dependences_move_to_the_call():
    proto = parse(lower(lambda x: (jnp.tanh(x), jnp.exp(x), jnp.sin(x)), X))
    by_opcode = {i.opcode: i for i in proto.computations[0].instructions}
    by_opcode["tanh"].control_predecessor_ids.append(by_opcode["exponential"].id)
    by_opcode["sine"].control_predecessor_ids.append(by_opcode["tanh"].id)
    module = from_proto(proto.SerializeToString())
    order = [op.opcode for op in module.entry]
    assert order.index("exponential") < order.index("tanh") < order.index("sine")
    entry = exported(module, pattern(module.entry, {"tanh"})).computations[0]
    by_opcode = {i.opcode: i for i in entry.instructions}
    call = by_opcode["custom-call"]
    assert list(call.control_predecessor_ids) == [by_opcode["exponential"].id]
    assert list(by_opcode["sine"].control_predecessor_ids) == [call.id]


def test_entry_layouts_come_from_the_host_shape():
    proto = parse(lower(lambda x: jnp.tanh(x), X))
    for shape in (*proto.host_program_shape.parameters, proto.host_program_shape.result):
        shape.layout.minor_to_major[:] = [0, 1]
    module = from_proto(proto.SerializeToString())
    entry = parse(export(module, [pattern(module.entry, {"tanh"})])).computations[0]
    parameter, call, copy = entry.instructions
    assert list(parameter.shape.layout.minor_to_major) == [0, 1]
    assert list(call.shape.layout.minor_to_major) == [1, 0]
    assert (copy.opcode, copy.id) == ("copy", entry.root_id)
    assert list(copy.shape.layout.minor_to_major) == [0, 1]


def test_donation_survives():
    module = from_proto(lower(lambda x: jnp.tanh(x), X, donate_argnums=0))
    proto = exported(module, pattern(module.entry, {"tanh"}))
    assert proto.input_output_alias == module.proto.input_output_alias
    assert len(proto.input_output_alias.entries) == 1


def test_aliases_send_readers_to_what_stands_for_them():
    module = from_proto(lower(lambda x: (jnp.tanh(x) + 1, jnp.exp(x) * 2), X))
    graph = module.entry
    [tanh] = [op for op in graph if op.opcode == "tanh"]
    [exp] = [op for op in graph if op.opcode == "exponential"]
    graph.aliases = {exp.origin: tanh.origin}
    entry = exported(module, pattern(graph, {"tanh"})).computations[0]
    assert "exponential" not in opcodes(entry)
    [call] = [i for i in entry.instructions if i.opcode == "custom-call"]
    assert sum(call.id in i.operand_ids for i in entry.instructions) == 2


def test_a_border_without_an_instruction_is_refused():
    module = from_proto(lower(jnp.tanh, X))
    graph = module.entry
    made = Op("tanh", graph.root.shape, (graph.parameters[0],))
    bad = Replacement(graph, (made,), (graph.parameters[0],), (made,), "f", "launch")
    with pytest.raises(VerifyError, match="stands for no instruction"):
        export(module, [bad])


def test_a_pattern_that_is_not_convex_is_refused():
    module = from_proto(lower(lambda x: jnp.sin(jnp.exp(jnp.sin(x))), X))
    with pytest.raises(VerifyError, match="needs its own result"):
        export(module, [pattern(module.entry, {"sine"})])


@pytest.mark.parametrize("unchanged", [False, True])
@pytest.mark.parametrize(("outputs", "guarded"), [((0, 1), True), ((1, 0), True), ((0,), False)])
def test_a_call_does_not_become_the_root_of_a_loop_s_body(outputs, guarded, unchanged):
    """Else XLA takes the call for the root, and its operands for the values it passes on. What no
    iteration changes it takes out of the root."""

    def loop(x, y):
        return jax.lax.while_loop(
            lambda c: c[0].sum() > 0,
            lambda c: (jnp.tanh(c[0]), jnp.exp(c[1]), *c[2:]),
            (x, y, x + y) if unchanged else (x, y),
        )

    module = from_proto(lower(loop, X, X))
    [body] = [g for g in module.graphs if any(op.opcode == "tanh" for op in g)]
    ops = [op for op in body if op.opcode in ("tanh", "exponential")]
    ops.sort(key=lambda op: op.opcode, reverse=True)
    removed = tuple(ops[n] for n in outputs)
    inputs = tuple(op.operands[0] for op in removed)
    replacement = Replacement(body, removed, inputs, removed, "f", "launch")
    proto = parse(export(module, [replacement]))
    [call] = [i for c in proto.computations for i in c.instructions if i.opcode == "custom-call"]
    shapes = [list(s.dimensions) for s in call.shape.tuple_shapes]
    own = len(outputs) if len(outputs) > 1 else 0
    assert shapes == [list(X.shape)] * own + [[0]] * guarded


@pytest.mark.parametrize("joined", [False, True])
def test_nor_does_one_of_what_a_loop_may_call(joined):
    def several(x):
        found = jnp.tanh(x), jnp.exp(x)
        return x + 1, *([found[0] - found[1]] if joined else found)

    module = from_proto(lower(several, X))
    entry = exported(module, pattern(module.entry, {"tanh", "exponential"})).computations[0]
    [call] = [i for i in entry.instructions if i.opcode == "custom-call"]
    assert len(call.shape.tuple_shapes) == 2 + (not joined)


def test_a_call_has_the_scopes_that_its_ops_share():
    def scoped(x):
        with jax.named_scope("model"):
            with jax.named_scope("first"):
                y = jnp.tanh(x)
            with jax.named_scope("second"):
                return jnp.exp(y) * x

    module = from_proto(lower(scoped, X))
    [call] = [
        one
        for one in exported(module, pattern(module.entry, {"tanh", "exponential"}))
        .computations[0]
        .instructions
        if one.opcode == "custom-call"
    ]
    assert call.metadata.op_name == f"jit(scoped)/model/{call.name}"
