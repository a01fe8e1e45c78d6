"""Every screen of the explorer on every kind of table, and what becomes of each when servers and tables go: a script that prints JSON.

``python -m tests.notebooks.explorer_matrix_page CHROMIUM LAB_URL NOTEBOOK THEME FOLDER KIND...``: pictures go into the folder. The first
cell makes the lab with a table of each kind in ``matrix``, the second shows the explorer. Tabs and screens of the lab are those that the explorer itself shows.
"""

from __future__ import annotations

import json
import sys

from playwright.sync_api import Dialog

from tests.notebooks.explorer_visit import Visit, visit_explorer

#: Windows in which the explorer is 1,400 and 760 pixels wide, and their themes.
LOOKS = (("light", 1_830), ("dark", 1_190))
#: Windows in which the explorer is as narrow as it may be, and as narrow as it may be beside its tree.
NARROW = (1_130, 1_352)
LOOK_MS = 60
#: Whether the screen shows what it was asked for: nothing is awaited.
IS_READY = r"""() => {
    const body = document.querySelector('.fx-body');
    return body.innerText.trim() !== '' && !body.querySelector('.sk') && !/(Reading|Asking|Comparing|looking at|reading rows) [^\n]*…/.test(body.innerText);
}"""
#: Controls that are cut off where nothing scrolls, and a page that is wider than its window.
CUT = """() => {
    const found = [];
    for (const bar of document.querySelectorAll('.fx .bar, .fx .status, .fx .fx-h1, .fx .banner')) {
        if (!bar.checkVisibility()) continue;
        const {left, right} = bar.getBoundingClientRect();
        for (const control of bar.querySelectorAll('button, input, select, [role=switch]')) {
            const box = control.getBoundingClientRect();
            if (control.checkVisibility() && box.width && (box.right > right + 1 || box.left < left - 1)) found.push(control.getAttribute('aria-label') || control.title || control.textContent);
        }
    }
    if (document.querySelector('.fx').scrollWidth > document.querySelector('.fx').clientWidth + 1) found.push('the frame');
    return found;
}"""
#: Runs lines in the kernel, as a cell would that is not shown.
EXECUTE = """async (code) => {
    const done = await window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.requestExecute({code, stop_on_error: true}).done;
    if (done.content.status !== 'ok') throw new Error(`${done.content.ename}: ${done.content.evalue}`);
}"""
#: What opens the detail of what is shown first, screen by screen; others have none.
DETAILS = {"Data": ".fx-gr", "Changelog": "tr.pick", "Buckets": "tr.pick", "Diff": '[data-key="run"]'}


def execute(visit: Visit, code: str) -> None:
    """Run lines in the notebook's kernel."""
    visit.page.evaluate(EXECUTE, code)


def body(visit: Visit) -> str:
    """Return the text of the screen."""
    return visit.fx.locator(".fx-body").inner_text()


def is_ready(visit: Visit) -> bool:
    """Return whether nothing is awaited at two looks: what a click begins is drawn a moment later."""
    for _ in range(2):
        visit.page.wait_for_timeout(LOOK_MS)
        if not visit.page.evaluate(IS_READY):
            return False
    return True


def open_table(visit: Visit, path: str) -> None:
    """Open a table and wait until its head is there."""
    visit.table(path)
    assert visit.until(lambda: visit.fx.locator(".fx-path").text_content() == path and is_ready(visit)) >= 0, path


def go(visit: Visit, name: str) -> None:
    """Open a table's screen by its tab, or one of the lab's below the tree; wait for nothing."""
    if name in tabs(visit):
        return visit.tab(name)
    if visit.fx.locator(".fx-menu").is_visible():
        visit.fx.locator(".fx-menu").click()
    return visit.fx.locator(".fx-tf button", has_text=name).click()


