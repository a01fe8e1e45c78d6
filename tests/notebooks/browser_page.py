"""A page of JupyterLab in a headless browser that reaches nothing else: for scripts of a Python that has playwright."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Page, sync_playwright

START_TIMEOUT_MS = 120_000

#: Runs one cell; the promise is kept when it is done.
RUN_CELL = """async (at) => {
    const panel = window.jupyterapp.shell.currentWidget;
    await panel.sessionContext.ready;
    await panel.sessionContext.session.kernel.info;
    panel.content.activeCellIndex = at;
    panel.content.deselectAll();
    await window.jupyterapp.commands.execute('notebook:run-cell');
}"""
#: Waits until what was changed has been laid out and painted.
TWO_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
BEGIN_CELL = "(at) => { (" + RUN_CELL + ")(at); }"
ERRORS = """() => window.jupyterapp.shell.currentWidget.content.widgets.filter(c => c.model.type === 'code').flatMap(c =>
    Array.from({length: c.model.outputs.length}, (_, i) => c.model.outputs.get(i).toJSON())
        .filter(o => o.output_type === 'error').map(o => o.ename + ': ' + o.evalue))"""

#: What stands beside a cell: ``[*]:`` while it runs.
PROMPT = "(at) => window.jupyterapp.shell.currentWidget.content.widgets[at].promptNode.textContent"


class Found(dict[str, Any]):
    """What was seen: lists of texts by what went wrong, and the rest."""

    def note(self, kind: str, text: str) -> None:
        self.setdefault(kind, []).append(text)


@contextmanager
def opened(
    chromium: str, url: str, notebook: str, found: Found, *, theme: str, workspace: str, size: tuple[int, int]
) -> Iterator[Page]:
    """Yield a page with a notebook open, not run; requests that failed or went elsewhere and the console's errors are noted.

    Args:
        chromium: The browser.
        url: Of JupyterLab, with its token.
        notebook: Its path there.
        found: Where what goes wrong is noted: ``elsewhere``, ``failed``, ``console``.
        theme: ``light`` or ``dark``, which JupyterLab takes from the system.
        workspace: One of its own: another one's notebooks would be opened again.
        size: Of the window.
    """
    place = urlsplit(url)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        width, height = size
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if theme == "dark" else "light"
        )

        def route(route: Any) -> None:
            is_own = urlsplit(route.request.url).netloc == place.netloc
            if is_own or route.request.url.startswith(("data:", "blob:")):
                route.continue_()
            else:
                found.note("elsewhere", route.request.url)
                route.abort()

        context.route("**/*", route)
        page = context.new_page()
        page.on("requestfailed", lambda request: found.note("failed", f"{request.url}: {request.failure}"))
        page.on("response", lambda got: found.note("failed", f"{got.url}: {got.status}") if got.status >= 400 else None)
        page.on("console", lambda said: found.note("console", said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: found.note("console", str(error)))
        page.goto(f"{place.scheme}://{place.netloc}/lab/workspaces/{workspace}/tree/{notebook}?{place.query}")
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=START_TIMEOUT_MS)
        yield page
        browser.close()
