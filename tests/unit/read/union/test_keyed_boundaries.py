"""Union reads of primary-key tables where lake and log meet, and where they move while they are read."""

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec import structs

from fluss_lab.errors import (
    LakeSnapshotNotFoundError,
    OffsetOutOfRangeError,
    PartitionNotFoundError,
)
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.model.times import format_moment
from fluss_lab.read.table_reader import TableReader
from fluss_lab.read.union import lake_rows, pk_merge
from fluss_lab.read.union.read_parts import Plan, Request
from fluss_lab.read.union.read_plan import read_rows
from tests.unit.read.kit import rows_of
from tests.unit.read.union.boundaries_kit import check, row, unlaked

pytestmark = pytest.mark.slow

# -- where lake and log meet -------------------------------------------------------------------------------------------


def test_every_row_of_a_point_comes_once_wherever_the_lake_ends_by_then(make_keyed):
    table = make_keyed()
    kept = []
    for number in range(6):
        table.upsert([row(number % 3, f"v{number}")])
        kept.append(table.keep())
    for number in range(3):
        table.tier()
        # A point that ends in the middle of a file, one before its end, at it, and behind it in the log.
        for moment in kept:
            check(table, moment)
        for key in range(2):
            table.upsert([row(key, f"w{number}")])
            table.delete([{"id": 2}])
            kept.append(table.keep())
        for moment in kept:
            check(table, moment)
    table.compact()
    table.retain()
    for moment in kept:
        check(table, moment)


def test_a_round_without_records_and_a_bucket_that_was_never_tiered(make_keyed):
    table = make_keyed()
    # Both keys of one bucket: the other one stays empty.
    buckets = {}
    for key in range(8):
        table.upsert([row(key)])
        for place, stop in table.stops.items():
            if stop and place not in buckets:
                buckets[place] = key
        if len(buckets) == 1:
            table.tier()
            table.upsert([row(key)])  # changes nothing: a batch without records
            table.tier()
            check(table, table.now())
    sources = table.scan(["id"], with_source=True).to_arrow()
    assert set(sources["_source"].to_pylist()) == {"lake", "log"}
    check(table, table.now())


def test_what_the_log_ends_is_not_read_from_the_lake(make_keyed):
    table = make_keyed()
    table.upsert([row(key) for key in range(20)])
    table.tier()
    table.upsert([row(3, "new"), row(4, "new")])
    table.upsert([row(3, "newer")])
    table.delete([{"id": 5}])
    found = table.scan(["id", "name"], with_source=True).to_arrow().sort_by("id").to_pylist()
    assert [each["id"] for each in found] == [key for key in range(20) if key != 5]
    assert {each["id"]: (each["name"], each["_source"]) for each in found if each["_source"] == "log"} == {
        3: ("newer", "log"), 4: ("new", "log"),
    }  # fmt: skip
    check(table, table.now())
    # A filter on what the row was does not bring it back.
    assert table.scan(["id"], "id = 3 and name = 'a'").count() == 0


@pytest.mark.parametrize("tail_bytes", [0, 1, 64 << 20], ids=["read twice", "kept at first", "kept"])
def test_a_read_that_has_begun_ends_right_whatever_moves_under_it(make_keyed, monkeypatch, tail_bytes):
    monkeypatch.setattr(pk_merge, "TAIL_BYTES", tail_bytes)
    table = make_keyed()
    table.upsert([row(key) for key in range(100)])
    table.tier()
    table.upsert([row(key, "tail") for key in range(0, 150, 2)])
    table.delete([{"id": key} for key in range(0, 150, 10)])
    moment = table.keep()
    batches = table.scan(with_source=True, **moment.asked).to_batches(5)
    first = next(batches)
    table.upsert([row(key, "later") for key in range(150)])
    table.tier()
    table.compact()
    table.expire()
    table.retain()
    assert all(status.start_offset > 0 for status in table.statuses().values())
    found = pa.Table.from_batches([first, *batches])
    assert rows_of(found.drop_columns("_source")) == table.expected(moment.stops)
    check(table, moment)


def test_a_snapshot_that_expires_under_a_read_is_replaced_without_a_gap(make_keyed):
    table = make_keyed()
    for number in range(4):
        table.upsert([row(key, f"{number}") for key in range(number, 100)])
        table.tier()
    moment = table.keep()
    batches = table.scan(**moment.asked).to_batches(5)
    first = next(batches)
    table.delete([{"id": key} for key in range(50)])
    table.tier()
    table.compact()
    # Without the tags the old files go, too.
    table.upsert([row(1)])
    table.tier()
    table.expire(tags=True)
    if table.within_reach(moment):
        assert rows_of(pa.Table.from_batches([first, *batches])) == table.expected(moment.stops)
    else:
        with pytest.raises(OffsetOutOfRangeError, match="no longer available"):
            list(batches)


