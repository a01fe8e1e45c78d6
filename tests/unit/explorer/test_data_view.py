"""The screen Data, run by node: the moment that is read, tables without rows, and what has the focus."""

import pytest

from fluss_lab.model.times import format_size
from tests.unit.explorer.view_kit import run_view

#: What each question for rows names as its moment.
MOMENTS = 'const moments = () => sent.filter((each) => each.kind === "page").map((each) => each.as_of), snapshots = [["7", Date.now(), "append", true], ["8", Date.now(), "append", true]];\n'


@pytest.mark.parametrize("mode", ["now", "time"])
@pytest.mark.parametrize("answer", ["{ snapshots, left_out: 0 }", "WRONG"])
def test_snapshots_that_come_late_change_nothing(mode, answer):
    moments, shown, status = run_view(
        "data",
        MOMENTS
        + f"""
    tell("schema", SCHEMA);
    tell("page", PAGE);
    screen().moment.setMode("snap");
    screen().moment.setMode("{mode}");
    tell("snapshots", {answer});
    found.push(moments(), screen().place.firstChild === screen().grid.root, screen().status.textContent);
    """,
    )
    assert moments == [None]
    assert shown
    assert status.startswith("2 rows")


def test_the_newest_snapshot_is_read_unless_another_one_was_chosen():
    newest, chosen = run_view(
        "data",
        MOMENTS
        + """
    tell("schema", SCHEMA);
    tell("page", PAGE);
    screen().moment.setMode("snap");
    tell("snapshots", { snapshots, left_out: 0 });
    found.push(moments());
    explorer.openSnapshot("7");
    tell("snapshots", { snapshots, left_out: 0 });
    found.push(moments());
    """,
    )
    assert (newest, chosen) == ([None, "8"], [None, "8", "7"])


def test_a_snapshot_older_than_those_that_are_listed_stays_chosen():
    moments, text, place = run_view(
        "data",
        MOMENTS
        + """
    tell("schema", SCHEMA);
    tell("page", PAGE);
    explorer.openSnapshot("3");
    tell("snapshots", { snapshots, left_out: 500 });
    const slider = screen().moment.slider.querySelector("input");
    found.push(moments(), screen().moment.slider.textContent, [slider.getAttribute("max"), String(slider.value)]);
    """,
    )
    assert moments == [None, "3"]
    assert "older than those listed" in text
    assert place == ["2", "0"]


def test_a_table_without_rows_is_read_again_when_records_came_and_not_at_every_head():
    asked, deleted, bare, after = run_view(
        "data",
        """
    const asked = () => sent.filter((each) => each.kind === "page").length, place = () => screen().place.textContent;
    tell("schema", SCHEMA);
    tell("page", NO_ROWS);
    for (let n = 0; n < 5; n++) polled();
    found.push(asked(), place());
    polled({ ...HEAD, rows: "0" });
    tell("page", { ...NO_ROWS, point: { ...NO_ROWS.point, name: "p2", records: "0" } });
    found.push(place());
    polled({ ...HEAD, rows: "6" });
    polled({ ...HEAD, rows: "6" });
    tell("page", PAGE);
    polled({ ...HEAD, rows: "9" });
    found.push(asked());
    """,
    )
    assert asked == 1
    assert deleted.startswith("No rowsEvery row that was written was deleted.")
    assert bare.startswith("No rows yetThe table has 1 bucket and nothing in them.")
    assert after == 3, "rows that are shown stay"


def test_the_focus_stays_where_rows_are_read_again_and_what_failed_is():
    found = run_view(
        "data",
        """
    tell("schema", SCHEMA);
    tell("page", PAGE);
    const do_ = (name) => press(named(screen().status, name));
    do_("Read again");
    pass(150);
    found.push(screen().status.textContent.startsWith("Reading"), focused());
    tell("page", { ...PAGE, point: { ...PAGE.point, name: "p2" } });
    found.push(focused());
    do_("Read again");
    tell("page", AWAY);
    found.push(focused());
    pass(1000);
    polled();
    found.push(focused());
    """,
    )
    assert found == [True, "again", "again", "retry", "again"]