def open_screen(visit: Visit, name: str) -> None:
    """Open a screen, and wait until it shows what it has."""
    go(visit, name)
    if visit.until(lambda: is_ready(visit)) < 0:
        visit.found.note("late", f"{name} of {visit.fx.locator('.fx-path').text_content()}: {body(visit)[:200]}")


def tabs(visit: Visit) -> list[str]:
    """Return the names of a table's screens."""
    return visit.fx.locator("[role=tab]").all_text_contents()


def pages(visit: Visit) -> list[str]:
    """Return the names of the lab's screens."""
    return visit.fx.locator(".fx-tf button").evaluate_all("(all) => all.map((each) => each.childNodes[1].textContent)")


def look(visit: Visit, name: str) -> None:
    """Make a picture, note what is cut off, and keep the text."""
    visit.picture(name)
    note_cut(visit, f"{name}, {visit.theme}")
    visit.found.setdefault("texts", {})[f"{name} {visit.theme}"] = body(visit)


def note_cut(visit: Visit, name: str) -> None:
    """Note what is cut off."""
    for each in visit.page.evaluate(CUT):
        visit.found.note("cut", f"{name}: {each}")


def open_detail(visit: Visit, screen: str) -> bool:
    """Open the detail of the first thing that a screen shows; return whether there is one."""
    first = visit.fx.locator(f".fx-body {DETAILS.get(screen, 'none')}").first
    if not first.count() or not first.is_visible():
        return False
    if screen == "Diff" and not visit.fx.locator(".fx-body input").first.input_value():
        visit.fx.locator(".fx-body input").first.fill("1 second ago")
    first.click()
    visit.until(lambda: is_ready(visit))
    return True


def screens(visit: Visit) -> None:
    """Look at every screen on every kind of table, wide and light, narrow and dark; in the first its details too."""

    def note(dialog: Dialog) -> None:
        visit.found.note("dialog", dialog.message)
        dialog.dismiss()

    visit.page.on("dialog", note)
    visit.found["tabs"], visit.found["pages"] = tabs(visit), pages(visit)
    for theme, width in LOOKS:
        visit.page.emulate_media(color_scheme=theme)
        visit.theme = theme
        visit.resize(width, 1_000)
        for kind in sys.argv[6:]:
            open_table(visit, f"matrix.{kind}")
            for screen in tabs(visit):
                open_screen(visit, screen)
                look(visit, f"{kind}-{screen.lower()}")
                if theme == "light" and open_detail(visit, screen):
                    look(visit, f"{kind}-{screen.lower()}-detail")
                    visit.page.keyboard.press("Escape")
            visit.tab(tabs(visit)[0])
        for page in pages(visit):
            open_screen(visit, page)
            look(visit, page.lower())
    visit.found["markup"] = visit.page.evaluate(
        "() => [window.wronged, document.querySelectorAll('.fx img, .fx script').length]"
    )


def narrow(visit: Visit) -> None:
    """Look for controls that are cut off at the least widths, with the tree and without it, in each mode of each toolbar."""
    for width in NARROW:
        visit.resize(width, 1_000)
        for screen in [*tabs(visit), *pages(visit)]:
            open_table(visit, "matrix.hostile_keyed")
            open_screen(visit, screen)
            note_cut(visit, f"{screen} at {width}")
            modes, at = visit.fx.locator(".fx-body .bar [role=radio]"), 0
            while at < modes.count():
                modes.nth(at).click()
                note_cut(visit, f"{screen} at {width}, mode {at}")
                at += 1


