"""The page of a report: complete, closed in itself, and deaf to what a module says."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import pickle
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import fusionstitch as fs
from fusionstitch.codegen.snapshots.snapshots import drawn
from fusionstitch.errors import FusionStitchError
from fusionstitch.reports.page.highlight import coloured
from fusionstitch.reports.page.kernels import _way, draw
from fusionstitch.reports.report import Report
from tests.codegen.cases import CASES
from tests.reports.conftest import HOSTILE

VOID = {"meta", "link", "input", "br"}


class Parsed(HTMLParser):
    """Elements with their attributes; the texts of scripts; what was not closed."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append((self.found[-1][1], data))


@pytest.fixture(scope="module")
def parsed(page: str) -> Parsed:
    return Parsed(page)


@pytest.fixture(scope="module")
def data(parsed: Parsed) -> dict[str, Any]:
    return {
        str(attributes["id"]): json.loads(text)
        for attributes, text in parsed.scripts
        if attributes.get("type") == "application/json"
    }


def test_elements_are_closed_and_named_once(parsed: Parsed) -> None:
    assert parsed.open == []
    ids = [attributes["id"] for _, attributes in parsed.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in parsed.found:
        for name in ("aria-controls", "aria-labelledby", "aria-describedby"):
            if name in attributes:
                assert attributes[name] in ids


def test_nothing_is_loaded_from_elsewhere(page: str, parsed: Parsed) -> None:
    for tag, attributes in parsed.found:
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith(("#", "data:"))
        assert not [name for name in attributes if name.startswith("on")], tag
    assert "@import" not in page
    assert "url(" not in page
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]+)"', page)
    [script] = [text for attributes, text in parsed.scripts if "type" not in attributes]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_what_a_module_says_is_text(page: str, parsed: Parsed, data: dict[str, Any]) -> None:
    assert HOSTILE not in page
    assert "<img" not in page
    assert not [tag for tag, _ in parsed.found if tag == "img"]
    scopes = [scope for graph in data["data-graphs"] for scope in graph["scopes"]]
    assert any(HOSTILE in scope for scope in scopes)  # and nothing of it is lost


def test_scripts_make_no_markup_of_text(parsed: Parsed) -> None:
    [script] = [text for attributes, text in parsed.scripts if "type" not in attributes]
    for way in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "fetch(",
    ):
        assert way not in script


def test_a_workload_called_like_markup(report: Report) -> None:
    named = dataclasses.replace(
        report, workload=HOSTILE, device=HOSTILE, notes=(HOSTILE,), trial=None
    )
    text = named.to_html()
    assert HOSTILE not in text
    assert "<img" not in text
    assert "There is no kernel of ours" in text  # without a trial there are the figures alone


def test_the_graph_has_every_op_once(report: Report, data: dict[str, Any]) -> None:
    plans = {plan.program.name: plan for plan in report.trial.stitched.plans}
    drawn = {graph["name"]: graph for graph in data["data-graphs"]}
    assert plans.keys() <= drawn.keys()
    assert drawn.keys() - plans.keys()  # the bodies of whole loops
    for name, plan in plans.items():
        graph = drawn[name]
        assert [op[1] for op in graph["ops"]] == [op.opcode for op in plan.graph]
        members = [i for unit in graph["units"] for i in unit["ops"]]
        assert len(members) == len(set(members))
        assert [op[3] for op in graph["ops"]] == [
            next((n for n, unit in enumerate(graph["units"]) if i in unit["ops"]), -1)
            for i in range(len(graph["ops"]))
        ]
        stitched = [unit for unit in graph["units"] if unit["kind"] == "stitched"]
        assert len(stitched) == len(plan.chosen)
        for unit in stitched:
            assert unit["scope"]
            assert unit["us"] > 0


def test_loops_lead_to_their_bodies(data: dict[str, Any]) -> None:
    graphs = data["data-graphs"]
    loops = [unit for graph in graphs for unit in graph["units"] if "times" in unit]
    assert {unit["kind"] for unit in loops} == {"control", "stitched"}
    assert sorted(unit["times"] for unit in loops) == [[7], [50]]
    assert all(graphs[body]["runs"] > 1 for unit in loops for body in unit["bodies"])


