"""A cluster of one process, its coordinator's gateway, and short words for requests."""

import json
from collections.abc import Mapping

from fluss_lab.model import DataType, Schema, make_descriptor
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.channel import Channel
from fluss_lab.rpc.gateway import CoordinatorGateway, TabletServerGateway
from fluss_lab.testing import EmbeddedCluster, MockClock


class Rig:
    """A running cluster and its gateways, as a client in another process would see them."""

    def __init__(self, folder, **arguments) -> None:
        self.clock = MockClock()
        self.cluster = EmbeddedCluster(folder, clock=self.clock, **arguments)
        self.cluster.start()
        self._channel: Channel | None = None

    @property
    def channel(self) -> Channel:
        address = self.cluster.address
        if self._channel is None or self._channel.address != str(address):
            self.drop_channel()
            self._channel = Channel(address.host, address.port, address.token)
        return self._channel

    @property
    def coordinator(self) -> CoordinatorGateway:
        return self.channel.coordinator()

    @property
    def tablet(self) -> TabletServerGateway:
        return self.channel.tablet_server()

    def drop_channel(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def close(self) -> None:
        self.drop_channel()
        self.cluster.close()

    # -- short words -------------------------------------------------------------------------------------------------

    def create_database(self, name: str = "d", ignore: bool = False) -> None:
        self.coordinator.create_database(pb.CreateDatabaseRequest(database_name=name, ignore_if_exists=ignore))

    def create(self, name: str = "t", ignore: bool = False, json_bytes: bytes | None = None, **definition) -> int:
        described = make_descriptor(definition.pop("schema", {"a": "bigint", "p": "string"}), **definition).to_json()
        request = pb.CreateTableRequest(
            table_path=path(name), table_json=json_bytes or json.dumps(described).encode(), ignore_if_exists=ignore
        )
        self.coordinator.create_table(request)
        return self.info(name).table_id

    def info(self, name: str = "t"):
        return self.coordinator.get_table_info(pb.GetTableInfoRequest(table_path=path(name)))

    def alter(self, name: str = "t", set: Mapping[str, str] | None = None, reset=(), add=None) -> None:
        changes = [
            pb.PbAlterConfig(config_key=key, config_value=value, op_type=0) for key, value in (set or {}).items()
        ]
        changes += [pb.PbAlterConfig(config_key=key, op_type=1) for key in reset]
        request = pb.AlterTableRequest(
            table_path=path(name), ignore_if_not_exists=False, config_changes=changes,
            add_columns=[added(column, kind) for column, kind in (add or {}).items()],
        )  # fmt: skip
        self.coordinator.alter_table(request)

    def schema(self, name: str = "t", schema_id: int | None = None) -> tuple[int, list[str]]:
        request = pb.GetTableSchemaRequest(table_path=path(name))
        if schema_id is not None:
            request.schema_id = schema_id
        found = self.coordinator.get_table_schema(request)
        return found.schema_id, Schema.from_json(json.loads(found.schema_json)).names

    def drop(self, name: str = "t", ignore: bool = False, keep_lake: bool = False) -> None:
        request = pb.DropTableRequest(table_path=path(name), ignore_if_not_exists=ignore, keep_lake=keep_lake)
        self.coordinator.drop_table(request)

    def create_partition(self, name: str = "t", ignore: bool = False, **values: str) -> None:
        request = pb.CreatePartitionRequest(
            table_path=path(name), partition_spec=spec(values), ignore_if_not_exists=ignore
        )
        self.coordinator.create_partition(request)

    def drop_partition(
        self, name: str = "t", ignore: bool = False, lake: bool = False, discard: bool = False, **values: str
    ) -> None:
        request = pb.DropPartitionRequest(
            table_path=path(name), partition_spec=spec(values), ignore_if_not_exists=ignore, drop_lake=lake,
            discard_untiered=discard,
        )  # fmt: skip
        self.coordinator.drop_partition(request)

    def append(self, rows: int, partition: str, name: str = "t") -> None:
        """Append rows that say nothing to one partition."""
        with self.cluster.connection.append_writer(f"d.{name}") as writer:
            writer.append([{"a": number, "p": partition} for number in range(rows)]).result()

    def partitions(self, name: str = "t", **values: str) -> dict[str, int]:
        request = pb.ListPartitionInfosRequest(table_path=path(name))
        if values:
            request.partial_partition_spec.CopyFrom(spec(values))
        found = self.coordinator.list_partition_infos(request).partitions_info
        return {
            "$".join(kv.value for kv in each.partition_spec.partition_key_values): each.partition_id for each in found
        }

    def buckets(self, table_id: int) -> list[tuple[int, int]]:
        described = self.tablet.describe_buckets(pb.DescribeBucketsRequest(table_id=table_id)).buckets
        return sorted((each.table_bucket.partition_id, each.table_bucket.bucket_id) for each in described)

    def ask(self, table_id: int | None = None, session_id: int | None = None) -> pb.LakeTieringHeartbeatResponse:
        request = pb.LakeTieringHeartbeatRequest(request_table=True)
        if table_id is not None:
            request.request_table_id = table_id
        if session_id is not None:
            request.session_id = session_id
        return self.coordinator.lake_tiering_heartbeat(request)

    def commit(self, table_id: int, snapshot_id: int, epoch: int | None, ends, coordinator_epoch: int | None = 1):
        table = pb.PbLakeTableSnapshotInfo(table_id=table_id, snapshot_id=snapshot_id)
        if epoch is not None:
            table.tiering_epoch = epoch
        if coordinator_epoch is not None:
            table.coordinator_epoch = coordinator_epoch
        for key, end in ends.items():
            partition_id, bucket = key if isinstance(key, tuple) else (None, key)
            entry = table.buckets_req.add(
                bucket_id=bucket, log_start_offset=0, log_end_offset=end, log_max_timestamp=end * 10
            )
            if partition_id is not None:
                entry.partition_id = partition_id
        request = pb.CommitLakeTableSnapshotRequest(tables_req=[table])
        return self.coordinator.commit_lake_table_snapshot(request).table_resp[0]

    def snapshot(self, name: str = "t", snapshot_id: int | None = None) -> pb.GetLakeSnapshotResponse:
        request = pb.GetLakeSnapshotRequest(table_path=path(name))
        if snapshot_id is not None:
            request.snapshot_id = snapshot_id
        return self.coordinator.get_lake_snapshot(request)


def added(name: str, kind: str, **changes) -> pb.PbAddColumn:
    data_type = json.dumps(DataType.parse(kind).to_json()).encode()
    return pb.PbAddColumn(**{"column_name": name, "data_type_json": data_type, "column_position_type": 0, **changes})


def path(name: str) -> pb.PbTablePath:
    database, _, table = name.rpartition(".")
    return pb.PbTablePath(database_name=database or "d", table_name=table)


def spec(values: Mapping[str, str]) -> pb.PbPartitionSpec:
    return pb.PbPartitionSpec(
        partition_key_values=[pb.PbKeyValue(key=key, value=value) for key, value in values.items()]
    )
