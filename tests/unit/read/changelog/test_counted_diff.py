"""A difference in numbers with its first rows: what `diff` returns, whatever the slices are in which it is found."""

import random

import pyarrow as pa
import pytest

from fluss_lab.errors import OffsetOutOfRangeError
from fluss_lab.read.changelog import counted_diff, net_changes
from fluss_lab.read.changelog.counted_diff import ADDED, NEW, OLD, REMOVED
from tests.unit.read.keyed_changes import DAY_MS

pytestmark = pytest.mark.slow

ALL = 1_000_000
FULL = 5


def whole(table, before, after, rows_max=ALL):
    *_, found = table.reader().counted_diff(before, after, rows_max)
    assert found.done == found.buckets
    return found


def as_texts(rows):
    """Rows that can be compared: NaN is itself."""
    return [repr(row) for row in rows.to_pylist()]


def agree(table, before, after):
    """Hold the counts, and all rows in their order, against `diff`."""
    found, info = whole(table, before, after), table.reader().info
    exact = table.reader().diff(before, after)
    names = info.schema.names
    shown = {name: found.table(name, info).select(names) for name in (ADDED, REMOVED, OLD, NEW)}
    assert as_texts(shown[ADDED]) == as_texts(exact.added)
    assert as_texts(shown[REMOVED]) == as_texts(exact.removed)
    key = info.schema.primary_key
    columns = {name: shown[NEW][name] for name in key}
    for name in names if key else ():
        if name not in key:
            columns |= {f"before.{name}": shown[OLD][name], f"after.{name}": shown[NEW][name]}
    assert as_texts(pa.table(columns)) == as_texts(exact.changed)
    counts = {ADDED: exact.added, REMOVED: exact.removed, OLD: exact.changed, NEW: exact.changed}
    assert found.counts == {name: rows.num_rows for name, rows in counts.items()}
    return found


@pytest.fixture
def walked(make_keyed, seed):
    """A random history of few keys in lake and log, and moments of it; at `FULL` every key has a row, whatever the seed."""
    table, rng = make_keyed(), random.Random(seed)
    points = [table.reader().read_point()]
    for number in range(8):
        table.write(rng, 12)
        if number == FULL - 1:
            table.upsert([table.row(rng, (key, "")) for key in range(table.keys)])
        table.clock.advance(10)
        if number in {2, 5}:
            table.tier()
        points.append(table.reader().read_point())
    return table, points


@pytest.mark.parametrize("held", [net_changes.HELD_RECORDS_MAX, 8], ids=["one slice", "slices"])
def test_it_is_the_difference_forward_and_back(walked, monkeypatch, held):
    monkeypatch.setattr(net_changes, "HELD_RECORDS_MAX", held)
    table, points = walked
    for before, after in (
        (points[0], points[-1]),
        (points[-1], points[2]),
        (points[3], points[6]),
        (points[4], points[4]),
    ):
        found = agree(table, before, after)
        assert found.lake_records + found.log_records == sum(
            abs(after.stops.get(key, 0) - before.stops.get(key, 0)) for key in table.logs
        )


def test_slices_hold_no_more_than_they_may(walked, monkeypatch):
    monkeypatch.setattr(net_changes, "HELD_RECORDS_MAX", 6)
    sizes, made = [], net_changes._net

    def seen(source, part, found):
        sizes.append(sum(map(len, found)))
        return made(source, part, found)

    monkeypatch.setattr(net_changes, "_net", seen)
    table, points = walked
    whole(table, points[0], points[FULL])
    assert len(sizes) > 4
    assert max(sizes) <= 6


def test_wide_rows_make_slices_too(walked, monkeypatch):
    monkeypatch.setattr(net_changes, "HELD_BYTES_MAX", 400)
    sizes, made = [], net_changes._net

    def seen(source, part, found):
        sizes.append(sum(each.rows.nbytes for each in found))
        return made(source, part, found)

    table, points = walked
    with monkeypatch.context() as patch:
        patch.setattr(net_changes, "_net", seen)
        whole(table, points[0], points[FULL])
    assert max(sizes) <= 400 < sum(sizes)
    agree(table, points[0], points[FULL])


def test_only_the_first_rows_are_kept(walked, monkeypatch):
    monkeypatch.setattr(net_changes, "HELD_RECORDS_MAX", 8)
    table, points = walked
    exact = whole(table, points[1], points[-1])
    few = whole(table, points[1], points[-1], rows_max=3)
    assert few.counts == exact.counts
    info = table.reader().info
    for name in (ADDED, REMOVED, OLD, NEW):
        rows = few.table(name, info)
        assert as_texts(rows) == as_texts(exact.table(name, info).slice(0, 3))


@pytest.mark.parametrize("held", [net_changes.HELD_RECORDS_MAX, 8], ids=["one slice", "slices"])
def test_large_rows_are_kept_as_far_as_there_is_room(walked, monkeypatch, held):
    monkeypatch.setattr(net_changes, "HELD_RECORDS_MAX", held)
    table, points = walked
    exact = whole(table, points[0], points[FULL])
    info = table.reader().info
    all_rows = exact.table(ADDED, info)
    # A bucket keeps less than the bound, and after the one that reaches it none is kept: at most twice the bound.
    monkeypatch.setattr(counted_diff, "HELD_BYTES_MAX", all_rows.nbytes // 4)
    found = whole(table, points[0], points[FULL])
    assert found.counts == exact.counts
    kept = found.table(ADDED, info)
    assert 0 < kept.num_rows < all_rows.num_rows
    assert as_texts(kept) == as_texts(all_rows.slice(0, kept.num_rows))
    assert found.table(OLD, info).num_rows == found.table(NEW, info).num_rows


def test_of_a_log_table_no_more_is_read_than_is_kept(make_table):
    table, rng = make_table(), random.Random(1)
    begin = table.reader().read_point()
    table.append_random(rng, 500, ["2013-01", "2013-02"])
    table.tier()
    table.append_random(rng, 300, ["2013-01"])
    end = table.reader().read_point()
    agree(table, begin, end)
    found = whole(table, end, begin, rows_max=40)
    assert found.counts == {ADDED: 0, REMOVED: len(table.records), OLD: 0, NEW: 0}
    assert found.records == 40 == found.table(REMOVED, table.reader().info).num_rows


def test_it_goes_step_by_step(walked):
    table, points = walked
    seen = [(each.records, each.done) for each in table.reader().counted_diff(points[0], points[-1], 10)]
    assert seen[0] == (0, 0)
    assert seen == sorted(seen)
    assert len(seen) > 4


def test_what_is_no_longer_available_is_an_error(walked):
    table, points = walked
    table.tier()
    table.maintain("compact")
    table.maintain("expire", ahead_ms=9 * DAY_MS)
    table.leave()
    with pytest.raises(OffsetOutOfRangeError) as expected:
        table.reader().diff(points[1], points[-1])
    with pytest.raises(OffsetOutOfRangeError) as found:
        whole(table, points[1], points[-1])
    assert str(found.value) == str(expected.value)
