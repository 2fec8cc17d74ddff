"""The pictures of docs/figures that show the page of a report.

    python -m benchmarks.screenshots [FOLDER]

Run in the folder of the checkout. The pages are planned for an H200, so that the pictures need no
GPU: that of the step of a small model with attention over interests, for docs/reports.md, and that
of the tutorial's model.
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
#: Shows the shared memory of the kernel that is open.
MEMORY = (
    "[...document.querySelectorAll('.subtabs [role=tab]')][2].click();"
    "document.querySelector('#kernel-details').scrollIntoView()"
)
Pictures = dict[str, tuple[str, str, bool]]
#: Pictures by name: the part, what is done there first, and whether in the dark.
REPORTS: Pictures = {
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
        " - data(`kernel-${a}`).memory.flatMap(g => g.lives).length)[0]);" + MEMORY,
        True,
    ),
    "report-timeline": ("timeline", "", False),
}
OF_TUTORIAL: Pictures = {
    "tutorial-graph": (
        "graph",
        "choose({unit: currentGraph().units.findIndex(u => u.scope === 'grid')}, true)",
        False,
    ),
    "tutorial-timeline": ("timeline", "", False),
    "tutorial-memory": (
        "kernels",
        "showKernel(data('kernels').findIndex(k => k.name.startsWith('fs_dot_reduce_exp')));"
        + MEMORY,
        False,
    ),
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


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as made, browser.opened(SIZE) as driver:
        page = Path(made) / "report.html"
        write_files(TUTORIAL.read_text("utf-8"), Path(made))
        full = {**os.environ, env.EXAMPLE_SCALE.name: "full"}
        full["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [full.get("PYTHONPATH")])])
        for target, at, pictures in (
            ("examples/multi_interests.py:train_step", str(ROOT), REPORTS),
            ("mixer.py:step", made, OF_TUTORIAL),
        ):
            command = ["fusionstitch", "report", target, "--device", "h200", "--html", str(page)]
            subprocess.run([sys.executable, "-m", *command], env=full, cwd=at, check=True)
            for name, picture in pictures.items():
                print(take(driver, page, folder / f"{name}.png", picture))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "figures")
