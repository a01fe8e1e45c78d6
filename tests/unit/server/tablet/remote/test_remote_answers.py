"""What the server answers of records that left its disk: where they are, earliest, by time, and errors."""

from itertools import pairwise

import pytest

from fluss_lab.errors import CorruptDataError, OffsetOutOfRangeError
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import Frame
from fluss_lab.server.tablet.remote import remote_log
from fluss_lab.testing.mock_clock import START_MS
from tests.unit.server.tablet.remote.remote_kit import (
    at_time,
    earliest,
    fill,
    held_from,
    make_tablet,
    place_of,
    remote_folder,
    remote_part,
)
from tests.unit.server.tablet.tablet_kit import TABLE_ID, batch

BATCHES, ROWS, EVERY_MS = 30, 40, 1000


@pytest.fixture
def tablet(tmp_path):
    made = make_tablet(tmp_path, table__log__tiered__local_segments="2")
    fill(made, BATCHES, rows=ROWS, every_ms=EVERY_MS)
    made.service.copy_to_remote()
    assert made.describe()[0].log_start_offset > 10 * ROWS
    return made


def test_an_offset_below_the_log_is_answered_by_the_segments_that_hold_it(tablet):
    start, copied = tablet.describe()[0].log_start_offset, tablet.describe()[0].remote_log_end_offset
    assert start < copied  # both hold some
    for offset in range(0, start, 7):
        place = place_of(tablet, offset)
        assert place.remote_log_tablet_dir == str(remote_folder(tablet))
        assert not place.HasField("partition_name")
        first, *others = place.remote_log_segments
        assert first.remote_log_start_offset <= offset < first.remote_log_end_offset
        ends = [first, *others]
        assert all(a.remote_log_end_offset == b.remote_log_start_offset for a, b in pairwise(ends))
        assert [record.offset for record in remote_part(place, offset, start)] == list(range(offset, start))


def test_at_the_boundary_the_disk_is_first(tablet):
    start = tablet.describe()[0].log_start_offset
    answer, data = tablet.fetch({0: start})[0]
    assert data
    assert not answer.HasField("remote_log_fetch_info")
    assert place_of(tablet, start - 1)
    assert [record.offset for record in held_from(tablet, start - 1, start + 1)] == [start - 1, start]


def test_the_log_start_of_an_answer_is_that_of_the_cluster(tablet):
    for offset in (0, tablet.describe()[0].log_start_offset):
        assert tablet.fetch({0: offset})[0][0].log_start_offset == 0


def test_an_answer_names_a_few_segments_and_the_reader_asks_again(tablet, monkeypatch):
    monkeypatch.setattr(remote_log, "_SEGMENTS_SENT_MAX", 2)
    assert len(place_of(tablet, 0).remote_log_segments) == 2
    assert [record.id for record in held_from(tablet, 0)] == list(range(BATCHES * ROWS))


def test_a_fetch_that_may_wait_does_not_where_records_are_remote(tablet):
    assert tablet.fetch({0: 0}, max_wait_ms=60_000, min_bytes=1)[0][0].HasField("remote_log_fetch_info")


def test_a_projection_is_the_readers_own(tablet):
    answer, _ = tablet.fetch({0: 0}, fields=[1])[0]
    assert answer.HasField("remote_log_fetch_info")


def test_earliest_is_remote_with_its_timestamp(tablet):
    answer = tablet.offsets(0)[0]
    assert (answer.offset, answer.timestamp) == (0, START_MS)


def test_every_time_gives_the_exact_first_offset_across_the_boundary(tablet):
    for number in range(BATCHES):
        at = START_MS + number * EVERY_MS
        assert at_time(tablet, at) == (number * ROWS, at)
        assert at_time(tablet, at - 1) == (number * ROWS, at)
        if number + 1 < BATCHES:
            assert at_time(tablet, at + 1) == ((number + 1) * ROWS, at + EVERY_MS)
    assert at_time(tablet, 0) == (0, START_MS)
    assert at_time(tablet, START_MS + BATCHES * EVERY_MS) == (BATCHES * ROWS, None)


def test_many_batches_of_one_time_are_found_at_the_first(tmp_path):
    tablet = make_tablet(tmp_path, table__log__tiered__local_segments="1")
    for _ in range(3):
        fill(tablet, 9, every_ms=0)
        tablet.clock.advance(10)
    tablet.service.copy_to_remote()
    assert tablet.describe()[0].log_start_offset > 20 * 40
    for number in range(3):
        assert at_time(tablet, START_MS + number * 10)[0] == number * 9 * 40


