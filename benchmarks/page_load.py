"""How long pages of reports keep a browser busy: the transformer's step, and one of 5,000 ops.

    python -m benchmarks.page_load                    # both, planned for an H200
    python -m benchmarks.page_load --page report.html

Of each thing that a person does: milliseconds until it is shown, and the longest task among what
the page did for it. While a task runs the page does not answer; browsers call one of 50 ms long.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import browser, results_file

ROUNDS = 3
#: Layers of a transformer, 64 wide, whose training step has some 5,000 ops.
LAYERS = 16
#: What a person does, as scripts; the page is idle before each.
ACTIONS = {
    "open the graph": "showPart('graph')",
    "unfold the largest kernel": (
        "const u = currentGraph().units, n = u.map((x, i) => i)"
        ".reduce((a, b) => u[a].ops.length >= u[b].ops.length ? a : b);"
        "graphView.unfolded.has(n) || toggleUnit(n)"
    ),
    "fold it": "unfoldAll(false)",
    "unfold all": "unfoldAll(true)",
    "zoom": "for (let i = 0; i < 5; i++) zoomMiddle(0.7)",
    "search": (
        "const i = document.getElementById('graph-search'); i.focus(); i.value = 'exponential';"
        "i.dispatchEvent(new Event('input'))"
    ),
    "open the kernels": "showPart('kernels')",
    "open a kernel": "showKernel(0)",
    "open its last text": "[...document.querySelectorAll('.subtabs [role=tab]')].pop().click()",
    "open what was rejected": (
        "showPart('rejected'); document.querySelector('#rejected-reasons details').open = true"
    ),
    "open the timeline": "showPart('timeline')",
}
SETTLED = "return new Promise(r => requestAnimationFrame(() => setTimeout(r, 150)))"


def deep_step() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The training step of a transformer of many layers."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
    import transformer
    from common import Random

    draw = Random()
    params = transformer.init(draw, LAYERS, 64, 16, 128)
    return transformer.step, (params, draw.integers(2, 17, high=128))


def made(folder: Path) -> list[Path]:
    """The pages that are timed; says what making them took."""
    import fusionstitch as fs
    from fusionstitch.commands import targets

    step = targets.load(str(Path(__file__).parent.parent / "examples/transformer.py:train_step"))
    found = []
    for name, (fun, args) in {"transformer": step, "deep": deep_step()}.items():
        start = time.perf_counter()
        report = fs.report(fun, *args, device="h200")
        planned = time.perf_counter()
        page = folder / f"{name}.html"
        report.to_html(page)
        print(
            f"{name}: {report.ops} ops, {report.kernels['fusionstitch']} kernels, planned in "
            f"{planned - start:.1f} s, page of {page.stat().st_size / 1e6:.1f} MB in "
            f"{time.perf_counter() - planned:.1f} s"
        )
        found.append(page)
    return found


def timed(driver: Any, page: Path) -> dict[str, tuple[float, float]]:
    """Milliseconds and the longest task of the load and of each action."""
    driver.get("about:blank")
    start = time.perf_counter()
    driver.get(page.resolve().as_uri())
    found = {"load": ((time.perf_counter() - start) * 1000, longest(driver))}
    for name, script in ACTIONS.items():
        spent = driver.execute_async_script(
            "const done = arguments[0], start = performance.now(); window.longTasks = [];"
            f"{{ {script} }}"
            "requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)))"
        )
        found[name] = spent, longest(driver)
    return found


def longest(driver: Any) -> float:
    """The longest task since the last question; those below 50 ms count as none."""
    driver.execute_script(SETTLED)
    tasks = driver.execute_script("const t = window.longTasks; window.longTasks = []; return t")
    return max((duration for _, duration in tasks), default=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", type=Path, action="append", default=[], help="one that is there")
    parser.add_argument("--json", type=Path, help="also write the times as JSON")
    parsed = parser.parse_args()
    results: dict[str, dict[str, tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder, browser.opened() as driver:
        for page in parsed.page or made(Path(folder)):
            rounds = [timed(driver, page) for _ in range(ROUNDS)]
            results[page.stem] = {
                name: tuple(statistics.median(r[name][i] for r in rounds) for i in (0, 1))
                for name in rounds[0]
            }
    for name, found in results.items():
        print(f"\n{name:28}     shown  longest task, ms (medians of {ROUNDS})")
        for what, (spent, task) in found.items():
            print(f"  {what:26} {spent:9.0f}  {f'{task:12.0f}' if task else '        < 50'}")
    if parsed.json is not None:
        results_file.write(parsed.json, results)


if __name__ == "__main__":
    main()
