"""The list of ``dla serve`` in a browser: at three widths, light and dark, up to date by itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from experiments.collection.listing import load_comparison
from experiments.collection.server import ResultServer
from experiments.report.schema import report_json
from experiments.running.inference import run
from experiments.sweep.store import Store
from tests.experiments.browser import Browser
from tests.experiments.page_layout import boxes, cut_off, opened, overlaps, poor_contrasts
from tests.experiments.reporting import grid_file, tiny_run
from tests.experiments.test_server import running

pytestmark = pytest.mark.slow

LONG = "a-network-of-a-name-that-is-longer-than-the-names-of-most-networks-are-and-has-no-spaces"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    (folder / LONG).mkdir(parents=True)
    for number, report in enumerate((tiny_run(), tiny_run("seed"), run("digits-cnn").report)):
        (folder / f"{number}.json").write_text(report_json(report), encoding="utf-8")
    longest = report_json(tiny_run()).replace('"model": "', f'"model": "{LONG}')
    (folder / LONG / f"{LONG}.json").write_text(longest, encoding="utf-8")
    (folder / "damaged.json").write_text("{")
    shutil.copy(grid_file(), folder / "grid.sqlite")
    return folder


@pytest.fixture
def server(results: Path) -> Iterator[ResultServer]:
    with running(results) as found:
        yield found


def problems(chromium: Browser, server: ResultServer) -> list[str]:
    """Messages of the console, and what was loaded besides the list itself."""
    return [one for one in chromium.errors() if one != server.address]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1000, 1600])
def test_the_list_is_readable(
    chromium: Browser, server: ResultServer, width: int, dark: bool
) -> None:
    chromium.resize(width, dark=dark)
    chromium.visit(server.address)
    chromium.resize(width, chromium.run("document.documentElement.scrollHeight"), dark)
    found = boxes(chromium)
    texts = {one.text for one in found}
    assert {"Runs", "Sweeps", "Not listed", "48 of 48", "complete", "digits-cnn"} <= texts
    assert overlaps(found) == []
    assert cut_off(chromium, found, width) == []
    assert poor_contrasts(chromium, found, 4.5) == []
    assert problems(chromium, server) == []


def test_the_list_follows_a_running_sweep_and_keeps_the_focus(
    chromium: Browser, server: ResultServer, results: Path
) -> None:
    chromium.resize(1000)
    chromium.visit(server.address)
    chromium.run("document.querySelector('a[href=\"/report/2.json\"]').focus()")
    chromium.run("globalThis.sameDocument = true")
    with Store(results / "grid.sqlite", create=True) as store:
        store.forget("ok")
        done = sum(store.count_statuses().values())
        chromium.wait(f"document.querySelector('main').textContent.includes('{done} of 48')")
        chromium.wait("document.querySelector('main').textContent.includes('running')")
    (results / "new.json").write_text(report_json(tiny_run()), encoding="utf-8")
    chromium.wait("document.querySelector('main').textContent.includes('new.json')")
    assert chromium.run("document.activeElement.getAttribute('href')") == "/report/2.json"
    assert chromium.run("globalThis.sameDocument")
    assert chromium.run("document.getElementById('state').textContent") == ""
    chromium.press(Keys.ENTER)
    chromium.wait("document.documentElement.dataset.drawn === 'yes'")
    assert chromium.find("h1")[0].text.startswith("digits-cnn")
    assert problems(chromium, server) == []


def test_every_result_is_reached_by_the_keyboard(chromium: Browser, server: ResultServer) -> None:
    chromium.resize(1000)
    chromium.visit(server.address)
    links = chromium.run("document.querySelectorAll('main a').length")
    assert links == 5
    chromium.run(
        "(globalThis.seen = new Set(), addEventListener('focusin', ({ target }) => "
        "seen.add(target.getAttribute('href'))))"
    )
    chromium.press(*[Keys.TAB] * 15)
    addresses = "[...document.querySelectorAll('main a')].map((one) => one.getAttribute('href'))"
    assert chromium.run(f"{addresses}.filter((one) => !seen.has(one))") == []


def test_the_page_says_when_the_server_has_ended(chromium: Browser, results: Path) -> None:
    with running(results) as server:
        chromium.visit(server.address)
    chromium.wait("document.getElementById('state').textContent !== ''")
    assert "dla serve does not answer" in chromium.find("#state")[0].text
    chromium.visit("about:blank")  # the page would go on to ask
    assert all("CONNECTION_REFUSED" in message for message in chromium.errors())


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1000, 1600])
def test_three_runs_side_by_side_are_readable(
    chromium: Browser, results: Path, tmp_path: Path, width: int, dark: bool
) -> None:
    page = tmp_path / "three.html"
    page.write_text(load_comparison(sorted(results.glob("[0-9].json"))).page(), encoding="utf-8")
    found = opened(chromium, page, width, dark)
    assert {"what differs", "schedule", "C: 2"} <= {one.text for one in found}
    assert "Cycles per run" in page.read_text("utf-8")  # on the page, its terms are marked
    assert overlaps(found) == []
    assert cut_off(chromium, found, width) == []
    assert poor_contrasts(chromium, found, 4.5) == []
    assert chromium.errors() == []
