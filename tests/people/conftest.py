"""What people look at and follow; `make check-people` asks for these tests."""

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
    asked = "people" in config.getoption("markexpr")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.people)
            if not asked:
                item.add_marker(pytest.mark.skip(reason="run by make check-people"))


def open_browser(dark: bool = False) -> Iterator[Any]:
    found = browser.found()
    if not found:
        pytest.skip(found.reason)
    with browser.opened(dark=dark) as driver:
        yield driver


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several patterns, loops, and a scope called like markup."""
    path = tmp_path_factory.mktemp("pages") / "report.html"
    shape = jax.ShapeDtypeStruct((256, 384), jnp.float32)
    fs.report(several, shape, device="h200", options=fs.Options(scorer="model")).to_html(path)
    return path


@pytest.fixture(scope="session", params=["light", "dark"])
def themed(request: pytest.FixtureRequest) -> Iterator[Any]:
    yield from open_browser(dark=request.param == "dark")


@pytest.fixture(scope="session")
def session() -> Iterator[Any]:
    yield from open_browser()


@pytest.fixture
def opened(session: Any, page: Path) -> Any:
    """The page, just opened, in a browser that has logged nothing."""
    session.get("about:blank")
    session.get_log("browser")
    browser.go(session, page)
    return session
