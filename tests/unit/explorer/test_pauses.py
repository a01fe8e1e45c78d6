"""Pauses between what the view asks again by itself, run by node: a lake that is away is not asked at every head."""

import pytest

from tests.unit.explorer.view_kit import run_view

#: Heads that come every two seconds, for so many minutes; what fails does so at once.
HEADS = """
const times = (kind) => sent.filter((each) => each.kind === kind).length;
const heads = (minutes, kind, answer, head = HEAD) => {
  for (let n = 0; n < 30 * minutes; n++) {
    const before = times(kind);
    pass(2000);
    polled(head);
    if (times(kind) > before) tell(kind, answer);
  }
  return times(kind);
};
"""
#: By tab: what is asked for as soon as it is shown, and what fails then.
FAILING = [
    ("data", "page", 'tell("schema", SCHEMA); tell("page", AWAY);'),
    ("data", "count", 'tell("schema", SCHEMA); tell("page", { ...PAGE, total: null }); tell("count", AWAY);'),
    ("data", "facts", 'tell("schema", SCHEMA); tell("page", PAGE); pass(20); tell("facts", AWAY);'),
    ("changelog", "changes", 'tell("schema", SCHEMA); tell("changes", AWAY);'),
    ("lake", "lake", 'tell("lake", AWAY);'),
    ("lake", "lake_part", 'tell("lake", LAKE); tell("lake_part", AWAY);'),
    ("diff", "lake", 'tell("lake", AWAY);'),
    ("tiering", "tiering", 'tell("tiering", AWAY);'),
    ("write", "form", 'tell("form", AWAY);'),
    ("overview", "schema", 'tell("schema", AWAY);'),
    ("overview", "schema", 'tell("schema", WRONG);'),
    ("overview", "buckets", 'tell("buckets", AWAY);'),
]


@pytest.mark.parametrize(("tab", "kind", "fail"), FAILING)
def test_what_fails_is_asked_again_after_pauses_that_grow(tab, kind, fail):
    at_first, later = run_view(tab, f"{HEADS}{fail}\nfound.push(heads(1, '{kind}', AWAY), heads(9, '{kind}', AWAY));")
    assert 5 <= at_first <= 8, "after 1, 2, 4, 8, 16 and 30 s"
    assert 17 <= later - at_first <= 19, "then twice a minute"


def test_what_failed_while_the_server_was_away_is_asked_as_soon_as_it_is_back():
    counted = run_view(
        "lake",
        f"""{HEADS}
    tell("lake", AWAY);
    found.push(heads(5, "lake", AWAY));
    explorer.poll();
    tell("tree", AWAY);
    found.push(times("lake"));
    polled();
    found.push(times("lake"));
    """,
    )
    assert counted[1:] == [counted[0], counted[0] + 1]


def test_an_answer_ends_the_pauses_and_what_is_said_on_the_way_to_an_error_does_not():
    counted = run_view(
        "data",
        f"""{HEADS}
    tell("schema", SCHEMA);
    tell("page", {{ ...PAGE, total: null }});
    const partly = (answer) => {{
      tell("count", {{ point: PAGE.point, total: null, at_least: 3 }}, false);
      tell("count", answer);
    }};
    partly(AWAY);
    for (let n = 0; n < 150; n++) {{
      const before = times("count");
      pass(2000);
      polled();
      if (times("count") > before) partly(AWAY);
    }}
    found.push(times("count"));
    named(screen().status, "Read again").click();
    tell("page", {{ ...PAGE, total: null, point: {{ ...PAGE.point, name: "p2" }} }});
    tell("count", {{ point: {{ ...PAGE.point, name: "p2" }}, total: 9, at_least: 9 }});
    named(screen().status, "Read again").click();
    tell("page", {{ ...PAGE, total: null, point: {{ ...PAGE.point, name: "p3" }} }});
    tell("count", AWAY);
    const before = times("count");
    pass(2000);
    polled();
    found.push(times("count") - before);
    """,
    )
    assert counted[0] <= 15
    assert counted[1] == 1


def test_where_records_are_is_asked_again_though_none_came_since_it_was_not_known():
    """The bands of before are shown until they are those of now."""
    counted = run_view(
        "overview",
        f"""{HEADS}
    tell("buckets", BUCKETS);
    polled({{ ...HEAD, rows: "6" }});
    tell("buckets", AWAY);
    const before = times("buckets");
    pass(2000);
    polled({{ ...HEAD, rows: "6" }});
    found.push(times("buckets") - before);
    tell("buckets", BUCKETS);
    pass(2000);
    polled({{ ...HEAD, rows: "6" }});
    found.push(times("buckets") - before);
    """,
    )
    assert counted == [1, 1]
