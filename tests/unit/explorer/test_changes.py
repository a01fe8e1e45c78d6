"""The changelog as views show it: records in the order of their times, net changes, and their lines."""

import random

import pytest

import fluss_lab as fl
from fluss_lab.explorer.explorer_model import ExplorerModel
from fluss_lab.explorer.screens import change_answers
from fluss_lab.explorer.texts.change_rows import COLUMNS_DRAWN
from fluss_lab.testing.mock_clock import wait_until
from tests.unit.explorer.explorer_kit import ask, refused, run
from tests.unit.workbench.lab_kit import LAKE, tier

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def planes(lab):
    """A primary-key table: 300 inserted and tiered, then 100 updated and 10 deleted in the log alone."""
    table = lab.create_table(
        "shop.changed", {"id": "int", "seats": "int"}, primary_key=["id"], buckets=2, properties=LAKE
    )
    table.upsert([{"id": n, "seats": n} for n in range(300)])
    tier(table)
    table.upsert([{"id": n, "seats": -n} for n in range(1, 101)])
    table.delete([{"id": n} for n in range(200, 210)])
    return table


@pytest.fixture(scope="module")
def flights(lab):
    table = lab.create_table("shop.logged", {"id": "int", "month": "string"}, partitioned_by=["month"], buckets=2)
    table.append([{"id": n, "month": f"2013-0{1 + n % 3}"} for n in range(90)])
    return table


def places(answer):
    return [(time, partition or "", bucket, int(offset)) for partition, bucket, offset, time in answer["rows"]]


def read(frame):
    """Return the records of a frame that lines gave, in its order."""
    partitions = frame["_partition"] if "_partition" in frame else [""] * len(frame)
    times = [round(each.timestamp() * 1000) for each in frame["_commit_timestamp"]]
    return list(zip(times, partitions, frame["_bucket"], frame["_log_offset"], strict=True))


def exact(table):
    return sorted(read(table.changelog().to_pandas()))


@pytest.mark.parametrize("path", ["shop.changed", "shop.logged"])
@pytest.mark.parametrize("start", ["newest", "earliest"])
def test_the_first_records_and_their_lines(lab, model, planes, flights, path, start):
    answer = ask(model, "changes", table=path, start=start)
    records = exact(lab.table(path))
    assert places(answer) == (records[-200:] if start == "newest" else records[:200])
    assert places(answer) == read(run(answer, lab))
    assert int(answer["records"]) == len(records)
    assert answer["older"] == (start == "newest" and len(records) > 200)
    assert answer["newer"] == (start == "earliest" and len(records) > 200)


def test_a_window_slides_over_a_random_history(lab, model, seed, monkeypatch):
    """Older and Newer as a view uses them: what it shows is a part of the exact changelog, and so are the lines."""
    monkeypatch.setattr(change_answers, "PAGE_RECORDS", 20)
    monkeypatch.setattr(change_answers, "WINDOW_RECORDS", 50)
    rng = random.Random(seed)
    path = "shop.history"
    table = lab.create_table(path, {"id": "int", "n": "int"}, primary_key=["id"], buckets=3, properties=LAKE)
    for step in range(12):
        table.upsert([{"id": rng.randrange(40), "n": n} for n in range(rng.randint(1, 9))])
        table.delete([{"id": rng.randrange(40)} for _ in range(rng.randint(0, 2))])
        if step == 6:
            tier(table)
    records = exact(table)
    shown, answer = [], ask(model, "changes", table=path)
    shown = places(answer)
    for step in range(24):
        older = rng.random() < (0.9 if step < 12 else 0.2)
        answer = ask(model, "changes", table=path, window=answer["window"], older=older)
        shown = (places(answer) + shown)[: answer["kept"]] if older else (shown + places(answer))[-answer["kept"] :]
        begin = records.index(shown[0])
        assert shown == records[begin : begin + len(shown)]
        assert len(shown) <= 50
        assert (answer["older"], answer["newer"]) == (begin > 0, begin + len(shown) < len(records))
        assert read(run(answer, lab)) == shown


