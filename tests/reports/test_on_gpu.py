"""What only a GPU fills in: measured times, PTX and SASS of a page, names in a profiler."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import fusionstitch as fs
from fusionstitch.commands.cli import main
from fusionstitch.reports.page import assembly
from fusionstitch.reports.report import Report
from tests.reports.conftest import mixed, several

pytestmark = pytest.mark.gpu
X = jnp.linspace(-1.0, 1.0, 256 * 384, dtype=jnp.float32).reshape(256, 384)


@pytest.fixture(scope="module")
def measured() -> Report:
    return fs.report(several, X, options=fs.Options(scorer="measured"))


def texts(page: str) -> list[dict[str, str]]:
    """The texts of each kernel of a page, by title, without their colours."""
    scripts = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    found = []
    for kernel in kernels_in([json.loads(script) for script in scripts]):
        found.append({text["title"]: json.dumps(text) for text in kernel["texts"]})
    return found


def kernels_in(data: Any) -> list[dict[str, Any]]:
    if isinstance(data, dict):
        own = [data] if "texts" in data else []
        return own + [one for value in data.values() for one in kernels_in(value)]
    if isinstance(data, list):
        return [one for value in data for one in kernels_in(value)]
    return []


def test_a_page_has_times_that_were_measured(measured: Report, tmp_path: Path) -> None:
    assert measured.speedup_vs_xla is not None
    page = measured.to_html()
    (tmp_path / "page.html").write_text(page)
    cells = re.findall(r'<td class="number" data-value="([0-9.e+-]+)">', page)
    assert any(float(cell) > 0 for cell in cells)
    assert "Time of a call, measured" in page


def test_a_page_has_what_the_gpu_runs(measured: Report) -> None:
    found = texts(measured.to_html())
    assert len(found) == len(measured.trial.stitched.kernels)
    for kernel in found:
        assert ".entry" in kernel["PTX"]
        if assembly.disassembler() is not None:
            assert "EXIT" in kernel["SASS"]


def test_the_command_writes_the_page_and_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSIONSTITCH_SCORER", "paper")  # the program is small
    source = tmp_path / "program.py"
    source.write_text(
        "import jax, jax.numpy as jnp\n"
        "def program():\n"
        "    return lambda x: jax.nn.softmax(x) * x.sum(0), (jnp.ones((64, 96)),)\n"
    )
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    assert main(["report", f"{source}:program", "--html", str(page), "--trace", str(trace)]) == 0
    assert "</html>" in page.read_text()
    data = json.loads(trace.read_text())
    assert data["otherData"]["backend"] == "cuda"
    assert any("kernel" in event["args"] for event in data["traceEvents"] if event["ph"] == "X")


def test_a_profiler_shows_kernels_by_name_and_scope(tmp_path: Path) -> None:
    def scoped(x: jax.Array) -> jax.Array:
        with jax.named_scope("decoder"):
            return mixed(x)

    compiled = fs.jit(scoped, options=fs.Options(scorer="paper")).lower(X).compile()
    jax.block_until_ready(compiled(X))
    with jax.profiler.trace(str(tmp_path)):
        jax.block_until_ready(compiled(X))
    [path] = tmp_path.glob("**/*.xplane.pb")
    planes = jax.profiler.ProfileData.from_file(str(path)).planes
    seen = {
        event.name
        for plane in planes
        if plane.name.startswith("/device:GPU")
        for line in plane.lines
        for event in line.events
    }
    names = {kernel.name for kernel in compiled.kernels}
    assert names <= seen
    # reading an event's facts one by one aborts JAX 0.11's process
    trace = path.read_bytes()
    assert all(f"decoder/{name}".encode() in trace for name in names)
