"""The explorer's screens Lake and Diff opened and used in a headless browser; see `tests.notebooks.explorer_page`.

The third cell of the notebook takes a file of the lake's metadata away, the fourth brings it back.
"""

from __future__ import annotations

import json
import sys

from tests.notebooks.explorer_matrix_page import CUT
from tests.notebooks.explorer_visit import Visit, visit_explorer

#: Windows in which the explorer is 1,400 and 760 px wide.
SIZES = ((1832, 1000), (1192, 1000))
#: Windows in which it is between them: as narrow as it may be beside its tree, and a little wider.
BETWEEN = (1352, 1400, 1600)
PARTS = ("Files", "Manifests", "Partitions", "Schemas", "Refs")

FOCUS = "() => document.activeElement.getAttribute('aria-label')"


def chosen(visit: Visit) -> str:
    """Return the snapshot that is chosen, as the time line says it."""
    found = visit.fx.locator(".fx-time [role=option][aria-selected=true]")
    return str(found.get_attribute("aria-label")) if found.count() else ""


def wait_lake(visit: Visit) -> float:
    return visit.until(lambda: visit.fx.locator(".fx-sizes svg").count() > 0)


def open_lake(visit: Visit, path: str) -> float:
    visit.table(path)
    visit.tab("Overview")
    visit.until(lambda: path.split(".")[1] in visit.text(".fx-path") and visit.fx.locator(".fx-bands").count() > 0)
    visit.tab("Lake")
    return wait_lake(visit)


def compare(visit: Visit) -> None:
    visit.fx.get_by_role("button", name="Compare", exact=True).click()
    visit.until(lambda: visit.fx.get_by_role("radiogroup", name="Changes").count() > 0)


def looks(visit: Visit) -> None:
    """Look at everything that both screens show, in two widths."""
    fx = visit.fx
    for width, height in SIZES:
        visit.resize(width, height)
        open_lake(visit, "shop.flights")
        visit.picture("lake-files")
        fx.locator("tr.pick").nth(1).click()
        visit.until(fx.locator(".fx-side .kv").first.is_visible)
        visit.picture("lake-bucket")
        visit.page.keyboard.press("Escape")
        for part in PARTS[1:]:
            fx.get_by_role("radio", name=part).click()
            visit.until(lambda part=part: fx.locator(f'table:has(caption:text("{part}")) tbody tr').count() > 0)  # type: ignore[misc]
            visit.picture(f"lake-{part.lower()}")
        fx.get_by_role("radio", name="Files").click()
        visit.table("shop.outside")
        visit.until(lambda: fx.locator(".empty").count() > 0 and "Not in the lake" in visit.text(".empty"))
        visit.picture("lake-outside")
        visit.table("shop.fresh")
        visit.until(lambda: fx.locator(".empty").count() > 0 and "No snapshot yet" in visit.text(".empty"))
        visit.picture("lake-none")
        visit.table("shop.planes")
        wait_lake(visit)
        visit.picture("lake-keyed")
        visit.tab("Diff")
        visit.until(lambda: fx.get_by_label("Before").input_value() != "")
        visit.picture("diff-start")
        fx.get_by_label("Before").fill(first_snapshot(visit))
        compare(visit)
        visit.until(lambda: fx.locator("mark").count() > 3)
        visit.picture("diff-changed")
        fx.get_by_role("radio", name="Removed").click()
        visit.until(lambda: fx.locator("td .ct.D").count() > 3)
        visit.picture("diff-removed")
        visit.table("shop.notes")
        visit.tab("Diff")
        visit.until(lambda: fx.get_by_label("Before").input_value() != "")
        compare(visit)
        visit.until(lambda: fx.locator("mark").count() > 0)
        visit.picture("diff-hostile")
    visit.found["markup"] = visit.page.evaluate(
        "() => [window.wronged, document.querySelectorAll('.fx img, .fx script').length]"
    )


def first_snapshot(visit: Visit) -> str:
    """Return the id of the oldest snapshot that is offered."""
    visit.until(lambda: visit.fx.locator("datalist option").count() > 2)
    return str(visit.fx.locator("datalist option").last.get_attribute("value"))


def time_line(visit: Visit) -> None:
    """Choose snapshots by keys and by the mouse, and go from one to its rows and to a comparison."""
    page, found, fx = visit.page, visit.found, visit.fx
    visit.resize(1700, 1000)
    found["lake_ms"] = open_lake(visit, "shop.flights")
    found["status"] = visit.text(".status")
    found["options"] = fx.locator(".fx-time [role=option]").count()
    line = fx.get_by_role("listbox", name="Lake snapshots by time")
    line.focus()
    found["newest"] = chosen(visit)
    page.keyboard.press("Home")
    found["oldest"] = chosen(visit)
    page.keyboard.press("ArrowRight")
    found["second"] = chosen(visit)
    found["active"] = line.get_attribute("aria-activedescendant") == fx.locator(
        ".fx-time [aria-selected=true]"
    ).get_attribute("id")
    page.keyboard.press("End")
    found["end"] = chosen(visit)
    found["focus_stays"] = page.evaluate(FOCUS)
    line.click(position={"x": 30, "y": 40})
    found["clicked"] = chosen(visit)
    snapshot = fx.locator(".status .mono").inner_text()
    visit.until(lambda: f"files({snapshot})" in visit.text(".fx-code pre"))
    found["code"] = [visit.text(".fx-code pre"), f"flights.files({snapshot}).to_pandas()"]
    fx.get_by_role("button", name="Read at this snapshot").click()
    visit.wait_rows()
    visit.until(lambda: snapshot in visit.text(".fx-code pre"))
    found["rows_code"] = [visit.text(".fx-code pre"), f"flights.scan(as_of={snapshot}, with_source=True).to_pandas()"]
    visit.tab("Lake")
    wait_lake(visit)
    fx.get_by_role("button", name="Compare with now").click()
    visit.until(lambda: "diff(" in visit.text(".fx-code pre"))
    found["diff_code"] = [visit.text(".fx-code pre"), f"flights.diff(before={snapshot}).added.to_pandas()"]
    found["grown"] = visit.text(".status")


