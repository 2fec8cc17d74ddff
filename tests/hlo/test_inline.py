"""Plain calls disappear; calls that say more stay."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.hlo import inline
from fusionstitch.hlo.edit import drop_uncalled
from fusionstitch.hlo.errors import ImportModuleError
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.importer import from_proto, parse
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.hlo.text import text_to_proto
from fusionstitch.hlo.verify import verify_module

HALF = """
inner {
  a = f32[] parameter(0)
  ROOT t = f32[] tanh(a), metadata={op_name="tanh"}
}
same {
  ROOT a = f32[] parameter(0)
}
twice {
  a = f32[] parameter(0)
  b = f32[] call(a), to_apply=inner, metadata={op_name="jit(inner)"}
  c = f32[] call(b), to_apply=inner
  ROOT s = f32[] add(b, c)
}
"""


def module(body):
    return text_to_proto(
        f"HloModule m\n{HALF}\nENTRY main {{\n  x = f32[] parameter(0)\n{body}\n}}\n"
    )


def opcodes(data):
    return [op.opcode for op in from_proto(data).entry]


def test_nested_calls_are_inlined_and_callees_dropped():
    data = inline_calls(module("  ROOT r = f32[] call(x), to_apply=twice"))
    verify_module(data)
    assert opcodes(data) == ["parameter", "tanh", "tanh", "add"]
    assert [c.name for c in parse(data).computations] == ["main"]  # nothing calls "same"
    [got] = evaluate(from_proto(data).entry, [np.float32(0.5).reshape(())])
    once = np.tanh(np.float32(0.5))
    assert got == once + np.tanh(once)


def test_op_names_get_the_calls_as_prefix():
    body = '  ROOT r = f32[] call(x), to_apply=twice, metadata={op_name="jit(f)"}'
    names = [op.source.op_name for op in from_proto(inline_calls(module(body))).entry]
    assert names == ["", "jit(f)/jit(inner)/tanh", "jit(f)/tanh", "jit(f)"]


def test_a_callee_that_returns_its_argument():
    data = inline_calls(module("  c = f32[] call(x), to_apply=same\n  ROOT r = f32[] negate(c)"))
    assert opcodes(data) == ["parameter", "negate"]


@pytest.mark.parametrize(
    "more",
    [
        'frontend_attributes={_xla_compute_type="host"}',
        'backend_config="{}"',
        "sharding={replicated}",
    ],
)
def test_calls_that_say_more_stay(more):
    data = module(f"  ROOT r = f32[] call(x), to_apply=inner, {more}")
    assert opcodes(inline_calls(data)) == ["parameter", "call"]


def test_callees_on_other_threads_stay():
    proto = parse(module("  ROOT r = f32[] call(x), to_apply=inner"))
    proto.computations[0].execution_thread = "host"
    data = proto.SerializeToString()
    assert inline_calls(data) == data


def test_control_dependences_hold_for_what_was_inside():
    body = (
        "  e = f32[] sine(x)\n  c = f32[] call(x), to_apply=twice, control-predecessors={e}\n"
        "  ROOT r = f32[] negate(x), control-predecessors={c}"
    )
    data = inline_calls(module(body))
    verify_module(data)
    graph = from_proto(data).entry
    before = {op.opcode: op for op in graph}
    assert opcodes(data) == ["parameter", "sine", "tanh", "tanh", "add", "negate"]
    assert all(op.control == (before["sine"].origin,) for op in graph.ops[2:5])
    assert set(before["negate"].control) == {op.origin for op in graph.ops[2:5]}


def test_loops_inside_callees_survive_being_inlined_twice():
    @jax.jit
    def power(x):
        return jax.lax.fori_loop(0, 3, lambda _, c: c * x, x)

    def fun(x):
        return power(x) + power(x + 1)

    x = jnp.float32(2)
    data = jax.jit(fun).lower(x).compiler_ir("hlo").as_serialized_hlo_module_proto()
    inlined = inline_calls(data)
    verify_module(inlined)
    assert sum(code == "while" for code in opcodes(inlined)) == 2
    assert evaluate(from_proto(inlined).entry, [np.asarray(x)]) == [2**4 + 3**4]


def looping():
    """A module with two loops that are one loop in a loop, and what it gives of 2."""

    @jax.jit
    def power(x):
        inner = lambda _, c: c * x  # noqa: E731
        return jax.lax.fori_loop(0, 2, lambda _, c: jax.lax.fori_loop(0, 2, inner, c), x)

    def fun(x):
        return power(x) + power(x + 1)

    lowered = jax.jit(fun).lower(jnp.float32(2)).compiler_ir("hlo")
    return lowered.as_serialized_hlo_module_proto(), 2**5 + 3**5


def bodies(data):
    """The computations that loops run, each as often as it is run."""
    return [
        ident
        for computation in parse(data).computations
        for one in computation.instructions
        if one.opcode == "while"
        for ident in one.called_computation_ids
    ]


def test_each_loop_gets_a_body_of_its_own():
    data, result = looping()
    inlined = inline_calls(data)
    verify_module(inlined)
    found = bodies(inlined)
    assert len(found) == len(set(found)) == 8
    assert evaluate(from_proto(inlined).entry, [np.float32(2)]) == [result]
    assert inline_calls(inlined) == inlined


def test_loops_that_share_a_body_without_a_call_are_parted():
    """As they come from XLA, which inlines calls without a copy of what loops run."""
    data, result = looping()
    shared = parse(inline_calls(data))
    by_id = {c.id: c for c in shared.computations}
    first, second = (
        i for i in by_id[shared.entry_computation_id].instructions if i.opcode == "while"
    )
    second.called_computation_ids[:] = first.called_computation_ids
    drop_uncalled(shared)
    shared = shared.SerializeToString(deterministic=True)
    assert len(set(bodies(shared))) < len(bodies(shared))
    parted = inline_calls(shared)
    verify_module(parted)
    assert len(set(bodies(parted))) == len(bodies(parted)) == 8
    assert evaluate(from_proto(parted).entry, [np.float32(2)]) == [result]


def test_loops_of_a_module_that_would_grow_too_large_share_bodies(monkeypatch):
    monkeypatch.setattr(inline, "MOST_COPIED", -1)
    data, result = looping()
    inlined = inline_calls(data)
    assert len(set(bodies(inlined))) < len(bodies(inlined))
    assert evaluate(from_proto(inlined).entry, [np.float32(2)]) == [result]


def test_recursion_is_refused():
    proto = parse(module("  ROOT r = f32[] call(x), to_apply=twice"))
    inner = proto.computations[0]
    call = inner.instructions[1]
    call.opcode = "call"
    call.called_computation_ids.append(inner.id)
    with pytest.raises(ImportModuleError, match="inner calls itself"):
        inline_calls(proto.SerializeToString())


def test_missing_callees_are_refused():
    proto = parse(module("  ROOT r = f32[] call(x), to_apply=inner"))
    proto.computations[-1].instructions[1].called_computation_ids[:] = [99]
    with pytest.raises(ImportModuleError, match="is called but missing"):
        inline_calls(proto.SerializeToString())


SCANNED = """
step {
  input = f32[] parameter(1)
  carry = f32[] parameter(0)
  s = f32[] add(input, carry)
  t = (f32[], f32[]) tuple(s, s)
  ROOT g = f32[] get-tuple-element(t), index=1
}
longer {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  e = f32[] exponential(a)
  ROOT s = f32[] add(e, b)
}
"""


def scanned(body):
    return text_to_proto(
        f"HloModule m\n{SCANNED}\nENTRY main {{\n  x = f32[3] parameter(0)\n"
        f"  y = f32[3] parameter(1)\n{body}\n}}\n"
    )


def test_a_map_by_one_op_is_that_op():
    """XLA joins the blocks of a running sum by the body of the scan that it was."""
    text = "  ROOT r = f32[3] map(x, y), dimensions={0}, to_apply=step"
    entry = from_proto(inline_calls(scanned(text))).entry
    assert (entry.root.opcode, [o.name for o in entry.root.operands]) == ("add", ["y", "x"])
    x, y = np.float32([[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(evaluate(entry, [x, y])[0], x + y)


def test_a_map_by_a_longer_body_stays():
    text = "  ROOT r = f32[3] map(x, y), dimensions={0}, to_apply=longer"
    assert from_proto(inline_calls(scanned(text))).entry.root.opcode == "map"


def test_the_body_of_a_scan_that_a_reduction_has_is_known():
    text = "  z = f32[] constant(0)\n  ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=step"
    assert from_proto(inline_calls(scanned(text))).entry.root.attrs["reducer"] == "add"
