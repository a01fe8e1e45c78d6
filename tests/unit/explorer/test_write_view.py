"""The screen Write, run by node: columns that are called as what every object has."""

from tests.unit.explorer.view_kit import run_view

NAMES = ["constructor", "toString", "__proto__", "valueOf", "text"]

#: A form with these columns behind the key, and the row that there is: it has no value of some.
FORM = """
const field = (name, is_key) => ({ name, type: "string", kind: "text", needs: is_key ? "it is the key" : null, is_key, has_empty: true, comment: null });
tell("form", { refused: { upsert: null, columns: null, delete: null }, hidden: 0, schema_id: 1, code: [], fields: [field("id", true), ...NAMES.map((name) => field(name, false))] });
const answer = { mode: "upsert", written: false, code: [], errors: {}, now: null, same: [], long: [] };
const notes = () => NAMES.map((name) => screen().parts.get(name).note.textContent), values = () => NAMES.map((name) => screen().parts.get(name).input.value);
"""


def test_columns_may_be_called_as_what_every_object_has():
    at_first, notes, values, sent, focused, shown = run_view(
        "write",
        f"const NAMES = {NAMES};"
        + FORM
        + """
    found.push(notes());
    tell("write", { ...answer, now: JSON.parse('{"id": "1", "constructor": "c", "__proto__": "p", "text": null}') });
    found.push(notes());
    press(named(screen().bar, "Fill from row"));
    found.push(values(), Object.entries(lastOf("write").values));
    press(named(screen().bar, "Upsert row"));
    tell("write", { ...answer, errors: JSON.parse('{"toString": "expected a text"}') });
    found.push(document.activeElement.dataset.field, [notes()[1], screen().status.textContent]);
    """,
    )
    assert at_first == [""] * 5
    assert notes == ["c null", "null null", "p null", "null null", "null null"]
    assert values == ["c", "", "p", "", ""]
    assert sent == [["id", "1"], ["constructor", "c"], ["__proto__", "p"]]
    assert focused == "toString"
    assert shown == ["expected a text", "1 field does not fit"]


def test_what_was_checked_for_another_kind_of_write_is_not_shown_beside_this_one():
    notes = run_view(
        "write",
        f"const NAMES = {NAMES};"
        + FORM.replace("delete: null", 'delete: "This table forbids deletes"')
        + """
    const asked = lastOf("write");
    screen().bar.querySelector('[data-value="delete"]').click();
    tell("write", { ...answer, now: { id: "1", text: "t" } });
    found.push(screen().parts.get("id").note.textContent, screen().status.textContent);
    """,
    )
    assert notes == ["it is the key", "This table forbids deletes"]
