"""The tests of whole tiering rounds: a cluster whose lake is of the format, rounds that run, fail and die, and readers across both."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from fluss_lab import failpoints
from fluss_lab.client.kv.kv_scan import KvRecords
from fluss_lab.errors import FlussError, InvalidPropertyError, NotFoundError, PartitionNotFoundError
from fluss_lab.failpoints import FailpointError
from fluss_lab.lake import LakeStorage
from fluss_lab.model import DataType, OffsetSpec, TableInfo, TablePath, make_descriptor
from fluss_lab.model.names import BucketKey
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing.clusters import EmbeddedCluster
from fluss_lab.testing.conformance.keyed.keyed_checks import KeyedChecks
from fluss_lab.testing.conformance.kit import COLUMNS, LakeKit, row_of
from fluss_lab.testing.mock_clock import MockClock, wait_until
from fluss_lab.testing.rows import plain, plain_rows
from fluss_lab.testing.tierers import RECOVERY_STEPS, STEPS, LocalTieringExecutor, TiererProcess
from fluss_lab.tiering.round.round_options import TieringOptions
from fluss_lab.tiering.round.round_report import TieringReport
from fluss_lab.tiering.round.tiering_round import run_round

#: Those at which a process is killed in a quick run: before, amid and after what the two sides know of each other.
QUICK_STEPS: Final = ("tiering.write.after", "tiering.lake_commit.after")
#: Splits so small that every bucket is cut.
CUT: Final = TieringOptions(split_bytes_min=64, split_bytes_max=512)
_KILLED: Final = -9
_HOUR_MS: Final = 3_600_000


class ClusterKit:
    """A cluster whose lake is of the format under test."""

    def __init__(self, kit: LakeKit, cluster: EmbeddedCluster, clock: MockClock) -> None:
        self.kit = kit
        self.cluster = cluster
        self.clock = clock
        self.appended: dict[TablePath, int] = {}
        self.connection.admin().create_database("db", if_not_exists=True)

    @property
    def connection(self) -> Any:
        """Return a connection to the cluster."""
        return self.cluster.connection

    @property
    def storage(self) -> LakeStorage:
        """Return the lake as clients find it: by what the cluster says."""
        storage: LakeStorage | None = self.connection.lake_storage()
        assert storage is not None
        return storage

    def create(self, columns: Any = COLUMNS, *, name: str = "t", **definition: Any) -> TableInfo:
        """Create a lake-enabled table."""
        properties = {
            "table.datalake.enabled": True,
            "table.datalake.freshness": "1h",
            "table.datalake.format": self.kit.format_name,
            **self.kit.table_properties,
            **definition.pop("properties", {}),
        }
        descriptor = make_descriptor(columns, properties=properties, **definition)
        info: TableInfo = self.connection.admin().create_table(TablePath("db", name), descriptor)
        return info

    def append(self, info: TableInfo, count: int, partition: str | None = None) -> None:
        """Append rows that go on where the last ones ended."""
        first = self.appended.get(info.path, 0)
        rows = [row_of(n, partition) for n in range(first, first + count)]
        with self.connection.append_writer(info.path) as writer:
            writer.append(pa.Table.from_pylist(rows, info.schema.arrow_schema)).result()
        self.appended[info.path] = first + count

    def tier(self, info: TableInfo, *, options: TieringOptions = CUT) -> TieringReport:
        """Run a round in the process."""
        executor = LocalTieringExecutor(parallelism=4)
        report = run_round(self.connection, self.storage, executor, table_id=info.table_id, options=options)
        assert report is not None
        return report

    def tierer(self, info: TableInfo, **armed: str) -> TiererProcess:
        """Start a round in a process of its own."""
        address = self.cluster.address.to_json()
        return TiererProcess(address, info.table_id, failpoints=armed, options={"renew_interval_s": 0.05})

    def ends(self, info: TableInfo) -> dict[BucketKey, int]:
        """Return the log end offset of each bucket."""
        statuses = self.connection.admin().buckets(info)
        return {(status.partition, status.bucket.bucket): status.end_offset for status in statuses}

    def check_log(self, info: TableInfo) -> None:
        """Assert that the lake holds every offset of every bucket once, up to its end, and every row once."""
        snapshot = self.connection.admin().lake_snapshot(info.path)
        source = self.storage.create_lake_source(info)
        found: dict[BucketKey, list[int]] = {}
        ids: list[int] = []
        for split, rows in source.read(source.plan(snapshot.snapshot_id), ["id", "__offset"]):
            found.setdefault((split.partition, split.bucket), []).extend(rows.column("__offset").to_pylist())
            ids += rows.column("id").to_pylist()
        assert found == {key: [*range(end)] for key, end in self.ends(info).items() if end}
        assert sorted(ids) == [*range(self.appended[info.path])]
        held = {(offset.partition, bucket.bucket): offset.end for bucket, offset in snapshot.offsets.items()}
        assert {key: end for key, end in held.items() if end} == {key: len(each) for key, each in found.items()}

    def live_rows(self, info: TableInfo) -> list[dict[str, Any]]:
        """Return the rows of a primary-key table as the cluster holds them, with bucket and offset."""
        rows: list[dict[str, Any]] = []
        for status in self.connection.admin().buckets(info):
            with self.connection.scan_kv(info, status.bucket) as scan:
                for records in scan:
                    rows += _with_system(records, status.bucket.bucket)
        return rows


def _with_system(records: KvRecords, bucket: int) -> Iterator[dict[str, Any]]:
    for row, offset in zip(records.rows.to_pylist(), records.offsets.to_pylist(), strict=True):
        yield row | {"__bucket": bucket, "__offset": offset}


class RoundConformance(KeyedChecks):
    """What all the parts of a format come to."""

    @pytest.fixture
    def cluster(self, kit: LakeKit, tmp_path: Path) -> Iterator[ClusterKit]:
        """Give a cluster with the lake, and a clock to move."""
        lake = {f"datalake.{kit.format_name}.{key}": text for key, text in kit.properties.items()}
        options = {
            "datalake.format": kit.format_name,
            **lake,
            "lake.tiering.takeover": "300ms",
            "log.segment.file-size": "2kb",
            "log.retention.check-interval": "100ms",
        }
        clock = MockClock()
        with EmbeddedCluster(tmp_path / "a lab", options, clock) as embedded:
            yield ClusterKit(kit, embedded, clock)

    def check_rows(self, cluster: ClusterKit, info: TableInfo) -> None:
        """Assert that the lake holds the rows of a primary-key table that the cluster holds."""
        names = [*info.schema.names, "__bucket", "__offset"]
        found = plain(self.read_state(cluster.storage, info).select(names))
        assert sorted(map(repr, found)) == sorted(map(repr, plain_rows(cluster.live_rows(info))))

    def test_rounds_of_a_log_table(self, cluster: ClusterKit) -> None:
        """Round after round, buckets cut into splits, one with nothing to do between, one after a restart."""
        info = cluster.create(buckets=2)
        for count in (50, 0, 1, 120):
            cluster.append(info, count) if count else None
            report = cluster.tier(info)
            assert report.rows == count
            cluster.check_log(info)
        cluster.cluster.restart()
        cluster.append(info, 30)
        assert cluster.tier(info).rows == 30
        cluster.check_log(info)

    def test_a_table_without_format_gets_the_clusters(self, cluster: ClusterKit) -> None:
        """The option may be left out; another format is refused, and one that is not installed lists what is."""
        properties = {"table.datalake.enabled": True}
        admin = cluster.connection.admin()
        info = admin.create_table(TablePath("db", "plain"), make_descriptor(COLUMNS, properties=properties))
        cluster.append(info, 5)
        assert cluster.tier(info).rows == 5
        cluster.check_log(info)
        own = cluster.create(name="own", properties={f"{cluster.kit.format_name}.custom.x": "1"})
        altered = admin.alter_table(own.path, set={f"{cluster.kit.format_name}.custom.y": "2"})
        assert {f"{cluster.kit.format_name}.custom.{key}" for key in "xy"} <= {*altered.descriptor.properties}
        with pytest.raises(InvalidPropertyError, match=r"stone\.x"):
            admin.alter_table(own.path, set={"stone.x": "2"})
        other = "iceberg" if cluster.kit.format_name != "iceberg" else "parquet"
        with pytest.raises(InvalidPropertyError, match=cluster.kit.format_name):
            cluster.create(name="other", properties={"table.datalake.format": other})
        with pytest.raises(FlussError, match=cluster.kit.format_name):
            cluster.create(name="strange", properties={"table.datalake.format": "stone_tablets"})
        with pytest.raises(NotFoundError):
            admin.table_info(TablePath("db", "other"))

    def test_partitions_come_and_go(self, cluster: ClusterKit) -> None:
        """Dropped from both sides, a partition's name begins anew."""
        info = cluster.create({**COLUMNS, "p": "string"}, partitioned_by=["p"])
        for name in ("a", "b"):
            cluster.append(info, 10, name)
        cluster.tier(info)
        cluster.check_log(info)
        admin = cluster.connection.admin()
        admin.drop_partition(info.path, {"p": "a"}, lake=True)
        cluster.appended[info.path] = 100
        cluster.append(info, 5, "a")
        cluster.tier(info)
        source = cluster.storage.create_lake_source(info)
        snapshot = admin.lake_snapshot(info.path).snapshot_id
        rows = [
            (split.partition, n)
            for split, part in source.read(source.plan(snapshot), ["id"])
            for n in part.column("id").to_pylist()
        ]
        assert rows == [("a", n) for n in range(100, 105)] + [("b", n) for n in range(10, 20)]
        with pytest.raises(PartitionNotFoundError):
            admin.drop_partition(info.path, {"p": "c"})

    def test_columns_are_added_between_rounds(self, cluster: ClusterKit) -> None:
        """Old records get null, whenever they are tiered."""
        info = cluster.create()
        cluster.append(info, 10)
        cluster.tier(info)
        cluster.append(info, 10)
        info = cluster.connection.admin().alter_table(info.path, add_columns={"extra": DataType.parse("int")})
        with cluster.connection.append_writer(info.path) as writer:
            writer.append([row_of(20) | {"extra": 7}]).result()
        cluster.tier(info)
        with_lake = TableReader(cluster.connection, info.path).scan(columns=["id", "extra"]).to_arrow()
        assert with_lake.to_pylist() == [{"id": n, "extra": 7 if n == 20 else None} for n in range(21)]

    def test_tables_are_dropped(self, cluster: ClusterKit) -> None:
        """The lake table goes with the table, or stays under its id; the name is free either way."""
        for lake in (True, False, True):
            info = cluster.create()
            cluster.appended[info.path] = 0
            cluster.append(info, 5)
            cluster.tier(info)
            cluster.check_log(info)
            cluster.connection.admin().drop_table(info.path, lake=lake)
        info = cluster.create()
        with pytest.raises(NotFoundError):
            cluster.connection.admin().lake_snapshot(info.path)

    def test_readers_find_what_has_left_the_cluster(self, cluster: ClusterKit) -> None:
        """Scanners, seeks and union reads go on in the lake, in order, and filters are understood."""
        info = cluster.create()
        for _ in range(4):
            cluster.append(info, 50)
            cluster.clock.advance(_HOUR_MS)
        began = cluster.clock.now_ms() - 4 * _HOUR_MS
        cluster.tier(info)
        admin = cluster.connection.admin()
        admin.alter_table(info.path, set={"table.log.ttl": "1ms"})
        wait_until(lambda: all(status.start_offset == 200 for status in admin.buckets(info)))
        cluster.append(info, 20)
        reader = TableReader(cluster.connection, info.path)
        assert plain(reader.scan().to_arrow()) == plain_rows([row_of(n) for n in range(220)])
        found = reader.scan(columns=["id"], where="x >= 12.25 and name = 'n5'").to_arrow()["id"].to_pylist()
        assert found == [n for n in range(49, 220) if n % 13 == 5 and n % 7]
        third = admin.list_offsets(info, OffsetSpec.timestamp(began + 2 * _HOUR_MS))
        assert third[0].offset == 100
        with cluster.connection.log_scanner(info.path) as scanner:
            scanner.subscribe_all(OffsetSpec.earliest())
            read: list[int] = []

            def is_read() -> bool:
                for batch in scanner.poll(1.0):
                    read.extend(batch.rows.column("id").to_pylist())
                return len(read) >= 220

            wait_until(is_read)
        assert read == [*range(220)]

    def test_rounds_that_fail(self, cluster: ClusterKit) -> None:
        """Whatever step an error comes from, the next round brings each record exactly once."""
        info = cluster.create(buckets=2)
        for step in STEPS:
            cluster.append(info, 30)
            self.fail_at(cluster, info, step)
            cluster.append(info, 10)
            cluster.tier(info)
            cluster.check_log(info)

    def fail_at(self, cluster: ClusterKit, info: TableInfo, step: str) -> None:
        """Run a round that fails at a step."""
        failpoints.arm(step, "error")
        with pytest.raises((FailpointError, FlussError)):
            cluster.tier(info)
        failpoints.disarm()

    @pytest.mark.parametrize("step", QUICK_STEPS)
    def test_a_tierer_that_dies(self, cluster: ClusterKit, step: str) -> None:
        """A killed process leaves a table that the next one takes over."""
        self.kill_and_recover(cluster, [step])

    @pytest.mark.campaign
    def test_tierers_that_die_again_and_again(self, cluster: ClusterKit, rng: random.Random) -> None:
        """Killed at random steps, and at random steps of the recovery."""
        steps = [*STEPS, *RECOVERY_STEPS, *self.kill_points]
        self.kill_and_recover(cluster, rng.choices(steps, k=30))

    def kill_and_recover(self, cluster: ClusterKit, steps: list[str]) -> None:
        """Kill a tierer at each step in turn, of a log table and, where there are any, of a primary-key table."""
        log = cluster.create(buckets=2)
        keyed = cluster.create(name="k", primary_key=["id"], buckets=2) if self.has_keyed_tables else None
        for number, step in enumerate(steps):
            cluster.append(log, 20)
            if keyed is not None:
                self.change(cluster, keyed, random.Random(number))  # noqa: S311 - of a test
            for info in filter(None, (log, keyed)):
                process = cluster.tierer(info, **{step: "kill"})
                # A step that only a recovery passes may not come.
                assert process.wait() in {_KILLED, 0}
        cluster.tier(log)
        cluster.check_log(log)
        if keyed is not None:
            cluster.tier(keyed)
            self.check_rows(cluster, keyed)

    def change(self, cluster: ClusterKit, info: TableInfo, rng: random.Random, count: int = 40) -> None:
        """Upsert and delete random rows of a primary-key table with `COLUMNS`."""
        with cluster.connection.upsert_writer(info.path) as writer:
            for _ in range(3):
                keys = rng.sample(range(60), count // 2)
                rows = [{"id": key, "name": f"n{rng.randrange(9)}", "x": rng.choice([None, 0.5, -1.0])} for key in keys]
                writer.upsert(pa.Table.from_pylist(rows, info.schema.arrow_schema)).result()
                gone = [{"id": key} for key in rng.sample(range(60), count // 4)]
                writer.delete(pa.Table.from_pylist(gone, pa.schema([info.schema.arrow_schema.field("id")]))).result()

    def test_rounds_of_a_primary_key_table(self, cluster: ClusterKit, rng: random.Random) -> None:
        """Random upserts and deletes; after every round the lake holds the rows that the cluster holds."""
        self.needs_keyed_tables()
        info = cluster.create(primary_key=["id"], buckets=2)
        for _ in range(3):
            self.change(cluster, info, rng)
            cluster.tier(info)
            self.check_rows(cluster, info)
        assert cluster.tier(info).rows == 0
        cluster.cluster.restart()
        self.change(cluster, info, rng)
        cluster.tier(info, options=TieringOptions())
        self.check_rows(cluster, info)

    def test_rounds_of_a_primary_key_table_that_fail(self, cluster: ClusterKit, rng: random.Random) -> None:
        """Errors in rounds that end rows of rounds before."""
        self.fail_and_recover(cluster, rng, QUICK_STEPS)

    @pytest.mark.campaign
    def test_rounds_of_a_primary_key_table_that_fail_at_every_step(
        self, cluster: ClusterKit, rng: random.Random
    ) -> None:
        """The same at every step."""
        self.fail_and_recover(cluster, rng, STEPS)

    def fail_and_recover(self, cluster: ClusterKit, rng: random.Random, steps: Sequence[str]) -> None:
        """Let rounds of a primary-key table fail at each step in turn, and check what the next one leaves."""
        self.needs_keyed_tables()
        info = cluster.create(primary_key=["id"], buckets=2)
        for step in steps:
            self.change(cluster, info, rng)
            self.fail_at(cluster, info, step)
            cluster.tier(info)
            self.check_rows(cluster, info)