def away(visit: Visit) -> None:
    """The server is killed, each screen is opened then, and shows what it has when the server is back, untouched."""
    found = visit.found["away"] = {}
    names = [*tabs(visit), *pages(visit)]
    for at, screen in enumerate(names):
        open_table(visit, ("matrix.every", "matrix.every_keyed")[at % 2])
        visit.tab(names[0])
        execute(visit, "server.kill()")
        go(visit, screen)
        said = visit.until(lambda: visit.fx.locator(".banner").count() > 0)
        meanwhile = body(visit)
        banner = visit.text(".banner") if said >= 0 else ""
        visit.picture(f"away-{screen.lower()}")
        execute(visit, "server.start()")
        back = visit.until(lambda: visit.fx.locator(".banner").count() == 0)
        whole = visit.until(lambda: is_ready(visit) and visit.fx.locator(".fx-body [role=alert]").count() == 0)
        found[screen] = {
            "said": banner,
            "meanwhile": meanwhile,
            "back_ms": back,
            "whole_ms": whole,
            "after": body(visit),
        }


def tailed(visit: Visit) -> None:
    """The server is killed under a live tail that is paused, and is back; what comes then is held, and shown."""
    found, fx = visit.found, visit.fx

    def status() -> str:
        return visit.text(".fx-body .status")

    def rows() -> int:
        return fx.locator("tr.pick").count()

    open_table(visit, "matrix.every")
    open_screen(visit, "Changelog")
    fx.get_by_role("button", name="Live tail").click()
    visit.until(lambda: "Following" in status())
    execute(visit, 'lab.table("matrix.every").append([{"a_key": "before"}])')
    visit.until(lambda: rows() == 1)
    fx.get_by_role("button", name="Pause").click()
    visit.until(lambda: "Paused" in status())
    execute(visit, "server.kill()")
    visit.until(lambda: "does not answer" in status())
    found["tail_away"] = [status(), rows()]
    visit.picture("away-tail")
    execute(visit, "server.start()")
    visit.until(lambda: "Paused" in status())
    execute(visit, 'lab.table("matrix.every").append([{"a_key": "after"}])')
    visit.until(lambda: "1 of 10,000" in status())
    found["tail_paused"] = [status(), rows()]
    fx.get_by_role("button", name="Resume").click()
    visit.until(lambda: rows() == 2)
    found["tail_resumed"] = [status(), rows()]
    fx.get_by_role("button", name="Stop").click()


def dropped(visit: Visit) -> None:
    """The table is dropped under each screen; another one of its path is not shown in its place."""
    found = visit.found["dropped"] = {}
    for at, screen in enumerate(tabs(visit)):
        path = f"gone.t{at}"
        open_table(visit, path)
        open_screen(visit, screen)
        execute(visit, f'lab.drop_table("{path}"); lab.create_table("{path}", {{"other": "int"}})')
        visit.until(lambda: "was dropped at" in body(visit))
        found[screen] = body(visit)
        visit.picture(f"dropped-{screen.lower()}")


def altered(visit: Visit) -> None:
    """A column is added under each screen, and a row of it is written."""
    found = visit.found["altered"] = {}
    for at, screen in enumerate(tabs(visit)):
        path = f"changing.t{at}"
        open_table(visit, path)
        open_screen(visit, screen)
        code = visit.text(".fx-code pre")
        execute(
            visit,
            f'grown = lab.table("{path}"); grown.alter(add_columns={{"added": "string"}}); grown.upsert([{{"id": 7, "added": "new"}}])',
        )
        heard = visit.until(lambda: visit.text(".fx-facts dd") == "3" and is_ready(visit))
        found[screen] = {
            "heard_ms": heard,
            "codes": [code, visit.text(".fx-code pre")],
            "text": body(visit),
            "alerts": visit.fx.locator(".fx-body [role=alert]").all_inner_texts(),
        }
        visit.picture(f"altered-{screen.lower()}")


# -- by keys alone -----------------------------------------------------------------------------------------------------

