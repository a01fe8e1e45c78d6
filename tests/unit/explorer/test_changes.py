"""The changelog as a view shows it: pages of every bucket's records, and their lines."""

import pytest

from tests.unit.explorer.explorer_kit import ask, refused, run
from tests.unit.workbench.lab_kit import LAKE, tier


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
    return [(partition, bucket, int(offset)) for partition, bucket, offset, _ in answer["rows"]]


def told(frame):
    partitions = frame["_partition"] if "_partition" in frame else [None] * len(frame)
    return sorted(zip(partitions, frame["_bucket"], frame["_log_offset"], strict=True), key=str)


@pytest.mark.parametrize("path", ["shop.changed", "shop.logged"])
def test_the_newest_records_and_their_line(lab, model, planes, flights, path):
    answer = ask(model, "changes", table=path)
    assert sorted(places(answer), key=str) == told(run(answer, lab))
    times = [time for *_, time in answer["rows"]]
    assert times == sorted(times)
    assert not answer["newer"]


def test_windows_beside_each_other_are_the_whole_log(lab, model, planes):
    exact = lab.table("shop.changed").changelog().to_arrow()
    answer = ask(model, "changes", table="shop.changed")
    found, first = places(answer), answer
    while answer["older"]:
        answer = ask(model, "changes", table="shop.changed", window=answer["window"], older=True)
        found += places(answer)
    assert len(found) == exact.num_rows
    assert set(found) == {(None, row["_bucket"], row["_log_offset"]) for row in exact.to_pylist()}
    answer, forward = ask(model, "changes", table="shop.changed", start="earliest"), []
    forward += places(answer)
    while answer["newer"]:
        answer = ask(model, "changes", table="shop.changed", start="earliest", window=answer["window"], older=False)
        forward += places(answer)
    assert sorted(forward, key=str) == sorted(found, key=str)
    assert first["code"] != answer["code"]


def test_the_two_records_of_an_update_belong_together(model, planes):
    answer = ask(model, "changes", table="shop.changed", start="newest")
    assert answer["pairs"]
    for old, new in answer["pairs"]:
        assert (answer["types"][old], answer["types"][new]) == ("-U", "+U")
        assert answer["cells"][old][0] == answer["cells"][new][0]
        assert answer["cells"][old][1] == answer["cells"][new][1].removeprefix("-")


def test_from_an_offset_and_from_a_time(lab, model, planes):
    answer = ask(model, "changes", table="shop.changed", start="offset", value="10", partition=None, bucket=1)
    assert [place[:2] for place in places(answer)] == [(None, 1)] * len(places(answer))
    assert min(offset for *_, offset in places(answer)) == 10
    assert {(b, o) for _, b, o in places(answer)} <= {(b, o) for _, b, o in told(run(answer, lab))}
    answer = ask(model, "changes", table="shop.changed", start="time", value="now")
    assert answer["rows"] == []
    assert len(run(answer, lab)) == 0


def test_net_changes(lab, model, planes):
    answer = ask(model, "changes", table="shop.changed", start="earliest", net=True)
    assert set(answer["types"]) == {"INSERT"}
    assert len(answer["types"]) == 290 == len(run(answer, lab))
    assert not answer["limited"]


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
    from fluss_lab.explorer.explorer_model import ExplorerModel

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