def test_what_is_written_meanwhile_comes_after_what_is_shown(lab, model):
    """In a bucket and a partition that had no record when the window began, too."""
    table = lab.create_table("shop.late", {"id": "int", "month": "string"}, partitioned_by=["month"], buckets=8)
    table.append([{"id": 1, "month": "2013-01"}])
    answer = ask(model, "changes", table="shop.late", start="earliest")
    assert not answer["newer"]
    table.append([{"id": n, "month": month} for n in range(2, 40) for month in ("2013-01", "2013-02")])
    later = ask(model, "changes", table="shop.late", window=answer["window"], older=False)
    assert places(answer) + places(later) == exact(table)
    assert read(run(later, lab)) == exact(table)


def test_lines_run_after_retention(tmp_path):
    """A log that was trimmed begins later than at 0, and before its part on the server's disk."""
    config = {"server.grace": "200ms", "log.segment.file-size": "4kb", "log.retention.check-interval": "20ms"}
    with fl.Lab.open(tmp_path / "trimmed", config=config) as lab:
        lab.create_database("shop")
        table = lab.create_table("shop.trimmed", {"id": "int", "text": "string"}, buckets=2)
        model = ExplorerModel(lab, "lab")
        for begin in range(0, 600, 20):
            table.append([{"id": n, "text": "x" * 50} for n in range(begin, begin + 20)])
        table.alter(set={"table.log.ttl": "1ms"})
        wait_until(lambda: all(row["start"] > 0 for row in table.buckets()), 30)
        table.alter(set={"table.log.ttl": "7d"})
        table.append([{"id": n, "text": "y"} for n in range(30)])
        for start in ("newest", "earliest"):
            answer = ask(model, "changes", table="shop.trimmed", start=start)
            assert places(answer) == read(run(answer, lab)) == exact(table)[-200:]


def test_wide_tables_are_cut_to_what_a_message_holds(lab, model):
    lab.create_table("shop.broad", {f"c{n}": "string" for n in range(150)}).append(
        [{f"c{n}": "é" * 190 for n in range(150)} for _ in range(200)]
    )
    answer = ask(model, "changes", table="shop.broad")
    assert answer["columns"] == [f"c{n}" for n in range(COLUMNS_DRAWN)]
    assert {len(cells) for cells in answer["cells"]} == {COLUMNS_DRAWN}
    assert len(answer["cells"]) == 200
    assert [0, 0] in answer["cut"]
    assert len(answer["cut"]) == 200 * COLUMNS_DRAWN
    assert set(answer["cells"][0][0]) == {"é"}
    assert len(answer["cells"][0][0]) >= 50


def test_net_changes_of_a_wide_table_are_cut_to_what_a_message_holds(lab, model):
    """They are more rows than a page has: with cells of one character, too, those of all columns would be too large."""
    columns = {"id": "int"} | {f"c{n}": "string" for n in range(150)}
    table = lab.create_table("shop.broad_keyed", columns, primary_key=["id"], buckets=1)
    table.upsert([{"id": n} | {f"c{k}": "y" * 190 for k in range(150)} for n in range(420)])
    answer = ask(model, "changes", table="shop.broad_keyed", start="earliest", net=True)
    assert answer["limited"]
    assert answer["columns"] == ["id", *(f"c{n}" for n in range(COLUMNS_DRAWN - 1))]
    assert len(answer["cells"]) == change_answers.NET_MAX
    assert len(answer["cells"][0][1]) >= 50


def test_a_record_has_its_values_whole(lab, model, planes):
    table = lab.create_table("shop.long", {f"c{n}": "string" for n in range(150)})
    table.append([{f"c{n}": str(n % 10) * 3_000 for n in range(150)}])
    answer = ask(model, "change", table="shop.long", partition=None, bucket=0, offsets=["0"])
    (values,) = answer["records"]
    assert [name for name, *_ in values] == [f"c{n}" for n in range(150)]
    assert all(text == str(n % 10) * 3_000 and not cut for n, (_, text, cut) in enumerate(values))
    exact = planes.changelog(start={0: 0}, end={0: 3}, columns=["id"]).to_arrow()["id"].to_pylist()
    place = {"table": "shop.changed", "partition": None, "bucket": 0}
    answer = ask(model, "change", **place, offsets=["2", "1"])
    assert [record[0] for record in answer["records"]] == [["id", str(exact[at]), False] for at in (2, 1)]
    hidden = ask(ExplorerModel(lab, "lab", mask=["seats"]), "change", **place, offsets=["1"])
    assert [[name for name, *_ in record] for record in hidden["records"]] == [["id"]]
    assert refused(model, "change", **place, offsets=["99999"])["class"] == "OffsetOutOfRangeError"


