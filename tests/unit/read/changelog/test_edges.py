"""The border between cluster and lake, hunted on purpose: what lies exactly on it, and what moves over it meanwhile."""

import pytest

from fluss_lab.client import read_range
from fluss_lab.errors import BucketNotFoundError, OffsetOutOfRangeError, PartitionNotFoundError
from fluss_lab.read.changelog.changelog import read_changes
from tests.unit.read.subjects import Keyed, read, words

pytestmark = pytest.mark.slow


def grown(subject, size=30):
    """Write until every bucket has some records."""
    while len(subject.ends) < 2 or min(subject.ends.values()) < size:
        subject.write()
        subject.table.clock.advance(1)


def replayed(subject, parts):
    """Return what a changelog's parts give, by bucket, in the words of `expected`."""
    source, names = subject.table.reader()._source, subject.table.info.schema.names
    keyed = isinstance(subject, Keyed)
    return {
        part.bucket.bucket: [
            word
            for records in read_changes(source, part, names, previous_offsets=keyed)
            for word in words(records, names)
        ]
        for part in parts
    }


def test_an_offset_exactly_at_the_end_of_the_lake_is_the_clusters(subject):
    grown(subject)
    subject.table.tier()
    lake = dict(subject.ends)
    subject.leave()
    subject.write()
    while subject.ends == lake:
        subject.write()
    for bucket, end in lake.items():
        now = subject.ends[bucket]
        for start in (end - 1, end, min(end + 1, now)):
            assert read(subject, bucket, start, now, lambda: None) == subject.expected(bucket, start, now)
            plan = subject.table.reader().changelog({bucket: start}).explain()
            for each in plan.buckets:
                assert each.lake == ((end - 1, end) if start < end else None)
                assert (each.log or (end, end))[0] == max(start, end)
        for start, stop in ((end - 1, end), (end, now), (end - 1, now), (end, end)):
            parts = subject.table.reader().changelog({bucket: start}, {bucket: stop}).plan()
            assert replayed(subject, parts) == ({bucket: subject.expected(bucket, start, stop)} if start < stop else {})


def test_rounds_and_retention_between_planning_and_reading(subject):
    grown(subject)
    log = subject.table.reader().changelog()
    before = log.plan()
    assert all(part.lake_stop == part.start for part in before)
    subject.table.tier()
    between = log.plan()
    subject.leave()
    ends = dict(subject.ends)
    expected = {bucket: subject.expected(bucket, 0, end) for bucket, end in ends.items()}
    # What was planned before goes on, though nothing is where it was then.
    assert replayed(subject, before) == expected
    assert replayed(subject, between) == expected
    assert replayed(subject, log.plan()) == expected


def test_segments_that_go_while_they_are_read(subject):
    grown(subject, 60)
    subject.table.tier()
    source = subject.table.reader()._source
    names, keyed = source.info.schema.names, isinstance(subject, Keyed)
    for part in subject.table.reader().changelog().plan():
        assert part.lake_stop == part.start
    parts = subject.table.reader().changelog().plan()
    readers = [(part, read_changes(source, part, names, previous_offsets=keyed)) for part in parts]
    found = {part.bucket.bucket: words(next(records), names) for part, records in readers}
    subject.leave()
    for part, records in readers:
        found[part.bucket.bucket] += [word for run in records for word in words(run, names)]
    assert found == {bucket: subject.expected(bucket, 0, end) for bucket, end in subject.ends.items()}


def test_an_empty_round_changes_nothing(subject):
    grown(subject)
    subject.table.tier()
    subject.leave()
    point, plan = subject.table.reader().read_point(), subject.table.reader().changelog().plan()
    subject.table.tier()
    assert subject.table.reader().read_point().stops == point.stops
    assert [part.stop for part in subject.table.reader().changelog().plan()] == [part.stop for part in plan]
    for bucket, end in subject.ends.items():
        assert read(subject, bucket, 0, end, lambda: None) == subject.expected(bucket, 0, end)


