"""Headless Chromium through selenium; the reason if it is not available."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class Browser:
    """An open browser."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def get(self, path: Path) -> None:
        """Open a file; earlier log entries are cleared."""
        self._driver.get_log("browser")
        self._driver.get_log("performance")
        self._driver.get(path.resolve().as_uri())

    def run(self, script: str, *arguments: object) -> Any:
        """The result of a script in the page."""
        return self._driver.execute_script(script, *arguments)

    def resize(self, width: int, height: int) -> None:
        """The size of the screen; less than 600 is a phone."""
        sizes = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sizes)

    def media(self, scheme: str) -> None:
        """The colour scheme of the system: "light" or "dark"."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def problems(self) -> list[str]:
        """The console messages since the page was opened."""
        return [entry["message"] for entry in self._driver.get_log("browser")]

    def requests(self) -> list[str]:
        """The addresses of all requests since the page was opened."""
        entries = [json.loads(entry["message"])["message"] for entry in self._driver.get_log("performance")]
        sent = [entry for entry in entries if entry["method"] == "Network.requestWillBeSent"]
        return [entry["params"]["request"]["url"] for entry in sent]

    def milliseconds(self) -> float:
        """From the start of opening the page to its end, with the first layout."""
        return float(self.run("return performance.getEntriesByType('navigation')[0].loadEventEnd"))


@contextmanager
def open_browser() -> Iterator[Browser | str]:
    """A browser, or the reason why there is none."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    try:
        from selenium import webdriver
        from selenium.common.exceptions import WebDriverException
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        yield "selenium is not installed"
        return
    if browser is None or driver is None:
        yield "no Chromium, or no chromedriver (apt-get install chromium chromium-driver)"
        return
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    try:
        opened = webdriver.Chrome(options=options, service=Service(driver))
    except WebDriverException as error:
        yield f"Chromium does not start: {str(error).splitlines()[0]}"
        return
    try:
        yield Browser(opened)
    finally:
        opened.quit()
