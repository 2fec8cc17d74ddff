"""HLO text reads back as the module it was printed from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.hlo.errors import ImportModuleError
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.importer import from_proto, parse
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.hlo.text import text_to_proto
from fusionstitch.hlo.verify import verify_module


def lower(program):
    return jax.jit(program.fun, donate_argnums=program.donate).lower(*program.args)


def test_a_compiled_module_is_read_past_what_is_not_known() -> None:
    text = (
        "HloModule m, news={1}\n\nENTRY e {\n  p = f32[8192] parameter(0)\n"
        "  long = f32[8192] constant({...}), novelty=7\n"
        "  odd = s4[2] constant({1, 2}), sharding={devices=[2,1]<=[2]}\n"
        "  ROOT r = (f32[8192], s4[2], f32[8192]) tuple(p, odd, long)\n}\n"
    )
    with pytest.raises(ImportModuleError):
        text_to_proto(text)
    graph = from_proto(text_to_proto(text, compiled=True)).entry
    assert sorted(op.opcode for op in graph) == ["opaque-constant"] * 2 + ["parameter", "tuple"]


def test_text_gives_the_same_graphs(program):
    hlo = lower(program).compiler_ir("hlo")
    data = text_to_proto(hlo.as_hlo_text())
    verify_module(data)
    assert text_to_proto(hlo.as_hlo_text().replace("\n", " ")) == data
    got, expected = from_proto(data), from_proto(hlo.as_serialized_hlo_module_proto())
    for g, w in zip(got.graphs, expected.graphs, strict=True):
        assert str(g) == str(w)
        for a, b in zip(g, w, strict=True):
            assert a.attrs.keys() == b.attrs.keys()
            assert [c.name for c in a.called] == [c.name for c in b.called]
            if a.opcode != "constant":
                assert a.attrs == b.attrs
    assert got.proto.input_output_alias == expected.proto.input_output_alias
    assert got.proto.host_program_shape.result == expected.proto.host_program_shape.result


def test_text_runs_as_the_program(program):
    data = text_to_proto(lower(program).compiler_ir("hlo").as_hlo_text())
    for got, expected in zip(program.run(data), program.want, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_compiled_text_with_percent_signs_and_frames_is_read():
    compiled = jax.jit(lambda x: jnp.tanh(x).sum() * 2).lower(jnp.ones((3, 4))).compile()
    module = from_proto(text_to_proto(compiled.as_text()))
    [tanh] = [op for graph in module.graphs for op in graph if op.opcode == "tanh"]
    assert tanh.source.op_name.endswith("tanh")
    assert tanh.source.file.endswith("test_text.py")


def same(x):
    return x


@pytest.mark.parametrize(
    ("opcode", "fields", "fun", "args"),
    [
        (
            "convolution",
            (
                *("window", "convolution_dimension_numbers", "feature_group_count"),
                *("batch_group_count", "precision_config"),
            ),
            jax.grad(
                lambda k, x: jax.lax.conv_general_dilated(
                    *(x, k, (2, 1), ((1, 0), (2, 2)), (2, 1)),
                    feature_group_count=3,
                    dimension_numbers=("NHWC", "HWIO", "NHWC"),
                ).sum(),
                argnums=(0, 1),
            ),
            (np.ones((3, 3, 1, 6), "f"), np.ones((2, 6, 6, 3), "f")),
        ),
        ("topk", ("k", "largest"), lambda x: jax.lax.top_k(x, 2), (np.ones(5, "f"),)),
        ("rng", ("distribution",), lambda: jax.lax.rng_uniform(0.0, 1.0, (3,)), ()),
        (
            "rng-bit-generator",
            ("rng_algorithm",),
            lambda key: jax.lax.rng_bit_generator(key, (3,), algorithm=2),
            (np.zeros(4, np.uint32),),
        ),
        (
            "triangular-solve",
            ("triangular_solve_options",),
            lambda a: jax.lax.linalg.triangular_solve(
                a, a, left_side=True, transpose_a=True, unit_diagonal=True
            ),
            (np.ones((3, 3), "f"),),
        ),
        (
            "exponential",
            ("result_accuracy",),
            lambda x: jax.lax.exp(x, accuracy=jax.lax.AccuracyMode.HIGHEST),
            (np.ones(3, "f"),),
        ),
        (
            "custom-call",
            ("sharding",),
            lambda x: jax.pure_callback(same, x, x),
            (np.ones(3, "f"),),
        ),
    ],
)
def test_ops_that_xla_keeps_are_read_as_xla_writes_them(opcode, fields, fun, args):
    platform = "cuda" if opcode == "triangular-solve" else "cpu"
    hlo = jax.jit(fun).trace(*args).lower(lowering_platforms=(platform,)).compiler_ir("hlo")
    texts = [text_to_proto(hlo.as_hlo_text()), hlo.as_serialized_hlo_module_proto()]
    read, written = (
        [i for c in parse(data).computations for i in c.instructions if i.opcode == opcode]
        for data in texts
    )
    assert len(read) == len(written) > 0
    for a, b in zip(read, written, strict=True):
        for field in fields:
            assert getattr(a, field) == getattr(b, field), field


def module(body, header=""):
    return f"HloModule m{header}\n\nENTRY main {{\n{body}\n}}\n"


@pytest.mark.parametrize(
    ("shape", "text", "expected"),
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
def test_constants(shape, text, expected):
    data = text_to_proto(module(f"  ROOT c = {shape} constant({text})"))
    got = from_proto(data).entry.root.attrs["value"]
    np.testing.assert_array_equal(got, np.array(expected).astype(got.dtype))


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


def test_names_repeated_in_two_computations_are_told_apart():
    text = """HloModule m

