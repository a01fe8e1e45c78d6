"""The explorer opened and used in a headless browser: a script for a Python that has playwright, which prints JSON.

``python -m tests.notebooks.explorer_page CHROMIUM LAB_URL NOTEBOOK THEME FOLDER``: pictures go into the folder. The first cell of
the notebook makes the lab, the second shows the explorer, the third keeps the kernel busy, the fourth drops the table that is
shown. Nothing but the lab's own address can be reached.
"""

from __future__ import annotations

import json
import sys
import time

from tests.notebooks.browser_page import BEGIN_CELL, PROMPT
from tests.notebooks.explorer_visit import Visit, visit_explorer

SIZES = ((1700, 1000), (1150, 1000))


def looks(visit: Visit) -> None:
    """Look at each screen in two widths."""
    for width, height in SIZES:
        visit.resize(width, height)
        visit.table("shop.flights")
        visit.tab("Overview")
        visit.until(lambda: visit.fx.locator(".fx-bands").count() > 0)
        visit.picture("overview")
        visit.fx.get_by_role("radio", name="Around the boundary").click()
        visit.picture("overview-boundary")
        visit.fx.get_by_role("radio", name="All offsets").click()
        visit.tab("Data")
        visit.wait_rows()
        visit.until(lambda: visit.fx.locator(".fx-gh .hh").count() > 2)
        visit.picture("data")
        visit.fx.locator(".fx-gr").nth(3).click()
        visit.until(visit.fx.locator(".fx-side .kv").first.is_visible)
        visit.picture("data-row")
        visit.page.keyboard.press("Escape")
        visit.tab("Buckets")
        visit.until(lambda: "lag " in visit.text(".status"))
        visit.found["bucket_lag"] = visit.text(".status")
        visit.until(lambda: visit.fx.locator("tr.pick").count() > 0)
        visit.picture("buckets")
        visit.table("shop.planes")
        visit.tab("Changelog")
        visit.until(lambda: visit.fx.locator("tr.pick .ct").count() > 10)
        visit.fx.locator("tr.pick").nth(2).click()
        visit.picture("changelog")
        visit.tab("Data")
        for path, name in (
            ("shop.notes", "hostile"),
            ("shop.empty", "empty"),
            ("shop.wide", "wide"),
            ("shop.many", "many"),
        ):
            visit.table(path)
            visit.page.wait_for_timeout(700)
            visit.picture(name)
        visit.table("shop.many")
        visit.tab("Overview")
        visit.page.wait_for_timeout(500)
        visit.picture("many-buckets")
    visit.found["markup"] = visit.page.evaluate(
        "() => [window.wronged, document.querySelectorAll('.fx img, .fx script').length]"
    )


def words(visit: Visit) -> None:
    """Filter, rightly and wrongly; the texts of design."""
    found, fx = visit.found, visit.fx
    visit.resize(1400, 1000)
    visit.table("shop.flights")
    visit.tab("Data")
    visit.wait_rows()
    where = fx.get_by_label("Filter")
    where.fill("delay > 60 and dest = 'ATL'")
    where.press("Enter")
    found["filtered_ms"] = visit.until(lambda: " of 6,900 rows" in visit.text(".status"))
    found["filtered"] = visit.text(".status")
    found["filtered_code"] = visit.text(".fx-code pre")
    rows = fx.locator(".fx-gr").count()
    where.fill("dely > 60")
    where.press("Enter")
    visit.until(lambda: fx.locator(".status .bad").count() > 0)
    found["wrong"] = visit.text(".status")
    found["rows_stay"] = fx.locator(".fx-gr").count() == rows
    visit.picture("data-wrong")
    where.fill("delay > 100000")
    where.press("Enter")
    visit.until(lambda: fx.locator(".empty").count() > 0)
    found["none"] = visit.text(".empty")
    fx.get_by_role("button", name="Clear the filter").click()
    visit.wait_rows()
    fx.locator(".hh rect[fill=transparent]").first.click(force=True)
    visit.until(lambda: "id" in where.input_value())
    found["added"] = where.input_value()
    where.fill("")
    where.press("Enter")
    visit.wait_rows()
    fx.get_by_label("Find a table").fill("nothing of this")
    found["search"] = visit.text(".fx-tl")
    fx.get_by_label("Find a table").fill("")


def keyboard(visit: Visit) -> None:
    """Everything by keys alone."""
    page, found, fx = visit.page, visit.found, visit.fx
    visit.table("shop.flights")
    fx.get_by_role("tab", name="Overview").focus()
    page.keyboard.press("ArrowRight")
    found["arrow_tab"] = fx.locator('[role=tab][aria-selected="true"]').inner_text()
    visit.wait_rows()
    page.keyboard.press("/")
    found["slash"] = page.evaluate("() => document.activeElement.getAttribute('aria-label')")
    fx.get_by_role("grid").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "PageDown"):
        page.keyboard.press(key)
    page.wait_for_timeout(100)
    found["cell"] = page.evaluate(
        "() => document.getElementById(document.activeElement.getAttribute('aria-activedescendant')).closest('[role=row]').getAttribute('aria-rowindex')"
    )
    page.keyboard.press("Control+End")
    found["end"] = visit.until(
        lambda: visit.text(".status").strip().find("rows ") > 0 and fx.locator(".fx-gr.x, .fx-gr .sk").count() == 0
    )
    page.keyboard.press("Enter")
    visit.until(fx.locator(".fx-side .kv").first.is_visible)
    found["row"] = visit.text(".fx-side h3")
    page.keyboard.press("Escape")
    found["closed"] = not fx.locator(".fx-side .kv").first.is_visible()
    page.keyboard.press("Alt+1")
    found["alt"] = fx.locator('[role=tab][aria-selected="true"]').inner_text()
    found["cells"] = page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets.length")


def busy(visit: Visit) -> None:
    """A cell that runs, and the explorer meanwhile."""
    page, found = visit.page, visit.found
    page.evaluate(BEGIN_CELL, 2)
    visit.until(lambda: "busy since" in page.locator(".jp-OutputArea").all_inner_texts().__str__())
    found["is_busy"] = page.evaluate(PROMPT, 2)
    begin = time.monotonic()
    visit.table("shop.planes")
    visit.tab("Data")
    visit.until(lambda: "planes" in visit.text(".fx-path"))
    found["busy_rows_ms"] = visit.wait_rows()
    found["busy_s"] = round(time.monotonic() - begin, 2)
    found["still_busy"] = page.evaluate(PROMPT, 2)


def dropped(visit: Visit) -> None:
    """The table goes while it is shown."""
    visit.resize(1400, 1000)
    visit.table("shop.brief")
    visit.until(lambda: "brief" in visit.text(".fx-path"))
    visit.run(3)
    visit.until(lambda: visit.fx.locator(".empty").count() > 0 and "dropped" in visit.text(".empty"))
    visit.found["dropped"] = visit.text(".empty")
    visit.picture("dropped")


if __name__ == "__main__":
    chosen = (looks, words, keyboard, busy, dropped) if sys.argv[4] == "light" else (looks,)
    print(json.dumps(visit_explorer(chosen, *sys.argv[1:])))
