"""Typed attributes, constants, sources and errors of the importer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fusionstitch.hlo.errors import ImportModuleError
from fusionstitch.hlo.graph import Shape
from fusionstitch.hlo.importer import from_proto, parse
from fusionstitch.hlo.schema import PRIMITIVE_NUMBERS

X = jnp.ones((4, 6))


def lower(fun, *args):
    return jax.jit(fun).lower(*args).compiler_ir("hlo").as_serialized_hlo_module_proto()


def find(opcode, fun, *args):
    for graph in from_proto(lower(fun, *args)).graphs:
        for op in graph:
            if op.opcode == opcode:
                return op
    raise AssertionError(f"no {opcode}")


ATTRS = {
    "parameter": (lambda x: x, {"index": 0}),
    "iota": (lambda x: x + lax.iota(jnp.float32, 6), {"dimension": 0}),
    "broadcast": (lambda x: lax.broadcast_in_dim(x, (4, 3, 6), (0, 2)), {"dimensions": (0, 2)}),
    "transpose": (lambda x: x.T, {"dimensions": (1, 0)}),
    "reshape": (lambda x: x.reshape(24), {}),
    "slice": (
        lambda x: x[1:4:2, 2:],
        {"start": (1, 2), "limit": (4, 6), "stride": (2, 1)},
    ),
    "pad": (
        lambda x: lax.pad(x, 0.0, ((1, -1, 0), (0, 2, 3))),
        {"low": (1, 0), "high": (-1, 2), "interior": (0, 3)},
    ),
    "concatenate": (lambda x: jnp.concatenate([x, x], 1), {"dimension": 1}),
    "reverse": (lambda x: x[::-1, ::-1], {"dimensions": (0, 1)}),
    "dynamic-slice": (
        lambda x: lax.dynamic_slice(x, (x[0, 0].astype(int), 1), (2, 3)),
        {"sizes": (2, 3)},
    ),
    "dot": (
        lambda x: lax.dot_general(x, x, (((1,), (1,)), ((0,), (0,))), precision="highest"),
        {
            "lhs_batch": (0,), "rhs_batch": (0,), "lhs_contract": (1,), "rhs_contract": (1,),
            "precision": "highest", "algorithm": "unset",
        },
    ),
    "compare": (lambda x: x >= 1, {"direction": "GE", "total_order": False}),
    "reduce-precision": (
        lambda x: lax.reduce_precision(x, 5, 10),
        {"exponent_bits": 5, "mantissa_bits": 10},
    ),
    "sort": (lambda x: lax.sort(x, dimension=0), {"dimension": 0}),
}  # fmt: skip


@pytest.mark.parametrize("opcode", ATTRS)
def test_attributes(opcode):
    fun, attrs = ATTRS[opcode]
    assert find(opcode, fun, X).attrs == attrs


def test_gather_attributes():
    op = find("gather", lambda x: x[jnp.array([3, 1])], X)
    assert op.attrs["offset_dims"] == (1,)
    assert op.attrs["collapsed_slice_dims"] == (0,)
    assert op.attrs["start_index_map"] == (0,)
    assert op.attrs["index_vector_dim"] == 1
    assert op.attrs["slice_sizes"] == (1, 6)


@pytest.mark.parametrize(
    ("fun", "reducer"),
    [
        (jnp.sum, "add"),
        (jnp.max, "maximum"),
        (jnp.min, "minimum"),
        (jnp.prod, "multiply"),
        (lambda x: (x > 0).all(), "and"),
        (lambda x: (x > 0).any(), "or"),
        (jnp.argmax, None),
        (lambda x: lax.reduce(x, 0.0, lambda a, b: a * 2 + b, (0, 1)), None),
    ],
)
def test_reducers(fun, reducer):
    op = find("reduce", fun, X)
    assert op.attrs["reducer"] == reducer
    assert len(op.called) == 1


def test_total_order_is_of_floats_only():
    order = {
        dtype: [
            op.attrs["total_order"]
            for graph in from_proto(lower(jnp.sort, X.astype(dtype))).graphs
            for op in graph
            if op.opcode == "compare" and op.attrs["direction"] == "LT"
        ]
        for dtype in ("float32", "int32")
    }
    assert order == {"float32": [True], "int32": [False]}


@pytest.mark.parametrize(
    "dtype",
    [
        *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "bfloat16"),
        *("float32", "complex64", "float8_e4m3fn", "float8_e5m2"),
    ],
)
def test_constants(dtype):
    value = jnp.asarray(np.array([[0, 1, 2], [3, 1, 0]]), dtype)
    op = find("constant", lambda: value)
    np.testing.assert_array_equal(op.attrs["value"], np.asarray(value))
    assert op.attrs["value"].dtype == value.dtype
    assert not op.attrs["value"].flags.writeable


def test_wide_constants():
    with jax.enable_x64(True):
        for value in (np.array([2**63 + 1, 3], np.uint64), np.array([-(2**60)]), np.array([1e300])):
            np.testing.assert_array_equal(find("constant", lambda v=value: v).attrs["value"], value)


def test_constants_stored_in_another_layout():
    proto = parse(lower(lambda: np.arange(6, dtype=np.float32).reshape(2, 3)))
    [constant] = proto.computations[0].instructions
    constant.literal.shape.layout.minor_to_major[:] = [0, 1]
    [op] = from_proto(proto.SerializeToString()).entry
    np.testing.assert_array_equal(op.attrs["value"], [[0, 2, 4], [1, 3, 5]])


def test_loops_and_branches_name_what_they_call():
    loop = find("while", lambda x: lax.fori_loop(0, 3, lambda i, c: c * 2, x), X)
    condition, body = loop.called
    assert condition.root.shape == Shape("pred")
    assert body.root.shape == loop.shape
    branches = find("conditional", lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), X).called
    assert len(branches) == 2


def test_stitchable_graphs_come_callees_first():
    def fun(x):
        return lax.fori_loop(
            0, 3, lambda i, c: lax.cond(c[0, 0] > 0, jnp.sin, jnp.cos, c), x.sum(0, keepdims=True)
        )

    module = from_proto(lower(fun, X))
    seen = set()
    for graph in module.stitchable:
        for op in graph:
            if op.opcode in ("while", "conditional"):
                assert set(op.called) <= seen
        seen.add(graph)
    assert module.entry is module.stitchable[-1]
    assert not any(op.opcode == "reduce" and op.called[0] in seen for g in seen for op in g)


def test_source_is_the_users_line():
    op = find("tanh", lambda x: jnp.tanh(x), X)
    assert op.source.op_name.endswith("tanh")
    assert op.source.file.endswith("test_importer.py")
    assert op.source.line > 100


def test_order_is_depth_first_from_the_root():
    graph = from_proto(lower(lambda x, y: jnp.exp(jnp.sin(y)) - jnp.cos(x), X, X)).entry
    opcodes = [op.opcode for op in graph]
    assert opcodes == ["parameter", "sine", "exponential", "parameter", "cosine", "subtract"]
    assert [p.attrs["index"] for p in graph.parameters] == [0, 1]


def test_layout_bitcasts_are_left_alone():
    proto = parse(lower(lambda x: x.reshape(6, 4), X))
    reshape = proto.computations[0].instructions[1]
    reshape.opcode = "bitcast"
    assert from_proto(proto.SerializeToString()).entry.root.opcode == "bitcast"
    reshape.shape.layout.minor_to_major[:] = [0, 1]
    assert from_proto(proto.SerializeToString()).entry.root.opcode == "layout-bitcast"


def test_bitcasts_between_types_are_left_alone():
    """What XLA compiled may hold them: a sort compares floats by their bits."""
    proto = parse(lower(jnp.tanh, X))
    proto.computations[0].instructions[1].opcode = "bitcast"
    proto.computations[0].instructions[1].shape.element_type = PRIMITIVE_NUMBERS["s32"]
    assert from_proto(proto.SerializeToString()).entry.root.opcode == "layout-bitcast"


def edited(change):
    proto = parse(lower(lambda x: jnp.tanh(x).sum(), X))
    change(proto, proto.computations[-1].instructions)
    return proto.SerializeToString()


def dynamic(proto, instructions):
    instructions[0].shape.is_dynamic_dimension[0] = True


MALFORMED = {
    "is not unique": lambda p, i: setattr(i[1], "id", i[0].id),
    "operand 12345 is missing": lambda p, i: i[1].operand_ids.append(12345),
    "Computation 99 is called but missing": lambda p, i: i[-1].called_computation_ids.append(99),
    "has no root": lambda p, i: setattr(p.computations[-1], "root_id", 4),
    "dynamic dimensions": dynamic,
    "unknown element type 77": lambda p, i: setattr(i[1].shape, "element_type", 77),
    "calls itself": lambda p, i: i[-1].called_computation_ids.append(p.entry_computation_id),
    "attributes are malformed": lambda p, i: [
        c.literal.ClearField("f32s") for c in i if c.opcode == "constant"
    ],
}


@pytest.mark.parametrize("message", MALFORMED)
def test_malformed_modules_are_refused(message):
    with pytest.raises(ImportModuleError, match=message):
        from_proto(edited(MALFORMED[message]))


def test_other_bytes_are_refused():
    with pytest.raises(ImportModuleError, match="no HloModuleProto"):
        from_proto(b"\xff\xff not a module")
    with pytest.raises(ImportModuleError, match="holds no computation"):
        from_proto(b"")
