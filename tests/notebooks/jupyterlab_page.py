"""A notebook opened and run in a headless browser: a script for a Python that has playwright, which prints JSON.

``python jupyterlab_page.py CHROMIUM LAB_URL NOTEBOOK THEME PICTURE``. Nothing but the lab's own address can be reached.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Page, sync_playwright

WIDTH, HEIGHT = 1400, 1000
START_TIMEOUT_MS = 120_000
RUN_TIMEOUT_MS = 600_000

#: Runs every cell; the promise is kept when the last one is done, or one failed.
RUN_ALL = """async () => {
    const panel = window.jupyterapp.shell.currentWidget;
    await panel.sessionContext.ready;
    await panel.sessionContext.session.kernel.info;
    await window.jupyterapp.commands.execute('notebook:run-all-cells');
}"""

#: Of each code cell: how often it ran, and its error if it has one.
CELLS = """() => window.jupyterapp.shell.currentWidget.content.widgets.filter(c => c.model.type === 'code').map(c => ({
    count: c.model.executionCount,
    error: Array.from({length: c.model.outputs.length}, (_, i) => c.model.outputs.get(i).toJSON())
        .filter(o => o.output_type === 'error').map(o => o.ename + ': ' + o.evalue)[0] || null,
}))"""

#: The height of all cells, to be seen in one picture.
FULL_HEIGHT = "() => Math.max(...[...document.querySelectorAll('.jp-WindowedPanel-inner')].map(e => e.scrollHeight))"

#: Waits until what was changed has been laid out and painted.
TWO_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


class Found(dict[str, Any]):
    """What was seen: lists of texts by what went wrong, and the rest."""

    def note(self, kind: str, text: str) -> None:
        self.setdefault(kind, []).append(text)


def main(chromium: str, url: str, notebook: str, theme: str, picture: str) -> dict[str, Any]:
    """Open, run, look; return the requests that failed or went elsewhere, the console's errors, and the cells."""
    place, found = urlsplit(url), Found()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=theme)

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
        workspace = Path(picture).stem  # of its own: another one's notebooks would be opened again
        page.goto(f"{place.scheme}://{place.netloc}/lab/workspaces/{workspace}/tree/{notebook}?{place.query}")
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=START_TIMEOUT_MS)
        page.set_default_timeout(RUN_TIMEOUT_MS)
        page.evaluate(RUN_ALL)
        found["cells"] = page.evaluate(CELLS)
        found["theme"] = page.evaluate("() => document.body.dataset.jpThemeLight === 'false' ? 'dark' : 'light'")
        found["pop_ups"] = page.locator(".Toastify__toast").count()
        _look(page, picture)
        browser.close()
    return found


def _look(page: Page, picture: str) -> None:
    """Make a picture of the whole notebook: in a window as high as it is."""
    for _ in range(2):  # cells out of sight have a height that is guessed
        page.evaluate("() => document.querySelector('.jp-WindowedPanel-outer').scrollTo(0, 0)")
        page.set_viewport_size({"width": WIDTH, "height": min(30_000, page.evaluate(FULL_HEIGHT) + 200)})
        page.evaluate(TWO_FRAMES)
    page.locator(".jp-NotebookPanel").screenshot(path=picture)


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
