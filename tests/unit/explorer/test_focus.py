"""What has the focus in the view, run by node: never nothing, else the next key would be the notebook's."""

import pytest

from tests.unit.explorer.view_kit import run_view

MADE = """
const ROUNDS = { enabled: true, state: "Tiered", epoch: 3, due_ms: null, freshness_ms: 1000, lag: [], code: [], now_ms: Date.now(), trouble: null, rounds: [] };
const JOBS = { jobs: [], total: 0, of: null, runs: [], older: false, scheduler: null, command: "c", code: [], now_ms: Date.now() };
const HEALTH = { servers: { error: WRONG.error }, disk: null, doctor: null, looking: [], code: [], now_ms: Date.now() };
const FORM = { refused: { append: null }, hidden: 0, schema_id: 1, code: [], fields: [] };
const DIFFERS = { diff: "d1", keyed: true, counts: { added: "0", removed: "0", changed: "0" }, moments: [1, 2], lake: "0", log: "0" };
const LIST = { part: "files", snapshot: "7", buckets: [], files: [], total: 0, left_out: 0, code: [] };
const hasFocus = () => explorer.root.contains(document.activeElement) && document.activeElement !== document.body;
const where = () => document.activeElement.dataset.key || document.activeElement.getAttribute("aria-label") || document.activeElement.textContent;
/** Presses the button, has it fail once more, and then not. */
const again = (kind, answer) => {
  press(named(explorer.body, "Try again"));
  found.push(hasFocus());
  tell(kind, AWAY);
  found.push(where());
  press(named(explorer.body, "Try again"));
  tell(kind, answer);
  found.push(hasFocus(), where());
};
"""
#: By tab: what fails, what of it is asked again, and what comes then.
FAILING = [
    ("lake", 'tell("lake", AWAY)', "lake", "LAKE"),
    ("lake", 'tell("lake", LAKE); tell("lake_part", AWAY)', "lake_part", "LIST"),
    ("diff", 'screen().openAt("7"); tell("diff", AWAY)', "diff", "DIFFERS"),
    ("write", 'tell("form", AWAY)', "form", "FORM"),
    ("tiering", 'tell("tiering", AWAY)', "tiering", "ROUNDS"),
    ("overview", 'tell("schema", AWAY)', "schema", "SCHEMA"),
    ("overview", 'explorer.openPage("jobs"); tell("jobs", AWAY)', "jobs", "JOBS"),
    ("overview", 'explorer.openPage("health"); tell("health", AWAY)', "health", "HEALTH"),
    ("changelog", 'tell("changes", AWAY)', "changes", "CHANGES"),
    ("data", 'tell("schema", SCHEMA); tell("page", AWAY)', "page", "PAGE"),
]


@pytest.mark.parametrize(("tab", "fail", "kind", "answer"), FAILING)
def test_the_focus_stays_in_the_view_where_something_is_tried_again(tab, fail, kind, answer):
    waits, failed, is_there, at = run_view(tab, f"{MADE}{fail};\nagain('{kind}', {answer});")
    assert waits
    assert failed == "retry"
    assert is_there, f"it is at {at!r}"


@pytest.mark.parametrize(
    ("tab", "press", "shown"),
    [
        ("lake", 'tell("lake", LAKE); press(named(screen().status, "Read at this snapshot"))', "Data"),
        ("lake", 'tell("lake", LAKE); press(named(screen().status, "Compare with now"))', "Diff"),
    ],
)
def test_a_button_that_leads_to_another_screen_gives_the_focus_to_its_tab(tab, press, shown):
    assert run_view(tab, f"{MADE}{press}; found.push(where());") == [shown]


def test_the_focus_stays_in_the_view_where_another_table_is_shown_for_one_that_was_dropped():
    found = run_view(
        "overview",
        f"""{MADE}
    explorer.data.tree.databases[0].tables.push({{ ...TREE.databases[0].tables[0], path: "shop.other" }});
    explorer.lostHead({{ class: "TableNotFoundError", text: "dropped", retriable: false }});
    press(named(explorer.body, "Show shop.other"));
    found.push(explorer.path, hasFocus());
    """,
    )
    assert found == ["shop.other", True]


def test_what_is_typed_keeps_the_focus_when_the_table_is_altered():
    found = run_view(
        "write",
        """
    const field = (name) => ({ name, type: "string", kind: "text", needs: null, is_key: name === "id", has_empty: true, comment: null });
    const form = (...names) => ({ refused: { upsert: null, columns: null, delete: null }, hidden: 0, schema_id: 1, code: [], fields: names.map(field) });
    tell("schema", SCHEMA);
    tell("form", form("id", 'te"xt'));
    const input = () => screen().parts.get('te"xt').input;
    input().focus();
    input().value = "half";
    input().fire("input");
    polled({ ...HEAD, schema_id: 2 });
    tell("schema", { ...SCHEMA, schema_id: 2 });
    tell("form", form("id", "more", 'te"xt'));
    found.push(document.activeElement === input(), input().value);
    """,
    )
    assert found == [True, "half"]
