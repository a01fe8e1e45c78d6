"""The lake as a view shows it: snapshots over time, and what each of them holds; against a real lab."""

import json
import time
from pathlib import Path

import pytest

from fluss_lab.explorer.explorer_model import ExplorerModel
from fluss_lab.explorer.screens.lake_answers import LIST_MAX, SNAPSHOTS_MAX
from fluss_lab.model.times import parse_moment
from fluss_lab.testing.tierers import LocalTieringExecutor
from tests.unit.explorer.explorer_kit import answers, ask, refused, run
from tests.unit.workbench.lab_kit import LAKE, tier

pytestmark = pytest.mark.slow

#: Compacted by hand only.
BY_HAND = LAKE | {"table.datalake.auto-maintenance": False}
PARTS = ("files", "manifests", "partitions", "schemas", "refs")
IMAGE = "<img src=x onerror=alert(1)>"


def compact(table, monkeypatch):
    """Compact as `Table.compact` does, with tasks in this process."""
    monkeypatch.setattr("fluss_lab.workbench.lake_upkeep.LakeUpkeep._executor", lambda _: LocalTieringExecutor())
    return table.compact()


@pytest.fixture(scope="module")
def flights(lab):
    """A partitioned log table after rounds, a new column and a compaction; its first two snapshots are expired."""
    table = lab.create_table(
        "shop.tiered", {"id": "bigint", "month": "string"}, partitioned_by=["month"], buckets=2, properties=BY_HAND
    )
    with pytest.MonkeyPatch.context() as patch:
        for turn in range(5):
            table.append([{"id": n, "month": f"2013-0{1 + n % 3}"} for n in range(100)])
            if turn == 3:
                table.alter(add_columns={"distance": "int"})
            tier(table)
        compact(table, patch)
    table.append([{"id": n, "month": "2013-01"} for n in range(50)])
    tier(table)
    lake = lab.iceberg("shop.tiered")
    for snapshot in list(lake.snapshots())[:2]:
        lake.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    return table


@pytest.fixture(scope="module")
def planes(lab):
    """A primary-key table with deletes in the lake, spread by a column that is to be hidden."""
    table = lab.create_table(
        "shop.spread", {"email": "string", "seats": "int"}, primary_key=["email"], buckets=3, properties=BY_HAND
    )
    for turn in range(3):
        table.upsert([{"email": f"secret-{n}", "seats": n + turn} for n in range(200)])
        tier(table)
    return table


def newest(model, path):
    return ask(model, "lake", table=path)["snapshots"][-1][0]


# -- the time line -----------------------------------------------------------------------------------------------------


def test_the_time_line_is_the_snapshots_that_are_held(lab, model, flights):
    answer = ask(model, "lake", table="shop.tiered")
    frame = run(answer, lab)
    assert [int(row[0]) for row in answer["snapshots"]] == list(frame["snapshot_id"])
    assert [row[1] for row in answer["snapshots"]] == [parse_moment(text) for text in frame["time"]]
    assert [(row[2], row[3]) for row in answer["snapshots"]] == [("append", True)] * 3 + [
        ("replace", True),
        ("append", True),
    ]
    for place, name in ((4, "rows"), (5, "files"), (6, "total_rows"), (7, "total_files")):
        assert [int(row[place]) for row in answer["snapshots"]] == list(frame[name])
    assert (answer["held"], answer["expired"], answer["older"], answer["newer"]) == (5, 2, 0, 0)


def test_a_table_that_is_not_in_the_lake_says_how_it_gets_there(lab, model):
    table = lab.create_table("shop.outside", {"id": "int"})
    answer = ask(model, "lake", table="shop.outside")
    assert (answer["enabled"], answer["snapshots"]) == (False, [])
    exec("\n".join(answer["code"]), {"lab": lab})
    assert table.descriptor.lake_enabled
    answer = ask(model, "lake", table="shop.outside")
    assert (answer["enabled"], answer["held"], answer["expired"]) == (True, 0, 0)
    lab.drop_table("shop.outside")


