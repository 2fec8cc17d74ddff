"""What tests of a page do in its browser, and what they wait for."""

from __future__ import annotations

from typing import Any

from benchmarks import browser

#: The size of the canvas, and where it draws a unit.
AT = """
const box = graphView.scene.units[arguments[0]], {view} = graphView;
const canvas = document.getElementById("graph-canvas").getBoundingClientRect();
return [canvas.width, canvas.height, (box.x + box.w / 2 - view.x) * view.scale,
        (box.y + Math.min(box.h, 58) / 2 - view.y) * view.scale];
"""


def wait(driver: Any, script: str) -> None:
    """Until the page finds the script true."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(driver, 10).until(lambda d: d.execute_script(f"return Boolean({script})"))


def assert_quiet(driver: Any) -> None:
    assert [entry["message"] for entry in driver.get_log("browser")] == []


def details(driver: Any) -> str:
    return str(driver.find_element("id", "graph-details").text)


def press(driver: Any, *keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(driver).send_keys(*keys).perform()


def click_unit(driver: Any, number: int, twice: bool = False) -> None:
    """On the canvas, where the unit is drawn."""
    from selenium.webdriver.common.action_chains import ActionChains

    width, height, x, y = driver.execute_script(AT, number)
    canvas = driver.find_element("id", "graph-canvas")
    chain = ActionChains(driver).move_to_element_with_offset(
        canvas, round(x - width / 2), round(y - height / 2)
    )
    (chain.double_click() if twice else chain.click()).perform()


def unit_of(driver: Any, condition: str) -> int:
    """The first unit of the graph that is open of which a condition on `u` holds."""
    found: int = driver.execute_script(f"return currentGraph().units.findIndex(u => {condition})")
    assert found >= 0
    return found


def kernel_of(driver: Any, condition: str) -> None:
    """Shows the first kernel of which a condition on `k` holds."""
    browser.show(driver, "kernels")
    number = driver.execute_script(f"return data('kernels').findIndex(k => {condition})")
    assert number >= 0
    driver.execute_script("showKernel(arguments[0])", number)
