"""The HTML report in a real browser: Chromium without a window, driven by selenium."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onnxtfl import write_report
from tests.harness.browser import Browser, open_browser
from tests.unit.test_reporting import HOSTILE, report


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as found:
        if isinstance(found, str):
            pytest.skip(found)
        yield found


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Browser:
    """The report of 40 tensors."""
    browser.resize(1200, 900)
    browser.media("light")
    browser.get(write_report(report(40), tmp_path / "r.html"))
    return browser


def column(page: Browser, table: str, k: int) -> list[str]:
    """The text of the rows of a table that are shown."""
    script = "return [...document.getElementById(arguments[0]).tBodies[0].rows].filter(r => !r.hidden)"
    found: list[str] = page.run(script + ".map(r => r.cells[arguments[1]].textContent)", table, k)
    return found


def click_head(page: Browser, table: str, k: int) -> None:
    page.run("document.querySelectorAll(`#${arguments[0]} thead button`)[arguments[1]].click()", table, k)


def colour(page: Browser) -> str:
    found: str = page.run("return getComputedStyle(document.body).backgroundColor")
    return found


def test_it_is_rendered_without_errors_and_without_network(page: Browser) -> None:
    assert page.run("return document.querySelector('.verdict strong').textContent") == "The models differ"
    assert page.run("return document.querySelectorAll('svg circle').length") >= 40
    assert page.run("return document.querySelector('.verdict').getBoundingClientRect().height") > 30
    assert page.problems() == []
    assert all(url.startswith(("file:", "data:")) for url in page.requests())


def test_tables_are_sorted_by_a_click(page: Browser) -> None:
    assert column(page, "layers-table", 0) == [str(k) for k in range(40)]
    click_head(page, "layers-table", 0)  # numbers: the largest first
    assert column(page, "layers-table", 0)[:3] == ["39", "38", "37"]
    click_head(page, "layers-table", 0)
    assert column(page, "layers-table", 0)[:3] == ["0", "1", "2"]
    click_head(page, "outputs-table", 0)  # text: from a to z
    assert column(page, "outputs-table", 0) == ["t", "z"]
    assert page.run("return document.querySelector('#outputs-table th').getAttribute('aria-sort')") == "ascending"


def test_tables_are_filtered(page: Browser) -> None:
    field = "const f = document.querySelector('input[data-table=layers-table]'); f.value = arguments[0];"
    page.run(field + "f.dispatchEvent(new Event('input'))", "T3 conv")
    assert column(page, "layers-table", 2) == ["t3", *(f"t{k}" for k in range(30, 40))]
    assert page.run("return document.getElementById('layers-table-count').textContent") == "11 of 40"
    page.run(field + "f.dispatchEvent(new Event('input'))", "")
    assert len(column(page, "layers-table", 2)) == 40


def test_dark_and_light(page: Browser) -> None:
    light = colour(page)
    page.media("dark")
    dark = colour(page)
    assert sum(_rgb(light)) > 600
    assert sum(_rgb(dark)) < 150
    page.run("document.getElementById('theme').click()")  # the reader's choice counts more than the system's
    assert colour(page) == light
    assert page.run("return document.getElementById('theme').textContent") == "Dark"


def _rgb(colour_: str) -> list[int]:
    return [int(part) for part in colour_[colour_.index("(") + 1 : -1].split(",")[:3]]


def test_a_phone_shows_it_without_scrolling_sideways(page: Browser, tmp_path: Path) -> None:
    page.resize(390, 800)
    page.get(write_report(report(40, "/model/encoder/" + "x" * 120), tmp_path / "r.html", a="a/" * 60, b="b/" * 60))
    assert page.run("return document.documentElement.scrollWidth") <= 390
    assert page.run("return getComputedStyle(document.querySelector('#outputs-table thead')).display") == "none"


def test_hostile_names_run_nothing(page: Browser, tmp_path: Path) -> None:
    page.get(write_report(report(20, HOSTILE), tmp_path / "r.html", a=HOSTILE, b=HOSTILE))
    assert page.run("return document.querySelectorAll('img').length") == 0
    assert "alert(1)" in column(page, "layers-table", 2)[0]
    assert page.problems() == []  # an alert would be one


def test_a_script_that_is_not_the_page_s_own_is_refused(page: Browser, tmp_path: Path) -> None:
    text = write_report(report(), tmp_path / "r.html").read_text()
    path = tmp_path / "changed.html"
    path.write_text(text.replace("</main>", "<script>document.title = 'changed'</script></main>"))
    page.get(path)
    assert page.run("return document.title") != "changed"
    page.problems()  # the refusal, which the next test does not expect


def test_five_hundred_ops_open(page: Browser, tmp_path: Path) -> None:
    """How long it takes is measured in tools/bench.py."""
    page.get(write_report(report(500), tmp_path / "r.html"))
    assert len(column(page, "layers-table", 0)) == 500
    click_head(page, "layers-table", 4)
    marked: Any = page.run("return document.querySelectorAll('tr.mark').length")
    assert marked == 1
    assert json.loads(page.run("return JSON.stringify([innerWidth > 0])")) == [True]
