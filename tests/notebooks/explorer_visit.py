"""A visit of the explorer in a headless browser: what scripts do with it, part by part, and what they always look for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from importlib.resources import files
from pathlib import Path
from typing import Self

from playwright.sync_api import Locator, Page

from tests.notebooks.browser_page import ERRORS, RUN_CELL, START_TIMEOUT_MS, Found, opened

STEP_TIMEOUT_MS = 20_000

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


#: What axe-core finds that keeps people from using the explorer.
AUDIT = """async () => (await axe.run(document.querySelector('.fx'))).violations.filter(({impact}) => ['serious', 'critical'].includes(impact))
    .map(({id, nodes}) => `${id}: ${nodes[0].html.slice(0, 200)}`)"""


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
        """Make a picture, measure the contrast of every text, and have axe-core look."""
        self.page.wait_for_timeout(150)
        worst = min(self.page.evaluate(CONTRASTS), default=[99, ""])
        self.found["contrast"] = min(self.found.get("contrast", [99, ""]), [*worst, name])
        frame = self.page.evaluate(OUTSIDE)
        if frame["scrolls"] or abs(frame["height"] - 620) > 2:
            self.found.note("frame", f"{name}: {frame}")
        if self.page.evaluate("() => !window.axe"):
            self.page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
        for each in self.page.evaluate(AUDIT):
            self.found.note("axe", f"{name}: {each}")
        self.fx.screenshot(path=self.folder / f"{name}-{self.theme}-{self.page.viewport_size['width']}.png")

    def do(self, parts: Iterable[Callable[[Self], None]]) -> None:
        """Do each part, whatever became of the one before; what broke is noted, with a picture."""
        for part in parts:
            try:
                part(self)
            except Exception as error:
                self.found.note("broken", f"{part.__name__}: {error}"[:2_000])
                self.page.screenshot(path=self.folder / f"broken-{part.__name__}.png")

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


def visit_explorer(
    parts: Iterable[Callable[[Visit], None]], chromium: str, url: str, notebook: str, theme: str, folder: str
) -> Found:
    """Open a notebook whose first cell makes a lab and whose second shows the explorer, run both, and do what parts do.

    Args:
        parts: See `Visit.do`.
        chromium: The browser.
        url: Of JupyterLab.
        notebook: Its path there.
        theme: ``light`` or ``dark``.
        folder: Where pictures go.
    """
    found = Found()
    name = f"{Path(notebook).stem}-{theme}"
    with opened(chromium, url, notebook, found, theme=theme, workspace=name, size=(1400, 1000)) as page:
        visit = Visit(page, found, Path(folder), theme)
        page.set_default_timeout(START_TIMEOUT_MS)
        visit.run(0)
        visit.run(1)
        page.set_default_timeout(STEP_TIMEOUT_MS)
        found["first_ms"] = visit.until(lambda: visit.fx.locator(".fx-bands").count() > 0)
        visit.do(parts)
        found["errors"] = page.evaluate(ERRORS)
    return found