def test_a_bucket_that_was_never_tiered_is_read_from_the_cluster_alone(subject):
    grown(subject)
    explained = subject.table.reader().changelog().explain()
    assert explained.snapshot_id is None
    assert all(each.lake is None for each in explained.buckets)
    assert {each.lives for each in subject.table.reader().seek(0).buckets if each.timestamp_ms} == {"local"}
    for bucket, end in subject.ends.items():
        assert read(subject, bucket, 0, end, lambda: None) == subject.expected(bucket, 0, end)
        with pytest.raises(OffsetOutOfRangeError):
            subject.table.reader().changelog({bucket: 0}, {bucket: end + 1}).to_arrow()


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "plain"])
def test_a_partition_that_only_the_lake_has(make_keyed, make_table, keyed):
    month, other = "2013-01", "2013-02"
    if keyed:
        table = make_keyed(partitioned=True, buckets=1)
        table.upsert([(key, name, 1, None, None) for name in (month, other) for key in range(20)])
        table.clock.advance(10)
        table.upsert([(key, month, 2, None, None) for key in range(5)])
    else:
        table = make_table()
        table.append([(key, name, 1, None, None) for name in (month, other) for key in range(20)])
        table.clock.advance(10)
        table.append([(key, month, 2, None, None) for key in range(5)])
    before = table.reader().changelog().to_arrow()
    point = table.reader().read_point()
    table.tier()
    table.connection.admin().drop_partition(table.path, {"month": month})
    reader = table.reader()
    assert reader.changelog().to_arrow() == before
    assert reader.changelog(end=point).to_arrow() == before
    assert not reader.diff(point)
    seek = reader.seek(table.clock.now_ms())
    for each in seek.buckets:
        if each.partition == month and each.timestamp_ms is not None:
            assert (each.lives, each.timestamp_ms) == ("lake", table.clock.now_ms())
    assert {each.lives for each in seek.buckets if each.partition == month} >= {"lake"}
    assert reader.changelog(seek).to_arrow().num_rows == (10 if keyed else 5)
    # The cluster knows it no more, so that a scanner, which follows servers, does not either.
    with table.connection.log_scanner(table.path) as scanner, pytest.raises(PartitionNotFoundError):
        scanner.subscribe(0, 0, month)


def test_a_bucket_without_records_of_a_dropped_partition_is_said_to_be_that(make_keyed):
    month = "2013-01"
    table = make_keyed(partitioned=True, buckets=4)
    table.upsert([(1, month, 1, None, None)])
    table.tier()
    (full,) = {key for key, log in table.logs.items() if log}
    empty = next(number for number in range(4) if number != full[1])
    assert table.reader().changelog({(month, empty): 0}).to_arrow().num_rows == 0
    table.connection.admin().drop_partition(table.path, {"month": month})
    assert table.reader().changelog({full: 0}).to_arrow().num_rows == 1
    with pytest.raises(
        BucketNotFoundError, match=rf"no bucket {month}/{empty}: .*the lake has no record of this bucket"
    ):
        table.reader().changelog({(month, empty): 0}).to_arrow()


def test_what_was_planned_of_a_partition_is_not_read_from_one_made_again_under_its_name(make_keyed):
    month = "2013-01"
    table = make_keyed(partitioned=True, buckets=1)
    table.upsert([(key, month, 1, None, None) for key in range(8)])
    table.clock.advance(10)
    reader = table.reader()
    seek, point = reader.seek(table.logs[month, 0][0].timestamp_ms), reader.read_point()
    assert seek[month, 0].offset == 0
    log = reader.changelog()
    parts = log.plan()
    admin = table.connection.admin()
    table.tier()
    snapshot_id = admin.lake_snapshot(table.path).snapshot_id
    admin.drop_partition(table.path, {"month": month}, lake=True)
    admin.create_partition(table.path, {"month": month})
    with table.connection.upsert_writer(table.path) as writer:
        rows = {"id": list(range(9)), "month": [month] * 9, "delay": [7] * 9, "ratio": [None] * 9, "tags": [None] * 9}
        writer.upsert(rows).result()
    table.tier()
    with pytest.raises((OffsetOutOfRangeError, PartitionNotFoundError)):
        list(log.read(parts[0]))
    fresh = table.reader()
    assert fresh.changelog().to_arrow()["delay"].to_pylist() == [7] * 9
    # As a start, all of it is later than what is known of the first one; as an end, earlier than all of it.
    for edge in (seek, point, snapshot_id):
        assert fresh.changelog("earliest", edge).to_arrow().num_rows == 0
    for edge in (point, snapshot_id):
        assert fresh.changelog(edge).to_arrow().num_rows == 9
    # From where the seek is on there were those of the first one too.
    with pytest.raises(OffsetOutOfRangeError, match="was dropped at"):
        fresh.changelog(seek).to_arrow()


