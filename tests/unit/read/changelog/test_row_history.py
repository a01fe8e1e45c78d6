"""The history of a row: each of its changes, wherever they lie; what is missing is said."""

import random
from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
import pytest

from fluss_lab.errors import (
    CorruptDataError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidSchemaError,
    PartitionNotFoundError,
    UnsupportedError,
)
from fluss_lab.lake.iceberg.read import key_log
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read.changelog import row_history
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round
from tests.unit.display.card_rules import check
from tests.unit.read.keyed_changes import DAY_MS, agree, found_in
from tests.unit.read.kit import LAKE, retain
from tests.unit.read.types import ALL_TYPES, all_types_row

pytestmark = pytest.mark.slow


def expected(table, place, key, start=0):
    """Return the events of a key by looking at every event of its bucket."""
    found = table.logs[place]
    return [
        table.record(place, event, event.change) for event in found[start:] if event.row[0] == key[0] and event.row[1] == key[1]
    ]  # fmt: skip


def place_of(table, key):
    return next(place for place, log in table.logs.items() if any(event.row[:2] == key for event in log))


def asked(table, key):
    return {"id": key[0], "month": key[1]} if table.partitioned else {"id": key[0]}


@pytest.mark.parametrize("partitioned", [True, False], ids=["partitioned", "plain"])
def test_the_history_of_every_row_is_that_of_the_model(make_keyed, seed, partitioned):
    rng = random.Random(seed)
    table = make_keyed(partitioned=partitioned, keys=12)
    steps = [None, "tier", None, "tier", "compact", "tier", "leave", None, "tier", None]
    met = set()
    for step in steps:
        table.write(rng, 12)
        table.clock.advance(rng.choice([0, 1, 1000]))
        if step in {"tier", "leave", "compact"}:
            table.tier()
        if step == "compact":
            table.maintain("compact")
        if step == "leave":
            table.leave()
        keys = sorted({event.row[:2] for log in table.logs.values() for event in log})
        for key in rng.sample(keys, min(5, len(keys))):
            history = table.reader().history(asked(table, key))
            agree(history.to_arrow(), expected(table, place_of(table, key), key))
            assert (history.first_offset, history.starts_late) == (0, None)
            met |= {"lake" for each in history.explain().buckets if each.lake}
            met |= {"log" for each in history.explain().buckets if each.log}
    assert met == {"lake", "log"}


def test_a_history_that_begins_late_says_from_where(make_keyed, seed):
    rng = random.Random(seed)
    table = make_keyed(keys=4, buckets=1)
    for _ in range(3):
        table.write(rng, 8)
        table.clock.advance(10)
        table.tier()
    table.maintain("compact")
    table.maintain("expire", ahead_ms=9 * DAY_MS)
    table.leave()
    start = table.replay_starts()[None, 0]
    assert start == table.ends[None, 0]
    lost = table.reader().history({"id": table.logs[None, 0][0].row[0]})
    assert (lost.to_arrow().num_rows, lost.first_offset) == (0, start)
    assert lost.starts_late.startswith(
        f"history starts at offset {start} of bucket 0: changes before that are no longer"
    )
    for _ in range(2):
        table.clock.advance(10)
        table.write(rng, 8)
        table.tier()
    table.leave()
    for key in {event.row[:2] for event in table.logs[None, 0]}:
        history = table.reader().history({"id": key[0]})
        assert history.first_offset == start
        assert history.starts_late.startswith(f"history starts at offset {start} (")
        assert "changes before that are no longer available" in repr(history)
        agree(history.to_arrow(), expected(table, (None, 0), key, start))
        assert "no longer available" in history._repr_html_()
        check(history)


