"""Rows and records of tables of every kind in a headless browser, and tables that change under them: a script that prints JSON.

``python -m tests.notebooks.explorer_tables_page CHROMIUM URL FOLDER``: as `explorer_data_page`. What happens to tables and servers
meanwhile is done by the server of the page: ``alter``, ``append``, ``kill``, ``drop``, ``make``.
"""

from __future__ import annotations

import json
import sys

from tests.notebooks.explorer_data_page import DataVisit, visited

LOOKS = (("light", 1400), ("dark", 760))
CELLS = """() => [...document.querySelectorAll('.fx-gr')].map((row) => [...row.querySelectorAll('[role=gridcell]')].map((cell) => cell.textContent))"""
HEADS = "() => [...document.querySelectorAll('.fx-gh .n')].slice(1).map((name) => name.textContent)"
RECORDS = "() => [...document.querySelectorAll('.fx tr.pick')].map((row) => [...row.children].slice(5).map((cell) => cell.textContent))"
DETAIL = (
    """(of) => [...document.querySelectorAll(of)].map((name) => [name.textContent, name.nextSibling.textContent])"""
)
#: Whether the row that a detail is of lies below the grid's edge.
COVERED = """() => document.querySelector('.fx-gr.sel').getBoundingClientRect().bottom > document.querySelector('.fx-grid').getBoundingClientRect().bottom"""
MARKUP = "() => [window.wronged ?? null, document.querySelectorAll('.fx img, .fx script').length]"


def detail(visit: DataVisit) -> dict[str, str]:
    """Return what is in the detail of a row, by name: its values, and what is known of its place."""
    visit.until(visit.fx.locator(".fx-side .kv").first.is_visible)
    return dict(visit.page.evaluate(DETAIL, ".fx-side dt"))


def record(visit: DataVisit, fields: int) -> dict[str, str]:
    """Return the values in the detail of a record, by name, once it has so many."""
    values = ".fx-side .two > div:first-child dt"
    visit.until(lambda: visit.page.locator(values).count() >= fields)
    return dict(visit.page.evaluate(DETAIL, values))


def every_type(visit: DataVisit) -> None:
    """A table with a column of every type: its rows, one row whole, its records."""
    found, fx, page = visit.found, visit.fx, visit.page
    page.set_viewport_size({"width": 3_600, "height": 700})
    visit.open("shop.types")
    visit.until(lambda: fx.locator(".fx-gh .hh").count() > 2)
    found["type_names"], found["types"] = page.evaluate(HEADS), page.evaluate(CELLS)
    fx.locator(".fx-gr").first.click()
    found["type_detail"] = detail(visit)
    visit.open_changes("shop.types")
    found["type_records"] = page.evaluate(RECORDS)
    fx.locator("tr.pick").last.click()
    found["type_record"] = record(visit, 20)
    found["markup"] = page.evaluate(MARKUP)


def wide(visit: DataVisit) -> None:
    """A table of 200 columns, to its last one."""
    found, page = visit.found, visit.page
    page.set_viewport_size({"width": 1_400, "height": 700})
    visit.open("shop.wide")
    page.evaluate("() => { document.querySelector('.fx-grid').scrollLeft = 1e6; }")
    found["wide_ms"] = visit.until(
        lambda: "c199" in page.evaluate(HEADS) and visit.fx.locator(".fx-gr .sk").count() == 0
    )
    found["wide"] = page.evaluate(CELLS)[3][-1]
    found["wide_drawn"] = len(page.evaluate(HEADS))
    visit.fx.locator(".fx-gr").nth(3).click()
    found["wide_detail"] = detail(visit).get("c199")
    visit.open_changes("shop.wide")
    visit.fx.locator("tr.pick").first.click()
    found["wide_record"] = record(visit, 200).get("c199")


def empty(visit: DataVisit) -> None:
    """A table without rows, on both screens."""
    for tab, name in (("data", "empty"), ("changelog", "empty_changes")):
        visit.page.goto(f"{visit.url}?table=shop.empty&tab={tab}")
        visit.until(lambda: visit.fx.locator(".empty").count() > 0)
        visit.found[name] = visit.text(".empty")


