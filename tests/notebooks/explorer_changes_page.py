"""The explorer's changelog and live tail in a headless browser: a script for a Python that has playwright, which prints JSON.

``python -m tests.notebooks.explorer_changes_page CHROMIUM LAB_URL NOTEBOOK THEME FOLDER``. The first cell makes the lab, the second
shows the explorer, the third begins to write many rows a second from another process, the fourth ends that. With minutes as
a last argument only the live tail is looked at, for so long.
"""

from __future__ import annotations

import json
import sys

from tests.notebooks.browser_page import TWO_FRAMES
from tests.notebooks.explorer_visit import Visit, visit_explorer

#: Answers of a tail, four times a second.
ANSWERS_PER_S = 4
#: Of each record shown: bucket, offset, time of day.
RECORDS = """() => [...document.querySelectorAll('.fx tr.pick')].map(row => [1, 2, 3].map(at => row.children[at].textContent))"""
ROWS = "() => document.querySelectorAll('.fx tr.pick').length"
NODES = "() => document.querySelector('.fx').getElementsByTagName('*').length"
FOCUS = "() => document.activeElement.dataset.key || document.activeElement.localName"


def records(visit: Visit) -> list[tuple[str, int, int]]:
    """Return time, bucket and offset of each record that is shown, in the order of the rows."""
    found = visit.page.evaluate(RECORDS)
    return [(time, int(bucket), int(offset.replace(",", ""))) for bucket, offset, time in found]


def press(visit: Visit, name: str) -> None:
    """Press a button and wait until what is shown has changed."""
    before = visit.page.evaluate(RECORDS)
    visit.fx.get_by_role("button", name=name).click()
    visit.until(lambda: visit.page.evaluate(RECORDS) != before)


def order(visit: Visit) -> None:
    """Older and newer records, as far as there are any."""
    found, fx = visit.found, visit.fx
    visit.table("shop.planes")
    visit.tab("Changelog")
    visit.until(lambda: fx.locator("tr.pick").count() > 10)
    seen, kept, focuses = set(records(visit)), [], []
    found["sorted"] = True
    for _ in range(40):
        if not fx.get_by_role("button", name="Older").count():
            break
        press(visit, "Older")
        focuses.append(visit.page.evaluate(FOCUS))
        shown = records(visit)
        seen |= set(shown)
        kept.append(len(shown))
        found["sorted"] &= shown == sorted(set(shown), reverse=True)
    found["kept"], found["seen"] = max(kept), len(seen)
    found["oldest"], found["focuses"] = records(visit)[-1][1:], list(dict.fromkeys(focuses))
    visit.picture("changes-oldest")
    for _ in range(40):
        if not fx.get_by_role("button", name="Newer").count():
            break
        press(visit, "Newer")
        shown = records(visit)
        found["sorted"] &= shown == sorted(set(shown), reverse=True)
    found["newest"] = records(visit)[0]


def words(visit: Visit) -> None:
    """Net changes, a wide table, typed offsets, and what is wrong with one."""
    found, fx = visit.found, visit.fx
    visit.table("shop.planes")
    visit.tab("Changelog")
    visit.until(lambda: fx.locator("tr.pick").count() > 10)
    fx.get_by_role("switch", name="Net changes").click()
    visit.until(lambda: "net changes" in visit.text(".status"))
    found["net"] = visit.text(".status")
    visit.picture("changes-net")
    fx.get_by_role("switch", name="Net changes").click()
    fx.get_by_role("radio", name="Offset").click()
    visit.until(lambda: "oldest first" in visit.text(".status"))
    fx.get_by_label("Offset", exact=True).last.fill("1,000")
    page = visit.page
    page.keyboard.press("Enter")
    visit.until(lambda: "from offset 1,000" in visit.text(".status"))
    found["typed"] = records(visit)[0][2]
    fx.get_by_label("Offset", exact=True).last.fill("1,00")
    page.keyboard.press("Enter")
    visit.until(lambda: fx.locator(".status .bad").count() > 0)
    found["wrong"] = visit.text(".status")
    found["stay"] = records(visit)[0][2]
    fx.locator("tr.pick").nth(1).click()
    visit.until(fx.locator(".fx-side").is_visible)
    visit.picture("changes-record")
    page.keyboard.press("Escape")
    visit.table("shop.wide")
    visit.tab("Changelog")
    found["wide_ms"] = visit.until(lambda: fx.locator("tr.pick").count() > 100)
    fx.locator("tr.pick").first.click()
    # The first columns are there with the row; all come with the record.
    visit.until(lambda: fx.locator(".fx-side .two > div").first.locator("dt").count() > 12)
    found["whole"] = fx.locator(".fx-side .kv dd").first.inner_text()
    found["fields"] = fx.locator(".fx-side .two > div").first.locator("dt").count()
    visit.picture("changes-wide")


