"""Broken graphs and protos are named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.hlo.errors import VerifyError
from fusionstitch.hlo.graph import Graph, Op, Shape
from fusionstitch.hlo.importer import from_proto, parse
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.hlo.verify import verify, verify_module

MATRIX, ROW, SCALAR = Shape("f32", (4, 8)), Shape("f32", (8,)), Shape("f32")


def parameter(shape=MATRIX, index=0):
    return Op("parameter", shape, attrs={"index": index}, name=f"p{index}")


def graph(*ops):
    return Graph("g", ops, ops[-1])


def test_real_programs_are_sound(program):
    for data in (program.hlo, inline_calls(program.hlo)):
        verify_module(data)
        for g in from_proto(data).graphs:
            verify(g)


X, S = parameter(), parameter(SCALAR, 1)
ZERO = Op("constant", SCALAR, attrs={"value": np.float32(0).reshape(())})
BAD = {
    "a result of shape f32\\[4,8\\]": Op("tanh", ROW, (X,)),
    "operands of one shape": Op("add", MATRIX, (X, S)),
    "a result of shape pred": Op("compare", MATRIX, (X, X), {"direction": "LT"}),
    "one result dimension for each": Op("broadcast", MATRIX, (S,), {"dimensions": (0,)}),
    "result dimensions of the operand's sizes": Op(
        "broadcast", Shape("f32", (4, 4)), (X,), {"dimensions": (0, 1)}
    ),
    "distinct dimensions below 2": Op(
        "broadcast", Shape("f32", (8, 8)), (X,), {"dimensions": (1, 1)}
    ),
    "32 elements": Op("reshape", Shape("f32", (31,)), (X,)),
    "a permutation of 2": Op("transpose", MATRIX, (X,), {"dimensions": (0, 0)}),
    "bounds inside 8": Op(
        "slice", MATRIX, (X,), {"start": (0, 0), "limit": (4, 9), "stride": (1, 1)}
    ),
    "a scalar of the operand's type": Op(
        "pad", MATRIX, (X, X), {"low": (0, 0), "high": (0, 0), "interior": (0, 0)}
    ),
    "differ in dimension 0 only": Op(
        "concatenate", MATRIX, (X, Op("iota", ROW, attrs={"dimension": 0})), {"dimension": 0}
    ),
    "scalar inits": Op("reduce", ROW, (X, X), {"dimensions": (0,), "reducer": "add"}),
    "contracted dimensions of equal sizes": Op(
        "dot", MATRIX, (X, X),
        {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (0,), "rhs_contract": (1,)},
    ),
    "malformed \\(KeyError\\('dimensions'\\)": Op("reduce", ROW, (X, ZERO)),
    "an index inside the tuple": Op(
        "get-tuple-element", SCALAR, (Op("tuple", Shape("tuple", (), (SCALAR,)), (S,)),),
        {"index": 1},
    ),
    "a dimension of the result": Op("iota", ROW, attrs={"dimension": 1}),
    "a pred to select by": Op("select", MATRIX, (X, X, X)),
    "scalar or equal bounds": Op("clamp", ROW, (S, parameter(ROW), X)),
    "two values of one shape": Op(
        "select", MATRIX, (Op("is-finite", Shape("pred", (4, 8)), (X,)), X, S)
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", BAD)
def test_shape_rules_name_what_was_expected(message):
    order: dict[Op, None] = {}

    def place(op):
        for operand in op.operands:
            place(operand)
        order[op] = None

    for op in (X, S, BAD[message]):
        place(op)
    with pytest.raises(VerifyError, match=message):
        verify(graph(*order))


def test_operands_come_first():
    x = parameter()
    tanh = Op("tanh", MATRIX, (x,), name="t")
    with pytest.raises(VerifyError, match=r"t = f32\[4,8\] tanh\(p0\): expected operand p0"):
        verify(Graph("g", (tanh, x), tanh))


def test_an_op_of_another_graph_is_found():
    x = parameter()
    graph(x)
    stranger = parameter()
    graph(stranger)
    with pytest.raises(VerifyError, match="to come before it"):
        verify(graph(stranger, Op("tanh", MATRIX, (x,))))


def test_copies_of_sound_ops_are_not_looked_at_again():
    looked = []
    rules = {"tanh": lambda op: looked.append(op) or op.operands[0].shape}
    x = parameter()
    sound = graph(x, Op("tanh", MATRIX, (x,)))
    y = parameter()
    copy = Op("tanh", MATRIX, (y,), sound.root.attrs)
    verify(graph(y, copy, Op("tanh", MATRIX, (copy,))), rules, sound)
    assert len(looked) == 1  # the one that is new
    row = parameter(ROW)
    with pytest.raises(VerifyError, match=r"a result of shape f32\[8\]"):
        verify(graph(row, Op("tanh", MATRIX, (row,), sound.root.attrs)), rules, sound)


def test_parameters_are_numbered():
    with pytest.raises(VerifyError, match=r"numbered \[0, 2\]"):
        verify(graph(parameter(index=0), parameter(index=2)))


def test_root_is_inside():
    x = parameter()
    with pytest.raises(VerifyError, match="is not in the graph"):
        verify(Graph("g", (x,), Op("tanh", MATRIX, (x,))))


def broken(change):
    lowered = jax.jit(lambda x: jnp.tanh(x).sum()).lower(jnp.ones(3))
    proto = parse(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
    change(proto, proto.computations[-1].instructions)
    return proto.SerializeToString()


def set_id(proto, instructions):
    instructions[1].id = instructions[0].id


PROTOS = {
    "is not unique in the module": set_id,
    "its name is not unique": lambda p, i: setattr(i[1], "name", i[0].name),
    "does not come before it": lambda p, i: i[1].operand_ids.append(12345),
    "calls 999, which is missing": lambda p, i: i[1].called_computation_ids.append(999),
    "its root 4 is missing": lambda p, i: setattr(p.computations[-1], "root_id", 4),
    "The entry computation 77 is missing": lambda p, i: setattr(p, "entry_computation_id", 77),
}


@pytest.mark.parametrize("message", PROTOS)
def test_protos_name_what_is_broken(message):
    with pytest.raises(VerifyError, match=message):
        verify_module(broken(PROTOS[message]))
