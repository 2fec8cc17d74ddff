"""Tuning whole programs on a stub: what is measured, stored, looked up and planned from it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
from pathlib import Path

import jax
import pytest

from fusionstitch.compiler import core
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.hlo.importer import from_proto, parse
from fusionstitch.options import Options
from fusionstitch.runtime.cache import Database
from fusionstitch.tuning import search, tuned
from tests.tuning import stubs
from tests.tuning.stubs import H200, Stub, build, lowered, tuned_by

pytestmark = pytest.mark.slow


def blocks_of_512_win(kernel) -> float:
    return 5.0 if kernel.block == 512 else 10.0


def planned(database: Database, data: bytes | None = None) -> Stitched:
    results = tuned.load(H200, database)
    return core.stitch(data or lowered(), Options(), H200, build, tuned=results)


def test_the_fastest_schedule_is_found_and_followed(database: Database) -> None:
    report = tuned_by([Stub(blocks_of_512_win)], database)
    records = [r.record for r in report.results if r.record]
    assert {(r.us, r.xla_us) for r in records} == {(5.0, 100.0)}
    assert all("cta_size=512;" in r.template for r in records if r.default_us == 10.0)
    assert any(r.default_us == 10.0 for r in records)
    assert report.complete
    stitched = planned(database)
    assert {k.block for k in stitched.kernels} == {512}
    for chosen in stitched.plans[-1].chosen:
        assert (chosen.modelled_us, chosen.xla_us, chosen.score_us) == (5.0, 100.0, 95.0)


def with_other_names(data: bytes) -> bytes:
    """A module whose instructions have other names, as those of a program with more in it have."""
    module = parse(data)
    for number, one in enumerate(i for c in module.computations for i in c.instructions):
        one.name = f"other.{number}"
    return bytes(module.SerializeToString())


def test_equal_patterns_of_other_programs_follow_it_too(database: Database) -> None:
    tuned_by([Stub(blocks_of_512_win)], database)
    stitched = planned(database, with_other_names(lowered()))
    assert {k.block for k in stitched.kernels} == {512}
    assert all("other." in k.template for k in stitched.kernels)


def test_nothing_is_measured_twice(database: Database) -> None:
    first, second = Stub(blocks_of_512_win), Stub(blocks_of_512_win)
    report = tuned_by([first], database)
    again = tuned_by([second], database)
    assert first.kernels
    assert not second.kernels
    assert not second.modules
    assert {r.name for r in again.results} == {r.name for r in report.results}


def test_a_search_goes_on_where_the_budget_stopped_it(database: Database) -> None:
    whole = Stub(blocks_of_512_win)
    other = Database(Path(database._path.parent.parent / "whole"))
    wanted = tuned_by([whole], other)
    other.close()

    cut = Stub(blocks_of_512_win)
    report = tuned_by([cut], database, budget=4)
    assert not report.complete
    assert "run it again to go on" in str(report)
    rest = Stub(blocks_of_512_win)
    found = tuned_by([rest], database)
    assert found.complete
    assert len(cut.kernels) + len(rest.kernels) == len(whole.kernels)
    assert {r.record for r in found.results} == {r.record for r in wanted.results}


def test_a_pattern_that_xla_wins_is_left_to_it(database: Database) -> None:
    report = tuned_by([Stub(lambda kernel: 30.0, xla=20.0)], database)
    assert "XLA is faster: left to it" in str(report)
    stitched = planned(database)
    assert {r.name for r in report.results}.isdisjoint(k.name for k in stitched.kernels)
    reasons = {r.reason for r in stitched.rejected}
    assert "XLA's own kernels were measured to be as fast." in reasons


def test_of_what_is_not_searched_only_the_default_schedule_is_built(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []

    def noted(kernels):
        built.extend(kernel.source for kernel in kernels)
        return build(kernels)

    monkeypatch.setattr(stubs, "build", noted)
    hopeless = Stub(lambda kernel: 50.0, xla=20.0)
    tuned_by([hopeless], database)
    assert sorted(built) == sorted(kernel.source for kernel in hopeless.kernels)


def test_some_schedules_are_measured_where_drafts_take_all_the_time(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = Stub(blocks_of_512_win)
    near = search.neighbours

    def slow(of):
        for one in near(of):
            stub.clock.now += 60
            yield one

    monkeypatch.setattr(search, "neighbours", slow)
    report = tuned_by([stub], database, budget=400)
    assert min(r.record.us for r in report.results if r.record) == 5.0
    assert not report.complete


def test_xla_gets_the_same_ops(database: Database) -> None:
    stub = Stub(blocks_of_512_win)
    tuned_by([stub], database)
    for kernel, module in zip(stub.kernels[:1], stub.modules[:1], strict=True):
        entry = from_proto(module).entry
        assert tuple(p.shape for p in entry.parameters) == kernel.inputs
        assert entry.root.shape.elements == kernel.outputs


def test_a_schedule_that_computes_something_else_is_not_used(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = Stub(blocks_of_512_win, differs=lambda kernel: 0.5 if kernel.block == 512 else 0.0)
    report = tuned_by([wrong], database)
    assert all(r.record and "cta_size=512;" not in r.record.template for r in report.results)
    assert "this is a defect, and it is not used" in caplog.text


def test_schedules_that_do_not_run_are_passed_over(database: Database) -> None:
    report = tuned_by([Stub(lambda k: -1.0 if k.block == 512 else 10.0)], database)
    assert {r.record.us for r in report.results if r.record} == {10.0}


def test_a_pattern_that_does_not_run_at_all_is_named(database: Database) -> None:
    report = tuned_by([Stub(lambda kernel: -1.0)], database)
    assert [r.error for r in report.results] == ["It cannot be measured."] * len(report.results)
    assert "It cannot be measured." in str(report)


def test_several_gpus_share_the_patterns(database: Database) -> None:
    def steps(x, w):  # a large product between two patterns
        x = jax.nn.softmax(x) * x.sum(0)
        return (x @ w) * (x @ w).sum(0)

    data = lowered(steps, *[jax.ShapeDtypeStruct((2048, 2048), "float32")] * 2)
    both = threading.Barrier(2, timeout=600)
    met: list[bool] = []

    def meet(kernel) -> float:
        if not met:
            both.wait()  # passes only if two patterns are measured at once
            met.append(True)
        return 10.0

    first = Stub(meet, xla=11.0)
    second = Stub(meet, xla=11.0, clock=first.clock)
    report = tuned_by([first, second], database, data=data)
    assert len(report.results) > 1
    assert first.kernels
    assert second.kernels


def test_a_tie_of_the_model_is_measured(database: Database) -> None:
    data = lowered(jax.nn.softmax, jax.ShapeDtypeStruct((8192, 4096), "float32"))
    assert core.stitch(data, Options(), H200, None).plans[-1].chosen == ()
    tuned_by([Stub(lambda kernel: 60.0, xla=70.0)], database, data=data)
    [chosen] = planned(database, data).plans[-1].chosen
    assert (chosen.modelled_us, chosen.xla_us) == (60.0, 70.0)


@pytest.mark.parametrize("text", ["cta_size=48;", "nothing", "cta_size=256; x[GRID];"])
def test_a_template_of_other_versions_that_does_not_fit_is_dropped(
    database: Database, text: str
) -> None:
    tuned_by([Stub(blocks_of_512_win)], database)
    results = tuned.load(H200, database)

    def sources(template: str) -> list[str]:
        records = {k: dataclasses.replace(r, template=template) for k, r in results.records.items()}
        stitched = core.stitch(lowered(), Options(), H200, build, tuned=tuned.Tuned(records))
        assert stitched.fallbacks == ()
        return [kernel.source for kernel in stitched.kernels]

    assert sources(text) == sources("")


def test_the_report_is_plain_data(database: Database) -> None:
    report = tuned_by([Stub(blocks_of_512_win)], database)
    data = report.to_dict()
    assert {"workload", "device", "gpu", "seconds", "results", "complete", "rank_correlation"} == (
        set(data)
    )
    assert {"name", "count", "record", "points", "rank_correlation"} <= set(data["results"][0])
    assert "rank correlation" in str(report)
    templates = [one for result in data["results"] if (one := result["record"]["template"])]
    assert templates
    assert all("cta_size=512;" in template for template in templates)
    assert "    cta_size=512;" in str(report)


_READ = """
import sys
from pathlib import Path
from fusionstitch.runtime.cache import Database
from tests.tuning.test_run import planned
print(sorted({k.block for k in planned(Database(Path(sys.argv[1]))).kernels}))
"""


def test_another_process_follows_the_results(database: Database) -> None:
    tuned_by([Stub(blocks_of_512_win)], database)
    folder = str(database._path.parent)
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", _READ, folder], capture_output=True, text=True, cwd=root, check=True
    )
    assert run.stdout.strip() == "[512]"
