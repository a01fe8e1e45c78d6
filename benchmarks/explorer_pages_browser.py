"""What `benchmarks.explorer_pages` measures in the browser: a script for a Python that has playwright, which prints JSON.

``python explorer_pages_browser.py CHROMIUM URL [PROFILE]``: a CPU profile of the scrolling goes into the file.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

PAGES = 40
SCROLL_MS = 4_000

#: Notes when each answer comes, and waits for what is drawn.
TOOLS = """() => {
    window.seen = {};
    window.painted = () => new Promise((done) => requestAnimationFrame(() => { const channel = new MessageChannel(); channel.port1.onmessage = () => done(performance.now()); channel.port2.postMessage(0); }));
    window.until = async (what) => {
        const end = performance.now() + 20000;
        while (!what()) { await painted(); if (performance.now() > end) throw new Error(`never: ${what}; ${document.querySelector('.fx-main').innerText.slice(0, 600)}`); }
        return painted();
    };
    window.isWhole = () => document.querySelectorAll('.fx-gr').length > 5 && !document.querySelector('.fx-gr .sk');
    window.rowAt = (first) => isWhole() && [...document.querySelectorAll('.fx-gr')].some((row) => Number(row.getAttribute('aria-rowindex')) - 1 === first);
    window.go = (first) => { const grid = document.querySelector('.fx-grid'), most = grid.scrollHeight - grid.clientHeight; grid.scrollTop = most * first / window.total; };
    window.wheel = (rows) => document.querySelector('.fx-grid').dispatchEvent(new WheelEvent('wheel', { deltaY: rows * 24, bubbles: true, cancelable: true }));
}"""
#: Renders anew, and returns how long after the head's arrival its paint was, and after the start the first rows.
FIRST = """async () => {
    let head = 0;
    model.on('msg:custom', (message) => { if (message.slot === 'head' && !head) head = performance.now(); });
    const begin = performance.now();
    document.getElementById('place').replaceChildren();
    render();
    await until(() => document.querySelector('.fx-facts, .fx-tabs') && head);
    const paint = await painted();
    const rows = await until(isWhole);
    return [paint - head, rows - begin];
}"""
TAB = """async (name) => {
    const begin = performance.now();
    [...document.querySelectorAll('[role=tab]')].find((tab) => tab.textContent.includes(name)).click();
    const done = await until(() => name === 'Data' ? isWhole() : document.querySelector('tr.pick'));
    return done - begin;
}"""
NEXT = """async (rows) => {
    const begin = performance.now();
    wheel(rows);
    await painted();
    return await until(isWhole) - begin;
}"""
FILTER = """async (where) => {
    const input = document.querySelector('[data-key=where]'), begin = performance.now(), before = document.querySelector('.fx-code pre').textContent;
    input.value = where;
    input.dispatchEvent(new Event('change'));
    await until(() => document.querySelector('.fx-code pre').textContent !== before && document.querySelectorAll('.fx-gr').length && !document.querySelector('.fx-gr .sk'));
    return await painted() - begin;
}"""
DETAIL = """async () => {
    const begin = performance.now();
    document.querySelectorAll('.fx-gr')[6].click();
    return await until(() => { const side = document.querySelector('.fx-side'); return !side.hidden && side.querySelector('.kv'); }) - begin;
}"""
#: Turns the wheel a little in each frame; returns frames a second, and the share of them in which all rows were there.
SCROLL = """async ([rows, forMs]) => {
    const begin = performance.now();
    let frames = 0, whole = 0, now = begin;
    while (now - begin < forMs) {
        wheel(rows);
        now = await new Promise(requestAnimationFrame);
        frames++;
        if (isWhole()) whole++;
    }
    return [frames / (now - begin) * 1000, whole / frames];
}"""
IDLE = "async (forMs) => { const begin = performance.now(); let frames = 0, now = begin; while (now - begin < forMs) { now = await new Promise(requestAnimationFrame); frames++; } return frames / (now - begin) * 1000; }"


def main(chromium: str, url: str, profile: str | None = None) -> dict[str, Any]:
    """Open, use; return what was measured: milliseconds by what, and frames."""
    found: dict[str, Any] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 700})
        page.set_default_timeout(120_000)
        page.goto(url)
        page.wait_for_selector(".fx-gr")
        page.evaluate(TOOLS)
        page.evaluate("async () => { await until(isWhole); }")
        found["first paint after the head's arrival"], found["first page"] = page.evaluate(FIRST)
        page.evaluate(
            "() => { window.total = Number(document.querySelector('.status b').textContent.replace(/\\D/g, '')); }"
        )
        page.evaluate(TAB, "Buckets")
        found["change back to Data"] = page.evaluate(TAB, "Data")
        found["change to Buckets"] = page.evaluate(TAB, "Buckets")
        page.evaluate(TAB, "Data")
        nexts = [page.evaluate(NEXT, 200) for _ in range(PAGES)]
        found["next page, median"], found["next page, slowest"] = statistics.median(nexts), max(nexts)
        jumps = [
            page.evaluate(
                "async (at) => { const begin = performance.now(); go(at); await painted(); return await until(isWhole) - begin; }",
                page.evaluate("total") * (n * 0.618 % 1),
            )
            for n in range(1, 16)
        ]
        found["page anywhere, median"] = statistics.median(jumps)
        details = []
        for _ in range(7):
            details.append(page.evaluate(DETAIL))
            page.evaluate("() => document.querySelector('.fx-side .btn.icon').click()")
        found["row detail, first"], found["row detail, median"] = details[0], statistics.median(details)
        found["frames"] = frames(page, profile)
        found["first page of one row in 100"] = page.evaluate(FILTER, "amount = 50")
        nexts = [page.evaluate(NEXT, 200) for _ in range(PAGES // 2)]
        found["next page of one row in 100, median"] = statistics.median(nexts)
        found["first rows of one row in 50,000"] = page.evaluate(FILTER, "id = 49999")
        browser.close()
    return found


def frames(page: Page, profile: str | None) -> dict[str, Any]:
    """Return frames a second, idle and at two speeds."""
    page.evaluate("() => go(total / 2)")
    page.evaluate("async () => { await until(isWhole); }")
    found = {"frames without scrolling": [page.evaluate(IDLE, 1_000), 1.0]}
    session = page.context.new_cdp_session(page)
    if profile:
        session.send("Profiler.enable")
        session.send("Profiler.start")
    found["scrolling by 3 rows a frame"] = page.evaluate(SCROLL, [3, SCROLL_MS])
    if profile:
        Path(profile).write_text(json.dumps(session.send("Profiler.stop")["profile"]))
    found["scrolling by 12 rows a frame"] = page.evaluate(SCROLL, [12, SCROLL_MS])
    return found


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
