"""Whole plans: what is chosen, what is rejected, and why."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given

from fusionstitch.compiler.planning import GraphPlanner
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.costmodel.graph_work import GraphWork
from fusionstitch.costmodel.kernel_cost import Path
from fusionstitch.costmodel.xla_fusions import fused_into, xla_fusions
from fusionstitch.costmodel.xla_saved import saved_by_fusing_again
from fusionstitch.hlo.free import free_bits
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.verdict import Verdict, forbid
from fusionstitch.options import Options
from fusionstitch.patterns.fusible import fusible_ops
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.plan import Plan
from fusionstitch.plan.planner import Planner, make_scorer, plan
from fusionstitch.plan.scores import (
    CONFIRMED_OPS,
    MeasuredScorer,
    ModelScorer,
    PaperScorer,
    Score,
    is_complex,
    kind_of_pattern,
)
from fusionstitch.plan.search import Inspect
from tests.graphs import Builder, adam, layernorm_backward, random_graphs, softmax
from tests.plan.costs import kernel_of

H200 = device("h200")
SERIAL = frozenset({"reduce", "dot"})


def phased(pattern: Pattern) -> KernelFacts:
    """One that needs a grid barrier at every reduction and dot."""
    return kernel_of(pattern, phases=1 + sum(op.opcode in SERIAL for op in pattern.ops))


def _plan(graph: Graph, inspect: Inspect = kernel_of, **options: object) -> Plan:
    return plan(graph, H200, Options(**options), inspect)  # type: ignore[arg-type]


def _adds(count: int) -> Graph:
    b = Builder()
    return b.graph(*[b.add(b.parameter((64,)), b.parameter((64,))) for _ in range(count)])


@pytest.mark.parametrize("count", [2, 3, 40])
def test_independent_adds_become_one_pattern(count: int) -> None:
    graph = _adds(count)
    found = _plan(graph)
    [only] = found.chosen
    assert only.pattern.bits.bit_count() == count
    # each of XLA's kernels costs at least its launch; one launch is left
    assert only.score_us > 0.99 * (count - 1) * H200.launch_us
    assert found.modelled_us == pytest.approx(found.xla_us - only.score_us)


def test_optimizer_steps_of_many_tensors_become_one_pattern() -> None:
    b = Builder()
    results: list[Op] = []
    for size in range(1, 31):
        results += adam(b, *[b.parameter((size, 8)) for _ in range(4)])
    graph = b.graph(*results)
    found = _plan(graph)
    [only] = found.chosen
    assert len(only.pattern.inputs) == 120
    assert len(only.pattern.outputs) == 90


def test_what_xla_does_as_well_is_left_to_it() -> None:
    b = Builder()
    found = _plan(b.graph(softmax(b, b.parameter((8192, 4096)))))
    assert found.chosen == ()
    assert found.modelled_us == found.xla_us
    assert {r.reason for r in found.rejected} <= {
        "Even the best kernel would win nothing.",
        "With it the program would be faster by less than a hundredth.",
    }


def test_several_heroes_are_stitched() -> None:
    b = Builder()
    x, g = b.parameter((512, 1024)), b.parameter((512, 1024))
    graph = b.graph(*layernorm_backward(b, x, b.parameter((1024,)), g))
    [only] = _plan(graph).chosen
    assert only.pattern.bits == fusible_ops(graph, H200).bits


def test_large_gemms_stay_and_the_rest_is_stitched_around_them() -> None:
    b = Builder()
    x, w = b.parameter((512, 512)), b.parameter((512, 512))

    def both(y: object) -> object:
        column = b.like(b.reduce(y, (0,)), y, (0,))  # type: ignore[arg-type]
        return b.add(b.exp(y), column)  # type: ignore[arg-type]

    graph = b.graph(both(b.dot(both(b.dot(both(x), w)), w)))  # type: ignore[arg-type]
    found = _plan(graph)
    dots = sum(1 << op.id for op in graph if op.opcode == "dot")
    assert len(found.chosen) == 3
    assert not any(c.pattern.bits & dots for c in found.chosen)
    reasons = [r.reason for r in found.rejected if r.bits & dots and r.rule == "op"]
    assert reasons == ["A library kernel does a GEMM of this size better."] * 2


def test_every_refusal_keeps_its_reason_and_facts() -> None:
    def refuse(pattern: Pattern) -> Verdict:
        return forbid("Too little shared memory.", shared_bytes=99, limit=9)

    found = _plan(_adds(3), refuse)
    assert found.chosen == ()
    assert "Too little shared memory. (shared_bytes 99, limit 9)" in {
        str(r.verdict) for r in found.rejected
    }
    assert all(r.ops for r in found.rejected)


def test_equal_structures_are_inspected_once() -> None:
    b = Builder()
    x = b.parameter((64, 64))
    for _ in range(6):
        x = b.kept(b.add(b.exp(x), b.like(b.reduce(x, (0,)), x, (0,))))
    asked: list[str] = []

    def inspect(pattern: Pattern) -> KernelFacts:
        asked.append(pattern.key)
        return kernel_of(pattern)

    found = _plan(b.graph(x), inspect)
    assert len(found.chosen) == 6
    assert len(asked) == len(set(asked)) == found.stats.distinct < found.stats.inspected


@given(random_graphs())
def test_lazy_scoring_finds_what_scoring_everything_finds(graph: Graph) -> None:
    """Without bounds every candidate is inspected before the program is solved."""
    works = GraphWork(graph, free_bits(graph), H200)
    model = ModelScorer(works, xla_fusions(works, fusible_ops(graph, H200).bits))

    @dataclasses.dataclass(frozen=True)
    class Eager:
        def bound(self, pattern: Pattern) -> float:
            score = model.score(pattern, phased(pattern))
            return score.gain_us if score.wins else 0.0

        def score(self, pattern: Pattern, facts: KernelFacts) -> object:
            return model.score(pattern, facts)

        def confirms(self, pattern: Pattern, score: Score, others: int) -> bool:
            return model.confirms(pattern, score, others)

    options = Options(packing=False)
    lazy = plan(graph, H200, options, phased)
    eager = plan(graph, H200, options, phased, scorer=Eager())  # type: ignore[arg-type]
    total = sum(c.score_us for c in lazy.chosen)
    assert total == pytest.approx(sum(c.score_us for c in eager.chosen), abs=0.02)


@given(random_graphs())
def test_plans_repeat(graph: Graph) -> None:
    one, two = (_plan(graph, phased) for _ in range(2))
    assert [c.pattern for c in one.chosen] == [c.pattern for c in two.chosen]
    assert one.rejected == two.rejected


@given(random_graphs())
def test_every_candidate_is_chosen_or_turned_down_with_a_reason(graph: Graph) -> None:
    planner = Planner(graph, H200, Options(), phased)
    found = planner.plan()
    told = {one.pattern.bits for one in found.chosen} | {one.bits for one in found.rejected}
    assert {one.bits for one in planner.search.candidates} <= told


def test_a_loop_body_needs_a_larger_gain() -> None:
    graph = _adds(8)
    outside = plan(graph, H200, Options(), kernel_of)
    inside = plan(graph, H200, Options(), kernel_of, in_loop=True)
    assert len(outside.chosen) == 1
    assert outside.chosen[0].score_us < 7 * 1.5
    assert H200.loop_call_us < outside.chosen[0].score_us or inside.chosen == ()
    assert plan(_adds(4), H200, Options(), kernel_of, in_loop=True).chosen == ()


def test_the_paper_s_score() -> None:
    b = Builder()
    x = b.parameter((1024, 1024))
    graph = b.graph(b.tanh(b.exp(x)))
    found = _plan(graph, scorer="paper")
    [only] = found.chosen
    # the intermediate is neither written nor read: 8 MB of traffic, and one launch is saved
    assert only.score_us == pytest.approx(2.45 - 1.27 + H200.paper_launch_us)


def test_the_paper_s_score_drops_what_shared_memory_cannot_hold() -> None:
    def huge(pattern: Pattern) -> KernelFacts:
        cost = kernel_of(pattern).cost
        return KernelFacts(dataclasses.replace(cost, shared_bytes=H200.shared_per_block + 1))

    found = _plan(_adds(2), huge, scorer="paper")
    assert found.chosen == ()
    assert "It needs more shared memory." in {r.reason for r in found.rejected}


def going(path: Path) -> Inspect:
    """Says that each thread goes such a way."""
    return lambda pattern: kernel_of(pattern, path)


def test_a_kernel_whose_way_is_long_is_left() -> None:
    slow = _plan(_adds(4), going(Path(rounds=1000, far=1000)))
    assert slow.chosen == ()
    reasons = {r.reason: dict(r.facts) for r in slow.rejected}
    found = reasons["XLA's own kernels are estimated to be as fast."]
    assert isinstance(found["modelled_us"], float)
    assert found["modelled_us"] > 10


def test_what_is_measured_need_not_win_by_a_margin() -> None:
    """Of four sums of large arrays one kernel spares launches: less than a tenth of their time."""
    b = Builder()
    graph = b.graph(*[b.add(b.parameter((1 << 22,)), b.parameter((1 << 22,))) for _ in range(2)])
    assert _plan(graph, scorer="model").chosen == ()
    assert len(_plan(graph, scorer="guarded").chosen) == 1


def test_what_would_be_chosen_is_scored_by_its_fastest_kernel() -> None:
    b = Builder()
    graph = b.graph(*[b.tanh(b.exp(b.parameter((1024, 1024)))) for _ in range(3)])
    asked: list[str] = []

    def compare(pattern: Pattern) -> KernelFacts:
        asked.append(pattern.key)
        return kernel_of(pattern, Path(rounds=1))

    slower = going(Path(rounds=10, far=10))
    [before] = Planner(graph, H200, Options(scorer="model"), slower).plan().chosen
    found = Planner(graph, H200, Options(scorer="model"), slower, compare=compare).plan()
    [after] = found.chosen
    assert len(asked) == len(set(asked))
    assert after.pattern.key in asked
    assert after.score_us > before.score_us
    assert after.facts.cost.phases[0].path.rounds == 1


@pytest.mark.parametrize(("rounds", "patterns"), [(50, 1), (100, 2)])
def test_a_larger_pattern_is_not_beaten_by_its_default_kernel(rounds: int, patterns: int) -> None:
    """As long as that wins half of what would be chosen in its place: others are hopeless."""
    b = Builder()
    rows = b.parameter((4096, 1024)), b.parameter((1024,)), b.parameter((4096, 1024))
    graph, options = b.graph(*layernorm_backward(b, *rows)), Options(scorer="model")
    [whole] = Planner(graph, H200, options, kernel_of).plan().chosen

    def slower(pattern: Pattern) -> KernelFacts:
        path = Path(rounds=rounds, far=rounds) if pattern.bits == whole.pattern.bits else None
        return kernel_of(pattern, path)

    assert len(Planner(graph, H200, options, slower).plan().chosen) == 2
    found = Planner(graph, H200, options, slower, compare=kernel_of).plan().chosen
    assert len(found) == patterns


def test_a_kernel_that_cannot_be_compared_stays() -> None:
    options = Options(scorer="model")
    found = Planner(_adds(4), H200, options, kernel_of, compare=lambda _: forbid("No way.")).plan()
    assert len(found.chosen) == 1


def test_measured_times_overrule_the_model() -> None:
    graph = _adds(4)
    won = plan(graph, H200, Options(), kernel_of, measure=lambda _: (1.0, 3.0))
    lost = plan(graph, H200, Options(), kernel_of, measure=lambda _: (3.0, 3.0))
    assert won.chosen[0].score_us == 2.0
    assert lost.chosen == ()
    assert "XLA's own kernels were measured to be as fast." in {r.reason for r in lost.rejected}


def test_measuring_is_asked_about_what_is_inspected_and_about_ties_alone() -> None:
    b = Builder()
    x, g = b.parameter((512, 1024)), b.parameter((512, 1024))
    graph = b.graph(*layernorm_backward(b, x, b.parameter((1024,)), g), b.exp(b.parameter((8,))))
    ran: list[Pattern] = []

    def measure(pattern: Pattern) -> None:
        ran.append(pattern)

    found = plan(graph, H200, Options(), kernel_of, measure=measure)
    assert {one.pattern for one in found.chosen} <= set(ran)
    assert 0 < len(ran) < found.stats.candidates


def test_a_tie_is_decided_by_its_measured_time() -> None:
    b = Builder()
    graph = b.graph(b.tanh(b.exp(b.parameter((8192, 4096)))))  # one kernel of XLA's
    left = plan(graph, H200, Options(), kernel_of)
    lost = plan(graph, H200, Options(), kernel_of, measure=lambda _: (60.0, 50.0))
    assert left.chosen == lost.chosen == ()
    [won] = plan(graph, H200, Options(), kernel_of, measure=lambda _: (50.0, 60.0)).chosen
    assert won.score_us == 10.0


def test_a_measured_kernel_costs_a_call_more_in_a_loop() -> None:
    graph = _adds(2)
    works = GraphWork(graph, free_bits(graph), H200)
    xla = xla_fusions(works, fusible_ops(graph, H200).bits)
    pattern = Pattern(graph, 1 << graph.ops[-2].id, "")
    gains = []
    for in_loop in (False, True):
        scorer = make_scorer(Options(), ModelScorer(works, xla, in_loop), lambda _: (1.0, 30.0))
        gains.append(scorer.score(pattern, kernel_of(pattern)).gain_us)
    assert gains == [29.0, 29.0 - H200.loop_call_us]


def test_the_scorers_by_name() -> None:
    graph = _adds(2)
    works = GraphWork(graph, free_bits(graph), H200)
    model = ModelScorer(works, xla_fusions(works, fusible_ops(graph, H200).bits))
    assert make_scorer(Options(), model, None) is model
    assert isinstance(make_scorer(Options(scorer="paper"), model, None), PaperScorer)
    assert isinstance(make_scorer(Options(), model, lambda _: None), MeasuredScorer)


@given(random_graphs())
def test_what_is_chosen_saves_what_fusing_again_says(graph: Graph) -> None:
    works = GraphWork(graph, free_bits(graph), H200)
    fusible = fusible_ops(graph, H200)
    hosts = fused_into(op for op, _ in fusible.refused)
    xla = xla_fusions(works, fusible.bits | hosts)
    chosen = _plan(graph, packing=False).chosen
    if len(chosen) == 1:  # beside others, what they leave of XLA's kernels counts
        [one] = chosen
        us, kernels = saved_by_fusing_again(xla, one.pattern.bits, 0, CONFIRMED_OPS)
        assert one.modelled_us < us
        assert kernels >= 1


def test_a_pattern_that_only_an_estimate_favours_is_turned_down() -> None:
    graph = _adds(3)
    works = GraphWork(graph, free_bits(graph), H200)
    xla = xla_fusions(works, fusible_ops(graph, H200).bits)

    class Hopeful(ModelScorer):
        """Takes patterns of two ops for better than they are."""

        def bound(self, pattern: Pattern) -> float:
            return super().bound(pattern) + 50.0

        def score(self, pattern: Pattern, facts: KernelFacts) -> Score:
            score = super().score(pattern, facts)
            more = 50.0 if len(pattern.ops) == 2 else 0.0
            return Score(score.xla_us + more - score.ours_us, score.ours_us, score.xla_us + more)

    found = plan(graph, H200, Options(), kernel_of, scorer=Hopeful(works, xla))
    [only] = found.chosen
    assert len(only.pattern.ops) == 3


def test_patterns_do_not_claim_what_others_claim() -> None:
    """XLA's kernels each read all that a running sum has added so far. A pattern for any partial
    sum spares the kernels after it what is read up to there, but only one of them does."""
    b = Builder()
    total = b.parameter((4096, 4096))
    for _ in range(5):  # scalars come first, so that partial sums count as cheap
        total = b.mul(total, b.broadcast(b.parameter(()), total.dims))
    sums = []
    for _ in range(10):
        norm = b.reduce(b.exp(total), (1,))
        total = b.add(total, b.kept(b.like(norm, total, (1,))))
        sums.append(total)
    graph = b.graph(total)
    wanted = [1 << op.id for op in sums]
    works = GraphWork(graph, free_bits(graph), H200)
    xla = xla_fusions(works, fusible_ops(graph, H200).bits)

    class Greedy(ModelScorer):
        """Takes partial sums alone."""

        def bound(self, pattern: Pattern) -> float:
            return 100.0 if pattern.bits in wanted else 0.0

        def confirms(self, pattern: Pattern, score: Score, others: int) -> bool:
            return True

    found = plan(graph, H200, Options(), kernel_of, scorer=Greedy(works, xla), offered=wanted)
    assert len(found.chosen) > 3
    assert found.xla_us == pytest.approx(xla.us)
    assert sum(c.xla_us for c in found.chosen) > sum(c.spared_us for c in found.chosen)
    assert found.modelled_us >= sum(c.modelled_us for c in found.chosen)
    assert found.xla_us - found.modelled_us == pytest.approx(sum(c.wins_us for c in found.chosen))


def test_the_paper_s_classes_of_patterns() -> None:
    b = Builder()
    x = b.parameter((8, 8))
    elementwise, row = b.exp(x), b.reduce(x, (1,))
    column, dot = b.reduce(x, (0,)), b.dot(x, x)
    graph = b.graph(elementwise, row, column, dot)

    def of(*ops: object) -> Pattern:
        return Pattern(graph, sum(1 << op.id for op in ops), "")  # type: ignore[attr-defined]

    assert kind_of_pattern(of(elementwise).ops) == "elemwise"
    assert kind_of_pattern(of(elementwise, row).ops) == "reduction"
    assert kind_of_pattern(of(elementwise, row, dot).ops) == "gemm"
    assert not is_complex(of(elementwise, row))
    assert not is_complex(of(column))
    assert is_complex(of(row, column))
    assert is_complex(of(row, dot))


def test_the_search_respects_its_limits() -> None:
    found = _plan(_adds(10), max_pattern_ops=4)
    assert [c.pattern.bits.bit_count() for c in found.chosen] == [4, 4, 2]
    assert _plan(_adds(10), packing=False, max_pattern_ops=4).chosen == ()


def test_planning_narrows_to_smaller_patterns() -> None:
    """Refusing every large pattern must neither take forever nor hide the small ones."""
    b = Builder()
    x = b.parameter((64, 64))
    for _ in range(60):
        y = b.tanh(b.tanh(b.tanh(b.tanh(x))))
        x = b.add(y, b.like(b.reduce(y, (0,)), y, (0,)))
    graph = b.graph(x)
    asked = 0

    def picky(pattern: Pattern) -> KernelFacts | Verdict:
        nonlocal asked
        asked += len(pattern.ops)
        return kernel_of(pattern) if len(pattern.ops) <= 20 else forbid("Too large.")

    found = _plan(graph, picky)
    assert len(found.chosen) >= 20
    # eight halvings lead from the whole graph to such patterns
    assert asked < 8 * 2 * (2_000 + 3 * len(graph))


def test_steps_of_a_recurrence_between_large_products_are_planned_alike() -> None:
    """Each step's cell and the operand of the next step's product are one kernel, although the
    inputs of all steps are slices of one array."""
    b = Builder()
    frames, w = b.parameter((6 * 256, 512)), b.parameter((1024, 2048))
    bias = b.broadcast(b.parameter((2048,)), (256, 2048), (1,))
    h = c = b.parameter((256, 512))
    for t in range(6):
        x = b.slice(frames, (256 * t, 0), (256 * t + 256, 512))
        z = b.add(b.dot(b.concatenate([x, h], 1), w), bias)
        i, f, o, u = (b.slice(z, (0, 512 * n), (256, 512 * n + 512)) for n in range(4))
        c = b.add(b.mul(c, b.tanh(f)), b.mul(b.tanh(i), b.tanh(u)))
        h = b.mul(b.tanh(c), b.tanh(o))
    found = GraphPlanner(b.graph(h), H200, Options()).plan
    held = [[op.opcode for op in c.pattern.ops] for c in found.chosen]
    assert sum("concatenate" in ops and "tanh" in ops for ops in held) == 5
    assert not any("dot" in ops for ops in held)