@pytest.fixture(scope="module")
def many(lab):
    """A table whose lake has 1,100 more snapshots, all of one round's files."""
    from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

    table = lab.create_table("shop.long", {"id": "int"}, buckets=1, properties=LAKE)
    table.append([{"id": 1}])
    tier(table)
    lake = lab.iceberg("shop.long")
    last, updates = lake.current_snapshot(), []
    for _ in range(1_100):
        made = last.model_copy(
            update={
                "snapshot_id": last.snapshot_id + 1, "parent_snapshot_id": last.snapshot_id,
                "sequence_number": last.sequence_number + 1, "timestamp_ms": last.timestamp_ms + 1,
            }
        )  # fmt: skip
        updates.append(AddSnapshotUpdate(snapshot=made))
        last = made
    updates.append(SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=last.snapshot_id))
    lake.catalog.commit_table(lake, (), tuple(updates))
    return table


def test_older_snapshots_come_when_they_are_asked_for(model, many):
    answer = ask(model, "lake", table="shop.long")
    assert (len(answer["snapshots"]), answer["older"], answer["newer"]) == (SNAPSHOTS_MAX, 601, 0)
    older = ask(model, "lake", table="shop.long", before=answer["snapshots"][0][0])
    assert (len(older["snapshots"]), older["older"], older["newer"]) == (500, 101, 500)
    oldest = ask(model, "lake", table="shop.long", before=older["snapshots"][0][0])
    assert (len(oldest["snapshots"]), oldest["older"], oldest["newer"]) == (101, 0, 1_000)
    ids = [row[0] for each in (oldest, older, answer) for row in each["snapshots"]]
    assert ids == [str(row["snapshot_id"]) for row in many.snapshots()]
    assert refused(model, "lake", table="shop.long", before="12")["class"] == "LakeSnapshotNotFoundError"


def test_a_thousand_snapshots_are_shown_at_once(model, many):
    ask(model, "lake", table="shop.long")
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        ask(model, "lake", table="shop.long")
        seconds.append(time.perf_counter() - begin)
    print(f"time line of 1,101 snapshots: {min(seconds) * 1000:.0f} ms")
    assert min(seconds) < 1.0  # the budget is 0.3 s of a machine that does nothing else


# -- what a snapshot holds ---------------------------------------------------------------------------------------------


def test_the_files_of_a_snapshot(lab, model, flights):
    for snapshot in (row[0] for row in ask(model, "lake", table="shop.tiered")["snapshots"]):
        answer = ask(model, "lake_part", table="shop.tiered", part="files", snapshot=snapshot)
        frame = run(answer, lab)
        assert answer["total"] == len(frame) == sum(row[2] for row in answer["buckets"])
        sums = {
            key: (len(group), group["rows"].sum(), group["bytes"].sum(), group["bytes"].min())
            for key, group in frame.groupby(["partition", "bucket"])
        }
        assert {(row[0], row[1]): (row[2], int(row[3]), row[4], row[5]) for row in answer["buckets"]} == sums
        found = [
            (tuple(answer["buckets"][at][:2]), content, int(first), int(last), int(rows), size)
            for at, content, first, last, _, _, rows, size, _ in answer["files"]
        ]
        assert found == [
            ((row.partition, row.bucket), row.content, row.first_offset, row.last_offset, row.rows, row.bytes)
            for row in frame.itertuples()
        ]


def test_delete_files_are_distinguished_from_rows(lab, model, planes):
    answer = ask(model, "lake_part", table="shop.spread", part="files", snapshot=newest(model, "shop.spread"))
    assert {row[1] for row in answer["files"]} == {"data", "position deletes"}
    assert all(row[6] for row in answer["buckets"])
    frame = run(answer, lab)
    assert sum(int(row[3]) for row in answer["buckets"]) == frame[frame["content"] == "data"]["rows"].sum()


