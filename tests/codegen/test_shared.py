"""SharedPlanning: Figure 1's numbers, the two traps, and a fuzz with independent liveness."""

import random

import pytest

from fusionstitch.codegen.loops.dominance import DominanceTree
from fusionstitch.codegen.memory.shared import SharedPlan, SharedRequest, plan_shared
from fusionstitch.hlo.errors import VerifyError
from fusionstitch.hlo.graph import Op, Shape
from fusionstitch.hlo.verdict import Verdict

LIMIT = 1 << 20


def request(op, bytes=0, reads=(), in_place=(), **more):
    return SharedRequest(
        op, bytes, frozenset(reads) | frozenset(in_place), frozenset(in_place), **more
    )


def after(*chain):
    """Dominance of a chain: everything later dominates everything earlier."""
    return lambda a, b: chain.index(a) >= chain.index(b)


def nothing(a, b):
    return a == b


FIGURE_1 = [
    request("dot_1", 94 * 94 * 4),
    request("add", 94 * 94 * 4, in_place=["dot_1"]),
    request("reduce_max", 94 * 4, reads=["add"]),
    request("reduce_sum", 94 * 4, reads=["add", "reduce_max"]),
    request("out", reads=["add", "reduce_max", "reduce_sum"]),
]


def figure_1_dominates(a, b):
    order = ["dot_1", "add", "out"]
    return a == b or (a == "add" and b == "dot_1") or (a == "out" and b in order)


def test_figure_1_add_reuses_the_space_of_dot_1():
    plan = plan_shared(FIGURE_1, figure_1_dominates, LIMIT)
    assert plan.results["dot_1"] == plan.results["add"]
    assert plan.total == 35_344 + 384 + 376
    assert (plan.requests, plan.buffers, plan.shares) == (4, 3, 1)


def test_figure_1_without_sharing_takes_the_72_kb_of_the_paper():
    plan = plan_shared(FIGURE_1, figure_1_dominates, LIMIT, sharing=False)
    assert plan.total == plan.unshared == 2 * 35_344 + 384 + 376
    assert (plan.buffers, plan.shares, plan.reclaims) == (4, 0, 0)


def test_the_volume_is_forbidden_with_its_facts():
    verdict = plan_shared(FIGURE_1, figure_1_dominates, 36_000)
    assert isinstance(verdict, Verdict)
    assert not verdict
    assert dict(verdict.facts) == {
        "shared_bytes": 36_104,
        "limit": 36_000,
        "unshared_bytes": 71_448,
    }


def test_a_reader_that_permutes_cannot_overwrite_but_frees_for_the_next():
    schedules = [
        request("a", 64),
        request("b", 64, reads=["a"]),
        request("c", 64, reads=["b"]),
    ]
    plan = plan_shared(schedules, after("a", "b", "c"), LIMIT)
    assert plan.results["b"].offset != plan.results["a"].offset
    assert plan.results["c"].offset == plan.results["a"].offset


def test_in_place_needs_equal_sizes():
    schedules = [request("f32", 64), request("bf16", 32, in_place=["f32"])]
    plan = plan_shared(schedules, after("f32", "bf16"), LIMIT)
    assert plan.buffers == 2


def test_in_place_after_another_reader():
    schedules = [
        request("a", 64),
        request("sum", 4, reads=["a"]),
        request("b", 64, reads=["sum"], in_place=["a"]),
    ]
    plan = plan_shared(schedules, after("a", "sum", "b"), LIMIT)
    assert plan.results["b"].offset == plan.results["a"].offset


def test_a_shared_buffer_grows_to_the_larger_owner():
    schedules = [request("a", 64), request("s", 16, reads=["a"]), request("b", 256, reads=["s"])]
    plan = plan_shared(schedules, after("a", "s", "b"), LIMIT)
    assert plan.results["a"].buffer == plan.results["b"].buffer
    assert plan.total == 256 + 16


def test_a_reclaimed_buffer_has_one_new_owner_only():
    # x reclaims a and b; y takes one of them; z dominates a but must not take y's space.
    schedules = [
        request("a", 64),
        request("b", 64),
        request("x", 64, in_place=["a", "b"]),
        request("y", 64, reads=["x"]),
        request("z", 64, reads=["x", "y"]),
        request("out", reads=["y", "z"]),
    ]
    plan = plan_shared(schedules, after("a", "b", "x", "y", "z", "out"), LIMIT)
    assert plan.buffers == 3
    assert len({plan.results[op].buffer for op in "xyz"}) == 3
    assert plan.reclaims == 4  # b at x, then x at z, y and z at out


def test_scratch_lives_only_while_its_schedule_runs():
    schedules = [
        request("a", 64, scratch=32),
        request("b", 64, reads=["a"], scratch=32),
        request("out", reads=["b"], scratch=128),
    ]
    plan = plan_shared(schedules, after("a", "b", "out"), LIMIT)
    assert plan.results["b"].buffer == plan.scratch["a"].buffer
    assert plan.scratch["out"].buffer == plan.results["a"].buffer
    assert plan.total == 128 + 64 + 32


def test_packed_chains_share_after_the_last_reader_when_the_limit_asks_for_it():
    schedules = [
        request("a", 64),
        request("out_a", reads=["a"]),
        request("b", 64),
        request("out_b", reads=["b"]),
    ]
    roomy = plan_shared(schedules, nothing, 128)
    assert roomy.total == 128
    tight = plan_shared(schedules, nothing, 127)
    assert tight.total == 64