def test_files_without_the_key_are_left_alone(make_keyed, monkeypatch):
    table = make_keyed(keys=40, buckets=1)
    for first in (0, 10, 20, 30):
        rows = [(number, "", 1, None, None) for number in range(first, first + 10)]
        table.upsert(rows)
        table.upsert([(*row[:2], 2, *row[3:]) for row in rows])
        table.tier()
    table.leave()
    opened = []
    before = key_log.records_by_key

    def watched(files, link, span, names, where, might_match):
        def data(file):
            opened.append(file.min_offset)
            return files.data(file)

        def events(delete):
            opened.append("deletes")
            return files.events(delete)

        return before(key_log.FileOpeners(data, events), link, span, names, where, might_match)

    monkeypatch.setattr("fluss_lab.lake.iceberg.read.lake_log.records_by_key", watched)
    history = table.reader().history({"id": 25})
    agree(history.to_arrow(), expected(table, (None, 0), (25, "")))
    data = [each for each in opened if each != "deletes"]
    assert len(data) == 1  # of four
    assert history.explain().buckets[0].files == 4


def test_a_change_that_is_missing_is_seen(make_keyed, monkeypatch):
    table = make_keyed(keys=2, buckets=1)
    for delay in range(4):
        table.upsert([(1, "", delay, None, None)])
    table.delete([(1, "")])
    before = row_history.read_log_part

    def leave_out(missing):
        def reading(*args, **options):
            for records in before(*args, **options):
                at = [place for place, offset in enumerate(records.offsets.to_pylist()) if offset != missing]
                if at:
                    yield row_history.take_records(records, at)

        return reading

    log = table.logs[None, 0]
    for event in log[:-1]:  # the last one is missed by nobody
        monkeypatch.setattr(row_history, "read_log_part", leave_out(event.offset))
        if event.change == "-U":
            with pytest.raises(
                CorruptDataError, match=r"an end of the row of offset .* before it, found none: a record is missing"
            ):
                table.reader().history({"id": 1}).to_arrow()
        else:
            with pytest.raises(CorruptDataError, match=f"found that it ends {event.offset}: a record is missing"):
                table.reader().history({"id": 1}).to_arrow()


def test_a_row_that_never_was_has_no_history_and_a_table_without_keys_none_at_all(make_keyed, make_table):
    table = make_keyed(keys=4, partitioned=True)
    table.upsert([(1, "2013-01", 1, None, None)])
    found = table.reader().history({"id": 77, "month": "2013-01"})
    assert found.to_arrow().num_rows == 0
    assert found.to_pandas().empty
    with pytest.raises(PartitionNotFoundError, match="no partition '2013-09'"):
        table.reader().history({"id": 1, "month": "2013-09"}).to_arrow()
    with pytest.raises(UnsupportedError, match="no primary key"):
        make_table().reader().history({"id": 1})


@pytest.mark.parametrize(
    ("key", "error", "text"),
    [
        ({"id": 1}, InvalidRecordError, "month"),
        ({"id": "x", "month": "2013-01"}, InvalidRecordError, "id"),
        (
            [{"id": 1, "month": "2013-01"}, {"id": 2, "month": "2013-01"}],
            InvalidRequestError,
            "expected one key, found 2",
        ),
        ([], InvalidRequestError, "expected one key, found 0"),
    ],
)
def test_a_key_that_is_none_is_refused(make_keyed, key, error, text):
    table = make_keyed(keys=4, partitioned=True)
    with pytest.raises(error, match=text):
        table.reader().history(key)


def test_columns_are_those_asked_for(make_keyed):
    table = make_keyed(keys=4, buckets=1)
    table.upsert([(1, "", 5, None, None)])
    table.upsert([(1, "", 6, None, None)])
    history = table.reader().history({"id": 1}, ["delay"])
    assert history.schema.names == ["_change_type", "_bucket", "_log_offset", "_commit_timestamp", "delay"]
    assert [row["delay"] for row in found_in(history.to_arrow())] == [5, 5, 6]
    with pytest.raises(InvalidSchemaError):
        table.reader().history({"id": 1}, ["nothing"])
    with pytest.raises(UnsupportedError, match="the history of one row is small"):
        history.to_spark()


def test_a_dropped_partition_keeps_its_history_in_the_lake(make_keyed, seed):
    table = make_keyed(partitioned=True, keys=4)
    table.upsert([(1, "2013-01", 1, None, None), (2, "2013-02", 1, None, None)])
    table.upsert([(1, "2013-01", 2, None, None)])
    table.tier()
    before = expected(table, place_of(table, (1, "2013-01")), (1, "2013-01"))
    table.connection.admin().drop_partition(table.path, {"month": "2013-01"})
    history = table.reader().history({"id": 1, "month": "2013-01"})
    agree(history.to_arrow(), before)
    assert history.ends_early is None


