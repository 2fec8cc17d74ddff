"""Order, users and reachability of graphs."""

from fusionstitch.hlo.graph import Graph, Op, Shape, ids, topological

S = Shape("f32", (2, 3))


def op(opcode, *operands, **kwargs):
    return Op(opcode, S, operands, name=opcode, **kwargs)


def test_shapes_know_their_bytes():
    assert (S.bytes, S.size, S.rank, str(S)) == (24, 6, 2, "f32[2,3]")
    pair = Shape("tuple", (), (S, Shape("bf16", (4,)), Shape("token")))
    assert (pair.bytes, str(pair)) == (32, "(f32[2,3], bf16[4], token[])")


def test_topological_order_is_depth_first_left_to_right():
    a, b, c = op("a"), op("b"), op("c")
    left, right = op("left", b, a), op("right", a, c)
    root = op("root", left, right)
    assert [o.name for o in topological(root, [])] == ["b", "a", "left", "c", "right", "root"]


def test_other_ops_follow_the_root():
    a = op("a")
    assert [o.name for o in topological(op("root", a), [op("effect", a), op("unread")])] == [
        *("a", "root", "effect", "unread")
    ]


def test_control_predecessors_come_first():
    a = op("a")
    late = op("late", a, origin=7)
    root = op("root", a, control=(7,))
    assert [o.name for o in topological(root, [late])] == ["a", "late", "root"]


def test_long_chains_do_not_recurse():
    last = op("x")
    for _ in range(20_000):
        last = op("t", last)
    assert len(topological(last, [])) == 20_001


def test_users_and_reach():
    a, b = op("a", origin=1), op("b", origin=2)
    twice = op("twice", a, a, origin=3)
    ordered = op("ordered", b, control=(3,), origin=4)
    graph = Graph("g", (a, b, twice, ordered), ordered)
    assert graph.users == ((twice,), (ordered,), (), ())
    assert [list(ids(bits)) for bits in graph.reach] == [[0], [1], [0, 2], [0, 1, 2, 3]]
    assert [list(ids(bits)) for bits in graph.dependents] == [[0, 2, 3], [1, 3], [2, 3], [3]]


def test_positions_of_bits_are_ascending():
    for indices in (
        [],
        [0],
        [5],
        [0, 1, 2, 3],
        [3, 700],
        list(range(40, 90)),
        [0, *range(7, 99, 3)],
    ):
        assert list(ids(sum(1 << index for index in indices))) == indices