def test_a_partition_that_only_the_lake_has(make_keyed):
    table = make_keyed("pk_parts")
    rows = [{"id": key, "p": name, "name": "a", "x": 1.0} for key in range(9) for name in ("p1", "p2")]
    table.upsert(rows)
    table.upsert([each | {"name": "b"} for each in rows[:6]])
    kept = table.keep()
    table.tier()
    table.drop_partition("p1", discard=True)
    check(table, table.now())
    check(table, kept)
    assert table.scan(partitions=["p1"]).count() == 9
    with pytest.raises(PartitionNotFoundError, match="p3"):
        table.scan(partitions=["p3"]).count()


def test_a_point_whose_partition_was_dropped_before_it_was_tiered_is_an_error_not_missing_rows(make_keyed):
    table = make_keyed("pk_parts")
    table.upsert([{"id": 1, "p": "p1", "name": "a", "x": 1.0}])
    table.tier()
    table.upsert([{"id": 1, "p": "p1", "name": "b", "x": 1.0}, {"id": 1, "p": "p2", "name": "b", "x": 1.0}])
    point = table.reader().read_point()
    table.drop_partition("p1", discard=True)
    with pytest.raises(OffsetOutOfRangeError, match=r"partition 'p1'.*no longer available"):
        table.scan(read_point=point).to_arrow()
    assert table.scan(read_point=point, partitions=["p2"]).count() == 1


# -- moments -----------------------------------------------------------------------------------------------------------


def test_a_time_before_all_that_is_known_is_refused_at_once(make_keyed):
    table = unlaked(make_keyed)
    times = sorted({event.timestamp_ms for log in table.history.logs.values() for event in log.events})
    with pytest.raises(OffsetOutOfRangeError, match="no longer available: available from") as reported:
        table.reader().read_point(times[0])
    # The first moment of all buckets can be read, the one before it cannot.
    earliest_ms = reported.value.earliest_ms
    for _ in range(2):  # a read at a time does not move it
        assert table.reader().scan(as_of=earliest_ms).to_arrow().num_rows
    with pytest.raises(OffsetOutOfRangeError) as before:
        table.reader().read_point(earliest_ms - 1)
    assert before.value.earliest_ms == earliest_ms
    # What the error names can be read, in every bucket.
    starts = {place: status.start_offset for place, status in table.statuses().items()}
    earliest = {
        place: table.history.logs[place].events[min(start, table.stops[place] - 1)].timestamp_ms
        for place, start in starts.items()
    }
    assert any(format_moment(moment) in str(reported.value) for moment in earliest.values())
    check(table, table.at(max(earliest.values())))


def test_a_time_before_the_lakes_replay_start_is_refused_and_one_after_it_is_read(make_keyed):
    table = make_keyed()
    for number in range(3):
        table.upsert([row(key, str(number)) for key in range(30)])
        table.clock.advance(10)
        table.tier()
    before = table.history.logs[None, 0].events[0].timestamp_ms
    table.compact()
    table.upsert([row(key, "after") for key in range(30)])
    table.clock.advance(10)
    table.tier()
    table.expire(tags=True)
    table.retain()
    assert min(table.earliest().values()) > 0
    with pytest.raises(OffsetOutOfRangeError, match="no longer available: available from"):
        table.scan(as_of=before)
    check(table, table.at(table.clock.now_ms() - 1))


def test_a_moment_is_a_lake_snapshot(make_keyed):
    table = make_keyed()
    ids = []
    for number in range(3):
        table.upsert([row(key, str(number)) for key in range(number, 20)])
        ids.append(table.tier())
        table.delete([{"id": number}])
    for snapshot_id in ids:
        stops = table.known[snapshot_id]
        point = table.reader().read_point(snapshot_id)
        assert point.snapshot_id == snapshot_id
        assert {key: stop for key, stop in point.stops.items() if stop} == dict(stops)
        scan = table.scan(as_of=snapshot_id)
        assert rows_of(scan.to_arrow()) == table.expected(stops)
        assert not scan.explain().log_ranges
    with pytest.raises(LakeSnapshotNotFoundError, match="neither the cluster nor the lake"):
        table.scan(as_of=2**62)


def test_a_snapshot_that_the_cluster_has_forgotten_is_reported_by_the_lake(make_keyed, monkeypatch):
    table = make_keyed()
    table.upsert([row(key) for key in range(20)])
    first = table.tier()
    table.upsert([row(key, "new") for key in range(20)])
    table.tier()
    reader = table.reader()
    before = reader.read_point(first)
    source = reader._source
    forgotten = source.snapshot
    monkeypatch.setattr(
        source, "snapshot", lambda number=None, **how: None if number == first else forgotten(number, **how)
    )
    again = reader.read_point(first)
    assert again.stops == before.stops
    assert reader.scan(table.columns, read_point=again).count() == 20