def test_ops_name_the_user_s_own_frames(data: dict[str, Any]) -> None:
    places = data["data-places"]
    ops = [op for graph in data["data-graphs"] for op in graph["ops"] if op[1] == "exponential"]
    assert ops
    for op in ops:
        lines = [places[number] for number in op[5]]
        assert len(lines) > 1
        assert lines[0]["in"] == "mixed"
        assert lines[0]["text"] == "s = jax.nn.softmax(x)"
        assert "several" in lines[1]["in"]
        assert all("site-packages" not in line["at"] for line in lines)


def test_only_python_is_quoted(tmp_path: Path) -> None:
    """A module from elsewhere may name any file as its source."""
    from fusionstitch.reports.page import places

    for name, shown in (("secret.txt", ""), ("program.py", "top secret")):
        (tmp_path / name).write_text("top secret\n")
        assert places._text(str(tmp_path / name), 1) == shown


def test_kernels_have_their_numbers_and_texts(report: Report, data: dict[str, Any]) -> None:
    stitched = report.trial.stitched
    kernels = data["data-kernels"]
    assert [one["name"] for one in kernels] == [kernel.name for kernel in stitched.kernels]
    for number, kernel in enumerate(stitched.kernels):
        entry = kernels[number]
        texts = {one["title"]: one for one in data[f"data-kernel-{number}"]["texts"]}
        assert texts["CUDA-C"]["text"] == kernel.source
        assert texts["Template"]["text"] == kernel.template
        assert kernel.name in texts["IR"]["text"]
        assert 0 < entry["occupancy"]["share"] <= 1
        assert entry["occupancy"]["bound"]
        assert entry["modelled_us"] > 0
        for _, offset, size, first, last, _ in (
            life for group in data[f"data-kernel-{number}"]["memory"] for life in group["lives"]
        ):
            assert 0 <= offset < offset + size <= kernel.shared_bytes
            assert first <= last
    assert any(data[f"data-kernel-{n}"]["memory"] for n in range(len(kernels)))


def test_a_kernel_is_drawn_from_its_template(report: Report) -> None:
    for one in report.trial.stitched.stitches:
        found = draw(one, report.trial)
        assert found is not None
        assert found.kernel.source == one.kernel.source


def test_the_ir_is_that_after_the_last_pass() -> None:
    """Also where that is none of barriers: here fields are read as vectors."""
    case = CASES["colours"].case()
    found = drawn(case.graph, case.device, case.options)
    assert [one.name for one in found.snapshots][-2:] == ["lowered", "vectors"]
    ir = next(text["text"] for text in _way(found) if text["title"] == "IR")
    assert "_vector[0]" in ir


