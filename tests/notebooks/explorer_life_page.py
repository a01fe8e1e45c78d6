"""The life of explorers in a notebook, in a headless browser: a script for a Python that has playwright, which prints JSON.

``python -m tests.notebooks.explorer_life_page CHROMIUM LAB_URL NOTEBOOK THEME FOLDER``. The first cell opens the lab, the next three show
an explorer each, one writes a lot, the last closes the lab. They are used side by side, one of them in two views; answers are lost while
a cell writes; the lab is closed; the kernel is restarted and the cells are run again; the notebook is saved and opened again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from playwright.sync_api import Locator

from tests.notebooks.browser_page import Found, opened
from tests.notebooks.explorer_visit import Visit, visit_explorer

VIEW_TO_ELSEWHERE = """async (at) => {
    const panel = window.jupyterapp.shell.currentWidget;
    panel.content.activeCellIndex = at;
    await window.jupyterapp.commands.execute('notebook:create-output-view');
}"""
BACK = "(id) => window.jupyterapp.shell.activateById(id)"
PANEL = "() => window.jupyterapp.shell.currentWidget.id"
RESTART = """async () => {
    const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
    await kernel.restart();
    await kernel.info;
}"""
SAVE = """async () => {
    await window.jupyterapp.commands.execute('docmanager:save');
    await window.jupyterapp.shell.currentWidget.sessionContext.shutdown();
}"""


def open_tab(visit: Visit, fx: Locator, path: str, tab: str) -> None:
    """Show one tab of one table in one explorer."""
    if fx.locator(".fx-menu").is_visible():
        fx.locator(".fx-menu").click()
    fx.locator(f'[data-path="{path}"]').click()
    fx.get_by_role("tab", name=tab).click()


def follow(visit: Visit, fx: Locator) -> None:
    """Begin a live tail in one explorer."""
    visit.until(lambda: fx.locator("tr.pick").count() > 3)
    fx.scroll_into_view_if_needed()
    fx.get_by_role("button", name="Live tail").click()
    visit.until(lambda: "Following" in fx.locator(".status").inner_text())


def three(visit: Visit) -> None:
    """Three explorers at once, each on another table and tab."""
    found, page = visit.found, visit.page
    for cell in (2, 3):
        visit.run(cell)
    visit.until(lambda: page.locator(".fx").count() == 3)
    views = [page.locator(".fx").nth(at) for at in range(3)]
    visit.until(lambda: all(view.locator(".fx-bands").count() > 0 for view in views))
    for view, path, tab in zip(
        views, ("life.one", "life.two", "life.three"), ("Data", "Changelog", "Changelog"), strict=True
    ):
        view.scroll_into_view_if_needed()
        open_tab(visit, view, path, tab)
    visit.until(lambda: views[0].locator(".fx-gr .fx-src").count() > 3)
    for view in views[1:]:
        follow(visit, view)
    found["three"] = [view.locator(".fx-path").text_content() for view in views]
    for view in views[1:]:
        view.get_by_role("button", name="Stop").click()


def two(visit: Visit) -> None:
    """One output at two places: each takes its own answers alone."""
    found, page = visit.found, visit.page
    panel = page.evaluate(PANEL)
    first = page.locator(".jp-NotebookPanel .fx").first
    page.evaluate(VIEW_TO_ELSEWHERE, 1)
    other = page.locator(".jp-LinkedOutputView .fx")
    visit.until(lambda: other.count() == 1)
    open_tab(visit, other, "life.two", "Data")
    visit.until(lambda: other.locator(".fx-gr .fx-src").count() > 3)
    page.evaluate(BACK, panel)
    open_tab(visit, first, "life.three", "Data")
    visit.until(lambda: first.locator(".fx-gr .fx-src").count() > 3)
    page.wait_for_timeout(5_000)  # two rounds of questions of both
    found["two"] = [
        (view.locator(".fx-path").text_content(), view.locator(".fx-gr [data-column='1']").first.inner_text())
        for view in (first, other)
    ]
    found["two_banners"] = page.locator(".fx .banner").count()
    page.locator(".lm-DockPanel-tabBar .lm-TabBar-tab.lm-mod-closable", has_text="Output View").locator(
        ".lm-TabBar-tabCloseIcon"
    ).click()
    visit.until(lambda: other.count() == 0)
    open_tab(visit, first, "life.one", "Data")
    found["one_left"] = visit.until(lambda: first.locator(".fx-gr [data-column='1']").first.inner_text() == "one")


def flooded(visit: Visit) -> None:
    """A cell says more than the notebook server lets through: it drops answers to an explorer too."""
    found, page = visit.found, visit.page
    visit.run(4)
    found["flood"] = page.locator(
        ".jp-NotebookPanel .jp-OutputArea-output", has_text="rate exceeded"
    ).first.inner_text()
    found["after_flood_ms"] = visit.until(
        lambda: visit.fx.locator(".banner").count() == 0 and "501" in visit.fx.inner_text()
    )


def closed(visit: Visit) -> None:
    """A cell closes the lab: what is said of it leaves room for the rest."""
    found, fx = visit.found, visit.fx
    visit.run(5)
    visit.until(lambda: "is closed" in fx.locator(".banner").all_inner_texts().__str__())
    banner, button = fx.locator(".banner").bounding_box(), fx.get_by_role("button", name="Try now").bounding_box()
    assert banner
    assert button
    found["closed"] = visit.text(".banner")
    found["closed_height"] = banner["height"]
    found["closed_room"] = banner["x"] + banner["width"] - button["x"] - button["width"]
    visit.picture("closed")


def restarted(visit: Visit) -> None:
    """The kernel is restarted: the explorers say so, and take up when their cells are run again."""
    found, page = visit.found, visit.page
    visit.until(lambda: visit.fx.locator(".fx-gr .fx-src").count() > 3)
    page.evaluate(RESTART)
    visit.until(lambda: page.locator(".fx .banner", has_text="restarted").count() == 3)
    found["restarted"] = page.locator(".fx .banner").first.inner_text()
    found["rows_stay"] = visit.fx.locator(".fx-gr .fx-src").count() > 3
    found["mark"] = visit.fx.locator(".dot[role=img]").first.get_attribute("aria-label")
    visit.picture("restarted")
    visit.run(0)
    visit.run(1)
    found["taken_up_ms"] = visit.until(
        lambda: visit.fx.locator(".banner").count() == 0 and visit.fx.locator(".fx-bands").count() > 0
    )
    found["others"] = page.locator(".fx .banner", has_text="restarted").count()


def saved(visit: Visit) -> None:
    """The notebook is saved, and its kernel shut down."""
    # JupyterLab saves no view of a cell that was not run since a restart, and says so where it shows the cell.
    for cell in (2, 3):
        visit.run(cell)
    open_tab(visit, visit.fx, "life.two", "Data")
    visit.until(lambda: visit.fx.locator(".fx-gr .fx-src").count() > 3)
    visit.page.wait_for_timeout(3_000)  # what is shown is kept after a while
    visit.page.evaluate(SAVE)


def opened_again(found: Found, chromium: str, url: str, notebook: str, theme: str, folder: str) -> None:
    """Open the saved notebook: a view of what was shown is there, without a kernel that knows of it."""
    with opened(chromium, url, notebook, found, theme=theme, workspace="again", size=(1400, 1000)) as page:
        visit = Visit(page, found, Path(folder), theme)
        found["static_ms"] = visit.until(lambda: page.locator(".fx .banner", has_text="Saved view of").count() > 0)
        found["static"] = visit.text(".banner")
        found["static_path"] = visit.fx.locator(".fx-path").text_content()
        visit.tab("Data")
        found["static_rows"] = visit.until(lambda: visit.fx.locator(".fx-gr .fx-src").count() > 3)
        visit.picture("static")
        visit.tab("Overview")
        visit.until(lambda: visit.fx.locator(".fx-bands").count() > 0)
        visit.tab("Changelog")
        visit.until(lambda: visit.fx.locator(".empty").count() > 0)
        found["static_changes"] = visit.text(".empty")


if __name__ == "__main__":
    seen = visit_explorer((three, two, flooded, closed, restarted, saved), *sys.argv[1:])
    opened_again(seen, *sys.argv[1:])
    print(json.dumps(seen))