def test_records_of_the_lake_come_third(tmp_path):
    tablet = make_tablet(
        tmp_path, table__log__tiered__local_segments="1", table__log__ttl="20s", table__datalake__enabled="true"
    )
    end = fill(tablet, BATCHES)
    tablet.service.copy_to_remote()
    tablet.tell_lake(0, end - 100)
    tablet.service.apply_retention()
    start, local = tablet.offsets(0)[0].offset, tablet.describe()[0].log_start_offset
    assert 0 < start < local
    for offset in (0, start - 1):
        answer, _ = tablet.fetch({0: offset}, enable_lake=True)[0]
        assert answer.lake_log_fetch_info.log_end_offset == end - 100
        assert not answer.HasField("remote_log_fetch_info")
    for offset in (start, local - 1):
        answer, _ = tablet.fetch({0: offset}, enable_lake=True)[0]
        assert answer.HasField("remote_log_fetch_info")
        assert not answer.HasField("lake_log_fetch_info")
    assert tablet.offsets(0, enable_lake=True)[0].offset == 0
    # By time: before the remote part the lake is asked first, within it nobody else.
    first = START_MS + start // 40 * EVERY_MS
    assert tablet.offsets(2, enable_lake=True, startTimestamp=first)[0].lake_snapshot_id == 11
    assert not tablet.offsets(2, enable_lake=True, startTimestamp=first + 1)[0].HasField("lake_snapshot_id")
    assert tablet.offsets(2, enable_lake=True, startTimestamp=first + 1, local_only=True)[0].offset == start + 40


def test_out_of_range_names_remote_storage_too(tmp_path):
    tablet = make_tablet(tmp_path, table__log__ttl="20s")
    fill(tablet, BATCHES)
    tablet.service.copy_to_remote()
    tablet.service.apply_retention()
    start, copied = earliest(tablet), tablet.describe()[0].remote_log_end_offset
    assert start
    with pytest.raises(OffsetOutOfRangeError, match=rf"or in remote storage one in \[{start}, {copied}\)"):
        held_from(tablet, start - 1)


def test_a_partition_has_its_own_folder_and_goes_with_it(tmp_path):
    tablet = make_tablet(tmp_path, open_it=False)
    tablet.open(0, partition_id=3)
    for first in range(12):
        request = pb.ProduceLogRequest(acks=-1, table_id=TABLE_ID, timeout_ms=0)
        request.buckets_req.add(bucket_id=0, partition_id=3, records=b"")
        tablet.service.produce_log(Frame(request, [[memoryview(batch(first * 40, 40))]]))
    assert tablet.service.copy_to_remote()
    assert [path.name for path in (tmp_path / "remote/log/db/events-7").iterdir()] == ["-p3"]
    stop = pb.StopReplicaRequest(coordinator_epoch=1)
    stop.stop_replicas_req.add(
        table_bucket=pb.PbTableBucket(table_id=TABLE_ID, partition_id=3, bucket_id=0), leader_epoch=0, delete=True
    )
    tablet.service.stop_replica(stop)
    assert not (tmp_path / "remote/log/db").exists()


def test_a_damaged_index_is_reported_by_name_and_hurts_only_its_segment(tablet):
    first = place_of(tablet, 0).remote_log_segments[0]
    (path,) = (remote_folder(tablet) / first.remote_log_segment_id).glob("*.blocks")
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    for read in (lambda: held_from(tablet, 0), lambda: at_time(tablet, START_MS)):
        with pytest.raises(CorruptDataError, match=path.name):
            read()
    behind = first.remote_log_end_offset
    assert [record.offset for record in held_from(tablet, behind)] == list(range(behind, BATCHES * ROWS))
    path.unlink()
    with pytest.raises(CorruptDataError, match="a file of the remote log is missing"):
        held_from(tablet, 0)


def test_where_remote_storage_is_damaged_the_lake_serves(tablet):
    tablet.open(0, table__datalake__enabled="true")
    tablet.tell_lake(0, 10 * ROWS)
    for path in remote_folder(tablet).glob("*/*.blocks"):
        path.unlink()
    answer, _ = tablet.fetch({0: 0}, enable_lake=True)[0]
    assert answer.lake_log_fetch_info.log_end_offset == 10 * ROWS
    assert tablet.offsets(2, enable_lake=True, startTimestamp=START_MS)[0].lake_snapshot_id == 11
    assert tablet.fetch({0: 10 * ROWS}, enable_lake=True)[0][0].error_code
