"""What tasks read, put together, is what one reader reads: of any table, cut anywhere."""

import json
import random

import pyarrow as pa
import pytest

from fluss_lab.errors import CorruptDataError
from fluss_lab.lake import splits_to_json
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read.filter.filter_json import filter_from_json, filter_to_json
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.table_reader import TableReader
from fluss_lab.read.union.read_columns import make_columns
from fluss_lab.read.union.read_parts import Request
from fluss_lab.read.union.read_plan import read_rows
from fluss_lab.spark.source.input_partitions import Share, change_shares, ranges_from_json, ranges_to_json, row_shares
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round

pytestmark = pytest.mark.slow

SYSTEM = ["__bucket", "__offset", "__timestamp"]
COLUMNS = {"id": "int", "month": "string", "delay": "int"}


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster() as running:
        running.connection.admin().create_database("db")
        yield running


def tier(cluster, info):
    run_round(cluster.connection, cluster.connection.lake_storage(), LocalTieringExecutor(), table_id=info.table_id)


def write(cluster, path, rng, *, keyed, count):
    rows = {
        "id": [rng.randrange(400) for _ in range(count)],
        "month": [f"m{rng.randrange(2)}" for _ in range(count)],
        "delay": [rng.choice([None, rng.randrange(100)]) for _ in range(count)],
    }
    table = pa.table(rows, pa.schema([("id", pa.int32()), ("month", pa.string()), ("delay", pa.int32())]))
    if not keyed:
        with cluster.connection.append_writer(path) as writer:
            writer.append(table)
        return
    with cluster.connection.upsert_writer(path) as writer:
        writer.upsert(table)
        writer.flush()
        writer.delete(table.slice(0, count // 8).select(["id", "month"]))


def make(cluster, name, rng, *, keyed, rounds, tail, lake=True):
    path = TablePath("db", name)
    definition = make_descriptor(
        COLUMNS,
        primary_key=["id", "month"] if keyed else [],
        partitioned_by=["month"],
        buckets=2,
        bucket_key=["id"],
        properties={"table.datalake.enabled": lake},
    )
    info = cluster.connection.admin().create_table(path, definition)
    for _ in range(rounds):
        write(cluster, path, rng, keyed=keyed, count=rng.randrange(100, 400))
        tier(cluster, info)
    if tail:
        write(cluster, path, rng, keyed=keyed, count=tail)
    return TableReader(cluster.connection, path)


KINDS = [
    ("keyed", {"keyed": True, "rounds": 4, "tail": 60}),
    ("keyed_long_tail", {"keyed": True, "rounds": 2, "tail": 500}),
    ("keyed_all_in_lake", {"keyed": True, "rounds": 3, "tail": 0}),
    ("keyed_never_tiered", {"keyed": True, "rounds": 0, "tail": 300, "lake": False}),
    ("log", {"keyed": False, "rounds": 3, "tail": 120}),
    ("log_never_tiered", {"keyed": False, "rounds": 0, "tail": 300, "lake": False}),
    ("empty", {"keyed": True, "rounds": 0, "tail": 0}),
]


@pytest.mark.parametrize(("name", "kind"), KINDS, ids=[name for name, _ in KINDS])
def test_the_shares_of_a_scan_come_to_the_scan(cluster, seed, name, kind):
    rng = random.Random(seed)
    reader = make(cluster, name, rng, **kind)
    for where in (None, "delay > 50", "month = 'm1' and delay is null", "__offset >= 100"):
        scan = reader.scan([*COLUMNS, *SYSTEM], where)
        expected = sorted(map(tuple, (row.values() for row in scan.to_arrow().to_pylist())), key=repr)
        for tasks in (1, 3, 40):
            shares = row_shares(scan.plan(), tasks, keyed=kind["keyed"], records_min=rng.choice([1, 20, 100]))
            found = [row for share in shares for row in rows_of(cluster, scan, share)]
            # Each row by exactly one task.
            assert sorted(found, key=repr) == expected


def rows_of(cluster, scan, share):
    """Read a share as a task does: from text, with nothing of the reader that planned it."""
    info = scan.source.info
    where = scan.selection.filter
    sent = None if where is None else filter_from_json(filter_to_json(where), info.schema)
    received = Share.from_json(share.to_json(), info, sent)
    assert where is not None or received == share
    columns = make_columns(info.schema, [*COLUMNS, *SYSTEM])
    batches = read_rows(TableSource(cluster.connection, info, None), received.plan(), Request(columns, sent))
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def test_a_long_bucket_is_cut_into_pieces_of_about_the_same_size(cluster, seed):
    rng = random.Random(seed)
    for name, keyed in (("cut_keyed", True), ("cut_log", False)):
        scan = make(cluster, name, rng, keyed=keyed, rounds=6, tail=20).scan()
        plan = scan.plan()
        shares = row_shares(plan, 12, keyed=keyed, records_min=1)
        assert len(shares) >= 10
        rows = [len(rows_of(cluster, scan, share)) for share in shares]
        assert max(rows) <= 3 * sum(rows) / 12
        files = [{split.path for part in share.parts for split in part.splits} for share in shares]
        assert all(found < set().union(*files) for found in files)


def test_a_bucket_with_a_long_tail_stays_whole(cluster, seed):
    scan = make(cluster, "tail", random.Random(seed), keyed=True, rounds=1, tail=1000).scan()
    plan = scan.plan()
    shares = row_shares(plan, 100, keyed=True, records_min=1)
    assert sum(len(share.parts) for share in shares) == len(plan.parts)


def test_small_pieces_share_a_task_and_none_makes_none(cluster, seed):
    scan = make(cluster, "small", random.Random(seed), keyed=True, rounds=1, tail=10).scan()
    assert len(row_shares(scan.plan(), 8, keyed=True)) == 1
    nothing = scan.plan().__class__((), None)
    assert row_shares(nothing, 8, keyed=True) == []


@pytest.mark.parametrize("keyed", [True, False])
def test_the_shares_of_a_changelog_come_to_the_changelog(cluster, seed, keyed):
    rng = random.Random(seed)
    log = make(cluster, f"changes_{keyed}", rng, keyed=keyed, rounds=3, tail=50).changelog()
    expected = log.to_arrow().to_pylist()
    for tasks in (1, 30):
        shares = change_shares(log.plan(), tasks, whole=False, records_min=rng.choice([1, 50]))
        received = [ranges_from_json(ranges_to_json(ranges)) for ranges in shares]
        assert received == shares
        assert [row for ranges in received for part in ranges for batch in log.read(part) for row in batch.to_pylist()] == expected  # fmt: skip
    whole = change_shares(log.plan(), 30, whole=True, records_min=1)
    assert [part for ranges in whole for part in ranges] == log.plan()


def test_text_that_is_no_share_is_refused(cluster, seed):
    scan = make(cluster, "refused", random.Random(seed), keyed=True, rounds=0, tail=1).scan()
    empty = splits_to_json([])
    for text in ("", "[]", "{}", json.dumps({"parts": [[1]], "splits": empty, "snapshot_id": 1})):
        with pytest.raises(CorruptDataError, match="share of a scan"):
            Share.from_json(text, scan.source.info, None)
    for text in ("", "[1]", "[[1, 2]]"):
        with pytest.raises(CorruptDataError, match="ranges of a changelog"):
            ranges_from_json(text)
