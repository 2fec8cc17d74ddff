"""Records, their files, their precedence, and the summary of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fusionstitch.errors import OptionError
from fusionstitch.options import Options
from fusionstitch.runtime.cache import Database
from fusionstitch.tuning import record, tuned
from fusionstitch.tuning.outcome import spearman
from fusionstitch.tuning.record import Entry, Record, from_json, record_key, to_json
from tests.tuning.stubs import H200


def of(us: float, template: str = "") -> Record:
    return Record(template, us, 9.0, 20.0, 7.0, 3, True, "fs_kernel", "stub")


def test_a_file_gives_back_what_was_written() -> None:
    entries = (Entry("a", "v1", of(1.0, "cta_size=64;")), Entry("b", "v1", of(2.0)))
    text = to_json("h200", reversed(entries))
    assert from_json(text, "it") == ("h200", entries)
    assert to_json("h200", from_json(text, "it")[1]) == text
    assert json.loads(text)["results"][0]["template"] == "cta_size=64;"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it holds no tuned results"),
        ("[]", "it holds no tuned results"),
        ('{"format": 99}', "it has format 99, this version reads 2"),
        ('{"format": 1, "device": "h200", "results": []}', "export the results again"),
        ('{"format": 2, "device": "h200", "results": [{}]}', "KeyError"),
        (to_json("h200", [Entry("a", "v", of(1.0))]).replace("1.0", "NaN"), "no times"),
    ],
)
def test_what_is_no_file_of_results(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        from_json(text, "it")


def test_present_versions_count_before_others_and_those_before_shipped(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = (Entry("a", "shipped", of(1.0)), Entry("b", "shipped", of(1.0)))
    monkeypatch.setattr(tuned, "shipped", lambda device: (*ours, Entry("c", "s", of(1.0))))
    tuned.store([Entry("a", "other", of(2.0)), Entry("b", "other", of(2.0))], "h200", database)
    tuned.store([Entry("a", record.versions(), of(3.0))], "h200", database)
    tuned.store([Entry("d", "other", of(4.0))], "l4", database)
    found = {key: r.us for key, r in tuned.load(H200, database).records.items()}
    assert found == {"a": 3.0, "b": 2.0, "c": 1.0}


def test_what_cannot_be_read_is_as_if_it_were_not_there(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned, "shipped", lambda device: ())
    database.put_tuned("a", "h200", "v", {**of(1.0).to_dict(), "us": 0})
    database.put_tuned("b", "h200", "v", {})
    assert tuned.load(H200, database) is tuned.NOTHING


def test_results_are_shipped(database: Database) -> None:
    records = tuned.load(H200, database).records.values()
    assert {r.gpu for r in records} == {"NVIDIA H200"}
    assert all(0 < r.us <= r.default_us for r in records)


def test_the_token_follows_the_content(database: Database) -> None:
    assert tuned.NOTHING.token == ""
    one, two = tuned.Tuned({"a": of(1.0)}), tuned.Tuned({"a": of(1.0, "cta_size=64;")})
    assert one.token
    assert one.token == tuned.Tuned({"a": of(1.0)}).token
    assert one.token != two.token


def test_options_that_decide_the_kernel_are_part_of_the_key() -> None:
    keys = {
        record_key("p", Options()),
        record_key("p", Options(numerics="strict")),
        record_key("p", Options(sharing=False)),
    }
    assert len(keys) == 3
    assert record_key("p", Options(exploratory=False)) == record_key("p", Options())


def test_shipped_results_can_be_read() -> None:
    for path in Path(tuned.__file__).parent.glob("results/*.json"):
        device, entries = record.read(path)
        assert device == path.stem
        assert entries


@pytest.mark.parametrize(
    ("points", "wanted"),
    [
        ([(1, 10), (2, 20), (3, 30)], 1.0),
        ([(1, 30), (2, 20), (3, 10)], -1.0),
        ([(1, 10), (2, 30), (3, 20), (4, 40)], 0.8),
        ([(1, 10), (1, 20), (2, 30)], 3**0.5 / 2),
        ([(1, 10), (1, 20)], None),
        ([(1, 10)], None),
        ([], None),
    ],
)
def test_rank_correlation(points: list[tuple[float, float]], wanted: float | None) -> None:
    found = spearman(points)
    assert found == wanted if wanted is None else found == pytest.approx(wanted)
