"""The pictures of docs/figures that show the page of a report.

    python -m benchmarks.screenshots write PAGES            on an H200: measured pages
    python -m benchmarks.screenshots take PAGES [FOLDER]    with a browser: their pictures

Run in the folder of the checkout. The pages are that of a transformer's training step, for
docs/reports.md, and that of the tutorial's model. Without a GPU `write` makes
pages that are planned for an H200, whose times are modelled.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import browser
from fusionstitch import env
from tests.pages import write_files

ROOT = Path(__file__).parent.parent
TUTORIAL = ROOT / "docs" / "start" / "tutorial.md"
SIZE = (1360, 860)
#: Shows the phases and the shared memory of the kernel that is open.
MEMORY = (
    "[...document.querySelectorAll('.subtabs [role=tab]')][2].click();"
    "document.querySelector('.subtabs').scrollIntoView();scrollBy(0, -260)"
)
#: The stitched unit of most ops, and of most that share memory of a block.
LARGEST, LARGEST_SHARED = (
    "[...currentGraph().units.entries()].filter(([, u]) => u.kind === 'stitched' && "
    + which
    + ").sort(([, a], [, b]) => b.ops.length - a.ops.length)[0][0]"
    for which in ("true", "u.scope !== 'thread' && u.scope !== 'warp'")
)
Pictures = dict[str, tuple[str, str, bool]]
#: Pictures by name: the part, what is done there first, and whether in the dark.
REPORTS: Pictures = {
    "report-time": ("time", "", False),
    "report-summary": ("summary", "", False),
    "report-graph": ("graph", f"choose({{unit: {LARGEST_SHARED}}}, true)", False),
    "report-op": (
        "graph",
        "chooseOp(0, currentGraph().ops.findIndex((op, i) => op[1] === 'exponential'"
        " && currentGraph().units[op[3]].kind === 'stitched'))",
        True,
    ),
    "report-memory": (
        "kernels",
        "showKernel([...data('kernels').keys()].filter(k => data('kernels')[k].ops < 100)"
        ".sort((a, b) => data(`kernel-${b}`).memory.flatMap(g => g.lives).length"
        " - data(`kernel-${a}`).memory.flatMap(g => g.lives).length)[0]);" + MEMORY,
        True,
    ),
    "report-timeline": ("timeline", "", False),
}
OF_TUTORIAL: Pictures = {
    "tutorial-graph": ("graph", f"choose({{unit: {LARGEST}}}, true)", False),
    "tutorial-timeline": ("timeline", "", False),
    "tutorial-memory": (
        "kernels",
        "showKernel([...data('kernels').keys()].find(k => data('kernels')[k].scope === 'block'"
        " && data(`kernel-${k}`).memory.length));" + MEMORY,
        False,
    ),
}

#: The target of each page, and the pictures of it.
PAGES = {
    "report": ("examples/transformer.py:train_step", REPORTS),
    "tutorial": ("mixer.py:step", OF_TUTORIAL),
}


def take(driver: Any, page: Path, path: Path, picture: tuple[str, str, bool]) -> Path:
    """One picture."""
    part, script, dark = picture
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    driver.get("about:blank")
    browser.go(driver, page, part)
    driver.execute_script(script)
    driver.execute_script("return new Promise(r => setTimeout(r, 400))")
    driver.save_screenshot(str(path))
    return path


def write(pages: Path) -> None:
    """Writes the pages into a folder."""
    import jax

    pages.mkdir(parents=True, exist_ok=True)
    modelled = [] if jax.default_backend() == "gpu" else ["--device", "h200"]
    with tempfile.TemporaryDirectory() as made:
        write_files(TUTORIAL.read_text("utf-8"), Path(made))
        full = {**os.environ, env.EXAMPLE_SCALE.name: "full"}
        full["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [full.get("PYTHONPATH")])])
        for name, (target, _) in PAGES.items():
            at = ROOT if target.startswith("examples") else Path(made)
            page = str((pages / f"{name}.html").resolve())
            command = ["fusionstitch", "report", target, *modelled, "--html", page]
            subprocess.run([sys.executable, "-m", *command], env=full, cwd=at, check=True)


def main(what: str, pages: str, folder: str = str(ROOT / "docs" / "figures")) -> None:
    if what == "write":
        write(Path(pages))
        return
    with browser.opened(SIZE) as driver:
        for name, (_, pictures) in PAGES.items():
            for picture, how in pictures.items():
                path = Path(folder) / f"{picture}.png"
                print(take(driver, Path(pages) / f"{name}.html", path, how))


if __name__ == "__main__":
    main(*sys.argv[1:])
