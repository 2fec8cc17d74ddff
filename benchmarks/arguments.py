"""What the benchmarks' command lines have in common: which workloads, and where results go."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from benchmarks.suites import SUITES
from benchmarks.workloads import Workload, find


def parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """A parser of targets, suites and a file for the results; modules add their own."""
    made = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("targets", nargs="*", metavar="TARGET")
    made.add_argument(
        "--suite", action="append", default=[], choices=list(SUITES), help="may be given again"
    )
    made.add_argument("--json", type=Path, metavar="FILE", help="where the results go")
    return made


def parse(made: argparse.ArgumentParser) -> tuple[argparse.Namespace, tuple[Workload, ...]]:
    """The arguments and the workloads they name. Targets are paths of the checkout, which becomes
    the current folder; the file for the results stays where it was meant."""
    options = made.parse_args()
    try:
        workloads = find(options.targets, options.suite)
    except ValueError as error:
        made.error(str(error))
    options.json = options.json and options.json.resolve()
    os.chdir(Path(__file__).parent.parent)
    return options, workloads