def many(visit: Visit) -> None:
    """A thousand snapshots, five hundred at a time."""
    found, fx = visit.found, visit.fx

    def shown(after: str) -> str:
        visit.until(lambda: visit.text(".status").startswith(after))
        return visit.text(".status").split(" snapshots")[0]

    found["long_ms"] = open_lake(visit, "shop.long")
    seen = [shown("602")]
    found["long_options"] = fx.locator(".fx-time [role=option]").count()
    visit.picture("lake-many")
    visit.resize(*SIZES[1])
    visit.picture("lake-many")
    found["cut"] = fx.locator(".status").first.evaluate("(line) => line.scrollWidth > line.clientWidth")
    visit.resize(*SIZES[0])
    fx.get_by_role("button", name="Older").click()
    seen.append(shown("102"))
    found["older_focus"] = visit.page.evaluate("() => document.activeElement.dataset.key")
    fx.get_by_role("button", name="Older").click()
    seen.append(shown("1–"))
    fx.get_by_role("button", name="Newest").click()
    found["long"] = [*seen, shown("602")]


def differences(visit: Visit) -> None:
    """Compare, look at each kind, swap, cancel."""
    found, fx, page = visit.found, visit.fx, visit.page
    visit.table("shop.planes")
    visit.tab("Diff")
    before = fx.get_by_label("Before")
    snapshot = first_snapshot(visit)
    before.fill(snapshot)
    before.press("Enter")
    visit.until(lambda: fx.locator("mark").count() > 3)
    kinds = fx.get_by_role("radiogroup", name="Changes")
    found["counts"] = kinds.inner_text().split("\n")
    found["first"] = [fx.locator("td .old").first.inner_text(), fx.locator("td mark").first.inner_text()]
    found["shown"] = fx.locator("tbody tr").count()
    fx.get_by_role("button", name="Show more").click()
    visit.until(lambda: fx.locator("tbody tr").count() > found["shown"])
    found["more"] = fx.locator("tbody tr").count()
    kinds.get_by_role("radio", name="Changed").focus()
    page.keyboard.press("ArrowLeft")
    visit.until(lambda: fx.locator("td .ct.D").count() > 0)
    found["by_key"] = fx.locator("td .ct").first.inner_text()
    fx.get_by_role("button", name="Swap").click()
    visit.until(lambda: before.input_value() == "now" and "Added 40" in kinds.inner_text())
    found["swapped"] = kinds.inner_text().split("\n")
    before.fill("never")
    before.press("Enter")
    visit.until(lambda: fx.locator(".empty[role=alert]").count() > 0)
    found["wrong"] = visit.text(".empty")
    before.fill(snapshot)
    fx.get_by_label("After").fill(snapshot)
    before.press("Enter")
    visit.until(lambda: "No row was" in fx.inner_text())
    found["nothing"] = visit.text(".empty")
    fx.get_by_label("After").fill("")
    page.evaluate("() => { window.sent = 0; }")
    fx.get_by_role("button", name="Compare", exact=True).click()
    fx.locator('[data-key="run"]').focus()
    found["compares_again"] = visit.until(lambda: fx.locator("mark").count() > 3)


def between(visit: Visit) -> None:
    """Look for controls that are cut off at widths between those of the pictures."""
    found, fx = visit.found, visit.fx
    found["cut_off"] = []
    for width in BETWEEN:
        visit.resize(width, 1000)
        open_lake(visit, "shop.flights")
        found["cut_off"] += [f"{each} at {width}" for each in visit.page.evaluate(CUT)]
        visit.table("shop.planes")
        visit.tab("Diff")
        visit.until(lambda: fx.get_by_label("Before").input_value() != "")
        compare(visit)
        visit.until(lambda: fx.locator("mark").count() > 0)
        found["cut_off"] += [f"{each} at {width}" for each in visit.page.evaluate(CUT)]
    visit.resize(*SIZES[0])


def damaged(visit: Visit) -> None:
    """The lake's metadata are away, and there again."""
    found, fx = visit.found, visit.fx
    visit.run(2)
    visit.table("shop.planes")
    visit.tab("Overview")
    visit.table("shop.flights")
    visit.tab("Lake")
    visit.until(lambda: fx.locator(".empty[role=alert]").count() > 0)
    found["damaged"] = visit.text(".empty")
    visit.picture("lake-damaged")
    visit.run(3)
    fx.get_by_role("button", name="Try again").click()
    found["again_ms"] = wait_lake(visit)


def compacted(visit: Visit) -> None:
    """A compaction begun on the time line is on it when it is done."""
    found, fx = visit.found, visit.fx
    open_lake(visit, "shop.planes")
    before = fx.locator(".fx-time [role=option]").count()
    fx.get_by_role("button", name="Compact", exact=True).click()
    visit.until(lambda: "Compaction:" in visit.text(".status"))
    found["compacted_ms"] = visit.until(lambda: chosen(visit).startswith("compaction at "))
    found["compacted"] = [fx.locator(".fx-time [role=option]").count() - before, visit.text(".status")]
    visit.picture("lake-compacted")


if __name__ == "__main__":
    parts = (looks, time_line, many, differences, between, damaged, compacted) if sys.argv[4] == "light" else (looks,)
    print(json.dumps(visit_explorer(parts, *sys.argv[1:])))
