"""The share of `make test`: some of the cases of long files, the others are slow."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.shares import LONG, ROOT, SHARES

FILE = "tests/integration/test_sizes.py"


def collected(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", *arguments, FILE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return [line for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.parametrize("name", SHARES)
def test_the_files_are_there(name: str) -> None:
    assert (ROOT / name).is_file()


def test_both_shares_are_all_cases() -> None:
    quick, slow, whole = collected("-m", "not slow"), collected("-m", "slow"), collected()
    assert sorted([*quick, *slow]) == sorted(whole)
    cases = [one for one in whole if "[" in one]
    assert len(cases) / SHARES[FILE] <= len([one for one in quick if "[" in one]) < len(cases)


@pytest.mark.parametrize("name", sorted(LONG))
def test_each_long_test_is_there(name: str) -> None:
    file, test = name.split("::")
    assert f"\ndef {test}(" in (ROOT / file).read_text()
