"""Plans follow measurements: losers are dropped, winners stay, unmeasured doubts are not
trusted."""

from __future__ import annotations

import random
from typing import Any

import figure1
import jax
import jax.numpy as jnp
import pytest

from fusionstitch.compiler import core
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.compiler.workpiece import Workpiece
from fusionstitch.costmodel.model_errors import ModelError
from fusionstitch.guard import live
from fusionstitch.guard.groups import grouped
from fusionstitch.guard.guard import PATTERNS, ROUNDS
from fusionstitch.hlo.errors import VerifyError
from fusionstitch.hlo.graph import ids
from fusionstitch.options import Options
from fusionstitch.plan import findings
from fusionstitch.runtime.cache import Database
from fusionstitch.tuning.tuned import NOTHING
from tests.guard.both import H200, Both, guarded, lowered
from tests.kept import kept_sort

pytestmark = pytest.mark.slow

SPEC = jax.ShapeDtypeStruct((1024, 512), jnp.float32)


def mixed(x: jax.Array) -> jax.Array:
    """Two kernels of XLA's, and one pattern: no larger one has a part in what is measured."""
    s = x - x.mean(1, keepdims=True)
    return s * jax.lax.rsqrt((s * s).mean(1, keepdims=True)) * s.max(1, keepdims=True)


def several(*xs: jax.Array) -> list[jax.Array]:
    """Patterns that have nothing in common: sorts keep them apart."""
    for n, x in enumerate(xs):
        xs = (*xs[:n], kept_sort(mixed(x), 0), *xs[n + 1 :])
    return [mixed(x) for x in xs]


MIXED = lowered(mixed, SPEC)


def chosen(found: Stitched) -> list[Any]:
    return [one for plan in found.plans for one in plan.chosen]


def reasons(found: Stitched) -> set[str]:
    return {one.reason for one in found.rejected}


def by_the_model(data: bytes, **options: Any) -> Stitched:
    return core.stitch(data, Options(scorer="model", fallback="error", **options), H200, None)


def test_winners_stay_with_what_they_win(database: Database) -> None:
    both = Both(runs=False, won=3.0)
    found = guarded(MIXED, both, database)
    [one], [modelled] = chosen(found), chosen(by_the_model(MIXED))
    assert one.pattern.bits == modelled.pattern.bits
    [[pair]] = both.seen
    assert one.score_us == pytest.approx(3.0)
    assert one.measured == findings.Comparison(pair.about_us - 3.0, pair.about_us)
    assert (one.modelled_us, one.xla_us) == (modelled.modelled_us, modelled.xla_us)
    assert both.count == 1
    assert found.evidence.whole


def test_losers_leave(database: Database) -> None:
    both = Both(lambda n: (9.0, 9.0), runs=False)
    found = guarded(MIXED, both, database)
    assert not chosen(found)
    assert not found.stitches
    assert findings.SLOWER in reasons(found)
    assert 1 <= len(both.seen) <= ROUNDS


def test_a_gain_within_what_times_scatter_by_is_none(database: Database) -> None:
    assert not chosen(guarded(MIXED, Both(lambda n: (99.0, 100.0), runs=False), database))
    other = Both(lambda n: (97.0, 100.0), runs=False)
    assert not other.seen
    # kept by the database: what was measured once stays
    assert not chosen(guarded(MIXED, other, database))
    assert not other.seen


def test_nothing_is_measured_without_doubt(database: Database) -> None:
    both = Both(runs=False)
    found = guarded(MIXED, both, database, doubts=lambda pattern, score: False)
    assert not both.seen
    assert [one.score_us for one in chosen(found)] == [
        one.score_us for one in chosen(by_the_model(MIXED))
    ]


def test_what_cannot_be_measured_now_is_dropped_and_not_stored(database: Database) -> None:
    found = guarded(MIXED, Both(None), database)
    assert not chosen(found)
    assert findings.UNPROVEN in reasons(found)
    assert not found.evidence.whole
    again = Both(runs=False, won=3.0)
    assert len(chosen(guarded(MIXED, again, database))) == 1
    assert again.count == 1


def test_what_the_model_rarely_is_wrong_about_stays_where_nothing_can_be_measured(
    database: Database,
) -> None:
    found = guarded(MIXED, Both(None), database, strong_doubts=lambda pattern, score: False)
    assert [one.score_us for one in chosen(found)] == [
        one.score_us for one in chosen(by_the_model(MIXED))
    ]
    assert not found.evidence.whole


def test_what_is_known_is_not_measured_again(database: Database) -> None:
    first = guarded(MIXED, Both(runs=False), database)
    both = Both(runs=False)
    second = guarded(MIXED, both, database)
    assert not both.seen
    assert [k.source for k in second.kernels] == [k.source for k in first.kernels]
    assert second.evidence == first.evidence


