"""What acts in the explorer, in a headless browser: a script for a Python that has playwright, which prints JSON.

``python -m tests.notebooks.explorer_tiering_page CHROMIUM LAB_URL NOTEBOOK THEME FOLDER``. The first cell makes the lab, the second
shows the explorer, the third one that only reads.
"""

from __future__ import annotations

import json
import sys

from tests.notebooks.explorer_visit import Visit, visit_explorer

#: Windows in which the explorer is 1,400 and 760 pixels wide.
SIZES = ((1830, 1000), (1190, 1000))
FOCUS = "() => (document.activeElement.dataset.field || document.activeElement.textContent)"


def open_tab(visit: Visit, path: str, tab: str) -> None:
    visit.table(path)
    visit.until(lambda: path.split(".")[1] in visit.text(".fx-path"))
    visit.tab(tab)


def looks(visit: Visit) -> None:
    """Look at both screens in two widths, at tables of all kinds."""
    fx = visit.fx
    for width, height in SIZES:
        visit.resize(width, height)
        open_tab(visit, "shop.clicks", "Tiering")
        visit.until(lambda: fx.locator(".fx-body tbody tr").count() > 2)
        visit.picture("tiering")
        visit.tab("Lake")
        visit.until(lambda: fx.get_by_role("button", name="Compact").count() > 0)
        visit.picture("lake-compact")
        open_tab(visit, "shop.broken", "Tiering")
        visit.until(lambda: fx.locator(".fx-body .note").count() > 0)
        visit.picture("tiering-failed")
        open_tab(visit, "shop.notes", "Tiering")
        visit.until(lambda: fx.locator(".fx-body .empty").count() > 0)
        visit.picture("tiering-dry")
        open_tab(visit, "shop.planes", "Write")
        visit.until(lambda: fx.locator(".form .inp").count() > 2)
        fx.locator('[data-field="tailnum"]').fill("N1")
        fx.locator('[data-field="tailnum"]').press("Tab")
        visit.until(lambda: "the row exists" in fx.locator(".form").inner_text())
        fx.locator('[data-key="fill"]').evaluate("(button) => button.click()")
        fx.locator('[data-field="seats"]').fill("5O")
        fx.locator('[data-field="engine"]').fill("Turbo-jet")
        fx.locator('[data-field="engine"]').press("Tab")
        visit.until(lambda: fx.locator(".form .err").count() == 1)
        visit.picture("write")
        for path, name in (("shop.every", "write-every"), ("shop.wide", "write-wide"), ("shop.notes", "write-hostile")):
            open_tab(visit, path, "Write")
            visit.until(lambda: fx.locator(".form .inp").count() > 2)
            visit.picture(name)
    visit.found["markup"] = visit.page.evaluate(
        "() => [window.wronged, document.querySelectorAll('.fx img, .fx script').length]"
    )


def rounds(visit: Visit) -> None:
    """A round begun in the header, left, found again, and one that is cancelled."""
    fx, found = visit.fx, visit.found
    visit.resize(*SIZES[0])
    open_tab(visit, "shop.clicks", "Overview")
    tier = fx.locator(".fx-h1 button").filter(has_text="Tier")
    tier.click()
    found["tab"] = fx.locator('[role=tab][aria-selected="true"]').inner_text()
    visit.until(lambda: fx.locator(".fx-parts .meter").count() > 1)
    found["button"] = [tier.is_disabled(), tier.inner_text()]
    found["code"] = visit.text(".fx-code pre")
    visit.until(lambda: "1 of 2 tasks" in fx.locator(".fx-stages").inner_text())
    visit.picture("tiering-round")
    visit.tab("Data")
    found["rows_ms"] = visit.wait_rows()
    visit.table("shop.notes")
    visit.until(lambda: "notes" in visit.text(".fx-path"))
    visit.table("shop.clicks")
    visit.tab("Tiering")
    found["again"] = visit.until(lambda: fx.locator(".fx-parts .meter").count() > 1)
    found["ended_ms"] = visit.until(lambda: "Round 4" in visit.text(".fx-body .status"))
    found["report"] = visit.text(".fx-body .status")
    visit.until(lambda: fx.locator(".fx-body tbody tr").count() == 4)
    found["rounds"] = fx.locator(".fx-body tbody tr").count()
    visit.tab("Write")
    visit.until(lambda: fx.locator(".form .inp").count() == 2)
    fx.locator('[data-field="id"]').fill("7")
    fx.locator('[data-key="submit"]').click()
    visit.until(lambda: "Acknowledged" in visit.text(".fx-body .status"))
    found["appended"] = visit.text(".fx-code pre")
    tier.click()
    visit.until(lambda: fx.locator(".fx-parts .meter").count() > 0)
    fx.locator('[data-key="cancel"]').click()
    visit.until(lambda: "Cancelled" in visit.text(".fx-body .status"))
    found["cancelled"] = visit.text(".fx-body .status")
    visit.until(lambda: "cancelled" in fx.locator(".fx-body tbody tr").first.inner_text())
    found["last"] = fx.locator(".fx-body tbody tr").first.inner_text()
    visit.tab("Lake")
    fx.locator(".fx-body .status button").filter(has_text="Compact").click()
    found["compacting"] = [
        visit.until(lambda: fx.get_by_role("button", name="Compacting…").is_disabled()),
        tier.is_disabled(),
    ]
    visit.until(lambda: "Compaction:" in visit.text(".fx-body .status"))
    found["compacted"] = [visit.text(".fx-body .status"), tier.is_disabled(), visit.text(".fx-code pre")]
    visit.picture("lake-compacted")
    fx.locator(".fx-h1 button").filter(has_text="Tail").click()
    visit.until(lambda: "Following" in visit.text(".fx-body .status"))
    found["tail"] = visit.text(".fx-body .status")
    fx.get_by_role("button", name="Stop").click()


