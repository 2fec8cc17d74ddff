"""Reports and explain() show what was measured."""

from __future__ import annotations

import re

from fusionstitch.plan.findings import SLOWER
from fusionstitch.reports.explain import explain
from fusionstitch.reports.report import report_trial
from fusionstitch.reports.trial import Trial
from fusionstitch.runtime.cache import Database
from tests.guard.both import Both, guarded
from tests.guard.test_guard import MIXED


def test_winners(database: Database) -> None:
    found = guarded(MIXED, Both(lambda n: (3.0, 6.0), runs=False), database)
    assert "\n    measured: 3.00 us against 6.00 us of XLA's kernels around it\n" in explain(found)
    report = report_trial(Trial("mixed", "model", MIXED, found))
    [one] = report.to_dict()["patterns"]
    assert one["measured_us"] == {"ours_us": 3.0, "xla_us": 6.0, "patterns": 1}
    [row] = re.findall(r"^0 .*$", str(report), re.MULTILINE)
    times = (one["modelled_us"], one["modelled_us"] + one["wins_us"], one["wins_us"])
    modelled, xla, wins = (f"{us:.1f} us" for us in times)
    assert re.search(rf"{modelled} +{xla} +3.0 / 6.0 us +{wins}$", row)


def test_losers(database: Database) -> None:
    found = guarded(MIXED, Both(lambda n: (9.0, 9.0), runs=False), database)
    text = explain(found, rejected=True)
    assert SLOWER in text
    assert "measured_us 9.00, measured_xla_us 9.00" in text


def test_what_was_not_measured_says_nothing(database: Database) -> None:
    found = guarded(MIXED, Both(), database, doubts=lambda pattern, score: False)
    assert "measured" not in explain(found)
    [one] = report_trial(Trial("mixed", "model", MIXED, found)).to_dict()["patterns"]
    assert one["measured_us"] is None
