"""Dominance seen from the outputs, against the definition: enumeration of all paths."""

import random

import pytest

from fusionstitch.codegen.loops.dominance import DominanceTree
from fusionstitch.hlo.graph import Op, Shape

SCALAR = Shape("f32")


def make(*operands):
    return Op("add", SCALAR, tuple(operands))


def paths(op, users, outputs):
    """All paths from op to the virtual tuple, as sets of ops."""
    found = [frozenset([op])] if op in outputs else []
    for user in users.get(op, ()):
        found += [path | {op} for path in paths(user, users, outputs)]
    return found


def random_pattern(seed):
    rng = random.Random(seed)
    outside = [make() for _ in range(2)]
    ops = []
    for _ in range(rng.randint(1, 9)):
        ops.append(make(*rng.choices(outside + ops[-5:], k=rng.randint(1, 3))))
    outputs = rng.sample(ops, rng.randint(1, min(3, len(ops))))
    return ops, outputs


@pytest.mark.parametrize("seed", range(150))
def test_against_all_paths(seed):
    ops, outputs = random_pattern(seed)
    tree = DominanceTree(ops, outputs)
    users = {}
    for op in ops:
        for operand in dict.fromkeys(op.operands):
            users.setdefault(operand, []).append(op)
    for b in ops:
        found = paths(b, users, outputs)
        dominators = [a for a in ops if found and all(a in path for path in found)]
        assert [a for a in ops if tree.dominates(a, b)] == dominators
        # the immediate one is the first dominator after b: dominators form a chain
        above = [a for a in dominators if a is not b]
        assert tree.immediate(b) is (above[0] if above else None)


def test_diamond():
    a = make()
    left, right = make(a), make(a)
    join = make(left, right)
    tree = DominanceTree([a, left, right, join], [join])
    assert tree.immediate(a) is join
    assert tree.dominates(join, a)
    assert not tree.dominates(left, a)


def test_an_op_that_is_also_an_output_is_dominated_by_no_other():
    a = make()
    b = make(a)
    tree = DominanceTree([a, b], [a, b])
    assert tree.immediate(a) is None
    assert not tree.dominates(b, a)


def test_an_op_no_output_reads_is_in_no_relation():
    a, dead = make(), make()
    tree = DominanceTree([a, dead], [a])
    assert tree.immediate(dead) is None
    assert not tree.dominates(a, dead)
    assert not tree.dominates(dead, dead)


def test_a_long_chain_needs_no_recursion():
    ops = [make()]
    for _ in range(20_000):
        ops.append(make(ops[-1], ops[max(0, len(ops) - 2)]))
    tree = DominanceTree(ops, [ops[-1]])
    assert tree.dominates(ops[-1], ops[0])
    assert tree.immediate(ops[-2]) is ops[-1]