# -- what is read ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pk_parts", "pk_moments"])
def test_shares_of_buckets_come_to_the_whole(make_keyed, kind, seed):
    rng = random.Random(seed)
    table = make_keyed(kind)
    table.write(6)
    table.tier()
    table.write(4)
    scan = table.scan()
    wanted = rows_of(scan.to_arrow())
    plan, request = scan.plan(), Request(scan.columns, None)
    found = []
    for part in plan.parts:
        edges = sorted({0, part.stop, *(rng.randrange(part.stop + 1) for _ in range(3))})
        for low, high in pairwise(edges):
            share = replace(part, start=low, row_stop=None if high == part.stop else high)
            found += list(read_rows(scan.source, Plan((share,), plan.snapshot_id), request))
    assert rows_of(pa.Table.from_batches(found, scan.schema)) == wanted


def test_files_that_overlap_are_read_span_by_span(make_keyed, monkeypatch, seed):
    monkeypatch.setattr(lake_rows, "RUN_BYTES", 1_500)
    table = make_keyed()
    table.upsert([row(key) for key in range(200)])
    for _ in range(3):
        table.compact_elsewhere(random.Random(seed))
    check(table, table.now())


def test_a_primary_key_asked_for_leads_to_its_bucket(make_keyed):
    table = make_keyed("pk_by_boolean")
    table.upsert([{"k": bool(key % 2), "g": key, "name": "a", "x": 1.0} for key in range(30)])
    table.tier()
    scan = table.scan(where="k = true and g = 7")
    assert rows_of(scan.to_arrow()) == [each for each in table.expected(table.stops) if each["g"] == 7]
    assert len(scan.explain().buckets) == 1


def test_a_bucket_key_of_several_columns_leads_to_its_buckets(keyed_cluster):
    connection, path = keyed_cluster.connection, TablePath("db", "several")
    columns = {"g": "int", "word": "string", "n": "int"}
    descriptor = make_descriptor(columns, primary_key=["g", "word", "n"], bucket_key=["g", "word"], buckets=16)
    connection.admin().create_database("db", if_not_exists=True)
    connection.admin().create_table(path, descriptor)
    rows = [{"g": key % 10, "word": "ab"[key % 2], "n": key} for key in range(200)]
    with connection.upsert_writer(path) as writer:
        writer.upsert(rows).result()
    reader = TableReader(connection, path)
    for where, wanted, most in (
        ("g = 3 and word = 'b'", lambda each: each["g"] == 3, 1),
        ("g in (1, 3) and word in ('a', 'b')", lambda each: each["g"] in {1, 3}, 4),
        ("g = 3 and word = 'b' and n > 100", lambda each: each["g"] == 3 and each["n"] > 100, 1),
        ("g = 3", lambda each: each["g"] == 3, 16),
    ):
        scan = reader.scan(where=where)
        found = sorted(scan.to_arrow().to_pylist(), key=lambda each: each["n"])
        assert found == [each for each in rows if wanted(each)]
        assert len(scan.explain().buckets) <= most


def test_a_limit_reads_no_more_files_than_it_needs(make_keyed):
    table = make_keyed()
    for number in range(4):
        table.upsert([row(100 * number + key) for key in range(40)])
        table.tier()
    last = max(table.scan().plan().splits, key=lambda split: split.min_offset)
    Path(last.path.removeprefix("file://")).unlink()
    assert rows_of(table.scan(limit=5).to_arrow()) == table.expected(table.stops)[:5]


def test_a_plan_is_explained(make_keyed):
    table = make_keyed(**{"table.datalake.auto-maintenance": False})
    table.upsert([row(key) for key in range(40)])
    table.tier()
    table.upsert([row(key, "b") for key in range(10)])
    table.tier()
    table.upsert([row(key, "c") for key in range(5)])
    reported = table.scan().explain()
    assert (reported.files, reported.delete_files) == (4, 2)
    assert reported.rows == 50
    assert reported.log_records == 10
    assert "delete files" in repr(reported)
    assert "delete files" in reported._repr_html_()
    pruned = table.scan(where="id = 3").explain()
    assert pruned.buckets_pruned == 1
    assert pruned.files_pruned >= 2


def test_an_offset_filter_does_not_bring_ended_rows_back(make_keyed):
    table = make_keyed()
    table.upsert([row(key) for key in range(20)])
    table.tier()
    for number in range(2):
        table.upsert([row(key, str(number)) for key in range(0, 20, 2)])
        for stop in (5, 12, 25):
            scan = table.scan(where=f"__offset < {stop}")
            wanted = [each for each in table.expected(table.stops) if each["__offset"] < stop]
            assert rows_of(scan.to_arrow()) == wanted
            assert scan.count() == len(wanted)