def test_inside_a_nest_a_buffer_changes_hands_in_place_only():
    def plan(**nest):
        schedules = [
            request("v", 64),
            request("narrow", 16, in_place=["v"], **nest),  # too small for v's buffer
            request("other", 64, **nest),
            request("out", reads=["narrow", "other"]),
        ]
        return plan_shared(schedules, after("v", "narrow", "other", "out"), LIMIT)

    apart = plan()
    assert apart.results["other"].buffer == apart.results["v"].buffer
    interleaved = plan(nest=1)
    assert interleaved.buffers == 3


def test_in_place_beside_a_reader_of_the_same_nest():
    def plan(**how):
        schedules = [
            request("v", 64),
            request("s", 4, nest=1, **how),
            request("w", 64, in_place=["v"], nest=1),
            request("out", reads=["s", "w"]),
        ]
        return plan_shared(schedules, after("v", "s", "w", "out"), LIMIT)

    assert plan(reads=["v"]).buffers == 3
    same_element = plan(in_place=["v"])
    assert same_element.results["w"] == same_element.results["v"]


def test_alignment_is_kept():
    schedules = [request("a", 4), request("b", 4, align=128), request("out", reads=["a", "b"])]
    plan = plan_shared(schedules, nothing, LIMIT)
    assert (plan.results["b"].offset, plan.results["a"].offset, plan.total) == (0, 16, 20)


def test_a_schedule_must_read_what_was_written():
    with pytest.raises(VerifyError, match="Schedule b reads a from shared memory, but no earlier"):
        plan_shared([request("b", 4, reads=["a"])], nothing, LIMIT)
    with pytest.raises(VerifyError, match="Two schedules write the shared result of a"):
        plan_shared([request("a", 4), request("a", 4)], nothing, LIMIT)


# ---- fuzz: a random pattern, its schedules, and the bytes simulated in the planned order ---------


def random_schedules(seed):
    """A random pattern of ops, some of which write shared memory; the rest is inlined."""
    rng = random.Random(seed)
    ops = [Op("add", Shape("f32"), ())]
    for _ in range(rng.randint(3, 24)):
        ops.append(Op("add", Shape("f32"), tuple(rng.choices(ops[-4:], k=rng.randint(1, 2)))))
    used = {operand for op in ops for operand in op.operands}
    outputs = [op for op in ops if op not in used or rng.random() < 0.05]
    shared = {op for op in ops if rng.random() < 0.6}
    shared_reads, schedules = {}, []
    nest = 0
    for op in ops:
        reads = frozenset().union(
            *({o} if o in shared else shared_reads[o] for o in op.operands), frozenset()
        )
        shared_reads[op] = reads
        if op not in shared and op not in outputs:
            continue
        in_place = frozenset(r for r in sorted(reads, key=ops.index) if rng.random() < 0.7)
        size = rng.choice([4, 64, 64, 100]) if op in shared else 0
        scratch = rng.choice([0, 0, 32])
        align = rng.choice([16, 16, 128])
        nest += rng.random() < 0.5
        schedules.append(SharedRequest(op, size, reads, in_place, scratch, align, nest))
    return ops, outputs, schedules


def simulate(schedules, plan):
    """Runs the schedules over bytes tagged with who wrote them; a reader must find its operand.

    A schedule that reads in place reads and writes element by element; every other one may read
    its operands until after its last write.
    """
    memory = {}

    def tags(own):
        return {memory.get(byte) for byte in range(own.offset, own.offset + own.bytes)}

    def write(own, tag):
        memory.update((byte, tag) for byte in range(own.offset, own.offset + own.bytes))

    for schedule in schedules:
        op = schedule.op
        for read in schedule.reads:
            assert tags(plan.results[read]) == {read}
        if schedule.scratch:
            write(plan.scratch[op], (op, "scratch"))
        if schedule.bytes:
            write(plan.results[op], op)
        if schedule.scratch:
            assert tags(plan.scratch[op]) == {(op, "scratch")}
        for read in schedule.reads:
            mine = op in plan.results and plan.results[read] == plan.results[op]
            assert tags(plan.results[read]) == {op if mine else read}
            assert not mine or read in schedule.in_place


def accesses(schedule, plan):
    """(allocation, op) pairs that a schedule touches."""
    own = [
        (where[schedule.op], schedule.op)
        for where in (plan.results, plan.scratch)
        if schedule.op in where
    ]
    return own + [(plan.results[op], op) for op in schedule.reads]


def disjoint(a, b):
    return a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset


def check_same_element(earlier, later, op, own, plan):
    """Two schedules of one nest may touch the same bytes only thread by thread, in place."""
    assert op == earlier.op or op in earlier.in_place
    assert own == plan.results[later.op]
    assert any(plan.results[o] == own for o in later.in_place)


@pytest.mark.parametrize("seed", range(300))
def test_no_live_ranges_overlap(seed):
    ops, outputs, schedules = random_schedules(seed)
    tree = DominanceTree(ops, outputs)
    for sharing in (True, False):
        plan = plan_shared(schedules, tree.dominates, LIMIT, sharing)
        assert isinstance(plan, SharedPlan)
        assert plan.total <= plan.unshared
        simulate(schedules, plan)
    tightest = plan_shared(schedules, tree.dominates, 0)
    if isinstance(tightest, Verdict):
        limit = dict(tightest.facts)["shared_bytes"]
        plan = plan_shared(schedules, tree.dominates, limit)
        simulate(schedules, plan)


def test_the_fuzz_exercises_every_way_of_reuse():
    plans = []
    for seed in range(300):
        ops, outputs, schedules = random_schedules(seed)
        plans.append(plan_shared(schedules, DominanceTree(ops, outputs).dominates, LIMIT))
    assert sum(p.shares for p in plans) > 150
    assert sum(p.reclaims for p in plans) > 1500
    assert any(p.total < p.unshared / 2 for p in plans)