def writes(visit: Visit) -> None:
    """Rows upserted whole and in part, deleted, appended; wrong texts; by keys alone."""
    fx, found, page = visit.fx, visit.found, visit.page
    open_tab(visit, "shop.planes", "Write")
    visit.until(lambda: fx.locator(".form .inp").count() > 2)
    status = ".fx-body .status"
    fx.locator('[data-field="tailnum"]').fill("N2")
    fx.locator('[data-field="seats"]').fill("5O")
    fx.locator('[data-key="submit"]').focus()
    page.keyboard.press("Enter")
    visit.until(lambda: "does not fit" in visit.text(status))
    found["wrong"] = [visit.text(status), fx.locator(".form .bad").inner_text(), page.evaluate(FOCUS)]
    fx.locator('[data-field="seats"]').fill("50")
    fx.locator('[data-field="seats"]').press("Tab")
    visit.until(lambda: fx.locator(".form .bad").count() == 0)
    found["changed"] = fx.locator(".form .fx-note").nth(1).inner_text()
    fx.locator('[data-key="submit"]').click()
    visit.until(lambda: "Acknowledged" in visit.text(status))
    found["upserted"] = [visit.text(status), visit.text(".fx-code pre")]
    visit.until(lambda: "as it is now" in fx.locator(".form").inner_text())
    fx.get_by_role("radio", name="Chosen columns").click()
    visit.until(lambda: fx.locator(".form input[type=checkbox]").count() > 1)
    fx.locator('[data-field="engine"]').fill("")
    fx.locator('.fx-in:has([data-field="engine"]) button').click()
    visit.until(lambda: "empty" in fx.locator(".form .fx-note").last.inner_text())
    fx.locator(".form input[type=checkbox]").first.uncheck()
    visit.picture("write-chosen")
    fx.locator('[data-key="submit"]').click()
    visit.until(lambda: 'columns=["tailnum", "engine"]' in visit.text(".fx-code pre"))
    found["partial"] = visit.text(".fx-code pre")
    fx.get_by_role("radio", name="Delete").click()
    visit.until(lambda: fx.locator(".form .inp").count() == 1)
    fx.locator('[data-key="submit"]').click()
    visit.until(lambda: "Acknowledged" in visit.text(status))
    visit.until(lambda: "the row exists" not in fx.locator(".form").inner_text())
    found["deleted"] = visit.text(".fx-code pre")
    fx.locator('[data-field="tailnum"]').fill("<img src=x onerror='window.wronged=3'>")
    fx.locator('[data-field="tailnum"]').press("Tab")
    page.wait_for_timeout(300)
    fx.get_by_role("tab", name="Overview").focus()
    page.keyboard.press("Alt+6")
    found["alt"] = fx.locator('[role=tab][aria-selected="true"]').inner_text()
    found["cells"] = page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets.length")


def only_reads(visit: Visit) -> None:
    """An explorer that only reads."""
    visit.run(2)
    visit.until(lambda: visit.page.locator(".fx").count() == 2)
    reader = visit.page.locator(".fx").nth(1)
    visit.until(lambda: reader.locator(".fx-bands").count() > 0)
    visit.found["reader_tabs"] = reader.locator("[role=tab]").all_inner_texts()
    visit.found["reader_buttons"] = reader.locator(".fx-h1 button:visible").all_inner_texts()


def main(chromium: str, url: str, notebook: str, theme: str, folder: str) -> dict[str, object]:
    """Open, use, look; return what was seen."""
    parts = (looks, rounds, writes, only_reads) if theme == "light" else (looks,)
    return visit_explorer(parts, chromium, url, notebook, theme, folder)


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
