"""docs/errors.md and the classes of errors agree."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import fusionstitch
from fusionstitch import dag, errors
from fusionstitch.errors import FusionStitchError, FusionStitchWarning

PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
ROWS = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)


def raised() -> set[type]:
    """Every class of the hierarchy, wherever it is defined."""
    for module in pkgutil.walk_packages(fusionstitch.__path__, "fusionstitch."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found, left = {FusionStitchError, FusionStitchWarning}, [FusionStitchError]
    while left:
        more = left.pop().__subclasses__()
        found.update(more)
        left.extend(more)
    return {one for one in found if not one.__module__.startswith("tests")}


def test_every_class_has_a_row_and_every_row_a_class() -> None:
    assert sorted(name for name, _, _ in ROWS) == sorted(one.__name__ for one in raised())


def test_every_class_is_under_one_import_and_says_what_it_is() -> None:
    for one in raised():
        where = dag if one.__module__.startswith("fusionstitch.dag") else errors
        assert getattr(where, one.__name__) is one
        assert where is dag or one.__name__ in errors.__all__
        assert one.__doc__


def test_every_row_has_a_cause_and_a_cure() -> None:
    for name, cause, cure in ROWS:
        assert len(cause) > 20, name
        assert len(cure) > 10, name
