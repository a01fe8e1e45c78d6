"""A bucket that the cluster does not know: whatever touches it is refused, by name; what does not, goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fluss_lab.client import KnownBucket, UnknownBucket
from fluss_lab.errors import CorruptDataError, FlussError, StorageError
from fluss_lab.model import OffsetSpec, TablePath
from fluss_lab.model.bucketing import iceberg_bucket_ids
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.repair.lake_repair import plan_repair
from fluss_lab.tiering.round.table_lag import table_lag
from fluss_lab.tiering.round.tiering_round import run_round
from fluss_lab.workbench.health.bucket_findings import table_statuses, troubles_of
from fluss_lab.workbench.lab import Lab
from tests.unit.read.kit import OPTIONS, until

LAKE = {"table.datalake.enabled": True, "table.datalake.freshness": "1h"}
ROWS = 40
#: Of so many rows these many are tiered, where a table is.
TIERED = 25


def _rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": number, "p": "ab"[number % 2], "s": f"text {number}" * 5} for number in range(first, first + count)]


def _bucket_of(number: int) -> int:
    import pyarrow as pa

    return int(iceberg_bucket_ids(pa.array([number], pa.int32()), 2)[0].as_py())


def _open(folder: Path) -> tuple[EmbeddedCluster, Lab]:
    cluster = EmbeddedCluster(folder, OPTIONS, client={"client.request-timeout": "10s"})
    cluster.start()
    return cluster, Lab(cluster.connection, folder=None, attachment=None, place={})


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """Tables of which bucket 0 cannot be opened any more, and what was known of them before."""
    folder = tmp_path_factory.mktemp("broken") / "lab"
    cluster, lab = _open(folder)
    lab.create_database("db")
    columns = {"id": "int", "p": "string", "s": "string"}
    tables = {
        "plain": lab.create_table("db.plain", columns, bucket_key=["id"], buckets=2, properties=LAKE),
        "tiered": lab.create_table("db.tiered", columns, bucket_key=["id"], buckets=2, properties=LAKE),
        "keyed": lab.create_table("db.keyed", columns, primary_key=["id"], buckets=2, properties=LAKE),
    }
    snapshots, points = {}, {}
    for name, table in tables.items():
        write = table.upsert if name == "keyed" else table.append
        write(_rows(0, TIERED))
        if name == "tiered":
            _tier(cluster, lab, "tiered")
            snapshots[name] = cluster.connection.admin().lake_snapshot(table.path).snapshot_id
        write(_rows(TIERED, ROWS - TIERED))
        points[name] = table.read_point()
    cluster.stop()
    for point in points.values():
        _spoil(folder, point.table_id)
    cluster.start()
    yield SimpleNamespace(cluster=cluster, folder=folder, lab=lab, snapshots=snapshots, points=points)
    cluster.close()


def _spoil(folder: Path, table_id: int) -> None:
    """Put a folder where the first segment of bucket 0 was: it cannot be read."""
    path = next((folder / "tablet" / "data" / f"t{table_id}" / "b0").glob("*.log"))
    path.unlink()
    path.mkdir()


def _tier(cluster: EmbeddedCluster, lab: Lab, name: str) -> Any:
    storage = cluster.connection.lake_storage()
    return run_round(
        cluster.connection, storage, LocalTieringExecutor(), table_id=lab.table(f"db.{name}").info.table_id
    )


READS = {
    "rows": lambda table: table.scan().to_arrow(),
    "count": lambda table: table.scan().count(),
    "rows with a filter": lambda table: table.scan(where="s like 'text%'").to_arrow(),
    "count with a filter": lambda table: table.scan(where="p = 'a'").count(),
    "batches": lambda table: list(table.scan().to_batches()),
    "limit": lambda table: table.scan(limit=1).to_arrow(),
    "limited count": lambda table: table.scan(limit=1).count(),
    "the bucket": lambda table: table.scan(buckets=[0]).to_arrow(),
    "a time": lambda table: table.scan(as_of=_last_ms(table)).to_arrow(),
    "explain": lambda table: table.scan().explain(),
    "read point": lambda table: table.read_point(),
    "changelog": lambda table: table.changelog().to_arrow(),
    "changelog to now": lambda table: table.changelog(start={0: 0, 1: 0}).to_arrow(),
    "changelog explained": lambda table: table.changelog().explain(),
    "changelog of the bucket": lambda table: table.changelog(buckets=[0]).to_arrow(),
    "changelog from now": lambda table: table.changelog(start="latest").to_arrow(),
    "seek": lambda table: table.seek(_last_ms(table)),
    "diff": lambda table: table.diff(_last_ms(table)),
    "earliest": lambda table: table.lab.connection.admin().list_offsets(table.info, OffsetSpec.earliest()),
    "latest": lambda table: table.lab.connection.admin().list_offsets(table.info, OffsetSpec.latest()),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("name", ["plain", "tiered", "keyed"])
def test_a_read_that_touches_an_unknown_bucket_is_refused(broken, name, read):
    table = broken.lab.table(f"db.{name}")
    with pytest.raises(FlussError, match=r"bucket 0|/b0"):
        READS[read](table)


def _last_ms(table: Any) -> int:
    """Return the time of the last record that is known: as late as may be asked for."""
    statuses = table.lab.connection.admin().buckets(table.info)
    known = [each.max_timestamp_ms or 0 for each in statuses if isinstance(each, KnownBucket)]
    return max(known, default=table.info.created_ms)


def _statuses(broken: SimpleNamespace, name: str) -> list[Any]:
    connection = broken.cluster.connection
    return list(connection.admin().buckets(connection.table_info(TablePath("db", name))))


@pytest.mark.parametrize("name", ["plain", "tiered", "keyed"])
def test_what_does_not_touch_an_unknown_bucket_goes_on(broken, name):
    table = broken.lab.table(f"db.{name}")
    mine = [row for row in _rows(0, ROWS) if _bucket_of(row["id"]) == 1]
    assert mine
    well = table.scan(buckets=[1])
    assert (well.to_arrow().to_pylist(), table.scan(buckets=[1]).count()) == (mine, len(mine))
    assert "bucket 1" in repr(well.explain())
    if name != "keyed":  # pruned by the bucket key
        assert table.scan(where=f"id = {mine[0]['id']}").to_arrow().to_pylist() == mine[:1]
    assert table.changelog(buckets=[1]).to_arrow()["id"].to_pylist() == [row["id"] for row in mine]
    assert table.changelog(start={1: 2}).to_arrow().num_rows == len(mine) - 2
    if name == "keyed":
        found = table.lookup([{"id": mine[0]["id"]}]).to_pylist()
        assert found == mine[:1]


def test_a_point_of_some_buckets_is_none_of_the_others(broken):
    table = broken.lab.table("db.plain")
    point = table.scan(buckets=[1]).read_point
    kept = ReadPoint.from_json(point.to_json())
    assert kept == point
    assert "1 not known" in repr(kept)
    for read in (
        lambda: table.scan(read_point=kept).count(),
        lambda: table.scan(read_point=kept, buckets=[0]).to_arrow(),
        lambda: table.changelog(end=kept).to_arrow(),
        lambda: kept.records,
        lambda: kept.stops,
    ):
        with pytest.raises(StorageError, match="bucket 0"):
            read()
    assert table.scan(read_point=kept, buckets=[1]).count() > 0


def test_a_point_of_some_buckets_is_not_compared_with_others(broken):
    table = broken.lab.table("db.tiered")
    reader = TableReader(broken.cluster.connection, table.path)
    whole, some = table.read_point(as_of=broken.snapshots["tiered"]), table.scan(buckets=[1]).read_point
    for before, after in ((whole, some), (some, whole), (some, some)):
        for read in (table.diff, lambda *points: list(reader.counted_diff(*points, 10))):
            with pytest.raises(StorageError, match="bucket 0"):
                read(before, after)
    assert not table.diff(whole, whole)


def test_what_a_lake_snapshot_holds_of_an_unknown_bucket_can_be_read(broken):
    table = broken.lab.table("db.tiered")
    snapshot_id = broken.snapshots["tiered"]
    found = table.scan(as_of=snapshot_id)
    assert sorted(row["id"] for row in found.to_arrow().to_pylist()) == list(range(TIERED))
    assert table.scan(as_of=snapshot_id).count() == TIERED
    ends = {key[1]: stop for key, stop in table.read_point(as_of=snapshot_id).stops.items()}
    assert table.changelog(start={0: 0}, end={0: ends[0]}).to_arrow().num_rows == ends[0]
    # Beyond what the lake has, nobody can say.
    with pytest.raises(FlussError, match=r"bucket"):
        table.changelog(start={0: 0}, end={0: ends[0] + 1}).to_arrow()


@pytest.mark.parametrize("name", ["plain", "tiered", "keyed"])
def test_a_round_over_an_unknown_bucket_fails_with_its_error(broken, name):
    with pytest.raises(StorageError, match=rf"db\.{name}, bucket 0"):
        _tier(broken.cluster, broken.lab, name)
    with pytest.raises(StorageError, match=rf"db\.{name}, bucket 0"):
        _plan_repair(broken, name)


def _plan_repair(broken: SimpleNamespace, name: str) -> Any:
    connection = broken.cluster.connection
    return plan_repair(connection, connection.lake_storage(), TablePath("db", name))


def test_status_and_listing_show_the_error_and_no_numbers(broken):
    first, second = _statuses(broken, "plain")
    assert isinstance(first, UnknownBucket)
    assert isinstance(second, KnownBucket)
    with pytest.raises(StorageError, match="bucket 0"):
        first.require()
    rows = list(broken.lab.table("db.plain").buckets())
    assert (rows[0]["start"], rows[0]["end"], rows[0]["bytes"]) == (None, None, None)
    assert "bucket 0" in rows[0]["error"]
    assert (rows[1]["error"], rows[1]["start"]) == (None, 0)
    (reported,) = [row for row in broken.lab.status().tables if row["table"] == "db.plain"]
    assert (reported["end"], reported["lag"], reported["rows_in_cluster"]) == (None, None, None)
    assert "bucket 0" in reported["last_error"]
    assert any("db.plain, bucket 0" in trouble for trouble in troubles_of(table_statuses(broken.cluster.connection)))
    values = {family.name: [each.value for each in family.samples] for family in broken.cluster.tablet().metrics()}
    assert values["fluss_tabletserver_unknownBuckets"] == [3]
    lag = table_lag(broken.cluster.connection, TablePath("db", "plain"), 10**13)
    assert (lag.is_complete, "bucket 0" in (lag.error or "")) == (False, True)


def test_a_count_at_a_point_reads_what_nobody_vouches_for(broken):
    """The point is from before the damage: its offsets are known, and yet the records cannot be had."""
    table = broken.lab.table("db.plain")
    for read in (lambda scan: scan.count(), lambda scan: scan.to_arrow()):
        with pytest.raises(FlussError, match=r"bucket 0|/b0"):
            read(table.scan(read_point=broken.points["plain"]))
    point = broken.points["plain"]
    assert table.scan(read_point=point, buckets=[1]).count() == point.stops[None, 1]


# -- a log that ends early, and storage that is not there --------------------------------------------------------------


def _damage(folder: Path, table_id: int) -> None:
    """Spoil the second batch of bucket 0; a good one lies behind it, and no recovery point vouches for any."""
    path = next((folder / "tablet" / "data" / f"t{table_id}" / "b0").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[len(data) * 2 // 3 - 5] ^= 0xFF
    path.write_bytes(data)
    (path.parent / "recovery-point").unlink(missing_ok=True)


@pytest.mark.parametrize("is_keyed", [False, True], ids=["log", "keyed"])
def test_a_log_that_was_ended_early_is_not_taken_for_a_shorter_one(tmp_path, is_keyed):
    cluster, lab = _open(tmp_path / "lab")
    lab.create_database("db")
    definition = {"primary_key": ["id"]} if is_keyed else {}
    table = lab.create_table("db.t", {"id": "int"}, buckets=1, properties=LAKE, **definition)
    for batch in range(3):
        (table.upsert if is_keyed else table.append)([{"id": batch * 10 + number} for number in range(10)])
    table_id = table.info.table_id
    cluster.stop()
    _damage(tmp_path / "lab", table_id)
    cluster.start()
    try:
        reads = {
            **{name: READS[name] for name in ("rows", "count", "changelog", "seek", "explain", "limit")},
            "round": lambda _: run_round(
                cluster.connection, cluster.connection.lake_storage(), LocalTieringExecutor(), table_id=table_id
            ),
            "repair": lambda _: plan_repair(cluster.connection, cluster.connection.lake_storage(), table.path),
        }
        for name, read in reads.items():
            with pytest.raises(CorruptDataError, match="bucket 0") as caught:
                read(lab.table("db.t"))
            assert ".log" in str(caught.value), name
        values = {family.name: [each.value for each in family.samples] for family in cluster.tablet().metrics()}
        assert values["fluss_tabletserver_unknownBuckets"] == [1]
        assert values["fluss_tabletserver_table_bucket_log_endOffset"] == []
        # What lies before the damage is still served, to those who say where it ends.
        assert table.changelog(start={0: 0}, end={0: 10}).to_arrow()["id"].to_pylist() == list(range(10))
        with pytest.raises(CorruptDataError, match=r"\.log"):
            table.changelog(start={0: 0}, end={0: 30}).to_arrow()
    finally:
        cluster.close()


def test_a_table_is_not_begun_in_the_lake_at_a_start_that_nobody_confirmed(tmp_path):
    mount = tmp_path / "mount"
    options = {
        "remote.data.dir": str(mount), "log.segment.file-size": "2kb", "remote.log.task-interval-duration": "20ms",
        "log.flush.interval": "10ms", "log.retention.check-interval": "20ms",
    }  # fmt: skip
    cluster = EmbeddedCluster(tmp_path / "lab", options)
    cluster.start()
    lab = Lab(cluster.connection, folder=None, attachment=None, place={})
    lab.create_database("db")
    properties = {**LAKE, "table.log.tiered.local-segments": 1}
    columns = {"id": "int", "s": "string"}
    table = lab.create_table("db.t", columns, buckets=1, properties=properties)
    other = lab.create_table("db.other", columns, buckets=1, properties=LAKE)
    for first in range(0, 240, 10):
        table.append([{"id": number, "s": "text" * 20} for number in range(first, first + 10)])
    other.append([{"id": 1, "s": "x"}])
    statuses = lambda: cluster.connection.admin().buckets(table.info)  # noqa: E731
    until(lambda: statuses()[0].require().local_start_offset > 100, "copies")
    cluster.stop()
    mount.rename(tmp_path / "unmounted")
    cluster.start()
    try:
        (status,) = statuses()
        local = status.require().local_start_offset
        assert local > 100
        with pytest.raises(FlussError, match="bucket 0"):
            _ = status.require().start_offset
        for name in ("rows", "count", "changelog", "a time", "explain", "changelog explained", "earliest"):
            with pytest.raises(FlussError, match=r"bucket 0|/b0|remote\.data\.dir"):
                READS[name](table)
        with pytest.raises(FlussError, match=r"db\.t, bucket 0"):
            _tier(cluster, lab, "t")
        assert _tier(cluster, lab, "other").rows == 1  # other tables go on
        assert table.changelog(start={0: local}).to_arrow()["id"].to_pylist() == list(range(local, 240))
        table.append([{"id": 240, "s": "new"}])
        row = next(iter(table.buckets()))
        assert (row["start"], row["end"], "bucket 0" in row["error"]) == (None, 241, True)
        cluster.stop()
        shutil.rmtree(mount, ignore_errors=True)
        (tmp_path / "unmounted").rename(mount)
        cluster.start()
        assert table.scan().to_arrow()["id"].to_pylist() == list(range(241))
        assert _tier(cluster, lab, "t").rows == 241
        assert table.scan().count() == 241
    finally:
        cluster.close()