f {
  x = f32[2]{0} parameter(0)
  x.1 = f32[2]{0} add(x, x)
  ROOT z = f32[2]{0} multiply(x.1, x)
}

ENTRY e {
  x = f32[2]{0} parameter(0)
  z = f32[2]{0} call(x), to_apply=f
  ROOT y = f32[2]{0} subtract(z, x)
}
"""
    data = text_to_proto(text)
    verify_module(data)
    module = from_proto(data)
    assert [[op.name for op in graph] for graph in module.graphs] == [
        ["x.2", "x.1", "z.1"],
        ["x", "z", "y"],
    ]
    [got] = evaluate(from_proto(inline_calls(data)).entry, [np.array([1, 3], np.float32)])
    np.testing.assert_array_equal(got, [1, 15])


@pytest.mark.parametrize(
    "text",
    [
        "HloModule m ENTRY e { p = f32[2] parameter(0) ROOT t = f32[2] tanh(p) }",
        "HloModule m\nENTRY e\n{\np = f32[2] parameter(0)\nROOT\nt =\nf32 [2]\ntanh(\np)}\n",
        "HloModule m\nENTRY e {\n  p = f32[2]{0} parameter(0)\n  ROOT t = f32[2]{0} tanh(p) }",
        "HloModule m\nENTRY e {\n  p = f32[2]{0} parameter(0)\n  ROOT t = f32[2]{0} tanh(p)}",
        "HloModule m\ne {\n  p = f32[2] parameter(0)\n  t = f32[2] tanh(p)\n}\n",
        "HloModule m\n// {\nENTRY e { // }\np = f32[2] parameter(0)\nt = f32[2] tanh(p) /* }\n */}",
        "HloModule m\nENTRY %e (p: f32[2]) -> f32[2] { p = f32[2] parameter(0)\nROOT t = f32[2]"
        ' tanh(f32[2] %p) }, execution_thread="main"',
        "HloModule m\r\n\r\nENTRY e {\r\n p = f32[2] parameter(0)\r\n t = f32[2] tanh(p)\r\n}\r\n",
    ],
)  # fmt: skip
def test_line_ends_mean_nothing(text):
    """XLA's own reader takes each of these for the same module."""
    assert text_to_proto(text) == text_to_proto(module(TANH).replace("main", "e"))


def test_a_brace_in_a_string_closes_nothing():
    body = '  p = f32[2]{0} parameter(0)\n  ROOT t = f32[2]{0} tanh(p),\nmetadata={op_name="} }"} }'
    data = text_to_proto(f"HloModule m\n\nENTRY e {{\n{body}\n")
    assert from_proto(data).entry.root.source.op_name == "} }"


def test_the_last_computation_is_the_entry_where_none_is_marked():
    text = module(TANH) + "\nlast {\n" + P + "  ROOT c = f32[2]{0} call(p), to_apply=main\n}\n"
    assert from_proto(text_to_proto(text.replace("ENTRY ", ""))).entry.name == "last"
    assert from_proto(text_to_proto(text)).entry.name == "main"


