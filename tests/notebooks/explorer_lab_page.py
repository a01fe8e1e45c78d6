"""The screens of the whole lab, and the explorer without Jupyter, in a headless browser: a script that prints JSON.

``python -m tests.notebooks.explorer_lab_page CHROMIUM LINK THEME FOLDER PROCESS``: the link is of ``fluss-lab explore``, which is that
process and is stopped at the end; with the theme ``read-only`` it is one that changes nothing. Pictures go into the folder.
``... CHROMIUM LAB_URL NOTEBOOK THEME FOLDER notebook``: in a notebook of JupyterLab. Nothing but the address given can be reached.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, sync_playwright

from tests.notebooks.browser_page import Found
from tests.notebooks.browser_page import opened as notebook_page
from tests.notebooks.explorer_life_page import SAVE
from tests.notebooks.explorer_visit import STEP_TIMEOUT_MS, Visit, visit_explorer

#: The explorer has all of the window: as high as in a cell.
HEIGHT = 620
WIDTHS = (1400, 760)
VIOLATIONS = "document.addEventListener('securitypolicyviolation', e => (window.violations ??= []).push(`${e.violatedDirective} ${e.blockedURI}`))"
ENDED = ".fx-side .st:has(.dot.ok), .fx-side .st:has(.dot.bad)"


def page_of(visit: Visit, name: str) -> None:
    """Open a screen of the lab."""
    menu = visit.fx.locator(".fx-menu")
    if menu.is_visible():
        menu.click()
    visit.fx.locator(f'.fx-tf [data-key="{name}"]').click()


def looks(visit: Visit) -> None:
    """Look at each screen in two widths."""
    for width in WIDTHS:
        visit.resize(width, HEIGHT)
        visit.table("shop.flights")
        visit.tab("Overview")
        visit.until(lambda: visit.fx.locator(".fx-bands").count() > 0)
        visit.picture("command-overview")
        visit.tab("Data")
        visit.wait_rows()
        visit.picture("command-data")
        page_of(visit, "jobs")
        visit.until(lambda: visit.fx.locator("tr.pick").count() > 3)
        visit.picture("jobs")
        visit.fx.locator('tr[data-key="run failed-run"]').click()
        visit.until(lambda: visit.fx.locator(".fx-log").count() > 0)
        visit.picture("jobs-run")
        visit.page.keyboard.press("Escape")
        page_of(visit, "health")
        visit.until(lambda: visit.fx.get_by_role("table", name="Doctor").count() > 0)
        visit.found["health_tables"] = visit.fx.locator("caption").all_inner_texts()
        visit.picture("health")
        visit.fx.locator(".fx-scroll").last.evaluate("(hold) => hold.scrollTo(0, hold.scrollHeight)")
        visit.picture("health-doctor")


def uses(visit: Visit) -> None:
    """Run, rerun, cancel, pause: by keys and by clicks."""
    page, found, fx = visit.page, visit.found, visit.fx
    visit.resize(WIDTHS[0], HEIGHT)
    visit.table("shop.flights")
    fx.locator('.fx-tf [data-key="jobs"]').focus()
    page.keyboard.press("Enter")
    found["title"] = visit.text(".fx-path")
    found["tabs_hidden"] = not fx.locator(".fx-tabs").is_visible()
    found["words"] = fx.locator('tr[data-key="job hello"]').inner_text()
    fx.locator('[data-key="start hello"]').focus()
    page.keyboard.press("Enter")
    visit.until(lambda: fx.locator(".fx-log").count() > 0)
    found["start_code"] = visit.text(".fx-code pre")
    found["ran_ms"] = visit.until(lambda: fx.locator(ENDED).count() > 0)
    found["log"] = visit.text(".fx-log")
    found["row"] = fx.locator("tr.sel").first.inner_text()
    page.keyboard.press("Escape")
    page.wait_for_timeout(100)
    found["side_closed"] = not fx.locator(".fx-side").is_visible()
    fx.locator('[data-key="pause hello"]').click()
    visit.until(lambda: fx.locator('[data-key="resume hello"]').count() > 0)
    found["paused"] = fx.locator('tr[data-key="job hello"]').inner_text()
    found["pause_code"] = visit.text(".fx-code pre")
    fx.locator('[data-key="resume hello"]').click()
    visit.until(lambda: fx.locator('[data-key="pause hello"]').count() > 0)
    fx.locator('[data-key="start endless"]').click()
    visit.until(lambda: fx.locator('button:has-text("Cancel")').count() > 0)
    fx.locator('button:has-text("Cancel")').first.click()
    found["cancelled_ms"] = visit.until(
        lambda: "cancelled" in fx.locator('table:has(caption:text("Runs")) tbody tr').first.inner_text()
    )
    fx.locator('[data-key="start keyed"]').click()
    visit.until(lambda: fx.locator(".status .bad").count() > 0)
    found["refused"] = visit.text(".status .bad")
    visit.picture("jobs-refused")
    page_of(visit, "health")
    visit.until(lambda: fx.get_by_role("table", name="Doctor").count() > 0)
    before = fx.locator(".status", has_text="need nothing").inner_text()
    page.wait_for_timeout(1_100)
    fx.locator('[data-key="look again"]').click()
    found["looked_ms"] = visit.until(
        lambda: fx.locator(".status", has_text="need nothing").inner_text().split(", ")[1] != before.split(", ")[1]
    )
    found["health_code"] = visit.text(".fx-code pre")
    visit.table("shop.flights")
    found["back"] = visit.text(".fx-path")
    found["tab_kept"] = fx.locator('[role=tab][aria-selected="true"]').inner_text()
    page.keyboard.press("Alt+1")
    found["alt"] = fx.locator('[role=tab][aria-selected="true"]').inner_text()


def changes_nothing(visit: Visit) -> None:
    """Look for what a read-only explorer does not have."""
    page_of(visit, "jobs")
    visit.until(lambda: visit.fx.locator("tr.pick").count() > 3)
    visit.found["actions"] = visit.fx.locator("tr.pick button").count()
    visit.fx.locator('tr[data-key="run failed-run"]').click()
    visit.until(lambda: visit.fx.locator(".fx-log").count() > 0)
    visit.found["read_only_log"] = visit.text(".fx-log")
    visit.picture("jobs-read-only")


def in_a_cell(visit: Visit) -> None:
    """Look at both screens as JupyterLab shows them."""
    page_of(visit, "health")
    visit.until(lambda: visit.fx.get_by_role("table", name="Doctor").count() > 0)
    visit.picture("notebook-health")
    page_of(visit, "jobs")
    visit.until(lambda: visit.fx.locator("tr.pick").count() > 3)
    visit.fx.locator('tr[data-key="run failed-run"]').click()
    visit.until(lambda: visit.fx.locator(".fx-log").count() > 0)
    visit.picture("notebook-jobs")
    visit.page.keyboard.press("Escape")
    visit.page.wait_for_timeout(3_000)  # what is shown is kept after a while
    visit.page.evaluate(SAVE)


def opened_again(found: Found, chromium: str, url: str, notebook: str, theme: str, folder: str) -> None:
    """Open the saved notebook: what was shown of the jobs is there, and nothing can be done about them."""
    with notebook_page(chromium, url, notebook, found, theme=theme, workspace="again", size=(1400, 1000)) as page:
        visit = Visit(page, found, Path(folder), theme)
        found["static_ms"] = visit.until(lambda: page.locator(".fx .banner", has_text="Saved view of").count() > 0)
        found["static_title"] = visit.text(".fx-path")
        found["static_rows"] = visit.fx.locator("tr.pick").count()
        found["static_actions"] = visit.fx.locator("tr.pick button").count()
        visit.picture("notebook-jobs-saved")


def ended(visit: Visit, process: str) -> None:
    """Stop the command: its page says so, and stays."""
    os.kill(int(process), signal.SIGINT)
    visit.until(lambda: visit.fx.locator(".banner").count() > 0)
    visit.found["ended"] = visit.text(".banner")
    visit.found["ended_path"] = visit.text(".fx-path")
    visit.picture("command-ended")


def others(visit: Visit, browser: Browser, link: str) -> None:
    """Another browser, with the used link and without it."""
    found = visit.found
    context = browser.new_context()
    page = context.new_page()
    found["used_link"] = page.goto(link).status
    found["no_cookie"] = page.goto(visit.page.url).status
    context.close()
    # A page of another origin, in the browser that has the cookie.
    other = visit.page.context.new_page()
    other.goto("about:blank")
    found["foreign"] = other.evaluate(
        """async (place) => {
            const fetched = await fetch(place + 'view.js', {credentials: 'include'}).then((answer) => answer.status, () => 'refused');
            const socket = await new Promise((done) => {
                const made = new WebSocket(place.replace('http', 'ws') + 'channel');
                made.onopen = () => done('open');
                made.onerror = () => done('refused');
            });
            return [fetched, socket];
        }""",
        visit.page.url,
    )
    other.close()


def opened(browser: Browser, link: str, theme: str, found: Found) -> Page:
    """Open the link in a browser of its own; whatever goes wrong is noted."""
    place = urlsplit(link)
    context = browser.new_context(
        viewport={"width": WIDTHS[0], "height": HEIGHT}, color_scheme="dark" if theme == "dark" else "light"
    )
    context.add_init_script(VIOLATIONS)

    def route(route: Any) -> None:
        is_own = urlsplit(route.request.url).netloc == place.netloc
        if not is_own:
            found.note("elsewhere", route.request.url)
        route.continue_() if is_own else route.abort()

    context.route("**/*", route)
    page = context.new_page()
    page.set_default_timeout(STEP_TIMEOUT_MS)
    page.on("requestfailed", lambda request: found.note("failed", f"{request.url}: {request.failure}"))
    page.on("response", lambda got: found.note("failed", f"{got.url}: {got.status}") if got.status >= 400 else None)
    page.on("console", lambda said: found.note("console", said.text) if said.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: found.note("console", str(error)))
    page.goto(link)
    return page


def in_a_notebook(chromium: str, url: str, notebook: str, theme: str, folder: str) -> dict[str, Any]:
    """Show the explorer in a cell, save the notebook, open it again; return what was seen."""
    found = visit_explorer((in_a_cell,), chromium, url, notebook, theme, folder)
    opened_again(found, chromium, url, notebook, theme, folder)
    return found


def main(chromium: str, link: str, theme: str, folder: str, process: str) -> dict[str, Any]:
    """Open, use, look; return what was seen."""
    found = Found()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = opened(browser, link, theme, found)
        visit = Visit(page, found, Path(folder), theme)
        found["first_ms"] = visit.until(lambda: visit.fx.locator(".fx-bands").count() > 0)
        found["address"] = page.url
        parts = {"light": (looks, uses), "dark": (looks,)}.get(theme, (changes_nothing,))
        visit.do(parts)
        found["markup"] = page.evaluate(
            "() => [window.wronged, document.querySelectorAll('.fx img, .fx script').length]"
        )
        found["violations"] = page.evaluate("() => window.violations ?? []")
        others(visit, browser, link)
        said = list(found.get("console", []))
        ended(visit, process)
        # From here on the page looks for its command, and the browser says that nobody is there.
        found["console"] = said or None
        browser.close()
    return found


if __name__ == "__main__":
    print(json.dumps(in_a_notebook(*sys.argv[1:6]) if sys.argv[6:] == ["notebook"] else main(*sys.argv[1:])))
