"""Files read whole, less the offsets said to be dead, and the log's end come to the rows of the table, over random histories."""

import random
from collections import Counter
from dataclasses import replace
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow.parquet as pq
import pytest

from fluss_lab.errors import OffsetOutOfRangeError
from fluss_lab.read.union import pk_merge
from fluss_lab.read.union.read_columns import make_columns
from fluss_lab.read.union.read_parts import Plan, Request
from fluss_lab.read.union.whole_files import Tails, whole_files
from tests.unit.client.log.fetch_hook import watch_fetches
from tests.unit.read.union.boundaries_kit import row

pytestmark = pytest.mark.slow

PLACE = ["__bucket", "__offset"]
#: More than any tail here has.
MUCH = 1 << 20


def offsets_of(split):
    return pq.ParquetFile(unquote(urlsplit(split.path).path)).read(columns=["__offset"]).column(0).to_pylist()


def tails_of(scan, plan, bytes_max=0, names=PLACE):
    request = Request(make_columns(scan.source.info.schema, names), None)
    return Tails(scan.source, plan, request, bytes_max)


def places(batches):
    return [tuple(each[name] for name in PLACE) for batch in batches for each in batch.to_pylist()]


def read_by_others(scan, seen, bytes_max):
    """Return the rows of a scan as (bucket, offset); None where their reader is not enough."""
    plan = scan.plan()
    tails = tails_of(scan, plan, bytes_max)
    if (files := whole_files(scan.source, plan, tails)) is None:
        seen["left to ours"] += 1
        return None
    found = []
    for each in files:
        dead = set(each.dead.tolist())
        seen["clean"] += len(each.clean)
        seen["holed"] += len(each.holed)
        for split in (*each.clean, *each.holed):
            live = [offset for offset in offsets_of(split) if offset not in dead]
            assert split in each.holed or len(live) == split.rows
            found += [(each.part.bucket.bucket, offset) for offset in live]
    seen["log"] += len(tails.plan.parts)
    seen["kept"] += sum(tail.kept_bytes is not None for tail in tails._looked)
    seen["not kept"] += sum(tail.kept_bytes is None for tail in tails._looked)
    return sorted(found + places(tails.rows()))


@pytest.mark.parametrize("kind", ["pk", "pk_parts"])
def test_files_and_offsets_come_to_the_rows_at_every_moment(make_keyed, seed, kind):
    table, rng = make_keyed(kind), random.Random(seed)
    seen, moments = Counter(), []
    steps = [table.write] * 5 + [table.tier] * 3 + [table.compact]
    for step in [table.write, table.tier, *rng.choices(steps, k=16), table.tier]:
        step()
        table.clock.advance(10)
        moments.append(table.keep())
        for moment in [moments[-1], rng.choice(moments)]:
            scan = table.scan(PLACE, **moment.asked)
            try:
                found = read_by_others(scan, seen, rng.choice([0, 100, MUCH]))
            except OffsetOutOfRangeError:
                continue  # gone from where the plan found it
            if found is not None:
                wanted = [tuple(row[name] for name in PLACE) for row in table.expected(moment.stops)]
                assert found == sorted(wanted), (moment, scan.explain())
    assert all(seen[each] for each in ("clean", "holed", "log", "kept", "not kept")), seen


def test_a_range_of_offsets_is_left_to_a_reader_of_rows(make_keyed):
    table = make_keyed("pk")
    table.write(3)
    table.tier()
    (first, *_) = table.scan().plan().splits
    assert first.rows > 1
    for where in (f"__offset > {first.min_offset}", f"__offset < {first.max_offset}"):
        scan = table.scan(where=where, buckets=[first.bucket])
        assert whole_files(scan.source, scan.plan(), tails_of(scan, scan.plan())) is None
    plan = table.scan(buckets=[first.bucket]).plan()
    assert whole_files(scan.source, plan, tails_of(scan, plan)) is not None


@pytest.fixture
def tailed(make_keyed):
    """A table of several buckets, all with files; the log since ends rows of these, and of its own."""
    table = make_keyed()
    table.upsert([row(key) for key in range(60)])
    table.tier()
    for name in ("since", "later"):
        table.upsert([row(key, name) for key in range(0, 80, 3)])
    table.delete([{"id": key} for key in range(0, 60, 12)])
    return table


@pytest.fixture
def reads(monkeypatch):
    """The columns of each read of the log."""
    found, read = [], pk_merge.read_range

    def seen(*args, projection, **named):
        found.append(tuple(projection))
        return read(*args, projection=projection, **named)

    monkeypatch.setattr(pk_merge, "read_range", seen)
    return found


def expected_of_log(table, wanted=lambda _: True):
    return sorted(
        tuple(each[name] for name in PLACE)
        for each in table.expected(table.stops)
        if each["name"] == "later" and wanted(each)
    )


def test_what_is_kept_of_the_log_is_read_once(tailed, reads):
    scan = tailed.scan()
    plan = scan.plan()
    assert len(plan.parts) > 1
    assert all(part.splits and part.lake_stop < part.stop for part in plan.parts)
    tails = tails_of(scan, plan, MUCH, ["name", *PLACE])
    assert whole_files(scan.source, plan, tails)
    assert reads == [("name",)] * len(plan.parts)
    assert sorted(places(tails.rows())) == expected_of_log(tailed)
    assert len(reads) == len(plan.parts)


