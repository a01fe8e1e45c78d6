"""Files read whole, less the offsets said to be dead, and the log's end come to the rows of the table, over random histories."""

import random
from collections import Counter
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow.parquet as pq
import pytest

from fluss_lab.errors import OffsetOutOfRangeError
from fluss_lab.read.union.read_columns import make_columns
from fluss_lab.read.union.read_parts import Request
from fluss_lab.read.union.read_plan import read_rows
from fluss_lab.read.union.whole_files import tails, whole_files

pytestmark = pytest.mark.slow

PLACE = ["__bucket", "__offset"]


def offsets_of(split):
    return pq.ParquetFile(unquote(urlsplit(split.path).path)).read(columns=["__offset"]).column(0).to_pylist()


def read_by_others(scan, seen):
    """Return the rows of a scan as (bucket, offset); None where their reader is not enough."""
    plan = scan.plan()
    if (files := whole_files(scan.source, plan)) is None:
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
    log = tails(plan)
    seen["log"] += len(log.parts)
    request = Request(make_columns(scan.source.info.schema, PLACE), None)
    for batch in read_rows(scan.source, log, request):
        found += list(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))
    return sorted(found)


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
                found = read_by_others(scan, seen)
            except OffsetOutOfRangeError:
                continue  # gone from where the plan found it
            if found is not None:
                wanted = [tuple(row[name] for name in PLACE) for row in table.expected(moment.stops)]
                assert found == sorted(wanted), (moment, scan.explain())
    assert all(seen[each] for each in ("clean", "holed", "log")), seen


def test_a_range_of_offsets_is_left_to_a_reader_of_rows(make_keyed):
    table = make_keyed("pk")
    table.write(3)
    table.tier()
    (first, *_) = table.scan().plan().splits
    assert first.rows > 1
    for where in (f"__offset > {first.min_offset}", f"__offset < {first.max_offset}"):
        scan = table.scan(where=where, buckets=[first.bucket])
        assert whole_files(scan.source, scan.plan()) is None
    assert whole_files(scan.source, table.scan(buckets=[first.bucket]).plan()) is not None


def test_offsets_are_told_file_by_file_and_not_where_a_stop_lies_within_one(make_keyed):
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