def test_the_focus_stays_where_there_are_no_rows_and_goes_to_those_that_come():
    found = run_view(
        "data",
        """
    tell("schema", SCHEMA);
    tell("page", AWAY);
    const hasGrid = () => document.activeElement === screen().grid.root;
    press(named(screen().place, "Try again"));
    pass(150);
    found.push(document.activeElement === screen().place);
    tell("page", NO_ROWS);
    press(named(screen().place, "Read again"));
    pass(150);
    found.push(focused());
    tell("page", { ...PAGE, point: { ...PAGE.point, name: "p2" } });
    found.push(hasGrid());
    """,
    )
    assert found == [True, "again", True]


def test_a_moment_that_is_too_early_offers_the_earliest_one():
    focus, asked, typed, hidden = run_view(
        "data",
        MOMENTS
        + """
    const EARLY = { error: { class: "OffsetOutOfRangeError", text: "no longer available", retriable: false } };
    tell("schema", SCHEMA);
    tell("page", PAGE);
    screen().setMoment("2013-01-01");
    tell("page", { error: { ...EARLY.error, earliest: "2026-11-20T12:00:00.007Z" } });
    const offered = named(screen().place, "Go to the earliest moment");
    offered.focus();
    found.push(focused());
    press(offered);
    found.push(moments(), [screen().moment.mode, screen().moment.time.value, screen().moment.time.hidden]);
    tell("page", EARLY);
    found.push(!named(screen().place, "Go to the earliest moment"));
    """,
    )
    assert focus == "earliest"
    assert asked == [None, "2013-01-01", "2026-11-20T12:00:00.007Z"]
    assert typed == ["time", "2026-11-20T12:00:00.007Z", False]
    assert hidden, "where it is not known"


def test_a_share_of_nulls_is_none_and_all_only_where_it_is():
    found = run_view("data", "found.push(...[0, 0.00001, 0.5, 0.333, 0.9999, 1].map(percent));")
    assert found == ["", "<0.1 % null", "50 % null", "33.3 % null", ">99.9 % null", "100 % null"]


def test_sizes_are_those_of_the_texts_that_python_makes(rng):
    sizes = [
        0,
        1,
        1_023,
        1_024,
        12_976,
        102_400,
        8_740_000,
        2**30,
        252 * 2**30,
        *(rng.randrange(2**50) for _ in range(200)),
    ]
    reported = run_view("data", f"found.push(...{sizes}.map(bytes), bytes(null), bytes('2048'));")
    assert reported == [*map(format_size, sizes), "–", "2.0 kB"]


def test_every_digit_of_a_number_has_room():
    """A browser says how wide ten digits are: here 100 pixels."""
    (widths,) = run_view(
        "data",
        """
    tell("schema", { ...SCHEMA, columns: [column("id", "number"), column("text", "text"), column("at", "time")] });
    tell("page", { ...PAGE, columns: ["id", "text", "at"], cells: [["4611686018427387904", "x".repeat(90), "1".repeat(90)], ["2", "b", ""]] });
    found.push(screen().grid.columns.map(({ width }) => width));
    """,
    )
    assert widths == [208, 320, 200]


def test_a_cell_that_is_scrolled_away_is_not_said_to_be_the_active_one():
    found = run_view(
        "data",
        """
    tell("schema", SCHEMA);
    tell("page", PAGE);
    pass(20);
    const { grid } = screen(), active = () => grid.root.getAttribute("aria-activedescendant");
    grid.root.focus();
    found.push(active());
    grid.column = 7;
    grid.later();
    pass(20);
    found.push(active());
    """,
    )
    assert found == ["fx-1-cell", None]


def test_one_column_at_least_is_shown():
    found = run_view(
        "data",
        """
    tell("schema", SCHEMA);
    tell("page", PAGE);
    press(screen().columnsButton);
    const apply = () => named(screen().popover, "Apply"), boxes = screen().popover.querySelectorAll("label").map((label) => label.firstChild);
    const check = (box, is) => {
      box.checked = is;
      box.fire("change");
      found.push(apply().disabled);
    };
    check(boxes[0], false);
    check(boxes[1], false);
    check(boxes[1], true);
    apply().click();
    found.push(screen().shownColumns());
    """,
    )
    assert found == [False, True, False, ["text"]]
