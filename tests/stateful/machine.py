"""A whole cluster against a model of lists and dicts: whatever is done to it, it answers as the model does."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from fluss_lab.client import read_range
from fluss_lab.errors import PartitionExistsError
from fluss_lab.model import OffsetSpec, TableBucket, TablePath, make_descriptor
from fluss_lab.server.process.tablet_launch import ResidentTablet
from fluss_lab.server.tablet.tablet_service import TabletService
from fluss_lab.testing import EmbeddedCluster, MockClock
from tests.crash.kill_image import copy_as_killed
from tests.stateful.kinds import KINDS, Kind
from tests.stateful.model import Row, TableModel

TABLES_MAX = 3
CHANGES = ("+A", "+I", "-U", "+U", "-D")
#: Segments of a few batches, so that they roll; nothing is done by the clock, only when a rule says so.
OPTIONS = {
    "log.segment.file-size": "4kb",
    "log.index.interval-size": "1kb",
    "remote.log.task-interval-duration": "1d",
    "kv.snapshot.interval": "1d",
    "log.retention.check-interval": "1d",
    "auto-partition.check.interval": "1d",
    "metrics.reporter.prometheus.port": "-1",
}
CLIENT = {"client.request-timeout": "60s", "client.scanner.log.fetch.wait-max-time": "50ms"}


class ClusterMachine(RuleBasedStateMachine):
    """Rules are what users, operators and failures do; each ends with the cluster and the model alike."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="fluss-lab-model-"))
        self.clock = MockClock()
        self.cluster = self._cluster()
        self.cluster.start()
        self.tables: dict[str, tuple[Kind, TableModel]] = {}
        self.made = 0

    def _cluster(self) -> EmbeddedCluster:
        return EmbeddedCluster(self.folder / "lab", OPTIONS, self.clock, lake=False, client=CLIENT)

    def teardown(self) -> None:
        try:
            for name in self.tables:
                self._check_log(name, 0)
                self._check_rows(name)
        finally:
            self.cluster.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    # -- definitions ---------------------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.cluster.connection.admin().create_database("db")

    @precondition(lambda self: len(self.tables) < TABLES_MAX)
    @rule(kind_name=st.sampled_from(sorted(KINDS)))
    def create_table(self, kind_name: str) -> None:
        kind = KINDS[kind_name]
        self.made += 1
        name = f"{kind_name}_{self.made}"
        descriptor = make_descriptor(
            dict(kind.columns), primary_key=kind.primary_key, partitioned_by=kind.partitioned_by, buckets=kind.buckets,
            bucket_key=kind.bucket_key, properties=kind.properties,
        )  # fmt: skip
        self.cluster.connection.admin().create_table(TablePath("db", name), descriptor)
        self.tables[name] = kind, TableModel(self._info(name).descriptor)

    @precondition(lambda self: len(self.tables) == TABLES_MAX)
    @rule(data=st.data())
    def drop_table(self, data: st.DataObject) -> None:
        name = self._any(data)
        del self.tables[name]
        self.cluster.connection.admin().drop_table(TablePath("db", name))

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def add_column(self, data: st.DataObject) -> None:
        name = self._any(data)
        _, model = self.tables[name]
        column = f"c{len(model.columns)}"
        if len(model.columns) > 6:
            return
        self.cluster.connection.admin().alter_table(TablePath("db", name), add_columns={column: "string"})
        model.add_column(column)

    @precondition(lambda self: self._partitioned())
    @rule(data=st.data(), value=st.sampled_from(["p1", "p2", "p3"]))
    def add_or_drop_partition(self, data: st.DataObject, value: str) -> None:
        name = data.draw(st.sampled_from(self._partitioned()))
        _, model = self.tables[name]
        admin = self.cluster.connection.admin()
        if value in model.partitions:
            if data.draw(st.booleans()):
                admin.drop_partition(TablePath("db", name), {"p": value}, discard_untiered=True)
                model.drop_partition(value)
                return
            try:
                admin.create_partition(TablePath("db", name), {"p": value})
            except PartitionExistsError:
                return
            raise AssertionError(f"partition {value} of {name} was made twice")
        admin.create_partition(TablePath("db", name), {"p": value})
        model.add_partition(value)

    # -- changes -------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        name = self._any(data)
        kind, model = self.tables[name]
        rows = data.draw(st.lists(kind.rows, min_size=1, max_size=12))
        rows = [self._with_added(row, model, data) for row in rows]
        connection, path = self.cluster.connection, TablePath("db", name)
        if not kind.primary_key:
            with connection.append_writer(path) as writer:
                assert writer.append(rows).result().rows == len(rows)
            model.append(rows, self.clock.now_ms())
            return
        with connection.upsert_writer(path) as writer:
            writer.upsert(rows).result()
        model.upsert([model.full(row) for row in rows], self.clock.now_ms())

    @precondition(lambda self: self._keyed("default"))
    @rule(data=st.data())
    def write_some_columns(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self._keyed("default")))
        kind, model = self.tables[name]
        others = data.draw(st.sets(st.sampled_from(sorted(kind.others)), min_size=1))
        columns = [column for column in model.columns if column in kind.primary_key or column in others]
        rows = [
            {column: row[column] for column in columns}
            for row in data.draw(st.lists(kind.rows, min_size=1, max_size=6))
        ]
        with self.cluster.connection.upsert_writer(TablePath("db", name), columns=columns) as writer:
            writer.upsert(rows).result()
        model.upsert(rows, self.clock.now_ms())

    @precondition(lambda self: self._keyed())
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self._keyed()))
        kind, model = self.tables[name]
        keys = data.draw(st.lists(kind.keys, min_size=1, max_size=6))
        with self.cluster.connection.upsert_writer(TablePath("db", name)) as writer:
            writer.delete(keys).result()
        model.delete(keys, self.clock.now_ms())

    @rule(delta_ms=st.integers(1, 10_000))
    def time_passes(self, delta_ms: int) -> None:
        self.clock.advance(delta_ms)

    # -- failures and housekeeping -------------------------------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        self.cluster.restart()

    @rule()
    def kill(self) -> None:
        """What a process killed between two calls leaves is what lies in the folder now."""
        image = self.folder / "image"
        copy_as_killed(self.folder / "lab", image)
        self.cluster.stop()
        shutil.rmtree(self.folder / "lab")
        image.rename(self.folder / "lab")
        self.cluster.start()

    @precondition(lambda self: self._keyed())
    @rule(data=st.data())
    def take_snapshots(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self._keyed()))
        for place in self.tables[name][1].buckets:
            self._tablet().snapshot_now(self._bucket(name, place))

    @precondition(lambda self: self.tables)
    @rule()
    def copy_to_remote(self) -> None:
        self._tablet().copy_to_remote()

    # -- answers -------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self._keyed())
    @rule(data=st.data())
    def look_up(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self._keyed()))
        kind, model = self.tables[name]
        keys = data.draw(st.lists(kind.keys, min_size=1, max_size=8))
        found = self.cluster.connection.lookuper(TablePath("db", name)).lookup(keys).to_pylist()
        empty = dict.fromkeys(model.columns)
        expected = [model.lookup(key) for key in keys]
        absent = [row is None for row in expected]
        assert [all(row[c] is None for c in model.columns if c not in kind.primary_key) for row in found] >= absent
        assert [row for row, gone in zip(found, absent, strict=True) if not gone] == [row for row in expected if row]
        assert len(found) == len(keys), (found, empty)

    @precondition(lambda self: self._of_kind("pk_prefix"))
    @rule(data=st.data(), g=st.integers(0, 3))
    def look_up_prefix(self, data: st.DataObject, g: int) -> None:
        name = data.draw(st.sampled_from(self._of_kind("pk_prefix")))
        _, model = self.tables[name]
        found = self.cluster.connection.lookuper(TablePath("db", name)).prefix_lookup({"g": g}).to_pylist()
        expected = [row for bucket in model.buckets.values() for row, _ in bucket.rows.values() if row["g"] == g]
        assert sorted(found, key=str) == sorted(expected, key=str)

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), share=st.floats(0, 1))
    def read_log(self, data: st.DataObject, share: float) -> None:
        self._check_log(self._any(data), share)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def read_rows(self, data: st.DataObject) -> None:
        self._check_rows(self._any(data))

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), back_ms=st.integers(-10, 30_000))
    def seek(self, data: st.DataObject, back_ms: int) -> None:
        name = self._any(data)
        _, model = self.tables[name]
        info, admin = self._info(name), self.cluster.connection.admin()
        time_ms = self.clock.now_ms() - back_ms
        for partition, partition_info in self._partitions(name).items():
            spec = OffsetSpec.timestamp(time_ms)
            found = admin.list_offsets(info, spec, partition=partition_info)
            for bucket, answer in found.items():
                assert answer.offset == model.first_at((partition, bucket), time_ms), (name, partition, bucket)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _any(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.tables)))

    def _keyed(self, engine: str | None = None) -> list[str]:
        return sorted(
            name for name, (kind, model) in self.tables.items() if kind.primary_key and engine in {None, model.engine}
        )

    def _partitioned(self) -> list[str]:
        return sorted(name for name, (kind, _) in self.tables.items() if kind.partitioned_by)

    def _of_kind(self, kind_name: str) -> list[str]:
        return sorted(name for name, (kind, _) in self.tables.items() if kind is KINDS[kind_name])

    def _with_added(self, row: Row, model: TableModel, data: st.DataObject) -> Row:
        added = [column for column in model.columns if column.startswith("c")]
        values = {column: data.draw(st.sampled_from([None, "u", "v"])) for column in added}
        return {**row, **values}

    def _info(self, name: str):
        return self.cluster.connection.admin().table_info(TablePath("db", name))

    def _tablet(self) -> TabletService:
        tablets = self.cluster.node.tablets
        assert isinstance(tablets, ResidentTablet)
        assert tablets.tablet is not None
        return tablets.tablet

    def _bucket(self, name: str, place: tuple[str | None, int]) -> TableBucket:
        partition, bucket = place
        partition_id = None if partition is None else self._partitions(name)[partition].partition_id
        return TableBucket(self._info(name).table_id, partition_id, bucket)

    def _partitions(self, name: str):
        kind, model = self.tables[name]
        if not kind.partitioned_by:
            return {None: None}
        found = {each.name: each for each in self.cluster.connection.admin().partitions(TablePath("db", name))}
        assert sorted(found) == model.partitions
        return found

    def _check_log(self, name: str, share: float) -> None:
        kind, model = self.tables[name]
        info = self._info(name)
        for (partition, bucket), expected in model.buckets.items():
            partition_info = self._partitions(name)[partition]
            place = self._bucket(name, (partition, bucket))
            end = len(expected.log)
            start = int(share * end)
            note(f"log of {name} {partition} {bucket}: [{start}, {end})")
            keyed = bool(kind.primary_key)
            runs = read_range(
                self.cluster.connection, info, place, start, end, partition=partition, previous_offsets=keyed
            )
            offset = start
            for run in runs:
                changes = ["+A"] * len(run)
                if keyed:
                    assert run.change_types is not None
                    assert run.previous_offsets is not None
                    changes = [CHANGES[change] for change in run.change_types.to_pylist()]
                    previous = [event.previous for event in expected.log[offset : offset + len(run)]]
                    assert run.previous_offsets.to_pylist() == previous
                events = expected.log[offset : offset + len(run)]
                assert run.base_offset == offset
                assert run.rows.to_pylist() == [event.row for event in events]
                assert changes == [event.change for event in events]
                assert run.timestamps_ms.to_pylist() == [event.timestamp_ms for event in events]
                offset += len(run)
            assert offset == end
            latest = self.cluster.connection.admin().list_offsets(
                info, OffsetSpec.latest(), partition=partition_info, buckets=[bucket]
            )
            assert latest[bucket].offset == end

    def _check_rows(self, name: str) -> None:
        kind, model = self.tables[name]
        info = self._info(name)
        connection = self.cluster.connection
        live = [row for bucket in model.buckets.values() for row, _ in bucket.rows.values()]
        if not kind.primary_key:
            return
        limited = connection.limit_scan(TablePath("db", name), 3).to_pylist()
        assert all(row in live for row in limited)
        assert len(limited) == min(3, len(live))
        for (partition, bucket), expected in model.buckets.items():
            scan = connection.scan_kv(info, self._bucket(name, (partition, bucket)))
            found = {}
            for run in scan:
                for row, offset, time_ms in zip(
                    run.rows.to_pylist(), run.offsets.to_pylist(), run.timestamps_ms.to_pylist(), strict=True
                ):
                    assert time_ms == expected.log[offset].timestamp_ms
                    assert model.key_of(row) not in found
                    found[model.key_of(row)] = row, offset
            assert scan.log_offset == len(expected.log)
            assert found == expected.rows