def test_what_is_not_drawn_says_so(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    from fusionstitch.reports.page import kernels

    monkeypatch.setattr(kernels, "MOST_DRAWN", 1)
    entries = kernels.kernels(report.trial, lambda step: None)
    texts = [{one["title"]: one["text"] for one in entry["texts"]} for entry in entries]
    longest = max(range(len(entries)), key=lambda n: entries[n]["modelled_us"])
    assert [text["IR"].startswith("It is not among") for text in texts] == [
        number != longest for number in range(len(entries))
    ]
    assert all("PTX" in text for text in texts[longest : longest + 1])


def test_colours_cover_the_text(report: Report) -> None:
    source = report.trial.stitched.kernels[0].source
    found = coloured(source, "cuda")
    sizes = re.findall(r"(\d+)([a-z])", found["runs"])
    assert sum(int(size) for size, _ in sizes) == len(source)
    assert {letter for _, letter in sizes} >= {"p", "k", "t", "o"}


def test_rejections_are_counted_by_reason(report: Report, data: dict[str, Any]) -> None:
    found = data["data-rejected"]
    assert sum(one["count"] for one in found) == len(report.rejected)
    assert {one["reason"] for one in found} == {r.reason for r in report.trial.stitched.rejected}
    assert [one["count"] for one in found] == sorted((o["count"] for o in found), reverse=True)
    assert any("sort" in one["reason"] or one["candidates"][0]["first"] for one in found)


def test_a_page_is_written(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    small = dataclasses.replace(report, trial=None)
    text = small.to_html(path)
    assert path.read_text("utf-8") == text
    assert text.startswith("<!doctype html>")
    with pytest.raises(FusionStitchError, match="cannot be written"):
        small.to_html(tmp_path / "none" / "report.html")


def test_a_report_is_pickled_without_its_graphs(report: Report) -> None:
    again = pickle.loads(pickle.dumps(report))
    assert again == report
    assert again.trial is None
    assert again.to_dict() == report.to_dict()


def test_what_was_measured_is_shown(report: Report) -> None:
    times: dict[str, float | None] = {"unfused": 900.0, "xla": 300.0, "fusionstitch": 120.0}
    memory: dict[str, int | None] = {"xla": 3_000_000, "fusionstitch": 2_000_000}
    measured = dataclasses.replace(
        report,
        trial=None,
        backend="cuda",
        time_us=times,
        speedup_vs_xla=2.5,
        memory_bytes=memory,
        max_rel_error=1.25e-7,
        max_rel_error_xla=2.5e-7,
        fallbacks=({"ops": ["a"], "reason": "It was too large."},) * 2,
    ).to_html()
    for shown in ("Against XLA, measured", "2.50", "120 µs against 300 µs", "1.2e-07", "2.0 MB"):
        assert shown in measured
    assert "Left to XLA, 2 times: It was too large." in measured
    assert "XLA&#39;s are modelled here" not in measured


def test_a_page_of_a_program_with_nothing_to_stitch() -> None:
    import jax.numpy as jnp

    text = fs.report(lambda x: x, jnp.ones(3), device="h200").to_html()
    assert "No pattern was worth stitching" in text


def test_the_summary_says_how_far_above_the_floor(report: Report, page: str) -> None:
    assert report.over_floor is not None
    assert "Time over the floor, modelled" in page
    assert f">{report.over_floor['fusionstitch']:.2f}" in page


#: A number and a noun that do not go together.
PLURAL = r"\b1 (?:ops|kernels|runs|blocks|times|candidates|reasons|groups|iterations|threads)\b"


def visible(page: str) -> str:
    """What a page says before its scripts run."""
    return re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)


@pytest.fixture(scope="module")
def small() -> Report:
    """One kernel with a loop, one reason."""
    import jax
    import jax.numpy as jnp

    def steps(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 30, lambda _, v: v + 0.01 * jnp.tanh(v), x)

    return fs.report(steps, jax.ShapeDtypeStruct((64,), jnp.float32), device="h200")


def test_one_is_no_plural(small: Report, page: str) -> None:
    text = visible(small.to_html())
    assert re.search("1 kernel\\b", text)
    for shown in (text, visible(page)):
        assert re.findall(PLURAL, shown) == []


def test_columns_with_nothing_in_them_are_left_out(report: Report, page: str) -> None:
    assert "Measured</button>" not in page
    assert "<th>From</th>" in page
    nowhere = tuple({**one, "source": []} for one in report.patterns)
    assert (
        "<th>From</th>" not in dataclasses.replace(report, patterns=nowhere, trial=None).to_html()
    )


def test_loops_say_their_form_and_what_they_carry(small: Report, data: dict[str, Any]) -> None:
    from fusionstitch.reports.looped import loops_of, to_dict

    [kernel] = small.trial.stitched.kernels
    made = loops_of(kernel)
    assert made is not None
    plain = to_dict(made)
    assert (plain["form"], plain["axes"]) == ("rows", [64])
    [loop] = plain["loops"]
    assert loop["iterations"] == 30
    roles = {one["role"]: one for one in loop["carried"]}
    assert roles["counter"]["place"] == "the loop's own variable"
    assert roles["state"]["place"] == "registers"
    assert roles["state"]["type"] == "f32[64]"
    assert "test_page.py:" in roles["state"]["made"]
    looped = [one for one in data["data-kernels"] if one["loops"]]
    assert [one["scope"] for one in looped] == ["loop"]
    assert not {name for one in looped for name, _ in one["facts"]} & {"loops", "turns", "rows"}
    forms = {u["form"] for g in data["data-graphs"] for u in g["units"] if "form" in u}
    assert forms == {one["loops"]["form"] for one in looped}


def test_phases_of_a_kernel(report: Report, data: dict[str, Any]) -> None:
    for number, kernel in enumerate(report.trial.stitched.kernels):
        found = data[f"data-kernel-{number}"]["phases"]
        ends = [phase["ends"] for phase in found["phases"]]
        assert ends.count("grid") == kernel.source.count("fs_grid_barrier();")
        if kernel.cooperative:
            assert ends.count("grid") == len(ends) - 1 > 0
            assert found["wait_us"]["grid"] > 0
