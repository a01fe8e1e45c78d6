"""The screen Changelog, run by node: records and their times, the live tail, and what has the focus."""

from tests.unit.explorer.view_kit import run_view


def test_a_record_has_its_date_in_its_detail_and_in_the_list_when_it_is_not_of_today():
    """Today is that of the lab's zone."""
    listed, detail = run_view(
        "changelog",
        """
    tell("schema", SCHEMA);
    explorer.zone = new Zone([[0, 4 * 3600]]);
    tell("changes", { ...CHANGES, ...records(1, 3), times: ["2026-01-02 14:00:00.250", "2026-07-01 23:59:59", "2026-07-02 14:00:00.001"] });
    const rows = screen().list.root.querySelectorAll("tr.pick");
    found.push(rows.map((row) => row.children[3].textContent));
    rows[0].click();
    found.push(screen().side.textContent);
    """,
    )
    assert listed == ["14:00:00.001", "2026-07-01 23:59:59", "2026-01-02 14:00:00.250"]
    assert "2026-07-02 14:00:00.001" in detail


#: Opens the live tail, in which two records have come.
TAILED = """
tell("schema", SCHEMA);
tell("changes", CHANGES);
const status = () => screen().status.textContent, rows = () => screen().list.root.querySelectorAll("tr.pick").length, do_ = (name) => press(named(screen().bar, name));
do_("Live tail");
tell("tail", tail(20, 2, { total: 2, code: ["tail"] }), false);
"""


def test_a_server_that_is_away_keeps_the_records_and_a_pause_is_one_afterwards():
    away, kept, asked, announced, back, resumed = run_view(
        "changelog",
        TAILED
        + """
    do_("Pause");
    tell("tail", tail(0, 0, { total: 2, state: "away", held: 3 }), false);
    found.push(status(), rows(), sent.filter((each) => each.kind === "tail").map((each) => each.op), said());
    polled();
    tell("tail", tail(0, 0, { total: 2, state: "paused", held: 5 }), false);
    found.push(status());
    do_("Resume");
    tell("tail", tail(22, 5, { total: 7 }), false);
    found.push([rows(), status(), lastOf("tail").op]);
    """,
    )
    assert away.startswith("The server does not answer")
    assert "3 of 10,000" in away
    assert (kept, asked) == (2, ["start", "pause"])
    assert announced.startswith("The server does not answer")
    assert back.startswith("Paused")
    assert (resumed[0], resumed[2]) == (7, "resume")
    assert resumed[1].startswith("Following")


def test_a_tail_that_has_ended_says_so_with_records_and_without():
    with_records, quiet, shown, buttons, by_itself = run_view(
        "changelog",
        TAILED
        + """
    do_("Stop");
    found.push(status());
    do_("Live tail");
    tell("tail", tail(0, 0, { total: 0 }), false);
    do_("Stop");
    found.push(status(), screen().list.root.textContent, Boolean(named(screen().bar, "Live tail")));
    do_("Live tail");
    tell("tail", tail(0, 0, { total: 0 }), false);
    tell("tail", { state: "ended" });
    found.push([status(), said()]);
    """,
    )
    assert "2 records that came" in with_records
    for text in (with_records, quiet, *by_itself):
        assert "he live tail has ended" in text
        assert "Following" not in text
    assert shown.startswith("Nothing new came")
    assert buttons


def test_the_focus_stays_where_older_records_are_asked_for_and_what_failed_is():
    found = run_view(
        "changelog",
        """
    tell("schema", SCHEMA);
    tell("changes", CHANGES);
    const status = () => screen().status, do_ = (name) => press(named(status(), name));
    do_("Older");
    found.push(focused());
    tell("changes", { ...CHANGES, ...records(5, 5), kept: 10 });
    found.push(focused());
    do_("Older");
    tell("changes", AWAY);
    found.push(focused());
    do_("Try again");
    found.push(focused());
    tell("changes", { ...CHANGES, ...records(0, 5), kept: 15, older: false });
    found.push(focused(), status().textContent);
    """,
    )
    assert found[:5] == ["older", "older", "retry", "retry", "tr"]
    assert "15 of 20 records" in found[5]


def test_the_focus_stays_where_nothing_could_be_read():
    found = run_view(
        "changelog",
        """
    tell("schema", SCHEMA);
    tell("changes", AWAY);
    for (const answer of [AWAY, CHANGES]) {
      press(named(screen().list.root, "Try again"));
      tell("changes", answer);
      found.push(focused());
    }
    """,
    )
    assert found == ["retry", "tr"]