def test_of_many_files_the_largest_are_drawn(model, flights, monkeypatch):
    snapshot = newest(model, "shop.tiered")
    everything = ask(model, "lake_part", table="shop.tiered", part="files", snapshot=snapshot)
    monkeypatch.setattr("fluss_lab.explorer.screens.lake_answers.LIST_MAX", 4)
    answer = ask(model, "lake_part", table="shop.tiered", part="files", snapshot=snapshot)
    assert (len(answer["files"]), len(answer["buckets"]), answer["left_out"]) == (4, 4, 2)
    assert answer["buckets"] == everything["buckets"][:4]
    sizes = sorted((row[7] for row in everything["files"] if row[0] < 4), reverse=True)
    assert sorted((row[7] for row in answer["files"]), reverse=True) == sizes[:4]
    assert LIST_MAX == 1_000


def test_the_manifests_of_any_snapshot(lab, model, flights):
    ids = [row[0] for row in ask(model, "lake", table="shop.tiered")["snapshots"]]
    answer = ask(model, "lake_part", table="shop.tiered", part="manifests", snapshot=ids[-1])
    frame = run(answer, lab)
    assert [(row[0], row[3], row[4], row[5], row[6]) for row in answer["rows"]] == [
        (
            row.path.rsplit("/", 1)[-1],
            row.added_data_files_count,
            row.existing_data_files_count,
            row.deleted_data_files_count,
            row.length,
        )
        for row in frame.itertuples()
    ]
    for snapshot in ids[:-1]:
        older = ask(model, "lake_part", table="shop.tiered", part="manifests", snapshot=snapshot)
        exact = run(older, lab)
        assert [(row[2], row[3]) for row in older["rows"]] == [
            (str(each.added_snapshot_id), each.added_files_count) for each in exact
        ]


@pytest.mark.parametrize("path", ["shop.tiered", "shop.spread"])
def test_the_partitions_of_any_snapshot(lab, model, flights, planes, path):
    for row in ask(model, "lake", table=path)["snapshots"]:
        answer = ask(model, "lake_part", table=path, part="partitions", snapshot=row[0])
        frame = run(answer, lab)
        exact = {" / ".join(map(str, each["partition"].values())): each for each in frame.to_dict("records")}
        assert [each[0] for each in answer["rows"]] == sorted(exact)
        for name, rows, files, size, position, equality, changed_ms, by in answer["rows"]:
            reported = exact[name]
            assert (int(rows), files, size) == (
                reported["record_count"],
                reported["file_count"],
                reported["total_data_file_size_in_bytes"],
            )
            assert (int(position), int(equality)) == (
                reported["position_delete_record_count"],
                reported["equality_delete_record_count"],
            )
            if by is not None:
                assert int(by) == reported["last_updated_snapshot_id"]
                assert changed_ms == reported["last_updated_at"].value // 1_000_000


def test_the_schemas_and_what_changed(lab, model, flights):
    ids = [row[0] for row in ask(model, "lake", table="shop.tiered")["snapshots"]]
    answer = ask(model, "lake_part", table="shop.tiered", part="schemas", snapshot=ids[0])
    listed = run(answer, lab)
    assert [(row[0], row[1], row[4]) for row in answer["rows"]] == [
        (each["schema_id"], each["current"], len(each["columns"])) for each in reversed(listed)
    ]
    assert [row[2] for row in answer["rows"]] == [False, True], "the first snapshot held has the first schema"
    assert answer["rows"][0][5].startswith("+ distance int, after ")
    assert answer["rows"][1][5] == "first"
    times = {row[0]: row[1] for row in ask(model, "lake", table="shop.tiered")["snapshots"]}
    assert [row[3] for row in answer["rows"]] == [times[ids[1]], times[ids[0]]]


