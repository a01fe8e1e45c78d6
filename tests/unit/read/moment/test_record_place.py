"""A record is where it is said to be: the lake's row, the log's batch; gone ones say what is held."""

import random
from pathlib import Path
from urllib.parse import urlparse

import pyarrow.parquet as pq
import pytest

from fluss_lab.client.log.segment_place import segment_places
from fluss_lab.errors import (
    BucketNotFoundError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    PartitionNotFoundError,
    UnsupportedError,
)
from fluss_lab.lake import FlussLogSource
from fluss_lab.read.moment import record_place
from fluss_lab.records.batch import read_header
from tests.unit.display.card_rules import check
from tests.unit.read.kit import BUCKETS

pytestmark = pytest.mark.slow


def local(path):
    return Path(urlparse(path).path)


def check_lake(place):
    """Return the row that lies in the lake's file at the position that was said; it has the record's own offset."""
    row = pq.read_table(local(place.lake.file)).slice(place.lake.position, 1).to_pylist()[0]
    assert place.offset in [value for name, value in row.items() if name == "__offset" or name.startswith("_r")]
    assert place.lake.timestamp_ms == place.timestamp_ms
    return row


def check_log(place):
    for segment in filter(None, (place.local, place.remote)):
        with Path(segment.file).open("rb") as file:
            file.seek(segment.position)
            header = read_header(file.read(128))
        assert (header.base_offset, header.next_offset) == (segment.batch_base_offset, segment.batch_end_offset)
        assert header.base_offset <= place.offset < header.next_offset
        assert header.timestamp_ms == place.timestamp_ms


@pytest.mark.parametrize("partitioned", [True, False], ids=["partitioned", "plain"])
def test_every_record_of_a_log_table_is_found(make_table, seed, partitioned):
    rng = random.Random(seed)
    table = make_table(partitioned=partitioned)
    table.append_random(rng, 60, ["2013-01", "2013-02"])
    table.clock.advance(1000)
    table.tier()
    table.expire()
    table.append_random(rng, 40, ["2013-01", "2013-02"])
    table.clock.advance(1000)
    table.tier()
    table.append_random(rng, 30, ["2013-01", "2013-02"])
    reader, met = table.reader(), set()
    for record in rng.sample(table.records, 60) + table.records[-3:]:
        place = reader.locate(record.partition, record.bucket, record.offset)
        assert (place.partition, place.bucket, place.offset) == (record.partition, record.bucket, record.offset)
        assert place.timestamp_ms == record.timestamp_ms
        if place.lake is not None:
            assert place.lake.content == "data"
            assert check_lake(place)["id"] == record.row[0]
        check_log(place)
        met.add((place.lake is not None, place.log is not None))
        assert repr(place).startswith(f"<RecordPlace {table.path}, bucket ")
        check(place)
    assert met == {(True, False), (True, True), (False, True)}


@pytest.mark.parametrize("partitioned", [True, False], ids=["partitioned", "plain"])
def test_every_change_of_a_primary_key_table_is_found_also_those_that_a_compaction_left_out(
    make_keyed, seed, partitioned
):
    rng = random.Random(seed)
    table = make_keyed(partitioned=partitioned, keys=8)
    for step in range(4):
        table.write(rng, 10)
        table.clock.advance(100)
        table.tier()
        if step == 2:
            table.maintain("compact")
    table.leave()
    table.write(rng, 4)
    reader, contents, snapshots = table.reader(), set(), set()
    for key, log in table.logs.items():
        for event in log:
            place = reader.locate(*key, event.offset)
            assert place.timestamp_ms == event.timestamp_ms
            if place.lake is not None:
                check_lake(place)
                contents.add(place.lake.content)
                snapshots.add(place.lake.snapshot_id)
                assert (place.lake.content == "data") is event.adds
            check_log(place)
            assert place.lake is not None or place.log is not None
    assert "data" in contents
    assert any("deletes" in content for content in contents)
    assert len(snapshots) > 1


def test_a_record_that_is_held_nowhere_any_more_says_what_is(make_table):
    table = make_table(partitioned=False)
    for _ in range(8):
        table.append_random(random.Random(1), 60, ["2013-01"])
    table.connection.admin().alter_table(table.path, set={"table.datalake.enabled": False})
    table.cluster.tablet().apply_retention(table.clock.now_ms() + 400 * 24 * 3_600_000)
    status = next(each for each in table.connection.admin().buckets(table.info) if each.start_offset > 0)
    bucket, start = status.bucket.bucket, status.start_offset
    with pytest.raises(
        OffsetOutOfRangeError, match=rf"offset 0 is held neither .*: nothing is held before its end {start}$"
    ):
        table.reader().locate(None, bucket, 0)
    table.append_random(random.Random(2), 60, ["2013-01"])
    end = table.ends[None, bucket]
    with pytest.raises(OffsetOutOfRangeError, match=rf"any more; held are the offsets \[{start}, {end}\) \(2026-"):
        table.reader().locate(None, bucket, 0)
    assert table.reader().locate(None, bucket, start).log is not None


def test_a_record_that_moves_into_the_lake_meanwhile_is_found_there(make_keyed, seed, monkeypatch):
    rng = random.Random(seed)
    table = make_keyed(partitioned=False, buckets=1, keys=8)
    table.write(rng, 10)

    def after_the_move(*asked):
        monkeypatch.undo()
        table.tier()
        table.leave()
        return segment_places(*asked)

    monkeypatch.setattr(record_place, "segment_places", after_the_move)
    place = table.reader().locate(None, 0, 0)
    assert place.log is None
    check_lake(place)


def test_what_there_is_not_is_refused(make_table):
    table, plain = make_table(), make_table(partitioned=False)
    table.append_random(random.Random(1), 20, ["2013-01"])
    reader = table.reader()
    end = table.ends["2013-01", 0]
    with pytest.raises(OffsetOutOfRangeError, match=f"below its end {end}, found {end}: no record has it yet"):
        reader.locate("2013-01", 0, end)
    with pytest.raises(InvalidRequestError, match="an offset of at least 0, found -1"):
        reader.locate("2013-01", 0, -1)
    with pytest.raises(BucketNotFoundError, match=rf"expected a bucket in \[0, {BUCKETS}\), found 3"):
        reader.locate("2013-01", 3, 0)
    with pytest.raises(PartitionNotFoundError, match="no partition '2013-09'"):
        reader.locate("2013-09", 0, 0)
    with pytest.raises(InvalidRequestError, match="expected the name of its partition, found None"):
        reader.locate(None, 0, 0)
    with pytest.raises(InvalidRequestError, match=r"expected no partition \(None\), found '2013-01'"):
        plain.reader().locate("2013-01", 0, 0)


def test_a_dropped_partition_is_in_the_lake(make_table):
    table = make_table()
    table.append_random(random.Random(1), 20, ["2013-01"])
    table.tier()
    table.drop_partition("2013-01")
    record = table.records[0]
    place = table.reader().locate("2013-01", record.bucket, record.offset)
    assert place.log is None
    assert check_lake(place)["id"] == record.row[0]


def test_a_format_that_does_not_say_where_records_lie_says_so():
    class Silent(FlussLogSource):
        def lookup_log_offset_by_timestamp(self, context): ...
        def fetch_log_records(self, context): ...
        def earliest_offset(self, partition, bucket, lake_snapshot_id): ...

    with pytest.raises(UnsupportedError, match="does not say where records lie"):
        Silent().locate_record(None, 0, 0, 1)
