"""Streams of tables that lose records: partitions that go, tables made again, records that nobody holds any more."""

import json
import logging
import random
from dataclasses import replace

import pytest

from fluss_lab.errors import (
    OffsetOutOfRangeError,
    PartitionNotFoundError,
    TableNotFoundError,
)
from fluss_lab.read.changelog.stream_offsets import StreamOffset
from fluss_lab.spark.source.table_frame import stream_options
from fluss_lab.testing import EmbeddedCluster
from tests.unit.read.kit import BUCKETS, OPTIONS, ModelTable, retain
from tests.unit.spark.source.stream_kit import MONTHS, expected, same
from tests.unit.spark.streams import Query, in_order

pytestmark = pytest.mark.slow

# -- partitions -----------------------------------------------------------------------------------------------------------


def test_a_dropped_partition_is_read_as_far_as_the_lake_holds_it(make, query, caplog):
    table = make()
    table.append_random(random.Random(15), 60, MONTHS)
    table.tier()
    held = dict(table.ends)
    table.append_random(random.Random(16), 30, MONTHS)
    stream = query(table, maxRowsPerTrigger=5, failOnDataLoss="false")
    stream.step()
    table.drop_partition(MONTHS[0])
    wanted = [
        row
        for row in expected(table)
        if row["_partition"] != MONTHS[0] or row["_log_offset"] < held[MONTHS[0], row["_bucket"]]
    ]
    with caplog.at_level(logging.WARNING):
        same(stream.run(), wanted)
    lost = {key: (held[key], end) for key, end in table.ends.items() if key[0] == MONTHS[0] and held[key] < end}
    for (month, bucket), (start, end) in lost.items():
        text = f"partition {month!r}, bucket {bucket}: records with offsets [{start}, {end}) are no longer available: its partition was dropped"
        assert caplog.text.count(text) == 1
    assert lost
    assert caplog.text.count("no longer available") == len(lost)
    table.append_random(random.Random(17), 10, MONTHS[1:])
    stream.run()
    assert len(stream.rows) == len(wanted) + 10
    assert len(query(table).run()) == len(stream.rows)  # one that begins now has lost nothing


def drop(table, month, **how):
    table.connection.admin().drop_partition(table.path, {"month": month}, **how)


@pytest.mark.parametrize("how", [{"lake": True}, {"discard_untiered": True}], ids=["lake", "discard"])
def test_records_that_go_with_their_partition_end_a_stream_unless_they_may_be_lost(make, query, how, caplog):
    table = make()
    table.append_random(random.Random(31), 60, MONTHS)
    strict = query(table)
    lax = query(table, failOnDataLoss="false")
    for each in (strict, lax):
        each.run()
    read = dict(table.ends)
    table.append([(100 + number, MONTHS[0], 1, None, None) for number in range(20)])
    unread = [key for key, end in table.ends.items() if end > read[key]]
    drop(table, MONTHS[0], **how)
    for _ in range(2):  # also when it is started again
        with pytest.raises(OffsetOutOfRangeError, match=rf"{MONTHS[0]}.*its partition was dropped at.*failOnDataLoss"):
            strict.step()
        strict.start()
    with caplog.at_level(logging.WARNING):
        assert len(lax.run()) == 60
        lax.start()
        assert len(lax.run()) == 60
    # Once for all runs of the query: it is in the checkpoint.
    assert caplog.text.count("no longer available") == len(unread)
    table.append([(200, MONTHS[1], 1, None, None)])
    assert len(lax.run()) == 61


def test_a_loss_is_not_forgotten_where_the_first_offset_is_asked_for_again(make, query):
    """As Spark does when it starts a query again whose first batch is not done."""
    table = make()
    table.append_random(random.Random(35), 40, MONTHS)
    strict = query(table)
    strict.run()
    table.append_random(random.Random(36), 20, MONTHS)
    drop(table, MONTHS[0], discard_untiered=True)
    strict.reader.initialOffset()
    with pytest.raises(OffsetOutOfRangeError, match="its partition was dropped at"):
        strict.step()


def test_a_partition_that_comes_and_goes_between_two_batches_ends_a_stream(make, query):
    table = make()
    table.append_random(random.Random(32), 20, MONTHS[1:])
    strict = query(table)
    strict.run()
    table.append([(100, "new", 1, None, None)])
    drop(table, "new", discard_untiered=True)
    with pytest.raises(OffsetOutOfRangeError, match=r"'new'.*offsets \[0, 1\).*its partition was dropped at"):
        strict.step()


