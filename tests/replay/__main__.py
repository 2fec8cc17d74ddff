"""What a change does to generated kernels: python -m tests.replay REVISION [--lines N].

Generates all kernels of the replay here and in a worktree of the revision, with the tests of each,
and prints the names of those that differ, and the first lines of every difference. The exit status
is 1 where there are any. `--write FILE` only writes the texts of this tree.
"""

from __future__ import annotations

import argparse
import difflib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.replay.replay import texts_of_cases, texts_of_graphs

ROOT = Path(__file__).parent.parent.parent


def texts() -> dict[str, str]:
    return dict(itertools.chain(texts_of_cases(), texts_of_graphs()))


def texts_of(revision: str, folder: Path) -> dict[str, str]:
    """What the tree of a revision generates. Raises CalledProcessError where that fails."""
    tree, file = folder / "tree", folder / "texts.json"
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--detach", str(tree), revision], check=True, capture_output=True)
    try:
        command = [sys.executable, "-m", "tests.replay", "--write", str(file)]
        paths = os.pathsep.join([str(tree), str(tree / "examples")])
        subprocess.run(command, cwd=tree, env={**os.environ, "PYTHONPATH": paths}, check=True)
    finally:
        subprocess.run([*git, "remove", "--force", str(tree)], check=True, capture_output=True)
    found: dict[str, str] = json.loads(file.read_text())
    return found


def compared(before: Mapping[str, str], now: Mapping[str, str], lines: int) -> list[str]:
    """What differs, in lines to print."""
    said = []
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name), now.get(name)
        if old is None or new is None:
            said.append(f"{name}: {'new' if old is None else 'gone'}")
        elif old != new:
            said.append(f"{name} differs")
            found = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=1)
            said += [f"  {line}" for line in itertools.islice(found, 2, 2 + lines)]
    return said


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description=__doc__)
    parser.add_argument("revision", nargs="?", help="what to compare this tree with")
    parser.add_argument("--lines", type=int, default=12, help="of each difference")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the texts of this tree")
    asked = parser.parse_args(arguments)
    if asked.write:
        asked.write.write_text(json.dumps(texts()))
        return 0
    if asked.revision is None:
        parser.error("name a revision to compare with, such as HEAD~1")
    with tempfile.TemporaryDirectory(prefix="fusionstitch-replay-") as folder:
        before = texts_of(asked.revision, Path(folder))
    now = texts()
    said = compared(before, now, asked.lines)
    differ = sum(not line.startswith(" ") for line in said)
    print("\n".join([*said, f"{len(now)} kernels, {differ} differ"]))
    return int(bool(said))


if __name__ == "__main__":
    sys.exit(main())