@pytest.mark.parametrize("bytes_max", [0, 100, MUCH])
def test_short_ends_of_the_log_come_with_one_call_where_their_rows_are_wanted(tailed, monkeypatch, bytes_max):
    scan = tailed.scan()
    plan = scan.plan()
    asked = watch_fetches(monkeypatch, scan.source.connection)
    tails = tails_of(scan, plan, bytes_max, ["name", *PLACE])
    assert whole_files(scan.source, plan, tails)
    assert sorted(places(tails.rows())) == expected_of_log(tailed)
    together = [each for each in asked if each > 1]
    assert together == ([len(plan.parts)] if bytes_max else [])


def test_rows_that_are_not_wanted_here_are_not_asked_for(tailed, reads):
    scan = tailed.scan()
    plan = scan.plan()
    tails = tails_of(scan, plan, 0, ["name", *PLACE])
    assert whole_files(scan.source, plan, tails)
    assert reads == [("id",)] * len(plan.parts)


def test_all_buckets_rows_together_have_no_more_than_the_room(tailed):
    scan = tailed.scan()
    plan = scan.plan()
    tails = tails_of(scan, plan, MUCH)
    assert whole_files(scan.source, plan, tails)
    sizes = [tail.kept_bytes for tail in tails._looked]
    assert all(sizes)
    some = tails_of(scan, plan, sum(sizes) - 1)
    assert whole_files(scan.source, plan, some)
    assert [tail.kept_bytes for tail in some._looked] == [*sizes[:-1], None]
    # Once one has no room, no more are tried.
    none = tails_of(scan, plan, sizes[0] - 1)
    assert whole_files(scan.source, plan, none)
    assert [tail.kept_bytes for tail in none._looked] == [None] * len(sizes)
    assert sorted(places(some.rows())) == sorted(places(none.rows())) == expected_of_log(tailed)


@pytest.mark.parametrize("keys", [range(300), range(3)], ids=["many keys", "keys written over and over"])
def test_how_large_rows_without_room_are_is_known_about(make_keyed, keys):
    table = make_keyed()
    table.upsert([row(key) for key in range(300)])
    table.tier()
    for turn in range(10):
        table.upsert([row(key, f"later {turn} {time:02}") for time in range(300 // len(keys)) for key in keys])
    scan = table.scan()
    plan = scan.plan()
    every = tails_of(scan, plan, MUCH)
    assert every.expected_bytes == 0
    assert whole_files(scan.source, plan, every)
    size = sum(batch.nbytes for batch in every.rows())
    for room in (MUCH, every._looked[0].kept_bytes - 1):
        tails = tails_of(scan, plan, room)
        assert whole_files(scan.source, plan, tails)
        buckets = len(plan.parts) if room == MUCH else 1
        assert 0.6 * size * buckets / len(plan.parts) < tails.expected_bytes < 1.6 * size, (size, room)
    unwanted = tails_of(scan, plan, 0)
    assert whole_files(scan.source, plan, unwanted)
    assert unwanted.expected_bytes == 0


@pytest.mark.parametrize("bytes_max", [0, MUCH])
def test_a_filter_leaves_out_rows_of_the_log_and_none_that_it_ends(tailed, bytes_max):
    every, some = tailed.scan(), tailed.scan(where="id >= 30 and name = 'later'")
    ended = []
    for scan in (every, some):
        # The same files, of which a filter leaves some out.
        plan = every.plan() if scan is every else Plan(_filtered_like(every.plan(), some.plan()), None)
        tails = tails_of(scan, plan, bytes_max)
        ended.append([each.dead.tolist() for each in whole_files(scan.source, plan, tails)])
    assert ended[0] == ended[1]
    assert any(ended[0])
    assert sorted(places(tails.rows())) == expected_of_log(tailed, lambda each: each["id"] >= 30)


def _filtered_like(parts, others):
    filters = {part.key: part.filter for part in others.parts}
    return tuple(replace(part, filter=filters[part.key]) for part in parts.parts)


@pytest.mark.parametrize("bytes_max", [0, MUCH])
def test_what_was_looked_at_comes_to_the_same_rows_whatever_moves_then(tailed, bytes_max):
    scan = tailed.scan()
    plan, wanted = scan.plan(), expected_of_log(tailed)
    tails = tails_of(scan, plan, bytes_max)
    assert whole_files(scan.source, plan, tails)
    for _ in range(2):
        tailed.tier()
        tailed.retain()
        tailed.upsert([row(1, "newest")])
    starts = {place: status.start_offset for place, status in tailed.statuses().items()}
    assert all(starts[part.key] > part.lake_stop for part in plan.parts), "nothing moved: nothing is shown"
    assert sorted(places(tails.rows())) == wanted


def test_the_log_of_buckets_without_files_is_among_the_rows(make_keyed):
    table = make_keyed()
    table.upsert([row(1)])
    table.tier()
    table.upsert([row(key, "later") for key in range(30)])
    scan = table.scan()
    plan = scan.plan()
    assert {bool(part.splits) for part in plan.parts} == {True, False}
    tails = tails_of(scan, plan, MUCH)
    assert whole_files(scan.source, plan, tails)
    assert sorted(places(tails.rows())) == expected_of_log(table)


def test_offsets_are_reported_file_by_file_and_not_where_a_stop_lies_within_one(make_keyed):
    table = make_keyed("pk")
    table.write(3)
    table.tier()
    scan = table.scan()
    plan, source = scan.plan(), scan.source
    stops = {part.key: part.lake_stop for part in plan.parts}
    some = {part.key: np.array([0], dtype=np.int64) for part in plan.parts}
    found = source.lake_source.dead_offsets(plan.splits, stops=stops, ended=some)
    assert [each.tolist() for each in found] == [[0] if split.min_offset == 0 else [] for split in plan.splits]
    long = next(split for split in plan.splits if split.rows > 1)
    within = {(long.partition, long.bucket): long.max_offset}
    assert source.lake_source.dead_offsets([long], stops=within, ended={}) is None
