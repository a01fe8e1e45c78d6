"""A record typed, checked, written and read back, against a real lab."""

import itertools
import json

import pyarrow as pa
import pytest

import fluss_lab as fl
from fluss_lab.explorer.explorer_model import ExplorerModel
from fluss_lab.explorer.explorer_requests import RECORD_LENGTH_MAX
from fluss_lab.explorer.texts.typed_values import one_value, plain_value, read_text
from tests.unit.explorer.explorer_kit import answers, ask, refused, request
from tests.unit.explorer.record_texts import GOOD, WRONG

pytestmark = pytest.mark.slow

IMAGE = "<img src=x onerror=alert(1)>"
#: A column of each type that has values here.
COLUMNS = {f"c{number}": kind for number, kind in enumerate(GOOD)}
_clicks = itertools.count()


def body(table, mode, values, **more):
    return {"table": table, "mode": mode, "values": values, "action": f"click {next(_clicks)}", **more}


def write(model, table, mode, values, **more):
    return ask(model, "write", **body(table, mode, values, **more))


def check(model, table, mode, values, **more):
    return write(model, table, mode, values, check=True, **more)


def run(answer, lab):
    *before, last = answer["code"]
    names = {"lab": lab}
    exec("\n".join(before), names)
    return eval(last, names)


def plain(table, name, kinds):
    return plain_value(table.column(name)[0], kinds.column(name).type)