@pytest.mark.parametrize("count", [2, PATTERNS + 2])
def test_so_many_are_measured_and_no_more(count: int, database: Database) -> None:
    """Of several patterns the dearest first, equal ones once; what is not reached leaves."""
    specs = [jax.ShapeDtypeStruct((1024 + 64 * n, 512), jnp.float32) for n in range(count)]
    data = lowered(several, *specs)
    found = guarded(data, Both(runs=False, won=3.0), database, packing=False)
    measured = sum(one.patterns for one in found.evidence.comparisons.values())
    assert measured == min(count, PATTERNS)
    assert all(one.measured for one in chosen(found))
    left = [one for one in found.rejected if one.reason == findings.UNPROVEN]
    assert bool(left) == (count > PATTERNS)
    assert found.evidence.whole  # another process would not reach them either


@pytest.mark.parametrize("share", [0.9, 2.0])
def test_a_call_in_a_body_has_to_win_what_it_costs(share: float, database: Database) -> None:
    def loop(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda c: c.sum() < 9.0, lambda c: mixed(c) + 1, x)

    data = lowered(loop, jax.ShapeDtypeStruct((4096, 2048), jnp.float32))
    won = share * H200.loop_call_us
    both = Both(lambda n: (50.0, 50.0 + won), runs=False)
    found = chosen(guarded(data, both, database, scope="grid"))
    wins = [pytest.approx(won - H200.loop_call_us)] if share > 1 else []
    assert [one.score_us for one in found] == wins


@pytest.mark.parametrize("whole_us", [30.0, 50.0])
def test_the_largest_pattern_that_wins_about_as_much_is_measured_too(
    whole_us: float, database: Database
) -> None:
    """By the model the logarithm is XLA's; as one kernel all may be faster."""
    q = jax.ShapeDtypeStruct((16_384, figure1.ROWS, 8), jnp.float32)
    bias = jax.ShapeDtypeStruct((figure1.ROWS, figure1.ROWS), jnp.float32)
    data = lowered(figure1.four_outputs, q, q, q, bias)
    both = Both(lambda n: (whole_us, 90.0) if n == 1 else (40.0, 90.0), runs=False)
    [found] = chosen(guarded(data, both, database))
    whole = both.seen[0][1].ops
    assert (len(found.pattern.ops) == whole) == (whole_us < 40)
    assert found.score_us == 90.0 - min(whole_us, 40.0)


def ring(u: jax.Array) -> jax.Array:
    return u + 0.1 * (jnp.roll(u, 1) - 2.0 * u + jnp.roll(u, -1))


def counted_ring(u: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 100, lambda _, u: ring(u), u)


LONG_RING = jax.ShapeDtypeStruct((1 << 20,), jnp.float32)


@pytest.mark.parametrize("ours_us", [40.0, 60.0])
def test_a_loop_that_ends_by_its_count_is_measured(ours_us: float, database: Database) -> None:
    """Its kernel is modelled to be three times as fast as XLA's."""
    both = Both(lambda n: (ours_us, 50.0), runs=False)
    measured, left = live.doubts_of(Options(scorer="guarded"), NOTHING, False)
    data = lowered(counted_ring, LONG_RING)
    found = guarded(data, both, database, doubts=measured, strong_doubts=left)
    assert both.count == 1
    assert [one.score_us for one in chosen(found)] == [10.0] * (ours_us < 50)
    assert (findings.SLOWER in reasons(found)) == (ours_us > 50)


def test_a_loop_whose_kernel_is_surely_faster_is_not_measured(database: Database) -> None:
    short = jax.ShapeDtypeStruct((1024,), jnp.float32)
    measured, left = live.doubts_of(Options(scorer="guarded"), NOTHING, False)
    both = Both(lambda n: (60.0, 50.0), runs=False)
    data = lowered(counted_ring, short)
    found = guarded(data, both, database, doubts=measured, strong_doubts=left)
    assert both.count == 0
    assert len(chosen(found)) == 1


@pytest.mark.parametrize("tried", [True, False])
@pytest.mark.parametrize("sure", [True, False])
def test_a_loop_that_its_data_ends_is_left_to_the_trial(
    tried: bool, sure: bool, database: Database
) -> None:
    """Drawn data would end it at once, or never. Where there is no trial it has to be sure."""

    def until(u: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda u: u.sum() < 9.0, ring, u)

    both = Both(lambda n: (1.0, 50.0), runs=False)
    measured, left = live.doubts_of(Options(scorer="guarded"), NOTHING, tried)
    data = lowered(until, jax.ShapeDtypeStruct((1024,), jnp.float32) if sure else LONG_RING)
    found = guarded(data, both, database, doubts=measured, strong_doubts=left)
    assert both.count == 0
    assert len(chosen(found)) == (tried or sure)