def test_many_buckets_of_one_record_each(lab, model):
    table = lab.create_table("shop.scattered", {"id": "int"}, buckets=600, bucket_key=["id"])
    table.append([{"id": n} for n in range(1_500)])
    records = exact(table)
    answer = ask(model, "changes", table="shop.scattered")
    assert places(answer) == records[-200:] == read(run(answer, lab))


def test_the_window_that_is_looked_at_is_kept_while_others_page(model, planes):
    mine = ask(model, "changes", view="mine", table="shop.changed")["window"]
    for view in range(3):
        name = ask(model, "changes", view=f"v{view}", table="shop.changed")["window"]
        for _ in range(5):
            name = ask(model, "changes", view=f"v{view}", table="shop.changed", window=name)["window"]
    assert ask(model, "changes", view="mine", table="shop.changed", window=mine)["rows"]


def test_a_window_is_of_its_own_table(model, planes, flights):
    mine = ask(model, "changes", view="mine", table="shop.changed")["window"]
    assert "no longer known" in refused(model, "changes", view="mine", table="shop.logged", window=mine)["text"]


def test_views_that_are_gone_are_forgotten(model, planes):
    mine = ask(model, "changes", view="mine", table="shop.changed")["window"]
    assert "no longer known" in refused(model, "changes", view="other", table="shop.changed", window=mine)["text"]
    ask(model, "leave", view="mine")
    assert "no longer known" in refused(model, "changes", view="mine", table="shop.changed", window=mine)["text"]
    first = ask(model, "changes", view="first", table="shop.changed")["window"]
    for view in range(change_answers.VIEWS_MAX):
        ask(model, "changes", view=f"v{view}", table="shop.changed")
    assert "no longer known" in refused(model, "changes", view="first", table="shop.changed", window=first)["text"]


def test_the_two_records_of_an_update_belong_together(model, planes):
    answer = ask(model, "changes", table="shop.changed", start="newest")
    assert answer["pairs"]
    for old, new in answer["pairs"]:
        assert (answer["types"][old], answer["types"][new]) == ("-U", "+U")
        assert answer["cells"][old][0] == answer["cells"][new][0]
        assert answer["cells"][old][1] == answer["cells"][new][1].removeprefix("-")


def test_from_an_offset_and_from_a_time(lab, model, planes):
    records = [place for place in exact(planes) if place[2] == 1]
    answer = ask(model, "changes", table="shop.changed", start="offset", value="10", partition=None, bucket=1)
    assert places(answer) == records[10:210] == read(run(answer, lab))
    older = ask(model, "changes", table="shop.changed", window=answer["window"], older=True)
    assert places(older) == records[:10]
    answer = ask(model, "changes", table="shop.changed", start="time", value="now")
    assert answer["rows"] == []
    assert len(run(answer, lab)) == 0
    assert answer["older"]


@pytest.mark.parametrize("text", ["0,010", "10", " 10 "])
def test_offsets_as_they_are_typed(model, planes, text):
    answer = ask(model, "changes", table="shop.changed", start="offset", value=text, bucket=1)
    assert places(answer)[0][3] == 10


@pytest.mark.parametrize("text", ["", "x", "-1", "1,00", "1,000.000", "1.5", "٣", "9" * 30, "1,000,00"])
def test_what_is_no_offset_is_said_to_be_none(model, planes, text):
    error = refused(model, "changes", table="shop.changed", start="offset", value=text, bucket=0)
    assert error["class"] == "InvalidRequestError"
    assert "changelog of shop.changed, bucket 0: expected an offset such as 1,234" in error["text"]


