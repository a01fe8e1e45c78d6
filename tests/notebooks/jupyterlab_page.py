"""A notebook opened and run in a headless browser: a script for a Python that has playwright, which prints JSON.

``python -m tests.notebooks.jupyterlab_page CHROMIUM LAB_URL NOTEBOOK THEME PICTURE``. Nothing but the lab's own address can be reached.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from playwright.sync_api import Page

from tests.notebooks.browser_page import TWO_FRAMES, Found, opened

WIDTH, HEIGHT = 1400, 1000
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


def main(chromium: str, url: str, notebook: str, theme: str, picture: str) -> Found:
    """Open, run, look; return the requests that failed or went elsewhere, the console's errors, and the cells."""
    found = Found()
    workspace = Path(picture).stem
    with opened(chromium, url, notebook, found, theme=theme, workspace=workspace, size=(WIDTH, HEIGHT)) as page:
        page.set_default_timeout(RUN_TIMEOUT_MS)
        page.evaluate(RUN_ALL)
        found["cells"] = page.evaluate(CELLS)
        found["theme"] = page.evaluate("() => document.body.dataset.jpThemeLight === 'false' ? 'dark' : 'light'")
        found["pop_ups"] = page.locator(".Toastify__toast").count()
        _look(page, picture)
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
