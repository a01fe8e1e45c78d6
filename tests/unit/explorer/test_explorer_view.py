"""The view as a whole, run by node: what it says when something of a table cannot be read."""

import pytest

from tests.unit.explorer.view_kit import run_view


@pytest.mark.parametrize(("tab", "place"), [("data", "place"), ("overview", "side")])
@pytest.mark.parametrize("error", ["WRONG", "AWAY"])
def test_columns_that_cannot_be_read_are_said_to_be_and_are_asked_for_again(tab, place, error):
    said, is_drawn_once, after = run_view(
        tab,
        f"""
    const place = () => screen().{place};
    tell("schema", {error});
    found.push(place().textContent);
    pass(1000);
    const first = place().firstChild;
    polled();
    tell("schema", {error});
    found.push(place().firstChild === first);
    pass(2000);
    polled();
    tell("schema", SCHEMA);
    found.push(place().textContent);
    """,
    )
    assert ("nothing is there" if error == "WRONG" else "no server answered") in said
    assert "Try again" in said
    assert is_drawn_once, "what has the focus there keeps it"
    assert "Try again" not in after


def test_tree_and_head_alone_say_whether_the_server_is_there():
    """Rows, counts and snapshots may come from a lake that does not answer, or that does while the server is away."""
    lake_away, said, tree_away, still_away, back, head_away = run_view(
        "data",
        """
    const isAway = () => Boolean(explorer.away);
    tell("schema", SCHEMA);
    tell("page", AWAY);
    screen().moment.setMode("snap");
    tell("snapshots", AWAY);
    found.push(isAway(), screen().place.textContent);
    screen().moment.setMode("now");
    polled();
    explorer.poll();
    tell("tree", AWAY);
    found.push(isAway());
    tell("page", PAGE);
    found.push(isAway());
    polled();
    found.push(isAway());
    explorer.poll();
    tell("tree", TREE);
    tell("head", AWAY);
    found.push(isAway());
    """,
    )
    assert (lake_away, tree_away, still_away, back, head_away) == (False, True, True, False, True)
    assert said.startswith("No answer at present")


def test_properties_that_are_altered_are_shown():
    """The columns stay the same: their version does not tell."""
    before, asked, after = run_view(
        "overview",
        """
    const of = (value) => ({ ...SCHEMA, properties: [["log.ttl", value, false]] }), asked = () => sent.filter((each) => each.kind === "schema").length;
    tell("schema", of("7d"));
    polled();
    found.push(screen().side.textContent);
    const count = asked();
    polled({ ...HEAD, modified_ms: 2 });
    tell("schema", of("3d"));
    polled({ ...HEAD, modified_ms: 2 });
    found.push(asked() - count, screen().side.textContent);
    """,
    )
    assert "log.ttl7d" in before
    assert asked == 1
    assert "log.ttl3d" in after


def test_one_record_is_no_records():
    found = run_view(
        "overview",
        """
    for (const lag_records of ["0", "1", "2"]) {
      polled({ ...HEAD, lag_records });
      found.push(explorer.header.facts.textContent.match(/Only in the log(.*)Lag/)[1]);
    }
    """,
    )
    assert found == ["0", "1 record", "2 records"]


def test_where_there_is_no_clipboard_it_is_said():
    """Browsers have none in pages of other machines without TLS."""
    found = run_view(
        "overview",
        """
    Object.defineProperty(globalThis, "navigator", { value: {}, configurable: true });
    explorer.copy("text");
    await null;
    await null;
    await null;
    found.push(said());
    """,
    )
    assert found == ["The browser does not allow copying"]


@pytest.mark.parametrize("alone", ["explorer", "saved"])
def test_without_a_kernel_other_tables_are_said_not_to_be_saved_and_what_was_seen_stays(alone):
    other, tab, again, table, asked = run_view(
        "data",
        f"""
    tell("schema", SCHEMA);
    tell("page", PAGE);
    pass(2000);
    explorer.channel.end();
    const saved = new Explorer(model, document.body), view = {alone}, count = sent.length;
    view.open("shop.other");
    found.push(view.body.textContent);
    view.openTab("lake");
    found.push(view.body.textContent);
    pass(3000);
    view.openTab("data");
    view.open("shop.flights");
    found.push(view.body.textContent);
    pass(3000);
    found.push(JSON.parse(model.get("saved")).table, sent.slice(count).filter((each) => each.table === "shop.other").length);
    """,
    )
    assert "Run the cell to read shop.other." in other
    assert tab == other
    assert "2 of 2 rows saved" in again
    assert (table, asked) == ("shop.flights", 0)


@pytest.mark.parametrize(
    ("tab", "text"),
    [
        ("data", "No rows are saved"),
        ("changelog", "Not in the saved view"),
        ("lake", "Nothing of the lake is saved"),
        ("tiering", "Nothing of the tiering is saved"),
        ("write", "Nothing can be written in a saved view"),
    ],
)
def test_a_screen_that_is_opened_when_the_kernel_has_ended_waits_for_nothing(tab, text):
    (shown,) = run_view(
        "overview",
        f"""
    tell("schema", SCHEMA);
    explorer.channel.end();
    explorer.openTab("{tab}");
    found.push(explorer.body.textContent);
    """,
    )
    assert text in shown
    assert "Reading" not in shown