def test_branches_and_tags(lab, model, planes, monkeypatch):
    compact(planes, monkeypatch)
    with lab.iceberg("shop.spread").manage_snapshots() as manage:
        manage.create_tag(lab.iceberg("shop.spread").current_snapshot().snapshot_id, IMAGE)
    answer = ask(model, "lake_part", table="shop.spread", part="refs", snapshot=newest(model, "shop.spread"))
    frame = run(answer, lab)
    assert [(row[0], row[1], int(row[2])) for row in answer["rows"]] == [
        (row.name, row.type.lower(), row.snapshot_id) for row in frame.itertuples(index=False)
    ]
    found = {row[0]: row for row in answer["rows"]}
    assert found["main"][4:] == ["always", "the table", True]
    assert found[IMAGE][4:] == ["always", "", True]
    (replay,) = (row for name, row in found.items() if name.startswith("fluss-replay-"))
    assert replay[1] == "tag"
    assert replay[4:] == ["7d", "replay behind a compaction", False]
    assert IMAGE in ask(model, "lake", table="shop.spread")["snapshots"][-1][9]


def test_a_snapshot_that_is_gone_is_an_error(model, flights):
    for part in PARTS:
        found = refused(model, "lake_part", table="shop.tiered", part=part, snapshot="12")
        assert found["class"] == "LakeSnapshotNotFoundError", part


# -- what is hidden, and what is wrong ---------------------------------------------------------------------------------


def test_a_masked_column_is_in_nothing_of_the_lake(lab, planes):
    model = ExplorerModel(lab, "my lab", mask=["EMAIL"])
    with lab.iceberg("shop.spread").manage_snapshots() as manage:
        manage.create_tag(lab.iceberg("shop.spread").current_snapshot().snapshot_id, "before-email-went")
    reported = answers(model, "lake", table="shop.spread")
    for row in reported[-1]["snapshots"]:
        for part in PARTS:
            reported += answers(model, "lake_part", table="shop.spread", part=part, snapshot=row[0])
    assert not any("error" in each for each in reported)
    text = json.dumps(reported).lower()
    assert "email" not in text
    assert "secret" not in text
    assert "seats" not in text or "__offset" in text
    plain = ask(ExplorerModel(lab, "my lab"), "lake_part", table="shop.spread", part="files", snapshot=row[0])
    assert "email_bucket" in run(plain, lab)["path"][0], "its folders name it"


def test_a_partition_column_cannot_be_hidden_here_either(lab, flights):
    model = ExplorerModel(lab, "my lab", mask=["month"])
    assert refused(model, "lake", table="shop.tiered")["class"] == "InvalidRequestError"


def test_files_that_are_missing_are_the_error_and_come_again(lab, model):
    table = lab.create_table("shop.damaged", {"id": "int"}, buckets=1, properties=LAKE)
    table.append([{"id": 1}])
    tier(table)
    lake = lab.iceberg("shop.damaged")
    snapshot = newest(model, "shop.damaged")
    for place in (lake.current_snapshot().manifest_list, lake.metadata_location):
        path = Path(place.removeprefix("file://"))
        held = path.read_bytes()
        path.unlink()
        access = lab.lake_storage().access
        for kept in (access._loaded, access.catalog()._kept):
            kept.clear()  # what it has read before, it would not miss
        fresh = ExplorerModel(lab, "my lab")
        kinds = [("lake_part", {"part": "manifests", "snapshot": snapshot})]
        if place == lake.metadata_location:
            kinds.append(("lake", {}))
        for kind, body in kinds:
            error = refused(fresh, kind, table="shop.damaged", **body)
            assert error["class"] == "CorruptDataError", error
            assert path.name in error["text"]
        path.write_bytes(held)
        assert ask(fresh, "lake_part", table="shop.damaged", part="manifests", snapshot=snapshot)["rows"]


def test_a_table_that_is_another_one_now_is_not_shown(model, flights):
    assert refused(model, "lake", table="shop.tiered", table_id="999999")["class"] == "TableNotFoundError"