#: What has the focus: its name, whether that is seen, whether it is in the explorer. It is marked as reached.
FOCUS = """() => {
    const at = document.activeElement, style = getComputedStyle(at), inside = Boolean(at.closest('.fx'));
    if (inside) (window.reached ??= new Set()).add(at);
    const name = at.getAttribute('aria-label') || at.innerText || at.title || at.tagName;
    return {name: name.trim().split('\\n')[0].slice(0, 40), role: at.getAttribute('role') || at.tagName.toLowerCase(), inside, seen: style.outlineStyle !== 'none' && style.outlineWidth !== '0px'};
}"""
#: Controls of the screen that Tab has not come to, but for those within a composite, which has one stop: a list gives it to a row.
UNREACHED = """() => [...document.querySelectorAll('.fx-body button, .fx-body input, .fx-body select, .fx-body [tabindex="0"], .fx-code button')]
    .filter((each) => each.checkVisibility() && !each.disabled && each.tabIndex >= 0 && ![each, ...each.querySelectorAll('tr.pick')].some((one) => window.reached.has(one))).map((each) => each.title || each.textContent || each.tagName)"""
STOPS_MAX = 90


def press(visit: Visit, *keys: str) -> dict[str, object]:
    """Press keys one after the other; return what has the focus then."""
    for key in keys:
        visit.page.keyboard.press(key)
    return dict(visit.page.evaluate(FOCUS))


def press_until(visit: Visit, key: str, is_there: object) -> list[str]:
    """Press a key until what has the focus has a name or a role; return the names on the way."""
    names: list[str] = []
    while len(names) < STOPS_MAX:
        focus = press(visit, key)
        names.append(str(focus["name"]))
        if is_there in (focus["name"], focus["role"]):
            return names
    raise AssertionError(f"{is_there} is not come to by {key}: {names}")


def walk(visit: Visit) -> dict[str, object]:
    """Tab from a tab through its screen until the explorer is left, and back; return what was found."""
    begin, stops, unseen = press(visit)["name"], 0, []
    visit.page.evaluate("() => { window.reached = new Set(); }")
    while stops < STOPS_MAX:
        focus = press(visit, "Tab")
        stops += 1
        if not focus["inside"]:
            break
        if not focus["seen"]:
            unseen.append(focus["name"])
    missing = visit.page.evaluate(UNREACHED)
    back = press(visit, *["Shift+Tab"] * stops)
    return {"stops": stops, "unseen": unseen, "missing": missing, "is_back": back["name"] == begin}


def keys(visit: Visit) -> None:
    """Everything by keys alone, from the search on."""
    found = visit.found["keys"] = {"walks": {}}
    visit.page.emulate_media(color_scheme="light")
    visit.theme = "light"
    visit.resize(LOOKS[0][1], 1_000)
    open_table(visit, "matrix.every")
    visit.fx.get_by_label("Find a table").focus()
    visit.page.keyboard.type("matrix.hostile")
    found["tree"] = press(visit, "Tab", "ArrowDown")["name"]
    press(visit, "Enter")
    visit.until(lambda: visit.fx.locator(".fx-path").text_content() == "matrix.hostile_keyed" and is_ready(visit))
    found["path"] = visit.fx.locator(".fx-path").text_content()
    press(visit, "Shift+Tab", "Control+a", "Delete")
    press_until(visit, "Tab", "tab")
    press(visit, "Home")
    for screen in tabs(visit):
        visit.until(lambda: is_ready(visit))
        assert press(visit)["name"] == screen, (screen, press(visit))
        found["walks"][screen] = walk(visit)
        press(visit, "ArrowRight")
    for part in (key_rows, key_records, key_lake, key_diff, key_write, key_pages):
        part(visit, found)


def key_rows(visit: Visit, found: dict[str, object]) -> None:
    """A condition, a cell, the row's detail."""
    press(visit, "Alt+2")
    visit.wait_rows()
    press(visit, "/")
    visit.page.keyboard.type("id > 5")
    press(visit, "Enter")
    visit.until(lambda: "id > 5" in visit.text(".fx-code pre"))
    visit.wait_rows()
    found["condition"] = visit.text(".fx-code pre")
    press_until(visit, "Tab", "grid")
    press(visit, "ArrowDown", "ArrowRight", "Enter")
    visit.until(visit.fx.locator(".fx-side .kv").first.is_visible)
    found["row"] = visit.text(".fx-side")
    found["row_left"] = press(visit, "Escape")["role"]


