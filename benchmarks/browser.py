"""A headless Chromium that opens pages of reports, by Selenium: for tests, timings and pictures."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fusionstitch.hlo.verdict import Verdict, allow, forbid

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--disable-extensions", "--disable-background-networking", "--force-device-scale-factor=1"),
)
#: Counts tasks of the page that keep it from answering, from before its first line on.
WATCH = """
window.longTasks = [];
new PerformanceObserver(list => {
  for (const one of list.getEntries()) window.longTasks.push([one.startTime, one.duration]);
}).observe({type: "longtask", buffered: true});
"""


def found() -> Verdict:
    """Whether there is all that is needed, with the paths of the browser and its driver."""
    if importlib.util.find_spec("selenium") is None:
        return forbid("Selenium is not installed: pip install -e '.[people]'.")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        return forbid(
            "There is no Chromium with its driver (Debian: apt install chromium chromium-driver)."
        )
    return allow(browser=browser, driver=driver)


@contextmanager
def opened(size: tuple[int, int] = (1440, 900), dark: bool = False) -> Iterator[Any]:
    """A browser without a network, as Selenium's driver. Raises RuntimeError if there is none."""
    from selenium import webdriver

    if not (able := found()):
        raise RuntimeError(able.reason)
    paths = dict(able.facts)
    options = webdriver.ChromeOptions()
    options.binary_location = str(paths["browser"])
    for argument in (*ARGUMENTS, f"--window-size={size[0]},{size[1]}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=str(paths["driver"]))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
        driver.execute_cdp_cmd("Network.enable", {})
        nothing = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        driver.execute_cdp_cmd("Network.emulateNetworkConditions", nothing)
        yield driver
    finally:
        driver.quit()


def go(driver: Any, page: Path, part: str = "summary") -> None:
    """Opens a page and shows a part of it."""
    driver.get(page.resolve().as_uri())
    show(driver, part)


def show(driver: Any, part: str) -> None:
    """Shows a part of the page that is open."""
    driver.find_element("id", f"tab-{part}").click()