def test_net_changes_from_a_start_until_now(lab, model, planes):
    answer = ask(model, "changes", table="shop.changed", start="earliest", net=True)
    assert set(answer["types"]) == {"INSERT"}
    assert places(answer) == read(run(answer, lab))
    assert len(answer["types"]) == 290
    assert not answer["limited"]


def test_net_changes_of_the_newest_are_those_of_what_is_shown(lab, model, planes):
    shown = ask(model, "changes", table="shop.changed")
    assert shown["older"]
    for window in (shown["window"], None):
        answer = ask(model, "changes", table="shop.changed", net=True, window=window)
        assert int(answer["records"]) == len(shown["rows"])
        assert places(answer) == read(run(answer, lab))
        assert set(places(answer)) <= set(places(shown))
        assert {"UPDATE_AFTER", "DELETE"} <= set(answer["types"])


def test_the_two_rows_of_a_net_update_are_of_one_key(lab, model):
    """Also where rows of other keys lie between them, and where the key is hidden."""
    table = lab.create_table("shop.woven", {"id": "int", "n": "int"}, primary_key=["id"], buckets=1)
    table.upsert([{"id": n, "n": 0} for n in (1, 2)])
    for n in (1, 2):
        table.upsert([{"id": 1, "n": n}])
        table.upsert([{"id": 2, "n": 10 * n}])
    for each, at in ((model, 1), (ExplorerModel(lab, "lab", mask=["id"]), 0)):
        answer = ask(each, "changes", table="shop.woven", start="offset", value="2", bucket=0, net=True)
        assert answer["types"] == ["UPDATE_BEFORE", "UPDATE_BEFORE", "UPDATE_AFTER", "UPDATE_AFTER"]
        assert [[answer["cells"][k][at] for k in pair] for pair in answer["pairs"]] == [["0", "2"], ["0", "20"]]


def test_net_changes_of_too_much_are_refused_and_of_many_the_first_are_shown(lab, model, planes, monkeypatch):
    monkeypatch.setattr(change_answers, "NET_MAX", 50)
    answer = ask(model, "changes", table="shop.changed", start="earliest", net=True)
    assert answer["limited"]
    assert places(answer) == read(run(answer, lab))
    monkeypatch.setattr(change_answers, "NET_RECORDS_MAX", 100)
    assert "more than 100" in refused(model, "changes", table="shop.changed", start="earliest", net=True)["text"]


def test_where_a_record_is_read_from(model, planes):
    answer = ask(model, "changes", table="shop.changed")
    assert set(answer["source"]) == {"g"}, "the cluster still holds them all"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"start": "offset", "value": "99999", "bucket": 0}, "OffsetOutOfRangeError"), ({"start": "offset", "value": "1"}, "InvalidRequestError"),
        ({"start": "offset", "value": "1", "bucket": 77}, "BucketNotFoundError"), ({"start": "time", "value": "never"}, "InvalidTimestampError"),
        ({"window": "w999"}, "InvalidRequestError"),
    ],
)  # fmt: skip
def test_a_start_that_is_none_is_an_error(model, planes, body, error):
    assert refused(model, "changes", table="shop.changed", **body)["class"] == error


def test_masked_columns_are_in_no_change(lab, planes):
    answer = ask(ExplorerModel(lab, "lab", mask=["seats"]), "changes", table="shop.changed")
    assert answer["columns"] == ["id"]
    assert "seats" not in run(answer, lab).columns


def test_an_offset_is_typed_with_separators_too(lab, model):
    table = lab.create_table("shop.typed", {"id": "int"}, buckets=1)
    table.append([{"id": n} for n in range(1_300)])
    for text in ("1234", "1,234", " 1 234 "):
        answer = ask(model, "changes", table="shop.typed", start="offset", value=text, bucket=0)
        assert answer["rows"][0][2] == "1234"
        assert run(answer, lab)["_log_offset"].tolist() == list(range(1_234, 1_300))
    for text in ("", "ten", "-1", "1,23"):
        found = refused(model, "changes", table="shop.typed", start="offset", value=text, bucket=0)
        assert found["class"] == "InvalidRequestError"
        assert "expected an offset such as 1,234" in found["text"]
    lab.drop_table("shop.typed")
