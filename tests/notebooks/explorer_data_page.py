"""The Data screen used in a headless browser: a script for a Python that has playwright, which prints JSON.

``python -m tests.notebooks.explorer_data_page CHROMIUM URL FOLDER``: the address is that of `explorer_loopback`; pictures go into the folder.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.notebooks.browser_page import Found
from tests.notebooks.explorer_visit import STEP_TIMEOUT_MS, Visit

ROW_NUMBERS = "() => [...document.querySelectorAll('.fx-gr')].filter((row) => !row.querySelector('.sk')).map((row) => Number(row.getAttribute('aria-rowindex')) - 1)"
SCROLL = "(top) => { document.querySelector('.fx-grid').scrollTop = top; }"


class DataVisit(Visit):
    """One visit of the Data screen."""

    url = ""

    def say(self, path: str, content: Any) -> None:
        """Say something to the server of the page."""
        request = urllib.request.Request(self.url + path, json.dumps(content).encode(), method="POST")
        urllib.request.urlopen(request).close()

    def open(self, table: str) -> None:
        self.page.goto(f"{self.url}?table={table}")
        if self.wait_rows() < 0:
            raise TimeoutError(f"{table}: no rows are shown")

    def open_changes(self, table: str) -> None:
        self.page.goto(f"{self.url}?table={table}&tab=changelog")
        if self.until(lambda: self.fx.locator("tr.pick").count() > 1) < 0:
            raise TimeoutError(f"{table}: no records are shown")

    def rows(self) -> list[int]:
        return self.page.evaluate(ROW_NUMBERS)

    def filter(self, text: str) -> None:
        where = self.fx.get_by_label("Filter")
        where.fill(text)
        where.press("Enter")

    def scroll(self, top: float) -> None:
        self.page.evaluate(SCROLL, top)

    def status(self) -> str:
        return self.text(".status")

    def until_rows(self, first: int) -> float:
        """Wait until rows from a number on are drawn, all with their values."""
        return self.until(lambda: first in self.rows() and self.fx.locator(".fx-gr .sk").count() == 0)


def wrong_filter(visit: DataVisit) -> None:
    """The rows that are shown stay, and can be scrolled and opened."""
    found = visit.found
    visit.open("shop.flights")
    visit.filter("delay > 10")
    visit.until(lambda: "of 6,900 rows" in visit.status())
    visit.filter("dely > 10")
    visit.until(lambda: visit.fx.locator(".status .bad").count() > 0)
    visit.scroll(700 * 24)
    found["wrong_scrolled_ms"] = visit.until_rows(705)
    found["wrong_status"] = visit.status()
    visit.fx.locator(".fx-gr").nth(6).click()
    found["wrong_opened_ms"] = visit.until(visit.fx.locator(".fx-side .kv").first.is_visible)
    found["wrong_delay"] = visit.page.evaluate(
        "() => [...document.querySelectorAll('.fx-side dt')].find((each) => each.textContent === 'delay').nextSibling.textContent"
    )
    visit.picture("data-wrong")


def grown(visit: DataVisit) -> None:
    """A count that grows beyond what the scroll bar has pixels for."""
    found = visit.found
    visit.open("shop.large")
    visit.filter("id >= 0")
    found["grown_ms"] = visit.until(lambda: "650,000 of 650,000 rows" in visit.status())
    most = visit.page.evaluate(
        "() => { const grid = document.querySelector('.fx-grid'); return grid.scrollHeight - grid.clientHeight; }"
    )
    visit.scroll(most / 2)
    found["dragged_ms"] = visit.until(
        lambda: visit.fx.locator(".fx-gr .sk").count() == 0 and min(visit.rows(), default=0) > 300_000
    )
    found["dragged"] = visit.rows()[0]
    visit.page.mouse.move(500, 400)
    visit.page.mouse.wheel(0, 240)
    visit.page.wait_for_timeout(200)
    found["wheeled"] = visit.rows()[0] - found["dragged"]


def failing(visit: DataVisit) -> None:
    """Requests that fail are asked again when a server answers."""
    found = visit.found
    visit.say("fail", ["schema", "facts", "count"])
    visit.page.goto(f"{visit.url}?table=shop.flights")
    visit.until(lambda: "no server answered" in visit.text(".fx-main"))
    visit.say("fail", [])
    found["mended_ms"] = visit.until(lambda: visit.fx.locator(".fx-gh .hh").count() > 2)
    visit.say("fail", ["page"])
    visit.scroll(3_000 * 24)
    visit.until(lambda: visit.fx.locator(".status .bad").count() > 0)
    found["away"] = visit.status()
    found["away_retry"] = visit.fx.get_by_role("button", name="Try again").count()
    found["away_grid"] = visit.fx.locator(".fx-gr").count() > 10
    visit.picture("data-away")
    visit.say("fail", [])
    found["back_ms"] = visit.until_rows(3_005)
    found["back"] = visit.status()


def saved(visit: DataVisit) -> None:
    """What a notebook keeps says which rows it has."""
    found = visit.found
    visit.open("shop.flights")
    visit.filter("delay > 10 and dest = 'ATL'")
    visit.until(lambda: "of 6,900 rows" in visit.status())
    visit.until(lambda: visit.fx.locator(".fx-gh .hh").count() > 2)
    visit.fx.get_by_role("radio", name="Time").click()
    visit.fx.get_by_label("Moment").fill("now")
    visit.fx.get_by_label("Moment").press("Enter")
    visit.until(lambda: "as of" in visit.status())
    visit.until(lambda: '"as_of":"now"' in visit.page.evaluate("() => model.get()"))
    visit.say("keep", visit.page.evaluate("() => model.get()"))
    visit.page.goto(f"{visit.url}?dead")
    visit.until(lambda: visit.fx.locator(".fx-gr").count() > 10 and "Saved view" in visit.text(".fx-main"))
    found["saved"] = visit.status()
    found["saved_where"] = visit.fx.get_by_label("Filter").input_value()
    found["saved_rows"] = len(visit.rows())
    found["saved_facts"] = visit.fx.locator(".fx-gh .hh").count()
    visit.picture("data-saved")
    visit.open("shop.texts")
    visit.until(lambda: '"point"' in visit.page.evaluate("() => model.get()"))
    visit.page.wait_for_timeout(500)
    text = visit.page.evaluate("() => model.get()")
    found["saved_large"] = [len(text.encode()), len(json.loads(text)["kept"]["page"]["rows"])]


def nested(visit: DataVisit) -> None:
    """Long values within others are marked as cut, and whole in the row's detail."""
    visit.open("shop.nested")
    visit.found["nested"] = visit.fx.locator(".fx-gr").first.locator("[role=gridcell]").last.inner_text()[-3:]
    visit.fx.locator(".fx-gr").first.click()
    visit.until(visit.fx.locator(".fx-side .kv").first.is_visible)
    visit.found["nested_whole"] = len(visit.fx.locator(".fx-side dd").last.inner_text())


def visited(parts: Iterable[Callable[[DataVisit], None]], chromium: str, url: str, folder: str) -> Found:
    """Open a page, and do what parts do in it."""
    found = Found()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 700})
        page.set_default_timeout(STEP_TIMEOUT_MS)
        page.on("console", lambda said: found.note("console", said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: found.note("console", str(error)))
        visit = DataVisit(page, found, Path(folder), "light")
        visit.url = url
        visit.do(parts)
        browser.close()
    return found


if __name__ == "__main__":
    print(json.dumps(visited((wrong_filter, grown, failing, saved, nested), *sys.argv[1:])))
