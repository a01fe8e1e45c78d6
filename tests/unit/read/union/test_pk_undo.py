"""Rows of the past: live rows, less what the log did since."""

import random

import pyarrow as pa
import pytest

from fluss_lab.errors import (
    OffsetOutOfRangeError,
    UnsupportedError,
)
from fluss_lab.read.union import pk_plan, pk_undo
from fluss_lab.read.union.read_parts import Request
from fluss_lab.read.union.read_plan import read_rows
from tests.unit.read.kit import rows_of
from tests.unit.read.union.boundaries_kit import check, row, unlaked

# -- without a lake ----------------------------------------------------------------------------------------------------


def test_rows_of_the_past_follow_from_the_live_ones_and_what_came_after(make_keyed):
    table = unlaked(make_keyed)
    kept = table.keep()
    check(table, kept)
    table.upsert([row(key, "new") for key in range(30, 80)])
    table.delete([{"id": key} for key in range(10)])
    table.clock.advance(10)
    scan = table.scan(["id", "name", "__offset", "__bucket"], **kept.asked)
    assert all(each.live for each in scan.explain().buckets)
    assert "taken back" in repr(scan.explain())
    wanted = table.expected(kept.stops)
    assert rows_of(scan.to_arrow()) == [{name: each[name] for name in scan.schema.names} for each in wanted]
    assert scan.count() == len(wanted)
    check(table, table.now())


@pytest.mark.slow
@pytest.mark.parametrize("kept_bytes", [200, 64 << 20], ids=["window by window", "at once"])
def test_many_rows_taken_back_are_taken_in_order(make_keyed, monkeypatch, kept_bytes):
    monkeypatch.setattr(pk_undo, "KEPT_BYTES", kept_bytes)
    monkeypatch.setattr(pk_plan, "FOLDED_MIN", 0)
    monkeypatch.setattr(pk_plan, "FOLDED_RATIO", 0)
    table = make_keyed(**{"table.datalake.enabled": False})
    table.upsert([row(key, "first") for key in range(50)])
    kept = table.keep()
    table.clock.advance(7)
    order = list(range(40))
    random.Random(3).shuffle(order)
    for key in order:
        table.upsert([row(key, "second")])
        table.delete([{"id": key}] if key % 2 else [])
    # The log still has the records of these rows: their times are found.
    assert all(part.live for part in table.scan().plan().parts)
    assert all(part.live for part in table.scan(**kept.asked).plan().parts)
    check(table, kept)
    check(table, table.now())
    check(table, table.at(table.clock.now_ms() - 1))


def test_the_time_of_a_row_taken_back_whose_record_has_gone_is_an_error_only_where_it_is_asked_for(make_keyed):
    table = unlaked(make_keyed)
    kept = table.keep()
    table.upsert([row(key, "new") for key in range(60)])
    table.retain()
    table.upsert([row(key, "newer") for key in range(60)])
    if table.within_reach(kept):
        with pytest.raises(UnsupportedError, match="leave __timestamp out"):
            table.scan(**kept.asked).to_arrow()
    later = table.keep()
    table.upsert([row(key, "newest") for key in range(60)])
    table.scan(["id", "__offset"], **later.asked).to_arrow()


def test_the_time_of_a_row_taken_back_comes_from_a_lake_snapshot_that_came_after_the_point(make_keyed):
    probe, table = make_keyed(), make_keyed()
    probe.upsert([row(key, "probe") for key in range(20)])
    buckets = {each["id"]: each["__bucket"] for each in rows_of(probe.scan(["id", "__bucket"]).to_arrow())}
    last = [key for key in buckets if buckets[key] == max(buckets.values())]
    table.upsert([row(key, "first") for key in last])
    table.tier()
    table.clock.advance(5)
    table.upsert([row(key, "second") for key in buckets])
    kept = table.keep()
    table.tier()
    table.retain()
    table.upsert([row(key, "third") for key in buckets])
    # The point's own snapshot has nothing of the first bucket, and does not reach the point in the last one.
    assert all(part.live for part in table.scan(**kept.asked).plan().parts)
    check(table, kept)


def test_a_scan_of_live_rows_that_the_server_lost_goes_on_where_it_was(make_keyed, keyed_cluster):
    table = unlaked(make_keyed)
    kept = table.keep()
    table.upsert([row(key, "later") for key in range(0, 60, 3)])
    scan = table.scan(["id", "name", "__offset"], **kept.asked)
    assert all(part.live for part in scan.plan().parts)
    batches = read_rows(scan.source, scan.plan(), Request(scan.columns, None))
    first = next(batches)
    keyed_cluster.restart()
    found = pa.Table.from_batches([first, *batches])
    assert 0 < first.num_rows < len(found)
    wanted = table.expected(kept.stops)
    assert rows_of(found) == [{name: each[name] for name in scan.schema.names} for each in wanted]


def test_a_log_that_is_whole_is_folded_and_one_that_lacks_its_begin_is_not(make_keyed):
    table = make_keyed(**{"table.datalake.enabled": False})
    table.upsert([row(key) for key in range(40)])
    assert not any(part.live for part in table.scan().plan().parts)
    kept = table.keep()
    for number in range(6):
        table.upsert([row(key, str(number)) for key in range(40)])
    table.retain()
    fresh = table.scan()
    assert all(part.live for part in fresh.plan().parts)
    with pytest.raises(OffsetOutOfRangeError, match=r"no longer available: available from offset \d+, time"):
        table.scan(**kept.asked).to_arrow()