def test_a_range_reads_just_what_is_asked_for(subject):
    grown(subject)
    subject.table.tier()
    subject.leave()
    table = subject.table
    for status in table.connection.admin().buckets(table.info):
        end = subject.ends[status.bucket.bucket]
        for start, stop in ((0, 1), (end - 1, end), (end // 2, end // 2 + 3)):
            found = read_range(table.connection, table.info, status.bucket, start, stop, previous_offsets=True)
            names = table.info.schema.names
            assert [word for run in found for word in words(run, names)] == subject.expected(
                status.bucket.bucket, start, stop
            )


def test_a_seek_tells_the_first_record_at_or_after_any_time_and_where_it_lives(subject):
    """In the lake, in remote storage, on the server's disk, or nowhere yet."""
    grown(subject, 20)
    subject.table.tier()
    subject.leave()
    start = dict(subject.ends)
    while min(subject.ends[bucket] - start[bucket] for bucket in start) < 60:
        subject.write()
        subject.table.clock.advance(1)
    table = subject.table
    table.cluster.tablet().copy_to_remote()
    if isinstance(subject, Keyed):
        for status in table.statuses():
            table.cluster.tablet().snapshot_now(status.bucket)
    table.cluster.tablet().copy_to_remote()
    held = {each.bucket.bucket: each for each in table.connection.admin().buckets(table.info)}
    events = {bucket: subject.expected(bucket, 0, end) for bucket, end in subject.ends.items()}
    times = sorted({event[2] for log in events.values() for event in log})
    lived = set()
    for moment_ms in [0, *times, *(time + 1 for time in times[::5])]:
        seek = table.reader().seek(min(moment_ms, table.clock.now_ms()))
        for bucket, log in events.items():
            first = next((event for event in log if event[2] >= moment_ms), None)
            lives = "end"
            if first is not None:
                local, cluster = held[bucket].local_start_offset, held[bucket].start_offset
                lives = "local" if first[0] >= local else "remote" if first[0] >= cluster else "lake"
            found = seek[bucket]
            expected = (len(log), None, lives) if first is None else (first[0], first[2], lives)
            assert (found.offset, found.timestamp_ms, found.lives) == expected, moment_ms
            lived.add(lives)
    assert {"lake", "local", "remote"} <= lived


def test_a_lake_with_a_hole_behind_it_is_not_where_a_table_begins(subject):
    """It was switched off, and what was written then is gone."""
    grown(subject)
    table, admin = subject.table, subject.table.connection.admin()
    table.tier()
    lake = dict(subject.ends)
    admin.alter_table(table.path, set={"table.datalake.enabled": False})
    while min(subject.ends[bucket] - lake[bucket] for bucket in lake) < 60:
        subject.write()
        table.clock.advance(1)
    subject.retire()
    held = {each.bucket.bucket: each.start_offset for each in admin.buckets(table.info)}
    assert all(held[bucket] > lake[bucket] for bucket in lake)
    reader = table.reader()
    assert {each.bucket.bucket: each.start for each in reader.changelog().plan()} == {
        bucket: start for bucket, start in held.items() if start < subject.ends[bucket]
    }
    for bucket, start in held.items():
        if start < subject.ends[bucket]:
            assert reader.seek(0)[bucket].offset == start
            assert read(subject, bucket, start, subject.ends[bucket], lambda: None) == subject.expected(
                bucket, start, subject.ends[bucket]
            )
        with pytest.raises(OffsetOutOfRangeError, match=f"from offset {start}"):
            reader.changelog({bucket: start - 1}).to_arrow()