def test_what_was_lost_before_a_stream_began_does_not_end_it(make, query):
    table = make()
    table.append_random(random.Random(33), 40, [*MONTHS, "more"])
    drop(table, MONTHS[0], discard_untiered=True)
    wanted = [row for row in expected(table) if row["_partition"] != MONTHS[0]]
    stream = query(table)
    same(stream.run(), wanted)
    # Nor one that starts elsewhere and does not read the partition.
    starts = {(MONTHS[1], bucket): 0 for bucket in range(BUCKETS)}
    other = query(table, start=json.dumps({f"{month}/{bucket}": at for (month, bucket), at in starts.items()}))
    drop(table, "more", discard_untiered=True)
    same(other.run(), [row for row in wanted if row["_partition"] == MONTHS[1]])


def test_a_checkpoint_of_a_release_that_knew_of_no_lossy_drops_goes_on(make, query):
    table = make()
    table.append_random(random.Random(34), 40, MONTHS)
    stream = query(table)
    stream.run()
    drop(table, MONTHS[0], discard_untiered=True)
    kept = StreamOffset.from_json(json.loads(stream.offsets[-1]))
    stream.offsets[-1] = json.dumps(replace(kept, lossy_drops=None).to_json())
    stream.start()
    assert len(stream.run()) == 40
    table.append([(100, MONTHS[1], 1, None, None)])
    assert len(stream.run()) == 41
    table.append([(101, MONTHS[1], 1, None, None)])
    drop(table, MONTHS[1], discard_untiered=True)
    with pytest.raises(OffsetOutOfRangeError, match="its partition was dropped at"):
        stream.step()


def test_a_partition_made_again_is_another_one(make, query):
    table = make()
    table.append_random(random.Random(18), 40, MONTHS)
    table.tier()
    stream = query(table)
    stream.run()
    table.connection.admin().drop_partition(table.path, {"month": MONTHS[0]}, lake=True)
    assert len(stream.run()) == 40
    again = ModelTable.append
    first = len(stream.rows)
    table.ends.update({(MONTHS[0], bucket): 0 for bucket in range(BUCKETS)})
    count = len(table.records)
    again(table, [(number, MONTHS[0], 1, None, None) for number in range(1000, 1020)])
    stream.run()
    found = [(row["_bucket"], row["_log_offset"], row["id"]) for row in in_order(stream.rows[first:])]
    assert found == [(e.bucket, e.offset, e.row[0]) for e in sorted(table.records[count:], key=lambda each: each.key)]


def test_a_table_made_again_is_refused(make, query, cluster):
    table = make()
    table.append_random(random.Random(19), 10, MONTHS)
    stream = query(table)
    stream.run()
    admin = cluster.connection.admin()
    descriptor = table.info.descriptor
    admin.drop_table(table.path)
    with pytest.raises(TableNotFoundError):
        stream.step()
    admin.create_table(table.path, descriptor)
    with pytest.raises(TableNotFoundError, match="made again"):
        stream.step()
    stream.start()
    with pytest.raises(TableNotFoundError, match="made again"):
        stream.step()


def test_a_table_of_a_lab_that_was_made_anew_is_refused(clock, tmp_path):
    """It has the same path and the same id, and maybe as many records."""
    offsets = []
    for folder in ("first", "anew"):
        with EmbeddedCluster(tmp_path / folder, options=OPTIONS, clock=clock) as cluster:
            table = ModelTable(cluster, clock, "t", partitioned=False)
            table.append_random(random.Random(24), 30, MONTHS)
            stream = Query(cluster, str(table.path), maxRowsPerTrigger=10)
            if not offsets:
                stream.run()
                offsets = stream.offsets
            else:
                stream.offsets = offsets
                stream.start()
                with pytest.raises(TableNotFoundError, match=r"made at .* made at .*another lab"):
                    stream.step()
                with pytest.raises(TableNotFoundError, match=r"made at .* made at .*another lab"):
                    stream.tasks(0)
            stream.close()
            clock.advance(1_000)


def test_an_offset_of_a_release_that_did_not_keep_when_a_table_was_made_goes_on(make, query):
    table = make(partitioned=False)
    table.append_random(random.Random(25), 30, MONTHS)
    stream = query(table)
    stream.run()
    kept = StreamOffset.from_json(json.loads(stream.offsets[-1]))
    stream.offsets[-1] = json.dumps(replace(kept, created_ms=None).to_json())
    stream.start()
    assert not stream.step()
    table.append_random(random.Random(26), 5, MONTHS)
    assert len(stream.run()) == 35
    assert json.loads(stream.offsets[-1])["created_ms"] == table.info.created_ms


def test_a_stream_that_had_not_begun_when_its_table_was_made_again_is_refused(make, query, cluster):
    table = make(partitioned=False)
    asked = {"table.id": table.info.table_id, "start": '{"0": 1}'}
    table.append_random(random.Random(23), 30, MONTHS)
    assert query(table, **asked).run()
    admin = cluster.connection.admin()
    descriptor = table.info.descriptor
    admin.drop_table(table.path)
    admin.create_table(table.path, descriptor)
    with pytest.raises(TableNotFoundError, match="made again"):
        query(table, **asked)