def test_changes_lost_with_a_partition_are_said_to_be(make_keyed):
    table = make_keyed(partitioned=True, keys=4, buckets=1)
    table.upsert([(1, "2013-01", 1, None, None), (2, "2013-02", 1, None, None)])
    table.tier()
    before = expected(table, place_of(table, (1, "2013-01")), (1, "2013-01"))
    table.upsert([(1, "2013-01", 2, None, None)])
    table.connection.admin().drop_partition(table.path, {"month": "2013-01"}, discard_untiered=True)
    history = table.reader().history({"id": 1, "month": "2013-01"})
    agree(history.to_arrow(), before)
    assert history.ends_early.startswith(
        "history ends at offset 1 of bucket 2013-01/0: changes from there on were lost"
    )
    assert history.ends_early in repr(history)
    check(history)
    assert "changes from there on were lost" in history._repr_html_()
    assert table.reader().history({"id": 2, "month": "2013-02"}).ends_early is None


def test_a_missing_file_is_no_shorter_history(make_keyed):
    table = make_keyed(keys=2, buckets=1)
    table.upsert([(1, "", 1, None, None)])
    table.tier()
    table.upsert([(1, "", 2, None, None)])
    table.tier()
    table.leave()
    lake = table.connection.lake_storage().create_lake_source(table.info)
    split = lake.plan(table.connection.admin().lake_snapshot(table.path).snapshot_id)[-1]
    path = Path(urlparse(split.path).path)
    kept = path.read_bytes()
    path.unlink()
    try:
        with pytest.raises(CorruptDataError, match="a file is missing"):
            table.reader().history({"id": 1}).to_arrow()
    finally:
        path.write_bytes(kept)


@pytest.mark.parametrize("column", list(ALL_TYPES))
def test_a_key_of_any_type_that_can_be_one(cluster, clock, numbers, column):
    """The key is found in the log, and in the lake's files, by each type's own equality."""
    rows = [row for row in map(all_types_row, range(12)) if row.get(column) is not None]
    names = {column: ALL_TYPES[column].removesuffix(" not null"), "n": "int"}
    path = TablePath("db", f"h{next(numbers)}")
    admin = cluster.connection.admin()
    admin.create_database("db", if_not_exists=True)
    try:
        descriptor = make_descriptor(names, primary_key=[column], buckets=1, properties=LAKE)
        info = admin.create_table(path, descriptor)
    except (InvalidSchemaError, UnsupportedError):
        pytest.skip("no key can be of this type")
    arrow = info.schema.arrow_schema
    values = list({repr(row[column]): row[column] for row in rows}.values())[:4]

    def write(n):
        with cluster.connection.upsert_writer(path) as writer:
            writer.upsert(
                pa.table([pa.array(values, arrow.field(0).type), pa.array([n] * len(values), pa.int32())], arrow.names)
            ).result()

    write(1)
    run_round(cluster.connection, cluster.connection.lake_storage(), LocalTieringExecutor(), table_id=info.table_id)
    (status,) = admin.buckets(info)
    cluster.tablet().snapshot_now(status.bucket)
    cluster.tablet().apply_retention(clock.now_ms() + 400 * DAY_MS)
    retain(cluster, lambda: admin.buckets(info)[0].start_offset == len(values))
    write(2)
    for value in values:
        key = pa.table([pa.array([value], arrow.field(0).type)], [column])
        found = TableReader(cluster.connection, path).history(key).to_arrow()
        assert found.column("_change_type").to_pylist() == ["+I", "-U", "+U"]
        assert found.column("n").to_pylist() == [1, 1, 2]
        same = pa.array([value] * 3, arrow.field(0).type).to_pylist()
        assert repr(found.column(column).to_pylist()) == repr(same)  # a NaN is a key like another, a zero's sign counts
