"""A log table with a gap: offsets that left the cluster while the lake was switched off."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from fluss_lab.errors import InvalidRequestError, OffsetOutOfRangeError, UnsupportedError
from fluss_lab.read.moment.log_retention import GapWarning
from fluss_lab.tiering.repair.lake_repair import adopt, plan_repair
from tests.unit.read.kit import ModelTable, retain

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000


def _gapped(make_table: Any) -> tuple[ModelTable, dict[int, int], dict[int, int], list[int]]:
    """A table with records in the lake, lost ones, and some in the cluster: ends of the lake, starts of the cluster, times."""
    table = make_table(partitioned=False)
    admin = table.connection.admin()
    times = []
    rows = iter([(number, "m", number % 100, 0.5, "x" * 40) for number in range(1_000)])
    for _ in range(3):
        times.append(table.clock.now_ms())
        table.append([next(rows) for _ in range(40)])
        table.clock.advance(HOUR_MS)
    table.tier()
    lake = dict(table.ends)
    admin.alter_table(table.path, set={"table.datalake.enabled": False})
    table.append([next(rows) for _ in range(120)])
    table.clock.advance(HOUR_MS)
    admin.alter_table(table.path, set={"table.log.ttl": "1ms"})
    retain(table.cluster, lambda: all(each.start_offset == each.end_offset for each in admin.buckets(table.info)))
    admin.alter_table(table.path, set={"table.log.ttl": "7d"})
    starts = dict(table.ends)
    table.append([next(rows) for _ in range(40)])
    times.append(table.clock.now_ms())
    return table, {key[1]: end for key, end in lake.items()}, {key[1]: end for key, end in starts.items()}, times


def _offsets(table: Any) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for bucket, offset in zip(table["__bucket"].to_pylist(), table["__offset"].to_pylist(), strict=True):
        found[bucket].append(offset)
    return found


@pytest.fixture
def gapped(make_table):
    return _gapped(make_table)


def test_a_gap_is_named_by_every_read_that_touches_it(gapped):
    table, lake, starts, _ = gapped
    for is_on in (False, True):
        if is_on:
            table.connection.admin().alter_table(table.path, set={"table.datalake.enabled": True})
        reader = table.reader()
        now = table.clock.now_ms() - 1
        point = reader.read_point()
        reads = {
            "rows": lambda reader=reader: reader.scan().to_arrow(),
            "count": lambda reader=reader: reader.scan().count(),
            "count with a filter": lambda reader=reader: reader.scan(where="delay >= 0").count(),
            "count at a point": lambda point=point: table.reader().scan(read_point=point).count(),
            "explain": lambda reader=reader: reader.scan().explain(),
            "a time": lambda reader=reader, now=now: reader.scan(as_of=now).count(),
            "changelog": lambda reader=reader: reader.changelog(start={0: 0, 1: 0, 2: 0}).to_arrow(),
            "changelog into it": lambda reader=reader: reader.changelog(start={0: 0}, end={0: lake[0] + 1}).to_arrow(),
        }
        for name, read in reads.items():
            with pytest.raises(OffsetOutOfRangeError) as caught:
                read()
            text = str(caught.value)
            stop = lake[0] + 1 if name == "changelog into it" else starts[0]
            assert f"[{lake[0]}, {stop})" in text, (name, text)
            assert "gaps='skip'" in text
            if name != "changelog into it":
                assert f"changelog(start={{0: {starts[0]}}})" in text
                assert ("--accept-gaps" in text) == is_on
        with pytest.raises(OffsetOutOfRangeError):
            reader.changelog(start={0: lake[0] + 1}, end={0: starts[0]}).to_arrow()


def test_both_sides_of_a_gap_are_read(gapped):
    table, lake, starts, times = gapped
    reader = table.reader()
    before = reader.changelog(start={0: 0}, end=lake, buckets=[0]).to_arrow()
    assert before["_log_offset"].to_pylist() == list(range(lake[0]))
    middle = reader.changelog(start={1: 3}, end={1: lake[1]}).to_arrow()
    assert middle["_log_offset"].to_pylist() == list(range(3, lake[1]))
    after = reader.changelog(start=starts).to_arrow()
    assert after.num_rows == 40
    assert reader.changelog().to_arrow().num_rows == 40  # 'earliest' is where it goes on without a gap
    # A time before the gap is one of the lake.
    stops = table.stops_at(times[1])
    rows = reader.scan(as_of=times[1], columns=["__bucket", "__offset"]).to_arrow()
    assert _offsets(rows) == {bucket: list(range(stops[None, bucket])) for bucket in range(3)}
    assert reader.scan(as_of=times[1]).count() == sum(stops.values())
    found = reader.changelog(start=times[1], end=lake).to_arrow()
    firsts = table.stops_at(times[1] - 1)
    assert found.num_rows == sum(lake[bucket] - firsts[None, bucket] for bucket in range(3))


def test_what_happened_from_a_time_within_a_gap_on_is_refused(gapped):
    table, _, _, times = gapped
    reader, first = table.reader(), table.clock.now_ms()
    table.clock.advance(HOUR_MS)
    for moment in (times[2] + 1, first - 1):
        point = reader.read_point(moment)
        for read in (
            lambda moment=moment: reader.diff(moment),
            lambda moment=moment: reader.diff(reader.read_point(), moment),
            lambda point=point: reader.diff(point),
            lambda point=point: reader.changelog(start=point).to_arrow(),
            lambda moment=moment: reader.changelog(start=moment).to_arrow(),
        ):
            with pytest.raises(OffsetOutOfRangeError, match="no longer all available"):
                read()
    # After all records, nothing; between two that are held, what came after.
    assert not reader.diff(first)
    assert len(reader.diff(times[0], times[1]).added) == 40


def test_a_log_that_is_empty_by_now_does_not_say_that_nothing_happened(make_table):
    table = make_table(partitioned=False)
    admin = table.connection.admin()
    admin.alter_table(table.path, set={"table.datalake.enabled": False})
    times = []
    for number in range(2):
        table.append([(key, "m", number, 0.5, "x") for key in range(120)])
        times.append(table.clock.now_ms())
        table.clock.advance(HOUR_MS)
    admin.alter_table(table.path, set={"table.log.ttl": "1ms"})
    retain(table.cluster, lambda: all(each.start_offset == each.end_offset for each in admin.buckets(table.info)))
    reader = table.reader()
    for start in times:
        with pytest.raises(OffsetOutOfRangeError, match="no longer all available"):
            reader.changelog(start=start).to_arrow()
        with pytest.raises(OffsetOutOfRangeError, match="no longer all available"):
            reader.subscribe(start)
    assert reader.changelog(start=times[1] + 1).to_arrow().num_rows == 0
    assert reader.changelog().to_arrow().num_rows == 0


def test_a_gap_is_skipped_only_on_request_and_loudly(gapped, make_keyed):
    table, lake, starts, _ = gapped
    reader = table.reader()
    wanted = {n: [*range(lake[n]), *range(starts[n], table.ends[None, n])] for n in range(3)}
    scan = reader.scan(columns=["__bucket", "__offset"], gaps="skip")
    with pytest.warns(GapWarning, match=rf"bucket 0 \[{lake[0]}, {starts[0]}\)"):
        assert _offsets(scan.to_arrow()) == wanted
    with pytest.warns(GapWarning):
        assert reader.scan(gaps="skip").count() == sum(map(len, wanted.values()))
    with pytest.warns(GapWarning):
        assert reader.scan(gaps="skip", where="delay >= 0").count() == sum(map(len, wanted.values()))
    with pytest.warns(GapWarning):
        reported = reader.scan(gaps="skip").explain()
    assert f"bucket 0 [{lake[0]}, {starts[0]})" in repr(reported)
    assert "LEFT OUT" in reported._repr_html_()
    with pytest.raises(InvalidRequestError, match="gaps"):
        reader.scan(gaps="ignore")
    with pytest.raises(UnsupportedError, match="gaps='skip'"):
        make_keyed().reader().scan(gaps="skip")


def test_a_whole_table_has_no_gap_to_warn_of(make_table):
    table = make_table(partitioned=False)
    table.append([(number, "m", 1, 0.5, "x") for number in range(30)])
    table.tier()
    table.expire()
    table.append([(number, "m", 1, 0.5, "x") for number in range(30, 40)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert table.reader().scan(gaps="skip").count() == 40
        assert table.reader().scan(gaps="skip").to_arrow().num_rows == 40


def test_what_the_lake_has_from_before_an_accepted_gap_stays_readable(gapped):
    table, lake, starts, times = gapped
    admin, storage = table.connection.admin(), table.connection.lake_storage()
    table.info = admin.alter_table(table.path, set={"table.datalake.enabled": True})
    planned = plan_repair(table.connection, storage, table.path)
    assert f"offsets [{lake[0]}, {starts[0]}) are lost, those below {lake[0]} stay readable" in repr(planned)
    assert {each.bucket.bucket: each.start for each in planned.buckets} == starts
    adopt(table.connection, storage, table.path, accept_gaps=True)
    table.tier()
    reader = table.reader()
    # The plan told the truth about where the log begins now ...
    found = reader.changelog().to_arrow()
    assert {bucket: min(_changes(found, bucket)) for bucket in range(3)} == starts
    # ... and what lies before the gap can be had.
    assert reader.changelog(start={0: 0}, end={0: lake[0]}).to_arrow()["_log_offset"].to_pylist() == list(
        range(lake[0])
    )
    assert reader.changelog(start={2: 1}, end={2: lake[2]}).to_arrow().num_rows == lake[2] - 1
    with pytest.raises(OffsetOutOfRangeError, match=rf"\[{lake[0]}, {starts[0]}\)"):
        reader.changelog(start={0: 0}).to_arrow()
    # As of a time before the gap nothing later is read.
    stops = table.stops_at(times[1])
    rows = reader.scan(as_of=times[1], columns=["__bucket", "__offset"]).to_arrow()
    assert _offsets(rows) == {bucket: list(range(stops[None, bucket])) for bucket in range(3)}


def _changes(found: Any, bucket: int) -> list[int]:
    pairs = zip(found["_bucket"].to_pylist(), found["_log_offset"].to_pylist(), strict=True)
    return [offset for each, offset in pairs if each == bucket]


def test_a_point_from_before_the_lakes_first_record_is_refused_and_never_read_as_empty(make_table):
    table = make_table(partitioned=False)
    admin = table.connection.admin()
    rows = iter([(number, "m", number % 100, 0.5, "x" * 40) for number in range(300)])
    admin.alter_table(table.path, set={"table.datalake.enabled": False})
    table.append([next(rows) for _ in range(120)])
    point = table.reader().read_point()
    assert table.reader().scan(read_point=point).count() == 120
    table.clock.advance(HOUR_MS)
    admin.alter_table(table.path, set={"table.log.ttl": "1ms"})
    retain(table.cluster, lambda: all(each.start_offset == each.end_offset for each in admin.buckets(table.info)))
    admin.alter_table(table.path, set={"table.log.ttl": "7d", "table.datalake.enabled": True})
    starts = {key[1]: end for key, end in table.ends.items()}
    table.append([next(rows) for _ in range(60)])
    table.tier()
    kept = table.reader().read_point()
    for reader in (table.reader(), table.reader()):
        for read in (
            lambda reader=reader: reader.scan(read_point=point).to_arrow(),
            lambda reader=reader: reader.scan(read_point=point, where="delay >= 0").to_arrow(),
            lambda reader=reader: reader.scan(read_point=point, limit=1).to_arrow(),
            lambda reader=reader: reader.scan(read_point=point).count(),
            lambda reader=reader: reader.scan(read_point=point).explain(),
        ):
            with pytest.raises(OffsetOutOfRangeError, match=rf"\[0, \d+\).*changelog\(start={{0: {starts[0]}}}\)"):
                read()
        # From where the lake begins on, all is read.
        assert reader.scan(read_point=kept).count() == reader.scan().to_arrow().num_rows == 60
    table.append([next(rows) for _ in range(40)])
    whole = replace(point, buckets=tuple(structs.replace(each, stop=table.ends[each.key]) for each in point.buckets))
    scan = table.reader().scan(["__bucket", "__offset"], read_point=whole, gaps="skip")
    with pytest.warns(GapWarning, match=rf"bucket 0 \[0, {starts[0]}\)"):
        assert _offsets(scan.to_arrow()) == {n: [*range(starts[n], table.ends[None, n])] for n in range(3)}