def by_keys(visit: DataVisit) -> None:
    """The changelog by keys alone: its list is one stop, from which a record opens and closes."""
    found, fx, page = visit.found, visit.fx, visit.page
    visit.open_changes("shop.types")
    fx.get_by_role("button", name="Live tail").focus()
    page.keyboard.press("Tab")
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "ArrowDown"):
        page.keyboard.press(key)
    focused = "() => [...document.querySelectorAll('.fx tr.pick')].indexOf(document.activeElement)"
    found["key_row"] = page.evaluate(focused)
    page.keyboard.press("Enter")
    visit.until(fx.locator(".fx-side .kv").first.is_visible)
    page.keyboard.press("Tab")
    found["key_detail"] = page.evaluate("() => document.activeElement.title")
    page.keyboard.press("Escape")
    found["key_back"] = [page.evaluate(focused), fx.locator(".fx-side").is_visible()]
    page.keyboard.press("End")
    found["key_end"] = page.evaluate(focused) + 1 - fx.locator("tr.pick").count()
    page.keyboard.press("Shift+Tab")
    found["key_before"] = page.evaluate("() => document.activeElement.textContent")


def altered(visit: DataVisit) -> None:
    """A column is added to the table that is shown, and rows that have it."""
    found, fx, page = visit.found, visit.fx, visit.page
    visit.open("shop.brief")
    visit.say("act", "alter")
    found["altered_ms"] = visit.until(lambda: "added" in page.evaluate(HEADS) and fx.locator(".fx-gr .sk").count() == 0)
    found["altered"] = page.evaluate(CELLS)[0]
    visit.say("act", "append")
    fx.get_by_role("button", name="Read again").click()
    visit.until(lambda: visit.status().startswith("11 "))
    found["appended"] = page.evaluate(CELLS)[-1]
    visit.open_changes("shop.brief")
    found["altered_record"] = page.evaluate(RECORDS)[0]


def killed(visit: DataVisit) -> None:
    """The server is killed under the rows, and comes back by itself."""
    found, fx, page = visit.found, visit.fx, visit.page
    visit.open("shop.many")
    visit.until(lambda: "4,000 rows" in visit.status())
    visit.say("act", "kill")
    visit.scroll(3_000 * 24)
    found["killed_ms"] = visit.until_rows(3_005)
    found["killed_banners"] = visit.until(lambda: fx.locator(".banner").count() == 0)
    found["killed_rows"] = [page.evaluate(CELLS)[5][0], visit.rows()[5]]
    visit.say("act", "kill")
    fx.get_by_role("tab", name="Changelog").click()
    found["killed_changes_ms"] = visit.until(lambda: fx.locator("tr.pick").count() > 100)


def dropped(visit: DataVisit) -> None:
    """The table is dropped under its rows and its records, and another one of its path is made."""
    found, fx = visit.found, visit.fx
    for tab in ("data", "changelog"):
        visit.say("act", "make")
        if tab == "data":
            visit.open("shop.gone")
        else:
            visit.open_changes("shop.gone")
        visit.say("act", "drop")
        visit.until(lambda: fx.locator(".empty").count() > 0)
        found[f"dropped_{tab}"] = visit.text(".empty")
        visit.say("act", "make")
        visit.page.wait_for_timeout(2_500)  # a head is asked for every two seconds
        found[f"made_{tab}"] = [visit.text(".empty"), fx.locator(".fx-gr, tr.pick").count()]
        visit.say("act", "drop")


def looks(visit: DataVisit) -> None:
    """The screen Data in both themes and two widths."""
    found, fx, page = visit.found, visit.fx, visit.page
    for visit.theme, width in LOOKS:
        page.emulate_media(color_scheme="dark" if visit.theme == "dark" else "light")
        page.set_viewport_size({"width": width, "height": 700})
        visit.open("shop.flights")
        visit.until(lambda: fx.locator(".fx-gh .hh").count() > 2)
        visit.picture("data-flights")
        fx.locator(".fx-gr").nth(5).click()
        detail(visit)
        found.setdefault("covered", []).append(page.evaluate(COVERED))
        visit.picture("data-flights-row")
        page.keyboard.press("Escape")
        fx.get_by_role("button", name="Columns").click()
        visit.picture("data-flights-columns")
        page.keyboard.press("Escape")
        fx.get_by_role("radio", name="Snapshot").click()
        visit.until(lambda: "as of" in visit.status())
        visit.picture("data-flights-snapshot")
        visit.filter("delay > 1000")
        visit.until(lambda: fx.locator(".empty").count() > 0)
        found["none"] = visit.status()
        visit.picture("data-flights-none")
        visit.open("shop.types")
        visit.until(lambda: fx.locator(".fx-gh .hh").count() > 2)
        visit.picture("data-types")
        visit.open_changes("shop.types")
        visit.picture("changes-types")


if __name__ == "__main__":
    print(json.dumps(visited((every_type, wide, empty, by_keys, altered, killed, dropped, looks), *sys.argv[1:])))
