"""A headless Chromium for tests of HTML reports.

It opens files, clicks, and returns the console's messages.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,1000",
)  # fmt: skip
_WAIT_SECONDS = 300


class Browser:
    """One page in one browser."""

    def __init__(self, driver: Chrome) -> None:
        self._driver = driver

    def open(self, page: Path) -> None:
        """Load a file from disk and wait until its charts are drawn."""
        self._driver.get(page.resolve().as_uri())
        self.wait("document.documentElement.dataset.drawn === 'yes'")

    def visit(self, address: str) -> None:
        """Load a page of a server, which has no charts."""
        self._driver.get(address)
        self.wait("document.readyState === 'complete'")

    def call(self, script: str, *arguments: Any) -> Any:
        """The value with which a script calls its last argument, after ``arguments``."""
        self._driver.set_script_timeout(_WAIT_SECONDS)
        return self._driver.execute_async_script(script, *arguments)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression on the page."""
        return self._driver.execute_script(f"return ({script});")

    def wait(self, condition: str) -> None:
        """Until a JavaScript expression is true; fails after a minute."""
        WebDriverWait(self._driver, _WAIT_SECONDS, 0.05).until(
            lambda _: self.run(condition), condition
        )

    def find(self, selector: str) -> list[WebElement]:
        """All elements of a CSS selector."""
        return list(self._driver.find_elements(By.CSS_SELECTOR, selector))

    def click(self, selector: str, number: int = 0) -> None:
        """Click in the middle of an element, on the topmost element there, like a person."""
        self.point_at(selector, number)
        ActionChains(self._driver, duration=0).click().perform()

    def point_at(self, selector: str, number: int = 0) -> None:
        """Move the pointer to the middle of an element."""
        target = self.find(selector)[number]
        self._driver.execute_script("arguments[0].scrollIntoView({block: 'center'});", target)
        ActionChains(self._driver, duration=0).move_to_element(target).perform()

    def choose(self, identity: str, value: str) -> None:
        """Choose from a list."""
        Select(self._driver.find_element(By.ID, identity)).select_by_value(value)

    def click_at(self, selector: str, right: float, down: float) -> None:
        """Click inside an element, at shares of its width and height from its upper left corner."""
        target = self.find(selector)[0]
        self._driver.execute_script("arguments[0].scrollIntoView({block: 'center'});", target)
        size = target.rect
        across = (right - 0.5) * size["width"]
        below = (down - 0.5) * size["height"]
        chain = ActionChains(self._driver, duration=0)
        chain.move_to_element_with_offset(target, round(across), round(below)).click().perform()

    def resize(
        self, width: int, height: int = 1000, dark: bool = False, paper: bool = False
    ) -> None:
        """Set the inner size of the window in pixels, and whether the system prefers dark pages.

        ``paper`` shows the page as it is printed.
        """
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"media": "print" if paper else "", "features": [scheme]},
        )

    def picture(self) -> bytes:
        """Return the window's content as PNG."""
        return b64decode(
            self._driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
        )

    def press(self, *keys: str) -> None:
        """Send keys one after another to the element with the focus."""
        ActionChains(self._driver, duration=0).send_keys(*keys).perform()

    def seconds(self) -> float:
        """Return the processor time that the page has taken since it began to load."""
        self._driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        found = self._driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        return float(next(one["value"] for one in found if one["name"] == "ThreadTime"))

    def print(self) -> None:
        """Print the page to a file that nobody keeps."""
        self._driver.execute_cdp_cmd("Page.printToPDF", {})

    def named(self) -> list[dict[str, Any]]:
        """Return role and name of all elements for screen readers."""
        return list(self._driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"])

    def errors(self) -> list[str]:
        """Messages of the console so far that are warnings or errors.

        Nothing is loaded from anywhere, or it is one.
        """
        loaded: list[str] = self.run(
            "performance.getEntriesByType('resource').map((entry) => entry.name)"
        )
        log = [
            entry["message"]
            for entry in self._driver.get_log("browser")
            if entry["level"] in ("WARNING", "SEVERE")
        ]
        return log + loaded


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with a fresh profile in ``folder``; skips where there is no Chromium."""
    for program, package in ((CHROMIUM, "chromium"), (DRIVER, "chromium-driver")):
        if not program.exists():
            pytest.skip(f"{program} is missing: install the Debian package {package}")
    options = ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*_FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(str(DRIVER)))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
