"""What became of tests: a JSON line each, and the comparison of two such records.

`python -m tests.jax_tests.outcomes OURS.jsonl BASE.jsonl` lists as a table what fails in the first
and not in the second, and exits with 1 if there is anything.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Accepted differences: a test without the number of its case, text that its error holds, and why.
KNOWN = Path(__file__).with_name("known.tsv")


@dataclass(frozen=True)
class Outcome:
    """A test's outcome ("passed", "failed" or "skipped") and what fs.jit met in it."""

    test: str
    outcome: str
    programs: int = 0
    patterns: int = 0
    seconds: float = 0.0
    error: str = ""

    @property
    def failed(self) -> bool:
        return self.outcome == "failed"

    @property
    def headline(self) -> str:
        """The first lines of what was raised."""
        raised = re.findall(r"^E +(.*)$", self.error, re.MULTILINE)
        lines = raised[:3] or self.error.strip().splitlines()[-1:]
        return " ".join(line.strip() for line in lines)

    def line(self) -> str:
        return json.dumps(dataclasses.asdict(self)) + "\n"


def read(path: Path) -> dict[str, Outcome]:
    """Outcomes by test; of several lines for one test the last failed one counts."""
    found: dict[str, Outcome] = {}
    for line in path.read_text().splitlines():
        one = Outcome(**json.loads(line))
        if one.test not in found or not found[one.test].failed:
            found[one.test] = one
    return found


@dataclass(frozen=True)
class Comparison:
    """Failures under fs.jit: those that jax.jit does not have, accepted ones, and those it has."""

    new: tuple[Outcome, ...]
    accepted: tuple[Outcome, ...]
    shared: tuple[Outcome, ...]


@dataclass(frozen=True)
class Known:
    """A difference that is accepted, where the error is the one it was accepted for."""

    error: str
    why: str


def accepted(path: Path = KNOWN) -> dict[str, Known]:
    """Accepted differences by test, without the number of its case."""
    rows = (line.split("\t") for line in path.read_text().splitlines())
    return {test: Known(error, why) for test, error, why in rows}


def compare(
    ours: Mapping[str, Outcome], base: Mapping[str, Outcome], known: Mapping[str, Known]
) -> Comparison:
    """A failure counts as shared only if the same test has run and failed under jax.jit."""
    new, let_be, shared = [], [], []
    for test, one in ours.items():
        if not one.failed:
            continue
        named = known.get(test.rstrip("0123456789"))
        if test in base and base[test].failed:
            shared.append(one)
        elif named is not None and named.error in one.error:
            let_be.append(one)
        else:
            new.append(one)
    return Comparison(tuple(new), tuple(let_be), tuple(shared))


def totals(ours: Mapping[str, Outcome]) -> str:
    """The line of numbers that a record comes to."""
    counts = Counter(one.outcome for one in ours.values())
    return (
        f"{len(ours)} tests: {counts['passed']} passed, {counts['skipped']} skipped, "
        f"{counts['failed']} failed; {sum(one.programs for one in ours.values())} programs seen, "
        f"{sum(one.patterns for one in ours.values())} patterns stitched"
    )


def table(found: Comparison) -> str:
    """Failures as a Markdown table, those of fs.jit alone first."""
    rows = [("only under fs.jit", one) for one in found.new]
    rows += [("accepted", one) for one in found.accepted]
    rows += [("under jax.jit too", one) for one in found.shared]
    if not rows:
        return "No test fails."
    lines = ["| fails | test | programs | patterns | error |", "|---|---|---|---|---|"]
    for kind, one in rows:
        text = one.headline.replace("|", "\\|")[:160]
        lines.append(f"| {kind} | {one.test} | {one.programs} | {one.patterns} | {text} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.jax_tests.outcomes", description=__doc__)
    parser.add_argument("ours", type=Path)
    parser.add_argument("base", type=Path)
    chosen = parser.parse_args(arguments)
    ours = read(chosen.ours)
    found = compare(ours, read(chosen.base), accepted())
    print(totals(ours), table(found), sep="\n\n")
    return 1 if found.new else 0


if __name__ == "__main__":
    sys.exit(main())