def test_the_model_s_proof_is_the_table_s(monkeypatch: pytest.MonkeyPatch) -> None:
    [one] = chosen(by_the_model(MIXED))
    score = findings.Score(one.score_us, one.modelled_us, one.xla_us)
    share = one.score_us / one.xla_us
    measured, left = live.doubts_of(Options(scorer="guarded"), NOTHING, False)
    within, beyond = share + 0.01, share - 0.01
    for error, doubted in (
        (ModelError(beyond, beyond), (False, False)),
        (ModelError(beyond, within), (True, False)),
        (ModelError(beyond), (True, False)),
        (ModelError(within), (True, True)),
    ):
        monkeypatch.setattr(
            live, "errors", lambda e=error: dict.fromkeys(("elemwise", "reduction", "gemm"), e)
        )
        assert (measured(one.pattern, score), left(one.pattern, score)) == doubted


@pytest.mark.parametrize("seed", range(6))
def test_any_verdicts_give_a_plan_that_evidence_alone_gives_again(
    seed: int, database: Database
) -> None:
    """Its patterns that were doubted have all won."""
    specs = [jax.ShapeDtypeStruct((512 + 64 * n, 384), jnp.float32) for n in range(3)]

    def fun(*xs: jax.Array) -> Any:
        made = several(*xs)
        return [m - m.mean(1, keepdims=True) for m in made], sum(m.sum() for m in made)

    data, draw = lowered(fun, *specs), random.Random(seed)
    times = [(draw.uniform(1, 9), draw.uniform(1, 9)) for _ in range(200)]
    both = Both(lambda n: times[n], runs=False)
    # as on a GPU: by the model alone kernels are counted, too
    found = guarded(data, both, database, scorer="measured")
    for one in chosen(found):
        assert one.measured is not None
        assert one.measured.ours_us < one.measured.xla_us
    options = Options(scorer="measured", fallback="error")
    judge = live.recorded(options, NOTHING, found.evidence)
    again = core.stitch(data, options, H200, None, judge=judge)
    assert [k.source for k in again.kernels] == [k.source for k in found.kernels]
    assert [c.measured for c in chosen(again)] == [c.measured for c in chosen(found)]


def test_what_could_not_be_measured_is_not_tried_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two patterns cannot be taken out of the module; the other loses, so that the plan is
    made again."""
    specs = [jax.ShapeDtypeStruct((1024 + 512 * n, 512), jnp.float32) for n in range(2)]
    tried: list[str] = []
    plain = live.sides

    def refusing(work: Any, group: Any, *rest: Any) -> Any:
        tried.append(group.key)
        if group.near.inputs[0].shape.dims[0] == 1024:
            raise VerifyError("It stands for no instruction.")
        return plain(work, group, *rest)

    monkeypatch.setattr(live, "sides", refusing)
    both = Both(lambda n: (9.0, 9.0), runs=False)
    found = guarded(lowered(both_alone, *specs), both, database, packing=False)
    assert not chosen(found)
    assert len(tried) == len(set(tried)) >= 2
    assert {findings.SLOWER, findings.UNPROVEN} <= reasons(found)


def both_alone(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    return mixed(x), mixed(kept_sort(y, 0))


def test_the_kernels_next_to_those_that_patterns_touch_are_measured_too() -> None:
    """XLA may fuse across what its kernels are estimated to be; what is stitched it may not."""
    specs = [jax.ShapeDtypeStruct((1024 + 64 * n, 512), jnp.float32) for n in range(2)]

    def both_ways(x: jax.Array) -> jax.Array:
        s = jax.nn.softmax(x)
        return s * (s * x).sum(0)

    def fun(x: jax.Array, y: jax.Array) -> Any:
        hidden = jnp.sin(x).T * 2
        return both_ways(x) + 1, both_ways(y), hidden, jnp.cos(both_ways(y).T)

    seen = []

    def judge(work: Workpiece, planners: Any) -> findings.Evidence:
        for planner in planners:
            plan, xla = planner.plan, planner.planner.xla
            for group in grouped(plan, xla):
                own = {i for one in group.chosen for i in ids(one.pattern.bits)}
                near = set(ids(group.near.bits))
                others = {i for one in plan.chosen for i in ids(one.pattern.bits)} - own
                touched = [set(ids(k.bits)) for k in xla.kernels if set(ids(k.bits)) & own]
                next_to = [
                    set(ids(kernel.bits)) - others
                    for kernel in xla.kernels
                    if any(
                        xla.graph.ops[i] in xla.graph.users[o]
                        or xla.graph.ops[o] in xla.graph.users[i]
                        for o in set().union(own, *touched)
                        for i in ids(kernel.bits)
                    )
                ]
                assert not near & others
                assert all(kernel <= near for kernel in next_to)
                assert group.xla_us >= sum(one.xla_us for one in group.chosen)
                seen.append(len(near) - len(set().union(own, *touched)))
        return findings.Evidence()

    options = Options(scorer="model", fallback="error", packing=False)
    core.stitch(lowered(fun, *specs), options, H200, None, judge=judge)
    assert max(seen) > 0