def test_a_lake_that_was_switched_off_does_not_hide_what_came_after(make_keyed):
    table = make_keyed()
    table.upsert([row(key) for key in range(40)])
    table.tier()
    kept = table.keep()
    admin = table.connection.admin()
    admin.alter_table(table.history.path, set={"table.datalake.enabled": False})
    for number in range(6):
        table.upsert([row(key, str(number)) for key in range(40)])
    table.delete([{"id": 1}])
    table.retain()
    ends = {place: status.start_offset for place, status in table.statuses().items()}
    assert all(ends[place] > stop for place, stop in kept.stops.items()), "there is no gap behind the lake"
    check(table, table.now())
    check(table, kept)
    lost = {place: (kept.stops[place] + ends[place]) // 2 for place in ends}
    point = table.reader().read_point()
    buckets = tuple(structs.replace(each, stop=lost[each.key]) for each in point.buckets)
    with pytest.raises(OffsetOutOfRangeError, match="no longer available"):
        table.scan(read_point=replace(point, buckets=buckets)).to_arrow()


def test_a_time_within_the_gap_behind_a_lake_that_was_switched_off_is_refused(make_keyed):
    table = make_keyed()
    for text in ("a", "b"):
        table.upsert([row(key, text) for key in range(40)])
        in_lake = table.clock.now_ms()
        table.clock.advance(10)
    table.tier()
    table.connection.admin().alter_table(table.history.path, set={"table.datalake.enabled": False})
    for number in range(3):
        last = table.clock.now_ms()
        table.upsert([row(key, str(number)) for key in range(40)])
        table.clock.advance(10)
    table.retain()
    assert all(0 < each.start_offset == each.end_offset for each in table.statuses().values())
    # Where the log is empty, of the time of its last record on; of one that goes on, from its first record on.
    for earliest in (last, None):
        if earliest is None:
            table.upsert([row(key, "later") for key in range(40)])
            table.clock.advance(10)
            earliest = table.clock.now_ms() - 10  # noqa: PLW2901 - the same question
        for moment in (in_lake, in_lake + 10, earliest - 1):
            with pytest.raises(OffsetOutOfRangeError, match=r"are no longer available: available from offset [1-9]"):
                table.reader().read_point(moment)
            with pytest.raises(OffsetOutOfRangeError, match="no longer available"):
                table.reader().diff(moment)
            with pytest.raises(OffsetOutOfRangeError) as refused:
                table.reader().changelog(start=moment).to_arrow()
            assert "gaps=" not in str(refused.value), "that is for log tables"
        check(table, table.at(earliest))
    # A record of the lake at or after the time says where that was: its rows are there.
    check(table, table.at(in_lake - 1))


def test_a_bucket_tiered_late_is_reported_from_before_by_the_cluster(make_keyed):
    table = make_keyed(**{"table.datalake.enabled": False})
    for number in range(6):
        table.upsert([row(key, str(number)) for key in range(40)])
    table.retain()
    kept = table.keep()
    table.upsert([row(key, "between") for key in range(30)])
    service = table.cluster.tablet()
    for status in table.statuses().values():
        service.snapshot_now(status.bucket)
    table.connection.admin().alter_table(table.history.path, set={"table.datalake.enabled": True})
    table.tier()
    assert all(start > 0 for start in table.lake().starts.values())
    names = [name for name in table.columns if name != "__timestamp"]
    scan = table.scan(names, **kept.asked)
    assert any(each.live for each in scan.explain().buckets)
    wanted = [{name: each[name] for name in names} for each in table.expected(kept.stops)]
    assert rows_of(scan.to_arrow()) == wanted
    check(table, table.now())


def test_what_is_written_between_a_look_and_a_scan_is_taken_back(make_keyed):
    table = unlaked(make_keyed)
    scan = table.scan(["id", "name", "__offset"])
    kept, wanted = scan.read_point, table.expected(table.stops)
    plan = scan.plan()
    assert all(part.live for part in plan.parts)
    table.upsert([row(key, "since") for key in range(0, 60, 2)])
    found = pa.Table.from_batches(read_rows(scan.source, plan, Request(scan.columns, None)))
    assert rows_of(found) == [{name: each[name] for name in scan.schema.names} for each in wanted]
    assert kept == scan.read_point


def test_a_compaction_serves_the_reads_of_its_own_moment(make_keyed):
    table = make_keyed()
    for number in range(4):
        table.upsert([row(key, str(number)) for key in range(20)])
        table.tier()
    before = table.scan().explain()
    table.compact()
    after = table.scan().explain()
    assert after.files < before.files
    assert after.delete_files == 0
    check(table, table.now())