def rows_of_texts(texts_by_column, count):
    """Return rows that have every text of every column at least once."""
    return [{name: texts[number % len(texts)] for name, texts in texts_by_column.items()} for number in range(count)]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A lab whose clock is changed twice a year."""
    config = {"server.grace": "200ms", "client.time-zone": "Europe/Berlin"}
    with fl.Lab.open(tmp_path_factory.mktemp("lab") / "my lab", config=config) as lab:
        lab.create_database("shop")
        yield lab


@pytest.fixture(scope="module")
def typed(lab):
    return lab.create_table("shop.typed", {"id": "int", **COLUMNS}, primary_key=["id"], buckets=2)


@pytest.fixture(scope="module")
def planes(lab):
    table = lab.create_table(
        "shop.typed_planes",
        {"tailnum": "string", "seats": "int", "email": "string"},
        primary_key=["tailnum"],
        buckets=2,
    )
    table.upsert([{"tailnum": "N1", "seats": 55, "email": "secret@example.org"}])
    return table


# -- every type --------------------------------------------------------------------------------------------------------


def test_every_type_is_written_as_typed_read_back_equal_and_its_lines_write_the_same(lab, model, typed):
    texts = {name: GOOD[kind] for name, kind in COLUMNS.items()}
    schema, zone = typed.info.schema, lab.connection.time_zone
    for number, values in enumerate(rows_of_texts(texts, max(map(len, texts.values())))):
        values["id"] = str(number)
        done = write(model, "shop.typed", "upsert", values)
        assert done["errors"] == {}
        assert done["written"]
        found = typed.lookup([{"id": number}])
        for name, kind in COLUMNS.items():
            target = schema.column(name).type
            exact = plain_value(one_value(read_text(values[name], target, zone), target)[0], target)
            assert repr(plain(found, name, schema)) == repr(exact), (kind, values[name])
        again = check(model, "shop.typed", "upsert", values)
        assert (again["same"], again["long"]) == (["id", *COLUMNS], [])
        refilled = check(model, "shop.typed", "upsert", again["now"])
        assert refilled["same"] == ["id", *COLUMNS], "what the row has now can be typed"
        typed.delete([{"id": number}])
        assert run(done, lab).rows == 1
        rewritten = typed.lookup([{"id": number}])
        for name in COLUMNS:
            assert repr(plain(rewritten, name, schema)) == repr(plain(found, name, schema)), name


def test_nulls_of_every_type_and_an_empty_text_is_no_null(model, typed):
    write(model, "shop.typed", "upsert", {"id": "1000"})
    row = typed.lookup([{"id": 1000}])
    assert all(row.column(name)[0].as_py() is None for name in COLUMNS)
    text = next(name for name, kind in COLUMNS.items() if kind == "string")
    write(model, "shop.typed", "upsert", {"id": "1000", text: ""})
    assert typed.lookup([{"id": 1000}]).column(text)[0].as_py() == ""
    now = check(model, "shop.typed", "upsert", {"id": "1000"})["now"]
    assert now[text] == ""
    assert set(now.values()) == {"1000", "", None}


def test_wrong_texts_of_every_type_are_an_error_of_their_field_and_nothing_is_written(lab, model):
    columns = {f"w{number}": kind for number, kind in enumerate(WRONG)}
    table = lab.create_table("shop.wrong", {"id": "int", **columns})
    texts = {name: [text for text, _ in WRONG[kind]] for name, kind in columns.items()}
    said = {name: [part for _, part in WRONG[kind]] for name, kind in columns.items()}
    count = max(map(len, texts.values()))
    for typed, parts in zip(rows_of_texts(texts, count), rows_of_texts(said, count), strict=True):
        values = {name: text for name, text in typed.items() if len(text) < 50_000}
        for is_check in (True, False):
            answer = write(model, "shop.wrong", "append", {"id": "1", **values}, check=is_check)
            assert answer["errors"].keys() == values.keys()
            assert all(parts[name] in text for name, text in answer["errors"].items())
            assert not answer["written"]
            assert json.dumps(answer, ensure_ascii=False).encode(), "what cannot be sent never arrives"
    assert table.count() == 0


# -- what is written ---------------------------------------------------------------------------------------------------


def test_a_form_has_the_fields_of_the_schema(lab, model, planes):
    form = ask(model, "form", table="shop.typed_planes")
    assert [(field["name"], field["type"], field["kind"], field["needs"], field["is_key"], field["has_empty"]) for field in form["fields"]] == [
        ("tailnum", "string", "text", "it is the key", True, True), ("seats", "int", "number", None, False, False),
        ("email", "string", "text", None, False, True),
    ]  # fmt: skip
    assert form["refused"] == {"upsert": None, "columns": None, "delete": None}
    assert run(form, lab).names == [field["name"] for field in form["fields"]]


def test_a_row_is_checked_beside_the_one_that_there_is(model, planes):
    answer = check(
        model, "shop.typed_planes", "upsert", {"tailnum": "N1", "seats": "56", "email": "secret@example.org"}
    )
    assert answer["now"] == {"tailnum": "N1", "seats": "55", "email": "secret@example.org"}
    assert answer["same"] == ["tailnum", "email"]
    assert planes.lookup([{"tailnum": "N1"}]).column("seats").to_pylist() == [55], "nothing is written by a check"
    assert check(model, "shop.typed_planes", "upsert", {"tailnum": "N2"})["now"] is None
    wrong = check(model, "shop.typed_planes", "upsert", {"seats": "5O"})
    assert wrong["errors"] == {
        "tailnum": "needed: it is the key", "seats": 'expected a whole number from -2,147,483,648 to 2,147,483,647, found "5O"',
    }  # fmt: skip
    assert wrong["now"] is None


def test_upserts_whole_and_of_some_columns_and_deletes(lab, model, planes):
    values = {"tailnum": "N3", "seats": "1", "email": "a"}
    done = write(model, "shop.typed_planes", "upsert", values)
    ((partition, bucket, base, end),) = done["offsets"]
    assert (partition, int(end) - int(base)) == (None, 1)
    assert 0 <= bucket < 2
    assert done["ms"] >= 0
    some = write(model, "shop.typed_planes", "upsert", {"tailnum": "N3", "seats": "2"}, columns=["seats"])
    assert planes.lookup([{"tailnum": "N3"}]).to_pylist() == [{"tailnum": "N3", "seats": 2, "email": "a"}]
    assert run(some, lab).rows == 1
    whole = write(model, "shop.typed_planes", "upsert", {"tailnum": "N3", "seats": "3"})
    assert planes.lookup([{"tailnum": "N3"}]).to_pylist() == [{"tailnum": "N3", "seats": 3, "email": None}]
    assert run(whole, lab).rows == 1
    gone = write(model, "shop.typed_planes", "delete", {"tailnum": "N3"})
    assert planes.lookup([{"tailnum": "N3"}]).column("tailnum").to_pylist() == [None]
    assert run(gone, lab).rows == 1


def test_a_log_table_is_appended_to_and_its_partition_is_checked(lab, model):
    table = lab.create_table(
        "shop.typed_logs", {"id": "int", "month": "string", "note": "string"}, partitioned_by=["month"], buckets=1
    )
    assert check(model, "shop.typed_logs", "append", {"id": "1"})["errors"] == {
        "month": "needed: it names the partition"
    }
    for month in ("", "a\nb", "x" * 5_000):
        assert "partition value" in check(model, "shop.typed_logs", "append", {"month": month})["errors"]["month"]
    done = write(model, "shop.typed_logs", "append", {"id": "1", "month": "2013-01", "note": IMAGE})
    assert done["offsets"] == [["2013-01", 0, "0", "1"]]
    run(done, lab)
    assert table.to_pandas().to_dict("records") == [{"id": 1, "month": "2013-01", "note": IMAGE}] * 2
    assert refused(model, "write", **body("shop.typed_logs", "upsert", {"id": "1"}))["class"] == "UnsupportedError"


def test_a_click_is_written_once_however_often_it_is_said(lab, model):
    table = lab.create_table("shop.clicked", {"id": "int"})
    one = body("shop.clicked", "append", {"id": "1"})
    first, again = ask(model, "write", **one), ask(model, "write", **one | {"slot": "of another view"})
    assert first == again
    assert table.count() == 1
    wrong = body("shop.nothing", "append", {"id": "1"})
    assert refused(model, "write", **wrong) == refused(model, "write", **wrong)
    ask(model, "write", **body("shop.clicked", "append", {"id": "2"}))
    assert table.count() == 2


# -- bounds and masks --------------------------------------------------------------------------------------------------


def test_what_is_too_long_is_said_to_be(lab, model):
    table = lab.create_table("shop.long", {"id": "int", "text": "string", "blob": "bytes"}, primary_key=["id"])
    table.upsert([{"id": 1, "text": "W" * 50_000, "blob": b"x" * 500}])
    answer = check(model, "shop.long", "upsert", {"id": "1"})
    assert answer["long"] == ["text"]
    assert len(answer["now"]["text"]) <= 300
    assert answer["now"]["blob"] == "78" * 500
    from fluss_lab.errors import InvalidRequestError

    with pytest.raises(InvalidRequestError, match="characters typed"):
        request("write", **body("shop.long", "upsert", {"id": "1", "text": "x" * RECORD_LENGTH_MAX}))
    done = write(model, "shop.long", "upsert", {"id": "2", "text": "\u202e" * (RECORD_LENGTH_MAX // 2)})
    assert done["written"]
    assert done["code"] == [], "lines that are too long are none"


def test_a_wide_table(lab, model):
    names = [f"column_{number:04}_{'x' * 60}" for number in range(2_000)]
    table = lab.create_table("shop.wide_form", {"id": "int", **dict.fromkeys(names[1:], "string")}, primary_key=["id"])
    form = ask(model, "form", table="shop.wide_form")
    assert len(form["fields"]) == 2_000
    table.upsert([{"id": 1, **dict.fromkeys(names[1:], "W" * 200)}])
    answer = check(model, "shop.wide_form", "upsert", {"id": "1"})
    assert len(answer["now"]) == 2_000
    wrong = lab.create_table("shop.wide_wrong", dict.fromkeys(names, "int"))
    assert len(check(model, "shop.wide_wrong", "append", dict.fromkeys(names, "W" * 40))["errors"]) == 2_000
    assert wrong.count() == 0


def test_masked_columns_are_in_no_message_and_keep_what_they_hold(lab, planes):
    model = ExplorerModel(lab, "lab", mask=["EMAIL"])
    table = "shop.typed_planes"
    planes.upsert([{"tailnum": "N9", "seats": 1, "email": "secret@example.org"}])
    form = answers(model, "form", table=table)
    reported = [form, answers(model, "write", **body(table, "upsert", {"tailnum": "N9", "seats": "2"}, check=True))]
    reported.append(answers(model, "write", **body(table, "upsert", {"tailnum": "N9", "seats": "2"})))
    assert form[0]["hidden"] == 1
    assert planes.lookup([{"tailnum": "N9"}]).to_pylist() == [
        {"tailnum": "N9", "seats": 2, "email": "secret@example.org"}
    ]
    assert (
        reported[-1][0]["code"][-1]
        == 'typed_planes.upsert([{"tailnum": "N9", "seats": 2}], columns=["tailnum", "seats"])'
    )
    run(reported[-1][0], lab)
    assert planes.lookup([{"tailnum": "N9"}]).column("email").to_pylist() == ["secret@example.org"]
    reported.append(refused(model, "write", **body(table, "upsert", {"tailnum": "N9", "email": "x"})))
    reported.append(refused(model, "write", **body(table, "upsert", {"tailnum": "N9"}, columns=["email"])))
    assert "email" not in str(reported).lower()
    assert "secret" not in str(reported)


@pytest.mark.parametrize(
    ("name", "key", "properties", "hidden", "refusals"),
    [
        ("needed", ["id"], {}, "email", {"upsert": "must have a value", "columns": "must have a value", "delete": None}),
        ("keyed", ["id", "email"], {}, "email", {"upsert": "key", "columns": "key", "delete": "key"}),
        ("first", ["id"], {"table.merge-engine": "first_row"}, "note", {"upsert": "whole rows", "columns": "whole rows", "delete": None}),
        ("logged", [], {}, "email", {"append": "must have a value"}),
        ("kept", ["id"], {"table.delete.behavior": "disable"}, "none", {"upsert": None, "columns": "whole rows", "delete": "forbids"}),
    ],
)  # fmt: skip
def test_what_a_mask_or_the_table_does_not_allow_is_refused_with_a_sentence(
    lab, name, key, properties, hidden, refusals
):
    email = pa.field("email", pa.string(), nullable=name == "first")
    fields = [pa.field("id", pa.int32()), email, pa.field("note", pa.string())]
    table = lab.create_table(f"shop.refused_{name}", pa.schema(fields), primary_key=key or None, properties=properties)
    model = ExplorerModel(lab, "lab", mask=[hidden])
    form = ask(model, "form", table=str(table.path))
    assert form["refused"].keys() == refusals.keys()
    for mode, part in refusals.items():
        why = form["refused"][mode]
        assert (why is None) == (part is None), (mode, why)
        if part is None:
            continue
        assert part in why
        columns = {"columns": ["id"]} if mode == "columns" else {}
        error = refused(
            model, "write", **body(str(table.path), "upsert" if mode == "columns" else mode, {"id": "1"}, **columns)
        )
        assert error["class"] == "UnsupportedError"
        assert why in error["text"]
    assert table.count() == 0
