"""The model, asked as a view asks: against a real lab, without a widget."""

import json

import pyarrow as pa
import pytest

from fluss_lab.errors import InvalidRequestError
from fluss_lab.explorer.explorer_answers import ANSWER_BYTES_MAX
from fluss_lab.explorer.explorer_model import ExplorerModel
from fluss_lab.explorer.explorer_requests import parse_request
from fluss_lab.explorer.screens.row_answers import GRIDS_MAX
from fluss_lab.explorer.texts.column_mask import ColumnMask
from tests.unit.explorer.explorer_kit import answers, ask, refused, run
from tests.unit.workbench.lab_kit import LAKE, tier

pytestmark = pytest.mark.slow

SCHEMA = {"id": "bigint", "month": "string", "dest": "string", "delay": "int"}
IMAGE = "<img src=x onerror=alert(1)>"


def rows(count, start=0):
    return [
        {"id": start + n, "month": f"2013-0{1 + n % 3}", "dest": "ATL" if n % 2 else "ORD", "delay": n % 100 or None}
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def flights(lab):
    """A log table, half of it in the lake."""
    table = lab.create_table("shop.flights", SCHEMA, partitioned_by=["month"], buckets=2, properties=LAKE)
    table.append(rows(600))
    tier(table)
    table.append(rows(300, 600))
    return table


@pytest.fixture(scope="module")
def planes(lab):
    """A primary-key table with rows in the lake, in the log, and in both, replaced and deleted."""
    table = lab.create_table(
        "shop.planes", {"tailnum": "string", "seats": "int", "email": "string"}, primary_key=["tailnum"], buckets=3, properties=LAKE
    )  # fmt: skip
    table.upsert([{"tailnum": f"N{n}", "seats": n, "email": f"secret-{n}@example.org"} for n in range(500)])
    tier(table)
    table.upsert([{"tailnum": f"N{n}", "seats": 1_000 + n, "email": "other-secret"} for n in range(0, 500, 5)])
    table.delete([{"tailnum": f"N{n}"} for n in range(0, 500, 50)])
    return table


def texts(table):
    return [[None if value is None else str(value) for value in row.values()] for row in table.to_pylist()]


# -- the lab and a table as they are now -------------------------------------------------------------------------------


def test_an_empty_lab_has_lines_that_make_a_table(tmp_path):
    import fluss_lab as fl

    with fl.Lab.open(tmp_path / "empty", config={"server.grace": "200ms"}) as lab:
        model = ExplorerModel(lab, "empty")
        tree = ask(model, "tree")
        assert tree["databases"] == []
        exec("\n".join(tree["code"]), {"lab": lab})
        tree = ask(model, "tree")
        assert [table["path"] for each in tree["databases"] for table in each["tables"]] == ["nyc.flights"]
        assert tree["code"] == []


def test_the_tree(model, flights, planes):
    tree = ask(model, "tree")
    (shop,) = tree["databases"]
    found = {table["path"]: table for table in shop["tables"]}
    assert found["shop.flights"] | {"state": None} == {
        "path": "shop.flights",
        "kind": "log",
        "rows": "900",
        "state": None,
    }
    assert found["shop.planes"]["kind"] == "pk"
    assert tree["servers"]["ok"]
    assert tree["servers"]["text"].startswith("1 server · up ")


def test_the_head_of_a_table(model, flights):
    head = ask(model, "head", table="shop.flights")
    facts = {"rows": "900", "lake_rows": "600", "log_records": "900", "lag_records": "300", "lake_enabled": True}
    assert {name: head[name] for name in facts} == facts
    assert (head["table_id"], head["modified_ms"]) == (str(flights.info.table_id), flights.info.modified_ms)
    assert (head["kind"], head["buckets"], head["partitions"]) == ("log", 6, 3)


def test_the_schema(model, flights, planes):
    schema = ask(model, "schema", table="shop.flights")
    assert [(each["name"], each["type"], each["kind"], each["role"]) for each in schema["columns"]] == [
        ("id", "bigint", "number", ""), ("month", "string", "text", "partition"), ("dest", "string", "text", ""), ("delay", "int", "number", ""),
    ]  # fmt: skip
    properties = {key: value for key, value, _ in schema["properties"]}
    assert properties["bucket key"] == "none: rows are spread"
    assert properties["datalake.enabled"] == "true"
    keyed = ask(model, "schema", table="shop.planes")
    assert keyed["columns"][0]["role"] == "key, bucket key"


def test_long_comments_of_many_columns_are_cut_to_what_a_message_holds(lab, model):
    comments = {f"c{n}": "x" * 4_000 if n else "short" for n in range(200)}
    fields = [pa.field(name, pa.string(), metadata={"comment": comment}) for name, comment in comments.items()]
    lab.create_table("shop.explained", pa.schema(fields), comment="of all")
    schema = ask(model, "schema", table="shop.explained")
    reported = {column["name"]: column["comment"] for column in schema["columns"]}
    assert list(reported) == list(comments)
    assert (reported.pop("c0"), schema["comment"]) == ("short", "of all")
    assert {(set(text[:-1]) == {"x"}, text[-1]) for text in reported.values()} == {(True, "…")}
    assert min(map(len, reported.values())) > 200
    lab.drop_table("shop.explained")


def test_the_buckets_are_those_of_the_table_and_their_line_gives_them(lab, model, flights):
    answer = ask(model, "buckets", table="shop.flights")
    reported = run(answer, lab)
    assert not answer["summed"]
    assert [(row[0], row[1], int(row[2]), int(row[4]), int(row[7] or -1)) for row in answer["rows"]] == [
        (row.partition, row.bucket, row.start, row.end, row.lake_end)
        for row in reported.fillna({"lake_end": -1}).itertuples()
    ]
    assert sum(int(row[4]) for row in answer["rows"]) == 900


def test_the_line_of_a_bucket_gives_what_the_lake_does_not_hold(lab, model, flights):
    for row in ask(model, "buckets", table="shop.flights")["rows"]:
        start = row[7] or row[2]
        answer = ask(model, "bucket", table="shop.flights", partition=row[0], bucket=row[1], start=start)
        assert len(run(answer, lab)) == int(row[4]) - int(start)


def test_more_buckets_than_are_drawn_are_sums(lab, model):
    table = lab.create_table("shop.wide", {"id": "int"}, buckets=401)
    table.append([{"id": n} for n in range(1_000)])
    answer = ask(model, "buckets", table="shop.wide")
    assert answer["summed"]
    assert answer["total"] == 401
    assert len(answer["rows"]) <= 400
    assert sum(int(row[4]) for row in answer["rows"]) == 1_000
    lab.drop_table("shop.wide")


def test_a_dropped_table_is_not_the_next_one_of_its_path(lab, model):
    lab.create_table("shop.brief", {"id": "int"})
    head = ask(model, "head", table="shop.brief")
    lab.drop_table("shop.brief")
    assert refused(model, "head", table="shop.brief", table_id=head["table_id"])["class"] == "TableNotFoundError"
    lab.create_table("shop.brief", {"id": "int"})
    for kind in ("head", "schema", "buckets", "page", "count"):
        assert refused(model, kind, table="shop.brief", table_id=head["table_id"])["class"] == "TableNotFoundError"
    assert ask(model, "head", table="shop.brief")["rows"] == "0"
    lab.drop_table("shop.brief")


# -- rows --------------------------------------------------------------------------------------------------------------


def test_pages_of_a_log_table_are_its_rows_in_order_at_one_moment(lab, model, flights):
    first = ask(model, "page", table="shop.flights", count=7)
    point = first["point"]["name"]
    flights.append(rows(3, 5_000))
    reported = run(first, lab).iloc[:-3]
    whole = first["cells"]
    for begin in range(7, 900, 200):
        page = ask(model, "page", table="shop.flights", point=point, first=begin, count=200)
        assert page["point"]["name"] == point
        assert page["total"] == 900
        assert (page["from"], len(page["cells"])) == (begin, min(200, 900 - begin))
        whole = whole + page["cells"]
    exact = lab.table("shop.flights").scan(read_point=model.rows.grids[point].point, with_source=True).to_arrow()
    assert whole == [row[:-1] for row in texts(exact)]
    assert len(reported) >= 897
    assert ask(model, "page", table="shop.flights", point=point, first=900, count=5)["cells"] == []


def test_a_page_says_where_its_rows_are(model, flights):
    page = ask(model, "page", table="shop.flights", count=500, columns=[])
    assert set(page["source"]) == {"L", "g"}
    assert len(page["rows"]) == len(page["source"]) == 500
    keys = [(partition, bucket, int(offset)) for partition, bucket, offset, _ in page["rows"]]
    assert keys == sorted(keys)
    assert all(time > 1_600_000_000_000 for *_, time in page["rows"])


@pytest.mark.parametrize("path", ["shop.flights", "shop.planes"])
@pytest.mark.parametrize("where", ["", "delay > 60 or delay is null", "id % 7 = 3"])
def test_any_page_of_a_filtered_or_keyed_read(lab, model, flights, planes, path, where):
    where = where if path == "shop.flights" else where.replace("delay", "seats").replace("id %", "seats %")
    head = ask(model, "page", table=path, where=where, count=1)
    point = head["point"]["name"]
    exact = texts(lab.table(path).scan(where=where or None, read_point=model.rows.grids[point].point).to_arrow())
    ahead = ask(model, "page", table=path, where=where, point=point, first=len(exact) - 5, count=50)
    assert ahead["cells"] == exact[-5:]
    for begin in (0, len(exact) // 2, 3):
        page = ask(model, "page", table=path, where=where, point=point, first=begin, count=11)
        assert page["cells"] == exact[begin : begin + 11]
    counted = ask(model, "count", table=path, where=where, point=point)
    assert counted["total"] == len(exact)


def test_a_count_is_a_least_number_until_it_is_known(model, planes):
    page = ask(model, "page", table="shop.planes", count=10)
    assert page["total"] is None
    assert page["at_least"] >= 10
    assert ask(model, "count", table="shop.planes", point=page["point"]["name"])["total"] == 490


def test_the_line_of_a_grid_gives_its_rows(lab, model, planes):
    where = "seats > 100 and tailnum <> 'N7'"
    page = ask(
        model,
        "page",
        table="shop.planes",
        where=where,
        count=500,
        columns=["tailnum", "seats"],
        shown=["tailnum", "seats"],
    )
    reported = run(page, lab)
    assert [[each, str(seats)] for each, seats in zip(reported["tailnum"], reported["seats"], strict=True)] == page[
        "cells"
    ]
    assert ["L" if each == "lake" else "g" for each in reported["_source"]] == list(page["source"])


def test_a_past_moment_by_time_and_by_snapshot(lab, model, flights):
    snapshots = ask(model, "snapshots", table="shop.flights")["snapshots"]
    assert len(snapshots) == 1
    page = ask(model, "page", table="shop.flights", as_of=snapshots[0][0], count=500)
    assert page["total"] == 600
    assert set(page["source"]) == {"L"}
    assert len(run(page, lab)) == 600
    assert ask(model, "page", table="shop.flights", as_of="now")["total"] >= 900
    assert refused(model, "page", table="shop.flights", as_of="1999-01-01")["class"] == "InvalidTimestampError"


@pytest.mark.parametrize(
    "where", ["dely > 60", "id >", "id = 1) or (id = 2", "id = 1 -- ", "1; drop table x", "x" * 900]
)
def test_a_wrong_condition_is_one_clear_error(model, flights, where):
    found = refused(model, "page", table="shop.flights", where=where)
    assert found["class"] == "InvalidFilterError"
    assert not found["retriable"]


def test_a_point_that_is_no_longer_known_is_taken_anew(model, flights):
    first = ask(model, "page", table="shop.flights")["point"]["name"]
    for _ in range(GRIDS_MAX):
        ask(model, "page", table="shop.flights")
    assert len(model.rows.grids) == GRIDS_MAX
    again = ask(model, "page", table="shop.flights", point=first)
    assert again["point"]["name"] not in {first, None}


# -- one row, columns --------------------------------------------------------------------------------------------------


def test_where_a_row_came_from(lab, model, flights):
    page = ask(model, "page", table="shop.flights", count=500)
    for source, kind in (("L", "lake"), ("g", "log")):
        at = page["source"].index(source)
        partition, bucket, offset, _ = page["rows"][at]
        row = ask(
            model,
            "row",
            table="shop.flights",
            point=page["point"]["name"],
            partition=partition,
            bucket=bucket,
            offset=offset,
        )
        assert [text for _, text, _ in row["values"]] == page["cells"][at]
        assert row["place"]["source"] == kind
        exact = flights.locate(partition, bucket, int(offset))
        assert (exact.lake is not None) == (kind == "lake")
        if exact.lake is not None:
            assert row["place"]["file"] == exact.lake.file
            assert row["place"]["position"] == str(exact.lake.position)
            assert row["place"]["snapshot_id"] == str(exact.lake.snapshot_id)
        assert row["place"]["server"] == exact.log.server, "the cluster still holds all of it"
        assert (row["place"]["segment"], row["place"]["local"]) == (exact.log.file, True)
        names = {"lab": lab}
        exec("\n".join(row["code"][:2]), names)
        assert names["place"] == exact
        reported = run(row, lab)
        assert reported.num_rows == 1
        assert reported.column("_log_offset")[0].as_py() == int(offset)
        assert str(reported.column("id")[0].as_py()) == page["cells"][at][0]


def test_a_record_that_is_no_row_is_an_error(model, planes):
    point = ask(model, "page", table="shop.planes")["point"]["name"]
    found = refused(model, "row", table="shop.planes", point=point, partition=None, bucket=0, offset="999999")
    assert "is no row" in found["text"]


def test_facts_of_columns(model, flights):
    page = ask(model, "page", table="shop.flights")
    facts = ask(model, "facts", table="shop.flights", point=page["point"]["name"], columns=["delay", "dest", "nothing"])
    delay, dest = facts["columns"]
    assert facts["rows"] >= 900
    assert not delay["sampled"]
    assert sum(delay["bins"]["counts"]) + round(delay["nulls"] * facts["rows"]) == facts["rows"]
    assert {text for text, *_ in dest["values"]} == {"ATL", "ORD"}


# -- bounds, hostile values --------------------------------------------------------------------------------------------


def test_a_message_is_bounded_however_large_the_cells_are(lab, model):
    columns = {f"c{n}": "string" for n in range(100)}
    table = lab.create_table("shop.large", columns)
    table.append([dict.fromkeys(columns, "ü" * 2000)] * 200)
    page = ask(model, "page", table="shop.large", columns=list(columns), count=200)
    assert len(json.dumps(page, ensure_ascii=False).encode()) <= ANSWER_BYTES_MAX
    assert len(page["cells"]) == 200
    assert len(page["cut"]) == 20_000
    row = ask(model, "row", table="shop.large", point=page["point"]["name"], partition=None, bucket=0, offset="0")
    assert [len(text) for _, text, _ in row["values"]] == [2_000] * 100
    lab.drop_table("shop.large")


def test_numbers_of_64_bits_are_texts(lab, model):
    table = lab.create_table("shop.big", {"id": "bigint"})
    table.append([{"id": 2**63 - 1}])
    page = ask(model, "page", table="shop.big")
    assert page["cells"] == [["9223372036854775807"]]
    assert page["rows"][0][2] == "0"
    lab.drop_table("shop.big")


def test_hostile_values_come_as_text(lab, model):
    table = lab.create_table("shop.notes", {"id": "int", "text": "string"}, comment=IMAGE)
    table.append([{"id": 1, "text": IMAGE}, {"id": 2, "text": "a\x00\u202e\n"}, {"id": 3, "text": ""}, {"id": 4}])
    page = ask(model, "page", table="shop.notes")
    assert [cells[1] for cells in page["cells"]] == [IMAGE, "a\\x00\\u202e\\n", "", None]
    lab.drop_table("shop.notes")


@pytest.mark.parametrize(
    "content",
    [
        None, 1, "tree", [], {}, {"kind": "tree"}, {"kind": "drop", "slot": "a", "seq": 1}, {"kind": "tree", "slot": 1, "seq": 1},
        {"kind": "page", "slot": "a", "seq": 1, "table": "a.b", "count": 100_000}, {"kind": "page", "slot": "a", "seq": 1, "table": "a.b", "first": -1},
        {"kind": "page", "slot": "a", "seq": 1, "table": "a.b", "columns": ["c"] * 1_000}, {"kind": "facts", "slot": "a", "seq": 1, "table": "a.b", "columns": ["c"] * 51},
        {"kind": "page", "slot": "a", "seq": 1, "table": "a.b", "where": "x" * 30_000}, {"kind": "tree", "slot": "x" * 2_000, "seq": 1},
        {"kind": "tree", "slot": "a", "seq": 1, "more": 1}, {"kind": "count", "slot": "a", "seq": 1, "table": "a.b", "where": "x = '\ud83d'"},
        {"kind": "facts", "slot": "a", "seq": 1, "table": "a.b", "columns": ["\ud83d"]},
        {"kind": "write", "slot": "a", "seq": 1, "table": "a.b", "action": "a", "mode": "append", "values": {"\ud83d": "x"}},
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused(content):
    with pytest.raises(InvalidRequestError):
        parse_request(content)


@pytest.mark.parametrize("path", ["", "nyc", "../../x", "a.b.c", IMAGE, "shop.nothing"])
def test_a_path_that_is_none_is_an_error(model, path):
    for kind in ("head", "schema", "buckets", "page", "snapshots"):
        assert refused(model, kind, table=path)["class"] in {"InvalidNameError", "TableNotFoundError"}


def test_an_offset_that_is_none_is_an_error(model, planes):
    error = refused(model, "bucket", table="shop.planes", partition=None, bucket=0, start="-1")
    assert error["class"] == "InvalidRequestError"
    assert "expected an offset" in error["text"]


# -- what is hidden ----------------------------------------------------------------------------------------------------


def test_a_masked_column_is_in_no_message(lab, planes):
    model = ExplorerModel(lab, "my lab", mask=["EMAIL"])
    point = ask(model, "page", table="shop.planes", count=200)["point"]["name"]
    partition, bucket, offset, _ = ask(model, "page", table="shop.planes", point=point)["rows"][0]
    about = {"table": "shop.planes"}
    reported = [
        *answers(model, "tree"), *(each for kind in ("head", "schema", "buckets", "snapshots") for each in answers(model, kind, **about)),
        *answers(model, "page", **about, point=point, columns=["tailnum", "email", "Email"]), *answers(model, "count", **about, point=point),
        *answers(model, "facts", **about, point=point, columns=["email", "seats"]),
        *answers(model, "row", **about, point=point, partition=partition, bucket=bucket, offset=offset),
        *answers(model, "page", **about, where="emai = 'x'"), *answers(model, "page", **about, shown=["email", "tailnum"]),
    ]  # fmt: skip
    text = json.dumps(reported).lower()
    assert "email" not in text
    assert "secret" not in text
    assert "tailnum" in text


def test_no_comment_and_no_error_names_what_is_masked(lab):
    table = lab.create_table(
        "shop.commented", {"id": "int", "email": "string"}, comment="the email of each", properties=LAKE, buckets=1
    )
    table.append([{"id": 1, "email": "secret@example.org"}])
    tier(table)
    with lab.iceberg("shop.commented").update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("email")
    model = ExplorerModel(lab, "my lab", mask=["email"])
    found = [*answers(model, "schema", table="shop.commented"), *answers(model, "page", table="shop.commented")]
    texts = [found[0]["comment"], found[-1]["error"]["text"]]
    assert texts == ["not shown: the text may name a hidden column"] * 2
    plain = list(answers(ExplorerModel(lab, "my lab"), "page", table="shop.commented"))
    assert "email" in plain[-1]["error"]["text"], "the error of this test names it"


def test_no_property_names_what_is_masked(lab):
    """Iceberg has properties for one column each: their names are hidden with it, those that this package knows are not."""
    named = {f"iceberg.write.metadata.metrics.column.{name}": "full" for name in ("email", "Email", "enabled")}
    lab.create_table(
        "shop.measured",
        {"id": "int", "email": "string", "enabled": "int"},
        properties=LAKE | named | {"custom.note": "x"},
    )
    found = answers(ExplorerModel(lab, "my lab", mask=["email", "enabled"]), "schema", table="shop.measured")
    assert "email" not in json.dumps(found).lower()
    names = [name for name, *_ in found[0]["properties"]]
    assert "datalake.enabled" in names
    assert "custom.note" in names
    assert not any("metrics" in name for name in names)
    assert len(ask(ExplorerModel(lab, "my lab"), "schema", table="shop.measured")["properties"]) == len(names) + 3
    lab.drop_table("shop.measured")


def test_an_error_of_others_may_quote_what_is_masked():
    for error, shown in ((ValueError("'secret'"), False), (InvalidRequestError("no such row"), True)):
        text = ColumnMask(["email"]).visible_error(error, str(error))
        assert (text == str(error)) is shown
        assert ColumnMask().visible_error(error, str(error)) == str(error)


@pytest.mark.parametrize(
    "where", ["email = 'secret-1@example.org'", "EMAIL like 'secret%'", "tailnum = 'N1' or email is null"]
)
def test_a_condition_does_not_look_at_what_is_masked(lab, planes, where):
    model = ExplorerModel(lab, "my lab", mask=["email"])
    found = refused(model, "page", table="shop.planes", where=where)
    assert found["class"] == "InvalidFilterError"


def test_the_lines_do_not_show_what_is_masked_either(lab, planes):
    page = ask(ExplorerModel(lab, "my lab", mask=["email"]), "page", table="shop.planes")
    assert list(run(page, lab).columns) == ["tailnum", "seats", "_source"]


def test_a_partition_column_cannot_be_masked(lab, flights):
    model = ExplorerModel(lab, "my lab", mask=["month"])
    for kind in ("schema", "buckets", "page", "head"):
        assert refused(model, kind, table="shop.flights")["class"] == "InvalidRequestError"


@pytest.mark.parametrize("mask", ["email", [""], [1]])
def test_a_mask_that_is_none_is_refused(mask):
    with pytest.raises(InvalidRequestError):
        ColumnMask(mask)


# -- when servers are away ---------------------------------------------------------------------------------------------


def test_a_lab_that_is_closed_is_an_error_and_nothing_hangs(tmp_path):
    import fluss_lab as fl

    with fl.Lab.open(tmp_path / "lab", config={"server.grace": "200ms"}) as lab:
        model = ExplorerModel(lab, "lab")
    assert refused(model, "tree")["class"]
