"""A browser and the pages it opens; `make check-people` asks for these tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import fusionstitch as fs
from benchmarks import browser
from tests.reports.conftest import several

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked = "browser" in config.getoption("markexpr")
    able = browser.found()
    reason = able.reason if asked else "needs a browser: make check-people"
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if not (asked and able):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several patterns, loops, and a scope called like markup."""
    path = tmp_path_factory.mktemp("pages") / "report.html"
    shape = jax.ShapeDtypeStruct((256, 384), jnp.float32)
    fs.report(several, shape, device="h200", options=fs.Options(scorer="model")).to_html(path)
    return path


@pytest.fixture(scope="session", params=["light", "dark"])
def themed(request: pytest.FixtureRequest) -> Iterator[Any]:
    with browser.opened(dark=request.param == "dark") as driver:
        yield driver


@pytest.fixture(scope="session")
def session() -> Iterator[Any]:
    with browser.opened() as driver:
        yield driver


@pytest.fixture
def opened(session: Any, page: Path) -> Any:
    """The page, just opened, in a browser that has logged nothing."""
    session.get("about:blank")
    session.get_log("browser")
    browser.go(session, page)
    return session
