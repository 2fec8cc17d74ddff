"""The pictures of docs/figures that show the page of a report.

    python -m benchmarks.screenshots [FOLDER]

Run in the folder of the checkout. The page is that of the step of a small model with attention over
interests, planned for an H200, so that the pictures need no GPU.
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

ROOT = Path(__file__).parent.parent
TARGET = "examples/multi_interests.py:train_step"
SIZE = (1360, 860)
#: Pictures by name: the part, what is done there first, and whether in the dark.
PICTURES: dict[str, tuple[str, str, bool]] = {
    "report-summary": ("summary", "", False),
    "report-graph": (
        "graph",
        "choose({unit: currentGraph().units.findIndex(u => u.scope === 'block')}, false)",
        False,
    ),
    "report-op": (
        "graph",
        "chooseOp(0, currentGraph().ops.findIndex((op, i) => op[1] === 'exponential'"
        " && currentGraph().units[op[3]].kind === 'stitched'))",
        True,
    ),
    "report-memory": (
        "kernels",
        "showKernel([...data('kernels').keys()].sort((a, b) =>"
        " data(`kernel-${b}`).memory.flatMap(g => g.lives).length"
        " - data(`kernel-${a}`).memory.flatMap(g => g.lives).length)[0]);"
        "[...document.querySelectorAll('.subtabs [role=tab]')][2].click();"
        "document.querySelector('#kernel-details').scrollIntoView()",
        True,
    ),
    "report-timeline": ("timeline", "", False),
}


def take(driver: Any, page: Path, name: str, folder: Path) -> Path:
    """One picture."""
    part, script, dark = PICTURES[name]
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    driver.get("about:blank")
    browser.go(driver, page, part)
    driver.execute_script(script)
    driver.execute_script("return new Promise(r => setTimeout(r, 400))")
    path = folder / f"{name}.png"
    driver.save_screenshot(str(path))
    return path


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as made, browser.opened(SIZE) as driver:
        page = Path(made) / "report.html"
        command = ["report", TARGET, "--device", "h200", "--html", str(page)]
        full = {**os.environ, env.EXAMPLE_SCALE.name: "full"}
        subprocess.run([sys.executable, "-m", "fusionstitch", *command], env=full, check=True)
        for name in PICTURES:
            print(take(driver, page, name, folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "figures")
