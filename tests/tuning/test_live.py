"""scorer="measured" and "mixed": patterns run while planning, once."""

from __future__ import annotations

import pytest

from fusionstitch import core
from fusionstitch.options import Options
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.scores import is_complex
from fusionstitch.runtime.cache import Database
from fusionstitch.tuning import live, tuned
from fusionstitch.tuning.tuned import NOTHING, Tuned
from tests.tuning.stubs import H200, Stub, build, lowered, tuned_by


def stitched(stub: Stub, database: Database, scorer: str, tuned: Tuned = NOTHING) -> core.Stitched:
    options = Options(scorer=scorer)
    measure = live.live(lowered(), options, H200, build, stub, database, tuned)
    return core.stitch(lowered(), options, H200, build, tuned=tuned, measure=measure)


def test_measured_times_are_the_scores(database: Database) -> None:
    stub = Stub(lambda kernel: 4.0, xla=10.0)
    result = stitched(stub, database, "measured")
    assert {one.score_us for plan in result.plans for one in plan.chosen} == {6.0}
    again = Stub(lambda kernel: 4.0)
    same = stitched(again, database, "measured")
    assert not again.kernels
    assert not again.modules
    assert [k.source for k in same.kernels] == [k.source for k in result.kernels]


def test_patterns_that_do_not_run_are_modelled(database: Database) -> None:
    result = stitched(Stub(lambda kernel: -1.0), database, "measured")
    plain = core.stitch(lowered(), Options(), H200, build)
    scores = [[one.score_us for one in found.plans[-1].chosen] for found in (result, plain)]
    assert scores[0] == scores[1]


def test_mixed_runs_complex_patterns_only(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Pattern] = []
    plain = live._kernel_us
    monkeypatch.setattr(live, "_kernel_us", lambda p, *rest: ran.append(p) or plain(p, *rest))
    stitched(Stub(lambda kernel: 4.0, xla=10.0), database, "mixed")
    mixed = list(ran)
    stitched(Stub(lambda kernel: 4.0, xla=10.0), database, "measured")
    assert mixed
    assert all(is_complex(pattern) for pattern in mixed)
    assert not all(is_complex(pattern) for pattern in ran)


def test_tuned_patterns_are_not_run(database: Database) -> None:
    tuned_by([Stub(lambda kernel: 5.0)], database)
    results = tuned.load(H200, database)
    stub = Stub(lambda kernel: 4.0)
    stitched(stub, database, "measured", results)
    names = {record.name for record in results.records.values()}
    assert not names & {kernel.name for kernel in stub.kernels}


def test_other_scorers_only_look_up(database: Database) -> None:
    for scorer in ("model", "paper"):
        options = Options(scorer=scorer)
        assert live.measure_for(b"", options, H200, build, NOTHING) is None