def key_records(visit: Visit, found: dict[str, object]) -> None:
    """A record, and the live tail."""
    press(visit, "Alt+3")
    visit.until(lambda: visit.fx.locator("tr.pick").count() > 3)
    press_until(visit, "Tab", "tr")
    press(visit, "Enter")
    visit.until(visit.fx.locator(".fx-side .kv").first.is_visible)
    found["record"] = visit.text(".fx-side h3")
    press_until(visit, "Tab", "Close record (Esc)")
    found["record_left"] = press(visit, "Escape")["role"]
    press_until(visit, "Shift+Tab", "Live tail")
    press(visit, "Enter")
    visit.until(lambda: "Following" in visit.text(".fx-body .status"))
    press(visit, " ")
    visit.until(lambda: "Paused" in visit.text(".fx-body .status"))
    found["tail"] = visit.text(".fx-body .status")
    press_until(visit, "Tab", "Stop")
    press(visit, "Enter")
    visit.until(lambda: visit.fx.get_by_role("button", name="Live tail").count() > 0)


def key_lake(visit: Visit, found: dict[str, object]) -> None:
    """The time line, and the parts of a snapshot."""
    press(visit, "Alt+5")
    visit.until(lambda: is_ready(visit))
    press_until(visit, "Tab", "Files")
    press(visit, "ArrowRight", "ArrowRight")
    visit.until(lambda: "inspect.partitions" in visit.text(".fx-code pre"))
    found["part"] = visit.text(".fx-code pre")


def key_diff(visit: Visit, found: dict[str, object]) -> None:
    """Two moments."""
    press(visit, "Alt+7")
    press_until(visit, "Tab", "input")
    press(visit, "Enter")
    visit.until(lambda: visit.fx.get_by_role("radio", name="Removed").count() > 0 and is_ready(visit))
    found["diff"] = [body(visit), press(visit)["role"]]


def key_write(visit: Visit, found: dict[str, object]) -> None:
    """A record typed, wrongly and rightly."""
    press(visit, "Alt+8")
    visit.until(lambda: visit.fx.locator(".form .inp").count() > 2)
    press_until(visit, "Tab", "Upsert row")
    press(visit, "Enter")
    visit.until(lambda: "not fit" in visit.text(".fx-body .status"))
    wrong = press(visit)["role"]
    visit.page.keyboard.type("77")
    press(visit, "Tab")
    visit.page.keyboard.type("by keys")
    press_until(visit, "Shift+Tab", "Upsert row")
    press(visit, "Enter")
    visit.until(lambda: "Acknowledged" in visit.text(".fx-body .status"))
    found["write"] = [wrong, press(visit)["name"], visit.text(".fx-code pre")]


def key_pages(visit: Visit, found: dict[str, object]) -> None:
    """The lab's screens, and back; the drawer."""
    seen = []
    for page in pages(visit):
        press(visit, "Alt+1")
        press_until(visit, "Shift+Tab", page)
        press(visit, "Enter")
        visit.until(lambda: is_ready(visit))
        seen.append(visit.fx.locator(".fx-path").text_content())
    press(visit, "Alt+1")
    found["pages"], found["tab"] = seen, visit.fx.locator('[role=tab][aria-selected="true"]').inner_text()
    visit.resize(LOOKS[1][1], 1_000)
    press_until(visit, "Shift+Tab", "Tables")
    found["drawer"] = [press(visit, "Enter")["name"], press(visit, "Escape")["name"]]


if __name__ == "__main__":
    print(json.dumps(visit_explorer((screens, narrow, keys, away, tailed, dropped, altered), *sys.argv[1:6])))
