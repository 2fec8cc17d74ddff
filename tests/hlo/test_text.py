"""HLO text reads back as the module it was printed from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlo.errors import ImportModuleError
from hlo.evaluate import evaluate
from hlo.importer import from_proto, parse
from hlo.text import text_to_proto
from hlo.verify import verify_module


def lower(program):
    return jax.jit(program.fun, donate_argnums=program.donate).lower(*program.args)


def test_text_gives_the_same_graphs(program):
    hlo = lower(program).compiler_ir("hlo")
    data = text_to_proto(hlo.as_hlo_text())
    verify_module(data)
    got, want = from_proto(data), from_proto(hlo.as_serialized_hlo_module_proto())
    for g, w in zip(got.graphs, want.graphs, strict=True):
        assert repr(g) == repr(w)
        for a, b in zip(g, w, strict=True):
            assert a.attrs.keys() == b.attrs.keys()
            assert [c.name for c in a.called] == [c.name for c in b.called]
            if a.opcode != "constant":
                assert a.attrs == b.attrs
    assert got.proto.input_output_alias == want.proto.input_output_alias
    assert got.proto.host_program_shape.result == want.proto.host_program_shape.result


def test_text_runs_as_the_program(program):
    data = text_to_proto(lower(program).compiler_ir("hlo").as_hlo_text())
    for got, want in zip(program.run(data), program.want, strict=True):
        np.testing.assert_array_equal(got, want)


def test_compiled_text_with_percent_signs_and_frames_is_read():
    compiled = jax.jit(lambda x: jnp.tanh(x).sum() * 2).lower(jnp.ones((3, 4))).compile()
    module = from_proto(text_to_proto(compiled.as_text()))
    [tanh] = [op for graph in module.graphs for op in graph if op.opcode == "tanh"]
    assert tanh.source.op_name.endswith("tanh")
    assert tanh.source.file.endswith("test_text.py")


def module(body, header=""):
    return f"HloModule m{header}\n\nENTRY main {{\n{body}\n}}\n"


@pytest.mark.parametrize(
    ("shape", "text", "want"),
    [
        ("f32[]", "-inf", -np.inf),
        ("f32[2]{0}", "{1.5, -nan}", [1.5, np.nan]),
        ("pred[2]{0}", "{true, false}", [True, False]),
        ("s64[2,2]{1,0}", "{ { 1, -2 }, { 3, 9007199254740993 } }", [[1, -2], [3, 2**53 + 1]]),
        ("f32[2,2]{0,1}", "{ { 1, 2 }, { 3, 4 } }", [[1, 2], [3, 4]]),
        ("f32[2,0]{1,0}", "{ { }, { } }", [[], []]),
        ("c64[2]{0}", "{(1, 2), (0, -1)}", [1 + 2j, -1j]),
        ("bf16[1]{0}", "{1.5}", [1.5]),
        ("u8[]", "255", 255),
    ],
)
def test_constants(shape, text, want):
    data = text_to_proto(module(f"  ROOT c = {shape} constant({text})"))
    got = from_proto(data).entry.root.attrs["value"]
    np.testing.assert_array_equal(got, np.array(want).astype(got.dtype))


def test_custom_calls_keep_what_they_carry():
    line = (
        "  ROOT c = (f32[2]{0}, s32[]) custom-call(p), custom_call_target=\"launch\", "
        "operand_layout_constraints={f32[2]{0}}, output_to_operand_aliasing={{0}: (0, {})}, "
        'custom_call_has_side_effect=true, api_version=API_VERSION_TYPED_FFI, '
        'frontend_attributes={a="x, y",b="{1}"}, backend_config={key = "a,b"}, '
        'metadata={op_name="jit(f)/\\"g\\"" source_file="f.py" source_line=12}'
    )  # fmt: skip
    data = text_to_proto(module("  p = f32[2]{0} parameter(0)\n" + line))
    call = parse(data).computations[0].instructions[1]
    assert call.custom_call_target == "launch"
    assert call.custom_call_api_version == 4
    assert call.custom_call_has_side_effect
    assert call.constrain_layout
    assert call.backend_config == b'{key = "a,b"}'
    assert {e.key: e.value for e in call.frontend_attributes.map} == {"a": "x, y", "b": "{1}"}
    assert call.output_operand_aliasing[0].output_shape_index == [0]
    source = from_proto(data).entry.root.source
    assert (source.op_name, source.file, source.line) == ('jit(f)/"g"', "f.py", 12)


def test_control_predecessors_are_kept():
    body = (
        "  p = f32[] parameter(0)\n  a = f32[] tanh(p)\n"
        "  ROOT b = f32[] sine(p), control-predecessors={a}"
    )
    graph = from_proto(text_to_proto(module(body))).entry
    assert [op.opcode for op in graph] == ["parameter", "tanh", "sine"]
    assert graph.root.control == (graph.ops[1].origin,)


def test_operands_may_carry_their_shapes():
    body = "  %p = f32[2]{0} parameter(0)\n  ROOT %t = f32[2]{0} tanh(f32[2]{0} %p)"
    [got] = evaluate(from_proto(text_to_proto(module(body))).entry, [np.zeros(2, np.float32)])
    np.testing.assert_array_equal(got, [0, 0])


P = "  p = f32[2]{0} parameter(0)\n"
BAD = {
    "not with HloModule": "module {\n}",
    "it is empty": "\n",
    "0 ENTRY computations": "HloModule m\n\nf {\n  ROOT p = f32[] parameter(0)\n}\n",
    "attribute foo=1 is not known": module(P + "  ROOT t = f32[2]{0} tanh(p), foo=1"),
    "q is not an instruction": module(P + "  ROOT t = f32[2]{0} tanh(q)"),
    "computation g is missing": module(P + "  ROOT t = f32[2]{0} call(p), to_apply=g"),
    "no shape this version knows": module("  ROOT p = q7[2]{0} parameter(0)"),
    "dynamic dimension": module("  ROOT p = f32[<=2]{0} parameter(0)"),
    "print_large_constants=True": module("  ROOT c = f32[99]{0} constant({...})"),
    "holds 1 elements": module("  ROOT c = f32[2]{0} constant({1})"),
    "constants of type s4": module("  ROOT c = s4[] constant(1)"),
    "is no instruction": module("  nonsense"),
    "has no opcode": module("  x = f32[2]{0}"),
    "ends inside": "HloModule m\n\nENTRY f {\n  ROOT p = f32[] parameter(0)\n",
    "module attribute odd=1": module(P + "  ROOT t = f32[2]{0} tanh(p)", ", odd=1"),
    "stands outside": "HloModule m\n\nROOT p = f32[] parameter(0)\n",
    "sharding {devices": module(P + "  ROOT t = f32[2]{0} tanh(p), sharding={devices=[2]0,1}"),
}  # fmt: skip


@pytest.mark.parametrize("message", BAD)
def test_unreadable_text_says_where(message):
    with pytest.raises(ImportModuleError, match=message):
        text_to_proto(BAD[message])
