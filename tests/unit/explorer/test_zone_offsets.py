"""How far clocks were ahead of UTC: at every hour what Python says, and in the view at the time that is shown."""

import datetime as dt
import json
from zoneinfo import ZoneInfo

import pytest

from fluss_lab.explorer.texts.zone_offsets import zone_offsets
from tests.unit.explorer.view_kit import run_view

UNTIL_S = int(dt.datetime(2036, 1, 1, tzinfo=dt.UTC).timestamp())
#: Casablanca changes its clocks twice within some weeks; Lord Howe by half an hour; Dhaka had summer time once.
ZONES = [
    "UTC", "Europe/Berlin", "America/New_York", "Africa/Casablanca", "Australia/Lord_Howe", "Asia/Dhaka", "Asia/Kolkata", "Pacific/Apia",
]  # fmt: skip


def offset_at(offsets, at_s):
    return next((offset for since, offset in reversed(offsets) if since <= at_s), offsets[0][1])


@pytest.mark.parametrize("name", ZONES)
def test_the_offsets_are_those_of_every_time(name, rng):
    zone, found = ZoneInfo(name), zone_offsets(ZoneInfo(name), UNTIL_S)
    beside = [since + step for since, _ in found for step in (-1, 0, 1) if since + step >= 0]
    for at_s in [*beside, *(rng.randrange(UNTIL_S) for _ in range(2_000))]:
        expected = dt.datetime.fromtimestamp(at_s, zone).utcoffset().total_seconds()
        assert offset_at(found, at_s) == expected, at_s
    assert len(json.dumps(found)) < 4_500, "it goes with every tree"


def test_the_systems_zone_is_one(monkeypatch):
    import time

    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert zone_offsets(None, UNTIL_S) == zone_offsets(ZoneInfo("Europe/Berlin"), UNTIL_S)
    finally:
        monkeypatch.undo()
        time.tzset()


#: Berlin, where the view's today is the second of July, 2026; and noon of a winter's day, two hours behind today's by UTC.
BERLIN = f"""
const offsets = {json.dumps(zone_offsets(ZoneInfo("Europe/Berlin"), UNTIL_S))}, winter = Date.UTC(2026, 0, 15, 11), today = Date.now() - 3600e3;
tell = ((told) => (kind, answer, ...more) => told(kind, kind === "tree" ? {{ ...answer, offsets }} : answer, ...more))(tell);
polled();
const ROUNDS = {{ enabled: true, state: "Tiered", epoch: 3, due_ms: null, freshness_ms: 1000, lag: [], code: [], now_ms: Date.now(),
  trouble: {{ class: "E", text: "t", since_ms: winter, attempts: 1, todo: "d", command: "c" }},
  rounds: [today, winter].map((end, n) => [n, end, end, "done", "5", 1, 10, [0, 0, 0, 0], 1, "7", null, null]) }};
const JOBS = {{ jobs: [{{ name: "j", notebook: "n", cron: "c", words: "w", zone: "UTC", next_ms: Date.UTC(2027, 0, 15, 11), paused: false, parameters: "", secrets: "", durations: [] }}], total: 1, of: null,
  runs: [winter, today].map((at, n) => ({{ id: `r${{n}}`, job: "j", state: "succeeded", trigger: "cron", attempt: 1, due_ms: at, started_ms: at, ended_ms: at, parameters: "", result: "" }})),
  older: false, scheduler: 7, command: "c", code: [], now_ms: Date.now() }};
const SNAPSHOTS = [["6", winter, "append", true, "5", "1", "5", "1", "0", []], ["7", today, "append", true, "5", "1", "5", "1", "0", []]];
const cells = (root, place) => root.querySelectorAll("tbody").flatMap((body) => body.children.map((row) => row.children[place].textContent));
"""
WINTER, TODAY = "2026-01-15 12:00:00", "11:00:00"


def test_rounds_of_tiering_are_shown_by_the_clock_of_then_with_their_day():
    ended, trouble = run_view(
        "tiering",
        f'{BERLIN} tell("tiering", ROUNDS); found.push(cells(screen().rounds, 1), screen().trouble.textContent);',
    )
    assert ended == [TODAY, WINTER]
    assert f"since {WINTER}" in trouble


def test_snapshots_of_the_lake_are_shown_by_the_clock_of_then():
    facts, label = run_view(
        "lake",
        f"""{BERLIN}
    tell("lake", {{ ...LAKE, snapshots: SNAPSHOTS, held: 2 }});
    screen().choose("6");
    found.push(screen().facts.textContent, screen().line.root.querySelectorAll("g")[0].getAttribute("aria-label"));
    """,
    )
    assert facts.startswith(WINTER)
    assert f"round at {WINTER}, 5 rows" in label


def test_moments_to_compare_and_to_read_are_shown_by_the_clock_of_then():
    offered, slider, read = run_view(
        "diff",
        f"""{BERLIN}
    tell("lake", {{ ...LAKE, snapshots: SNAPSHOTS, held: 2 }});
    found.push(screen().moments.querySelectorAll("option").map((each) => each.getAttribute("label")));
    explorer.openSnapshot("6");
    tell("snapshots", {{ snapshots: SNAPSHOTS, left_out: 0 }});
    found.push(explorer.screens.data.moment.slider.textContent);
    tell("page", {{ ...PAGE, point: {{ ...PAGE.point, moment_ms: winter }} }});
    found.push(explorer.screens.data.status.textContent);
    """,
    )
    assert offered == [None, f"{TODAY} round", f"{WINTER} round"]
    assert slider.startswith(WINTER)
    assert f"as of {WINTER}, " in read


def test_jobs_run_and_are_due_by_the_clocks_of_then():
    ran, due = run_view(
        "overview",
        f"""{BERLIN}
    explorer.openPage("jobs");
    tell("jobs", JOBS);
    found.push(cells(explorer.pages.jobs.hold, 1).slice(1), cells(explorer.pages.jobs.hold, 3)[0]);
    """,
    )
    assert ran == [WINTER[:-3], TODAY]
    assert due == "2027-01-15 12:00"


def test_a_saved_view_is_dated_by_the_clock_of_then():
    (banner,) = run_view(
        "overview",
        f"""{BERLIN}
    polled({{ ...HEAD, now_ms: winter }});
    pass(2000);
    explorer.close();
    const opened = new Explorer(model, document.body);
    pass(5000);
    found.push(opened.banner.textContent);
    """,
    )
    assert banner.startswith(f"Saved view of {WINTER}.")


def test_the_ticks_of_the_time_line_are_at_whole_hours_on_both_sides_of_a_change():
    (ticks,) = run_view(
        "lake",
        f"""{BERLIN}
    const from = Date.UTC(2026, 2, 28, 12), marks = [0, 12, 24, 36].map((hours, n) => [String(n), from + hours * 3600e3, ...SNAPSHOTS[0].slice(2)]);
    tell("lake", {{ ...LAKE, snapshots: marks, held: 4 }});
    found.push(screen().line.root.querySelectorAll("text").map((each) => each.textContent));
    """,
    )
    assert len(ticks) >= 3
    assert all(text.endswith(":00") for text in ticks)
    assert all(int(text[-5:-3]) % 6 == 0 for text in ticks), "every six hours on the clock, or every twelve"