def test_a_stream_that_had_not_begun_when_its_lab_was_made_anew_is_refused(clock, tmp_path):
    asked = {}
    for folder in ("first", "anew"):
        with EmbeddedCluster(tmp_path / folder, options=OPTIONS, clock=clock) as cluster:
            table = ModelTable(cluster, clock, "t", partitioned=False)
            table.append_random(random.Random(27), 30, MONTHS)
            given = stream_options(table.reader(), {0: 1}, None, None, None, True)
            if not asked:
                asked = {name: given[name] for name in ("table.id", "table.created.ms", "start")}
                assert Query(cluster, str(table.path), **asked).run()
            else:
                assert given["table.id"] == asked["table.id"]
                with pytest.raises(TableNotFoundError, match=r"made at .* made at .*another lab"):
                    Query(cluster, str(table.path), **asked)
            clock.advance(1_000)


def test_a_stream_that_had_not_begun_when_a_partition_of_its_start_was_made_again_is_refused(make, query):
    table = make()
    table.append_random(random.Random(24), 60, MONTHS)
    table.tier()
    starts = {(MONTHS[0], 0): 3, (MONTHS[1], 1): 2}
    given = stream_options(table.reader(), starts, None, None, None, True)
    asked = {name: given[name] for name in ("table.id", "start", "start.partitions")}
    same(query(table, **asked).run(), expected(table, starts))
    admin = table.connection.admin()
    admin.drop_partition(table.path, {"month": MONTHS[0]}, lake=True)
    admin.create_partition(table.path, {"month": MONTHS[0]})
    again = [(number, MONTHS[0], 1, None, None) for number in range(30)]
    table.ends.update({(MONTHS[0], bucket): 0 for bucket in range(BUCKETS)})
    table.append(again)
    with pytest.raises(PartitionNotFoundError, match=rf"{MONTHS[0]}.*dropped and made again"):
        query(table, **asked)
    assert query(table, **asked | {"start": '{"2013/02 é/1": 2}'}).run()


# -- loss -----------------------------------------------------------------------------------------------------------------


def lose(table):
    """Let the cluster drop old segments of a table that no lake holds."""
    admin = table.connection.admin()
    table.clock.advance(1_000)
    admin.alter_table(table.path, set={"table.log.ttl": "1ms", "table.datalake.enabled": False})
    retain(table.cluster, lambda: all(s.start_offset > 0 for s in admin.buckets(table.info) if s.end_offset > 60))
    admin.alter_table(table.path, set={"table.log.ttl": "7d"})
    return {(s.partition, s.bucket.bucket): s.start_offset for s in admin.buckets(table.info)}


def test_records_that_are_gone_end_a_stream_unless_they_may_be_lost(make, query, caplog):
    table = make(partitioned=False)
    table.append_random(random.Random(20), 900, MONTHS)
    strict = query(table, maxRowsPerTrigger=30)
    lax = query(table, maxRowsPerTrigger=30, failOnDataLoss="false")
    for each in (strict, lax):
        each.step()
    for _ in range(3):
        table.append_random(random.Random(21), 300, MONTHS)
    starts = lose(table)
    assert max(starts.values()) > 60
    with pytest.raises(OffsetOutOfRangeError, match="failOnDataLoss"):
        strict.step()
    before = len(lax.rows)
    with caplog.at_level(logging.WARNING):
        lax.run()
    assert "continuing without them" in caplog.text
    read = {key: max(starts[key], 10) for key in starts}
    same(lax.rows[before:], expected(table, read))


def test_records_that_go_while_a_task_reads_are_lost_or_end_it(make, query):
    table = make(partitioned=False)
    table.append_random(random.Random(22), 900, MONTHS)
    strict, lax = query(table), query(table, failOnDataLoss="false")
    tasks = []
    for each in (strict, lax):
        each.offsets.append(json.dumps(each.reader.latestOffset(json.loads(each.offsets[0]), each.everything)))
        tasks.append(each.tasks(0))
    starts = lose(table)
    with pytest.raises(OffsetOutOfRangeError, match="failOnDataLoss"):
        strict.read(tasks[0])
    same(lax.read(tasks[1]), expected(table, starts))


def test_what_moves_into_the_lake_while_a_batch_waits_is_read_there(make, query):
    table = make()
    table.append_random(random.Random(23), 300, MONTHS)
    stream = query(table, tasks=3)
    stream.offsets.append(json.dumps(stream.reader.latestOffset(json.loads(stream.offsets[0]), stream.everything)))
    tasks = stream.tasks(0)
    table.tier()
    table.expire()
    same(stream.read(tasks), expected(table))
    same(stream.batch(0), expected(table))