def test_a_frame_without_a_caller_says_1():
    tables = """FileNames
1 "f.py"

FileLocations
1 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=2 parent_frame_id=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=1 parent_frame_id=2}
"""
    index = parse(text_to_proto(f"HloModule m\n\n{tables}\n{MAIN}")).stack_frame_index
    assert [frame.parent_frame_id for frame in index.stack_frames] == [0, 1]
    assert (list(index.file_names), index.file_locations[0].line) == (["f.py"], 7)


P = "  p = f32[2]{0} parameter(0)\n"
MAIN = f"ENTRY main {{\n{P}}}\n"
TANH = P + "  ROOT t = f32[2]{0} tanh(p)"
BAD = {
    "not with HloModule": "module {\n}",
    "not with HloModule and a name": "HloModule\n\nENTRY f {\n" + P + "}\n",
    "it is empty": "\n// nothing /* but\n",
    "line 1: the module holds no computation": "HloModule m",
    "line 6: g is a second ENTRY": "HloModule m\n\nENTRY f {\n" + P + "}\nENTRY g {\n" + P + "}\n",
    "line 5: .* attribute foo=1 is not known": module(TANH + ", foo=1"),
    "line 5: attribute metadata is given twice": module(TANH + ", metadata={}, metadata={}"),
    "line 5: .*q is not an instruction": module(P + "  ROOT t = f32[2]{0} tanh(q)"),
    "line 4: .*p is not an instruction above it": module("  t = f32[2]{0} tanh(p)\n" + P),
    "line 5: .*'p p' is no operand": module(P + "  ROOT t = f32[2]{0} add(p p)"),
    "line 5: .*computation g is missing": module(P + "  ROOT t = f32[2]{0} call(p), to_apply=g"),
    "line 5: there is an instruction p already": module(P + P + "  ROOT t = f32[2]{0} tanh(p)"),
    "line 6: there is a computation f": "HloModule m\n\nENTRY f {\n" + P + "}\nf {\n" + P + "}",
    "line 5: t is a second ROOT": module("ROOT" + P + "  ROOT t = f32[2] tanh(p)"),
    "line 4: .*no shape this version knows": module("  ROOT p = q7[2]{0} parameter(0)"),
    "line 5: a shape is missing at 'tanh": module(P + "  ROOT t = tanh(p)"),
    "dynamic dimension": module("  ROOT p = f32[<=2]{0} parameter(0)"),
    "print_large_constants=True": module("  ROOT c = f32[99]{0} constant({...})"),
    "holds 1 elements": module("  ROOT c = f32[2]{0} constant({1})"),
    "constants of type s4": module("  ROOT c = s4[] constant(1)"),
    "line 4: 'nonsense' is no instruction": module("  nonsense"),
    "line 4: x has no opcode": module("  x = f32[2]{0}"),
    "line 4: computation f holds no": "HloModule m\n\nENTRY f {\n}\n",
    "line 5: .*ends inside computation f": "HloModule m\n\nENTRY f {\n" + P,
    "line 5: a bracket is not closed": module(P + "  ROOT t = f32[2]{0} tanh(p"),
    "line 4: a bracket is not closed in '.p} }'": module("  t = f32[2]{0} tanh(p}\n"),
    "line 1: module attribute odd=1": module(TANH, ", odd=1"),
    "line 1: .*input_output_alias={a}": module(TANH, ", input_output_alias={a}"),
    "line 3: 'ROOT p = f32.*stands outside": "HloModule m\n\nROOT p = f32[] parameter(0)\n",
    "line 7: 'more' stands outside": module(TANH) + "more",
    "line 6: '}' stands outside": module(TANH + " }"),
    "line 6: 'p = .*stands outside": module("/* two\nlines */" + P + "}" + TANH),
    "line 4: .* is no row of Stack": "HloModule m\n\nStackFrames\n1 {file 1}\n" + MAIN,
    "line 4: .* is no row of FileNames": "HloModule m\n\nFileNames\n1 {file=1}\n" + MAIN,
    "line 3: 'FileNames' stands outside": "HloModule m\n\nFileNames\n" + MAIN.replace("ENTRY ", ""),
    "sharding {devices": module(TANH + ", sharding={devices=[2]0,1}"),
}  # fmt: skip


@pytest.mark.parametrize("message", BAD)
def test_unreadable_text_says_where(message):
    with pytest.raises(ImportModuleError, match=message):
        text_to_proto(BAD[message])