def worked_ms(visit: Visit, seconds: float) -> tuple[float, float]:
    """Wait; return how long the tab has worked for each answer of a tail meanwhile, and the memory of its script then, in MB."""
    page = visit.page
    chrome = page.context.new_cdp_session(page)
    chrome.send("Performance.enable")

    def metrics() -> dict[str, float]:
        return {each["name"]: each["value"] for each in chrome.send("Performance.getMetrics")["metrics"]}

    begin = metrics()["TaskDuration"]
    page.wait_for_timeout(seconds * 1_000)
    page.evaluate(TWO_FRAMES)
    worked_s = metrics()["TaskDuration"] - begin
    chrome.send("HeapProfiler.collectGarbage")
    heap = metrics()["JSHeapUsedSize"]
    chrome.detach()
    return round(1_000 * worked_s / (seconds * ANSWERS_PER_S), 1), round(heap / 1e6, 1)


def measured(visit: Visit, seconds: float) -> dict[str, float | str]:
    """Wait, and return what the browser holds of the tail then, and how long it has worked for each answer."""
    work_ms, heap_mb = worked_ms(visit, seconds)
    return {
        "heap_mb": heap_mb,
        "rows": visit.page.evaluate(ROWS),
        "nodes": visit.page.evaluate(NODES),
        "rate": int(visit.text(".status b").replace(",", "")),
        "skipped": visit.text('.status [data-key="skipped"] b'),
        "work_ms": work_ms,
    }


def endure(visit: Visit) -> None:
    """The live tail for as many minutes as the last argument says."""
    found, fx = visit.found, visit.fx
    visit.table("shop.stream")
    visit.tab("Changelog")
    visit.until(lambda: fx.locator("tr.pick").count() > 100)
    found["idle_ms"] = worked_ms(visit, 10)[0]
    fx.get_by_role("button", name="Live tail").click()
    visit.run(2)
    visit.until(lambda: fx.locator("tr.pick").count() > 50)
    found["endured"] = [measured(visit, 10) for _ in range(round(float(sys.argv[6]) * 6))]
    fx.get_by_role("button", name="Stop").click()
    visit.run(3)


def tail(visit: Visit) -> None:
    """The live tail: many records a second, a pause until the buffer is full, and what the browser holds meanwhile."""
    found, fx, page = visit.found, visit.fx, visit.page
    visit.table("shop.stream")
    visit.tab("Changelog")
    visit.until(lambda: fx.locator("tr.pick").count() > 100)
    fx.get_by_role("button", name="Read again").click()
    fx.get_by_role("button", name="Live tail").click()
    visit.until(lambda: "Following" in visit.text(".status"))
    page.wait_for_timeout(1_000)
    found["mixed_in"] = fx.locator("tr.pick").count()
    visit.run(2)
    visit.until(lambda: fx.locator("tr.pick").count() > 50)
    found["rate"] = int(visit.text(".status b").replace(",", ""))
    found["skipped"] = visit.text('.status [data-key="skipped"]')
    visit.picture("tail")
    found["held"] = [measured(visit, 4) for _ in range(6)]
    fx.locator("tr.pick").nth(9).scroll_into_view_if_needed()
    fx.locator(".fx-scroll", has=page.locator("tr.pick")).evaluate("(list) => list.scrollTo(0, 200)")
    visit.until(lambda: fx.locator("tr.pick").count() > 400)
    read = page.evaluate(RECORDS)
    page.wait_for_timeout(1_000)
    found["away"] = page.evaluate(RECORDS) == read
    found["tail_kept"] = len(read)
    fx.locator(".fx-scroll", has=page.locator("tr.pick")).evaluate("(list) => list.scrollTo(0, 0)")
    visit.until(lambda: fx.locator("tr.pick").count() < 100)
    fx.get_by_role("button", name="Pause").click()
    found["full_ms"] = visit.until(lambda: "buffer full" in visit.text(".status"))
    found["full"] = visit.text(".status")
    visit.picture("tail-full")
    top = records(visit)[0]
    page.wait_for_timeout(600)
    found["still"] = records(visit)[0] == top
    fx.get_by_role("button", name="Resume").click()
    found["resumed_ms"] = visit.until(lambda: "Following" in visit.text(".status") and records(visit)[0] != top)
    visit.run(3)
    page.keyboard.press("Escape")
    fx.get_by_role("button", name="Stop").click()
    visit.until(lambda: fx.get_by_role("button", name="Live tail").count() > 0)
    found["stopped"] = visit.text(".status")


def looks(visit: Visit) -> None:
    """The changelog in two widths."""
    for width in (1700, 760):
        visit.resize(width, 1000)
        visit.table("shop.planes")
        visit.tab("Changelog")
        visit.until(lambda: visit.fx.locator("tr.pick").count() > 10)
        visit.picture("changes")


if __name__ == "__main__":
    chosen = (endure,) if sys.argv[6:] else (order, words, tail) if sys.argv[4] == "light" else (looks,)
    print(json.dumps(visit_explorer(chosen, *sys.argv[1:6])))
