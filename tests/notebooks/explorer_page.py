"""The explorer opened and used in a headless browser: a script for a Python that has playwright, which prints JSON.

``python explorer_page.py CHROMIUM LAB_URL NOTEBOOK THEME FOLDER``: pictures go into the folder. The first cell of the notebook makes
the lab, the second shows the explorer, the third keeps the kernel busy, the fourth drops the table that is shown.
Nothing but the lab's own address can be reached.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Locator, Page, sync_playwright

SIZES = ((1700, 1000), (1150, 1000))
START_TIMEOUT_MS = 120_000
STEP_TIMEOUT_MS = 20_000

#: Runs one cell; the promise is kept when it is done.
RUN_CELL = """async (at) => {
    const panel = window.jupyterapp.shell.currentWidget;
    await panel.sessionContext.ready;
    await panel.sessionContext.session.kernel.info;
    panel.content.activeCellIndex = at;
    panel.content.deselectAll();
    await window.jupyterapp.commands.execute('notebook:run-cell');
}"""
BEGIN_CELL = "(at) => { (" + RUN_CELL + ")(at); }"
ERRORS = """() => window.jupyterapp.shell.currentWidget.content.widgets.filter(c => c.model.type === 'code').flatMap(c =>
    Array.from({length: c.model.outputs.length}, (_, i) => c.model.outputs.get(i).toJSON())
        .filter(o => o.output_type === 'error').map(o => o.ename + ': ' + o.evalue))"""

#: What stands beside a cell: ``[*]:`` while it runs.
PROMPT = "(at) => window.jupyterapp.shell.currentWidget.content.widgets[at].promptNode.textContent"

#: Every text of the explorer that can be seen, with the contrast of its colour to what is behind it.
CONTRASTS = """() => {
    const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const rgb = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
    const light = ([r, g, b]) => { const f = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
    const over = (top, below) => top.slice(0, 3).map((v, i) => v * top[3] / 255 + below[i] * (1 - top[3] / 255));
    const behind = (element) => {
        const stack = [];
        for (let e = element; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3]) stack.push(c); if (c[3] === 255) break; }
        return stack.reduceRight((below, top) => over(top, below), [255, 255, 255]);
    };
    const root = document.querySelector('.fx'), walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT), found = [];
    while (walker.nextNode()) {
        const node = walker.currentNode, element = node.parentElement;
        if (!node.data.trim() || !element.checkVisibility() || element.closest('.vh') || element.closest('title')) continue;
        const style = getComputedStyle(element), back = behind(element);
        const ink = over(rgb(element instanceof SVGElement ? style.fill : style.color), back);
        const [a, b] = [light(ink), light(back)].sort((x, y) => y - x);
        found.push([(a + 0.05) / (b + 0.05), node.data.slice(0, 40)]);
    }
    return found;
}"""

#: Whether anything lies outside the frame, or the frame itself scrolls.
OUTSIDE = """() => {
    const root = document.querySelector('.fx'), frame = root.getBoundingClientRect();
    return {height: frame.height, scrolls: root.scrollHeight > root.clientHeight + 1 || root.scrollWidth > root.clientWidth + 1};
}"""


class Found(dict[str, Any]):
    """What was seen: lists of texts by what went wrong, and the rest."""

    def note(self, kind: str, text: str) -> None:
        self.setdefault(kind, []).append(text)


class Visit:
    """One visit of the explorer in a notebook."""

    def __init__(self, page: Page, found: Found, folder: Path, theme: str) -> None:
        self.page, self.found, self.folder, self.theme = page, found, folder, theme
        self.fx: Locator = page.locator(".fx").first

    def resize(self, width: int, height: int) -> None:
        """Change the window, and wait until the explorer has its width by it."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.wait_for_timeout(400)

    def run(self, cell: int) -> None:
        self.page.evaluate(RUN_CELL, cell)

    def picture(self, name: str) -> None:
        """Make a picture, and measure the contrast of every text."""
        self.page.wait_for_timeout(150)
        worst = min(self.page.evaluate(CONTRASTS), default=[99, ""])
        self.found["contrast"] = min(self.found.get("contrast", [99, ""]), [*worst, name])
        frame = self.page.evaluate(OUTSIDE)
        if frame["scrolls"] or abs(frame["height"] - 620) > 2:
            self.found.note("frame", f"{name}: {frame}")
        self.fx.screenshot(path=self.folder / f"{name}-{self.theme}-{self.page.viewport_size['width']}.png")

    def text(self, selector: str) -> str:
        return self.fx.locator(selector).first.inner_text()

    def until(self, what: Callable[[], bool]) -> float:
        """Wait until something is so; return after how many milliseconds, -1 when it never was."""
        begin = time.monotonic()
        while time.monotonic() - begin < STEP_TIMEOUT_MS / 1000:
            if what():
                return round((time.monotonic() - begin) * 1000)
            self.page.wait_for_timeout(20)
        return -1

    def tab(self, name: str) -> None:
        self.fx.get_by_role("tab", name=name).click()

    def table(self, path: str) -> None:
        menu = self.fx.locator(".fx-menu")
        if menu.is_visible():
            menu.click()
        self.fx.locator(f'[data-path="{path}"]').click()

    def wait_rows(self) -> float:
        return self.until(lambda: self.fx.locator(".fx-gr .fx-src").count() > 3)


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
    found["filtered_ms"] = visit.until(lambda: " of " in visit.text(".status"))
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


def main(chromium: str, url: str, notebook: str, theme: str, folder: str) -> dict[str, Any]:
    """Open, use, look; return what was seen."""
    place, found = urlsplit(url), Found()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(
            viewport={"width": 1400, "height": 1000}, color_scheme="dark" if theme == "dark" else "light"
        )
        page.set_default_timeout(STEP_TIMEOUT_MS)

        def route(route: Any) -> None:
            is_own = urlsplit(route.request.url).netloc == place.netloc or route.request.url.startswith(
                ("data:", "blob:")
            )
            if not is_own:
                found.note("elsewhere", route.request.url)
            route.continue_() if is_own else route.abort()

        page.route("**/*", route)
        page.on("requestfailed", lambda request: found.note("failed", f"{request.url}: {request.failure}"))
        page.on("response", lambda got: found.note("failed", f"{got.url}: {got.status}") if got.status >= 400 else None)
        page.on("console", lambda said: found.note("console", said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: found.note("console", str(error)))
        page.goto(f"{place.scheme}://{place.netloc}/lab/workspaces/explorer-{theme}/tree/{notebook}?{place.query}")
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=START_TIMEOUT_MS)
        visit = Visit(page, found, Path(folder), theme)
        page.set_default_timeout(START_TIMEOUT_MS)
        visit.run(0)
        visit.run(1)
        page.set_default_timeout(STEP_TIMEOUT_MS)
        found["first_ms"] = visit.until(lambda: visit.fx.locator(".fx-bands").count() > 0)
        for part in (looks, words, keyboard, busy, dropped) if theme == "light" else (looks,):
            try:
                part(visit)
            except Exception as error:
                found.note("broken", f"{part.__name__}: {error}"[:2_000])
                page.screenshot(path=visit.folder / f"broken-{part.__name__}.png")
        found["errors"] = page.evaluate(ERRORS)
        browser.close()
    return found


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
