"""The coordinator: one method per RPC, over the parts that do the work."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from fluss_lab.clock import Clock
from fluss_lab.errors import ConflictError, FlussError, InvalidRequestError, InvalidSchemaError, PartitionNotFoundError
from fluss_lab.failpoints import failpoint
from fluss_lab.model import TableInfo, TablePath
from fluss_lab.model.config.options import (
    AUTO_PARTITION_INTERVAL,
    PARTITIONS_MAX,
    REQUEST_SIZE_MAX,
    SERVER_ATTACHED_MAX,
    SERVER_GRACE,
    TABLET_SERVERS,
    TIERING_ROUNDS_KEPT,
)
from fluss_lab.periodic_work import Ticker
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.access.tls import Trust, reachable
from fluss_lab.rpc.channel import Channel
from fluss_lab.server.coordinator import coordinator_gauges, coordinator_messages, remote_access
from fluss_lab.server.coordinator.client_sessions import SESSIONS_MAX, ClientSessions
from fluss_lab.server.coordinator.ddl.auto_partitioner import AutoPartitioner
from fluss_lab.server.coordinator.ddl.lake_table_ddl import LakeTableDdl, LakeTables
from fluss_lab.server.coordinator.ddl.partition_ddl import FIRST_ID, PartitionDdl
from fluss_lab.server.coordinator.ddl.partition_drop_check import PartitionDropCheck
from fluss_lab.server.coordinator.ddl.partition_records import AutoPartitionMarks
from fluss_lab.server.coordinator.ddl.table_ddl import TableAlteration, TableDdl
from fluss_lab.server.coordinator.metadata.lab_identity import LabIdentity
from fluss_lab.server.coordinator.metadata.metadata_store import BLOCK_IDS, MetadataStore
from fluss_lab.server.coordinator.metadata.table_catalog import NO_PARTITION, TableCatalog
from fluss_lab.server.coordinator.tablets.bucket_assignment import server_count
from fluss_lab.server.coordinator.tablets.durable_offsets import DurableOffsets
from fluss_lab.server.coordinator.tablets.kv_snapshot_registry import KvSnapshotRegistry
from fluss_lab.server.coordinator.tablets.leadership import TabletServers
from fluss_lab.server.coordinator.tablets.tablet_members import TabletMembers, registered_status
from fluss_lab.server.coordinator.tiering.lake_snapshots import LakeLedger
from fluss_lab.server.coordinator.tiering.tierer_heartbeats import answer_heartbeat
from fluss_lab.server.coordinator.tiering.tierer_leases import LeaseTimes
from fluss_lab.server.coordinator.tiering.tiering_manager import TieringManager
from fluss_lab.server.folder.remote_storage import META_KEY as REMOTE_OWNER_KEY
from fluss_lab.server.server_metrics import Family

log = logging.getLogger(__name__)

_EPOCH_KEY: Final = "coordinator_epoch"
_COUNT_KEY: Final = "tablet_servers"
#: Longest wait of a metadata request for pending notifications of tablet servers.
_METADATA_WAIT_S: Final = 1.0
#: Time-out of a notification: a tablet server that hangs delays the others by it; a busy one is notified again.
_NOTIFY_TIMEOUT_S: Final = 10.0


class CoordinatorService:
    """Implements `CoordinatorGateway`.

    Args:
        store: The metadata; closed with the service.
        options: The cluster options that were given, checked.
        clock: The server's clock.
        lake_tables: Creates and drops lake tables; None: lake-enabled tables are refused.
        ephemeral: Whether the server ends with the last attached process.
        stop: Asks the process to stop; returns at once.
        secret: The cluster's token, with which tablet servers are called.
        trust: The certificate authority of tablet servers with TLS; None: they serve without TLS.

    Attributes:
        address: Host and port sent to clients; set by the process that listens.
        members: Starts the tablet servers; None: any server may register.
        tablet_servers: Their number; ids are from 0.

    Raises:
        LabError: Fewer tablet servers are configured than buckets are assigned to.
        LabError, CorruptDataError, StorageError: The metadata cannot be used; the message has the reason.
    """

    def __init__(
        self,
        store: MetadataStore,
        *,
        options: Mapping[str, str],
        clock: Clock,
        lake_tables: LakeTables | None,
        ephemeral: bool,
        stop: Callable[[], None],
        secret: str,
        trust: Trust | None = None,
    ) -> None:
        self._options = dict(options)
        self._clock = clock
        self._ephemeral = ephemeral
        self._stop = stop
        self._started_ms = clock.now_ms()
        #: Ports of the metrics pages by server id; -1: this process.
        self.metrics_ports: dict[int, int] = {}
        self.address: tuple[str, int] | None = None
        self.members: TabletMembers | None = None
        self.store = store
        self.tablet_servers = self._tablet_server_count()
        self.epoch = (self.store.number(_EPOCH_KEY) or 0) + 1
        self.store.set_meta(_EPOCH_KEY, str(self.epoch))
        self._catalog = TableCatalog(self.store)
        self.ledger = LakeLedger(self.store)
        self._kv_snapshots = KvSnapshotRegistry(
            self.store, self._catalog, self.epoch, remote_access.place_from(options)
        )
        self._tiering = TieringManager(
            self.store, clock, coordinator_epoch=self.epoch, lease_times=LeaseTimes.of(options),
            rounds_kept=TIERING_ROUNDS_KEPT.of(options),
        )  # fmt: skip
        self._durables = DurableOffsets(self.store)
        self._tablets = TabletServers(
            self._catalog,
            self.ledger,
            self._durables,
            identity=LabIdentity.load(self.store),
            count=self.tablet_servers,
            coordinator_epoch=self.epoch,
            connect=lambda host, port: Channel(
                reachable(host), port, secret, call_timeout_s=_NOTIFY_TIMEOUT_S, trust=trust
            ),
        )
        lake = LakeTableDdl(self.store, self._catalog, self.ledger, lake_tables)
        changing = threading.Lock()
        self._lifecycle = TableDdl(
            self.store, self._catalog, self._tablets, self._tiering, lake, AutoPartitionMarks(self.store),
            changing=changing, clock=clock, options=options,
        )  # fmt: skip
        self._partitions = PartitionDdl(
            self.store, self._catalog, self.ledger, self._tablets, lake,
            PartitionDropCheck(self.ledger, self._tablets, self.epoch),
            changing=changing, clock=clock, partitions_max=PARTITIONS_MAX.of(options),
        )  # fmt: skip
        self._auto = AutoPartitioner(self._catalog, self._partitions, AutoPartitionMarks(self.store), clock)
        self._ticker = Ticker("coordinator-care", AUTO_PARTITION_INTERVAL.of(options), self._run_periodic)
        self._sessions = ClientSessions(
            clock,
            most=SERVER_ATTACHED_MAX.of(options),
            first_id=self.epoch * SESSIONS_MAX,
            coordinator_epoch=self.epoch,
            on_end=self._tiering.session_ended,
        )
        for info in self._catalog.all_tables():
            if info.descriptor.lake_enabled:
                self._tiering.register(info, new=False)

    def _tablet_server_count(self) -> int:
        """Return the number of tablet servers, and store it for a start without the option."""
        asked = TABLET_SERVERS.of(self._options) if TABLET_SERVERS.key in self._options else None
        count = server_count(asked, self.store.number(_COUNT_KEY), TableCatalog(self.store).bucket_groups())
        self.store.set_meta(_COUNT_KEY, str(count))
        return count

    def tablet_server_lost(self, server_id: int) -> None:
        """Note that a tablet server is lost; its buckets have no leader until it registers again."""
        self._tablets.note_lost(server_id)

    def start(self) -> None:
        """Start the periodic work and, for an ephemeral server, the watch over the sessions."""
        self._tablets.settle()
        self._ticker.start()
        if self._ephemeral:
            self._sessions.watch(SERVER_GRACE.of(self._options), self._stop)

    def _run_periodic(self) -> None:
        """Finish interrupted changes of the lake, and create and drop automatic partitions."""
        self._lifecycle.settle_lake()
        self._auto.run()

    def end_sessions(self) -> None:
        """End every attached stream and take no more."""
        self._sessions.close()

    def close(self) -> None:
        """Release everything. Calls are no longer answered."""
        self._ticker.stop()
        self._sessions.close()
        self._tablets.close()
        self.store.close()

    # -- databases ---------------------------------------------------------------------------------------------------

    def create_database(self, request: pb.CreateDatabaseRequest, /) -> pb.CreateDatabaseResponse:
        """Create a database."""
        self._lifecycle.create_database(request.database_name, ignore_if_exists=request.ignore_if_exists)
        return pb.CreateDatabaseResponse()

    def drop_database(self, request: pb.DropDatabaseRequest, /) -> pb.DropDatabaseResponse:
        """Drop a database."""
        self._lifecycle.drop_database(
            request.database_name, ignore_if_not_exists=request.ignore_if_not_exists, cascade=request.cascade
        )
        return pb.DropDatabaseResponse()

    def list_databases(self, _request: pb.ListDatabasesRequest, /) -> pb.ListDatabasesResponse:
        """List the databases."""
        return pb.ListDatabasesResponse(database_name=self._catalog.databases())

    def database_exists(self, request: pb.DatabaseExistsRequest, /) -> pb.DatabaseExistsResponse:
        """Return whether a database exists."""
        return pb.DatabaseExistsResponse(exists=self._catalog.has_database(request.database_name))

    # -- tables ------------------------------------------------------------------------------------------------------

    def create_table(self, request: pb.CreateTableRequest, /) -> pb.CreateTableResponse:
        """Create a table."""
        path = coordinator_messages.path_of(request.table_path)
        descriptor = coordinator_messages.descriptor_of(request.table_json)
        self._lifecycle.create_table(path, descriptor, ignore_if_exists=request.ignore_if_exists)
        self._follow_clock(path)
        return pb.CreateTableResponse()

    def alter_table(self, request: pb.AlterTableRequest, /) -> pb.AlterTableResponse:
        """Set and reset properties of a table and add columns to it."""
        values, reset = coordinator_messages.changes_of(request.config_changes)
        change = TableAlteration(values, reset, coordinator_messages.added_columns(request.add_columns))
        path = coordinator_messages.path_of(request.table_path)
        self._lifecycle.alter_table(path, change, ignore_if_not_exists=request.ignore_if_not_exists)
        self._follow_clock(path)
        return pb.AlterTableResponse()

    def _follow_clock(self, path: TablePath) -> None:
        if (info := self._catalog.find_table(path)) is not None:
            self._auto.maintain(info)

    def drop_table(self, request: pb.DropTableRequest, /) -> pb.DropTableResponse:
        """Drop a table."""
        self._lifecycle.drop_table(
            coordinator_messages.path_of(request.table_path),
            ignore_if_not_exists=request.ignore_if_not_exists,
            keep_lake=request.keep_lake,
        )
        return pb.DropTableResponse()

    def get_table_info(self, request: pb.GetTableInfoRequest, /) -> pb.GetTableInfoResponse:
        """Return a table's definition."""
        info = self._catalog.table(coordinator_messages.path_of(request.table_path))
        return pb.GetTableInfoResponse(
            table_id=info.table_id,
            schema_id=info.schema_id,
            table_json=json.dumps(info.descriptor.to_json()).encode(),
            created_time=info.created_ms,
            modified_time=info.modified_ms,
        )

    def get_table_schema(self, request: pb.GetTableSchemaRequest, /) -> pb.GetTableSchemaResponse:
        """Return a schema of a table: the current one, or one by its id."""
        info = self._catalog.table(coordinator_messages.path_of(request.table_path))
        schema_id = request.schema_id if request.HasField("schema_id") else info.schema_id
        if (schema := self._catalog.schema(info.table_id, schema_id)) is None:
            raise InvalidSchemaError(
                f"table {info.path} has no schema {schema_id}; the current one is {info.schema_id}"
            )
        return pb.GetTableSchemaResponse(schema_id=schema_id, schema_json=json.dumps(schema.to_json()).encode())

    def list_tables(self, request: pb.ListTablesRequest, /) -> pb.ListTablesResponse:
        """List the tables of a database."""
        return pb.ListTablesResponse(table_name=self._catalog.tables(request.database_name))

    def table_exists(self, request: pb.TableExistsRequest, /) -> pb.TableExistsResponse:
        """Return whether a table exists."""
        return pb.TableExistsResponse(
            exists=self._catalog.find_table(coordinator_messages.path_of(request.table_path)) is not None
        )

    # -- partitions --------------------------------------------------------------------------------------------------

    def create_partition(self, request: pb.CreatePartitionRequest, /) -> pb.CreatePartitionResponse:
        """Create partitions. The request's ``ignore_if_not_exists`` means, as in Fluss, "ignore if it exists"."""
        specs = [coordinator_messages.spec_of(each) for each in (request.partition_spec, *request.more_partition_specs)]
        path = coordinator_messages.path_of(request.table_path)
        self._partitions.create(path, specs, ignore_if_exists=request.ignore_if_not_exists)
        return pb.CreatePartitionResponse()

    def drop_partition(self, request: pb.DropPartitionRequest, /) -> pb.DropPartitionResponse:
        """Drop a partition."""
        self._partitions.drop(
            coordinator_messages.path_of(request.table_path), coordinator_messages.spec_of(request.partition_spec),
            ignore_if_not_exists=request.ignore_if_not_exists, drop_lake=request.drop_lake,
            discard_untiered=request.discard_untiered,
        )  # fmt: skip
        return pb.DropPartitionResponse()

    def list_partition_infos(self, request: pb.ListPartitionInfosRequest, /) -> pb.ListPartitionInfosResponse:
        """List the partitions of a table, by id; with a partial spec those that match it."""
        wanted = coordinator_messages.spec_of(request.partial_partition_spec)
        path = coordinator_messages.path_of(request.table_path)
        info, found = self._partitions.list_partitions(path, wanted)
        lost = self._partitions.losses_at(path, request.lost_at_time) if request.HasField("lost_at_time") else []
        drops = self._partitions.lossy_drops(info.table_id, request.lossy_drops_from, request.lossy_drops_after_time)
        return coordinator_messages.partitions_message(info, found, lost, drops)

    # -- metadata ----------------------------------------------------------------------------------------------------

    def metadata(self, request: pb.MetadataRequest, /) -> pb.MetadataResponse:
        """Return the servers, and the leaders of the buckets of the requested tables and partitions."""
        self._tablets.settle(_METADATA_WAIT_S)
        nodes = self._tablets.nodes()
        there = {node.node_id for node in nodes}
        response = pb.MetadataResponse(tablet_servers=nodes)
        if self.address is not None:
            host, port = self.address
            response.coordinator_server.CopyFrom(pb.PbServerNode(node_id=-1, host=host, port=port))
        with self.store.read():
            for path in request.table_path:
                info = self._catalog.table(coordinator_messages.path_of(path))
                leaders = self._leaders(info.table_id, NO_PARTITION)
                response.table_metadata.append(coordinator_messages.table_message(info, leaders, there))
            for physical in request.partitions_path:
                info = self._catalog.table(coordinator_messages.path_of(physical))
                found = self._catalog.find_partition(info.table_id, physical.partition_name)
                if found is None or found.dropped_ms is not None:
                    raise PartitionNotFoundError(f"table {info.path} has no partition {physical.partition_name!r}")
                self._add_partition(response, found.info.partition_id, there)
            for partition_id in request.partitions_id:
                self._add_partition(response, partition_id, there)
        return response

    def _add_partition(self, response: pb.MetadataResponse, partition_id: int, there: set[int]) -> None:
        found = self._catalog.partition_by_id(partition_id)
        response.partition_metadata.add(
            table_id=found.table_id,
            partition_name=found.info.name,
            partition_id=partition_id,
            bucket_metadata=coordinator_messages.buckets_message(found.leaders, there),
        )

    def _leaders(self, table_id: int, partition_id: int) -> tuple[int, ...]:
        found = self._catalog.bucket_groups(table_id)
        return next((each.leaders for each in found if each.partition_id == partition_id), ())

    def init_writer(self, request: pb.InitWriterRequest, /) -> pb.InitWriterResponse:
        """Return a new writer id, never returned before, and the size limit of requests."""
        for path in request.table_path:
            self._catalog.table(coordinator_messages.path_of(path))
        # With the clock: also where an older copy of the metadata was restored the logs must not know it, or rows are taken for a retry.
        number = self.store.next_quick_id("writer", max(FIRST_ID, self._clock.now_ms() * BLOCK_IDS))
        return pb.InitWriterResponse(writer_id=number, request_size_max=REQUEST_SIZE_MAX.of(self._options))

    # -- key-value snapshots -----------------------------------------------------------------------------------------

    def commit_kv_snapshot(self, request: pb.CommitKvSnapshotRequest, /) -> pb.CommitKvSnapshotResponse:
        """Register a completed snapshot of a bucket."""
        return self._kv_snapshots.commit(request)

    def get_latest_kv_snapshots(self, request: pb.GetLatestKvSnapshotsRequest, /) -> pb.GetLatestKvSnapshotsResponse:
        """Return the latest snapshot of each bucket."""
        return self._kv_snapshots.latest(request)

    def get_kv_snapshot_metadata(self, request: pb.GetKvSnapshotMetadataRequest, /) -> pb.GetKvSnapshotMetadataResponse:
        """Return the files of a snapshot."""
        return self._kv_snapshots.metadata(request)

    def get_file_system_security_token(self, _: pb.GetFileSystemSecurityTokenRequest, /) -> remote_access.Token:
        """Return how remote storage in an object store is read."""
        return remote_access.security_token(self._options)

    # -- the lake ----------------------------------------------------------------------------------------------------

    def get_lake_snapshot(self, request: pb.GetLakeSnapshotRequest, /) -> pb.GetLakeSnapshotResponse:
        """Return the tiered offset of each bucket in the latest lake snapshot, or in one by its id."""
        with self.store.read():
            info = self._catalog.table(coordinator_messages.path_of(request.table_path))
            wanted = request.snapshot_id if request.HasField("snapshot_id") else None
            snapshot = self.ledger.require(info.table_id, info.path, wanted)
            names = {**self.ledger.partitions_gone(info.table_id), **self._partition_names(info)}
            return coordinator_messages.snapshot_message(info.table_id, snapshot, names)

    def _partition_names(self, info: TableInfo) -> dict[int, str]:
        if not info.descriptor.partitioned_by:
            return {}
        partitions = self._catalog.partitions(info.table_id, dropped=True)
        return {each.info.partition_id: each.info.name for each in partitions}

    def commit_lake_table_snapshot(
        self, request: pb.CommitLakeTableSnapshotRequest, /
    ) -> pb.CommitLakeTableSnapshotResponse:
        """Register committed lake snapshots, each table by itself; only from the holder of the table's newest epoch."""
        response = pb.CommitLakeTableSnapshotResponse()
        for table in request.tables_req:
            answer = response.table_resp.add(table_id=table.table_id)
            try:
                self._commit_snapshot(table)
            except FlussError as error:
                failure = coordinator_messages.error_message(error)
                answer.error_code, answer.error_message = failure.error_code, failure.error_message
        return response

    def _commit_snapshot(self, message: pb.PbLakeTableSnapshotInfo) -> None:
        if not message.HasField("tiering_epoch") or not message.HasField("coordinator_epoch"):
            raise InvalidRequestError(
                f"commit of lake snapshot {message.snapshot_id}: tiering_epoch and coordinator_epoch are missing; request "
                "the table by a heartbeat first"
            )
        failpoint("coordinator.lake_commit.before")
        with self._tiering.hold_for_commit(message.table_id, message.coordinator_epoch, message.tiering_epoch):
            info = self._catalog.table_by_id(message.table_id)
            gone = self.ledger.partitions_gone(info.table_id)
            offsets, starts = coordinator_messages.committed_offsets(info, message, self._partition_names(info), gone)
            now_ms = self._clock.now_ms()
            if message.repair:
                self.ledger.repair(info.table_id, message.snapshot_id, offsets, now_ms)
            else:
                self.ledger.commit(info.table_id, message.snapshot_id, offsets, now_ms, starts=starts)
        event = "lake_repaired" if message.repair else "lake_committed"
        log.info("event=%s table=%s snapshot=%d", event, info.path, message.snapshot_id)
        self._tablets.note_offsets(info.table_id)
        failpoint("coordinator.lake_commit.after")
        self._tablets.settle()
        if self._auto.kept_partitions(info.table_id):
            self._ticker.soon()

    def lake_tiering_heartbeat(self, request: pb.LakeTieringHeartbeatRequest, /) -> pb.LakeTieringHeartbeatResponse:
        """Process a tierer's reports on its tables, and grant one: see `tierer_heartbeats`."""
        return answer_heartbeat(request, self._tiering, self._sessions, self.epoch)

    def list_tiering_rounds(self, request: pb.ListTieringRoundsRequest, /) -> pb.ListTieringRoundsResponse:
        """Return the last rounds of a table."""
        with self.store.read():
            info = self._catalog.table(coordinator_messages.path_of(request.table_path))
            return pb.ListTieringRoundsResponse(table_id=info.table_id, rounds=self._tiering.rounds(info.table_id))

    # -- the cluster -------------------------------------------------------------------------------------------------

    def register_tablet_server(self, request: pb.RegisterTabletServerRequest, /) -> pb.RegisterTabletServerResponse:
        """Note a tablet server, and tell it what it holds: see `TabletServers.register`."""
        if not 0 < request.port < 65536 or not request.host:
            raise InvalidRequestError(f"address {request.host!r}:{request.port}: expected a host and a port")
        if not 0 <= request.server_id < self.tablet_servers:
            raise InvalidRequestError(f"tablet server {request.server_id}: expected one in [0, {self.tablet_servers})")
        process_id = request.process_id if request.HasField("process_id") else None
        if self.members is not None and not self.members.admits(request.server_id, process_id):
            raise ConflictError(
                f"tablet server {request.server_id}, process {process_id}: this coordinator started another one; end it"
            )
        if request.heartbeat:
            if self.members is not None:
                self.members.heard(request.server_id)
            return pb.RegisterTabletServerResponse(coordinator_epoch=self.epoch)
        response = self._tablets.register(request)
        if (owner := self.store.meta(REMOTE_OWNER_KEY)) is not None:
            response.remote_owner = owner
        if request.HasField("metrics_port"):
            self.metrics_ports[request.server_id] = request.metrics_port
        self._ticker.soon()
        return response

    def report_buckets(self, request: pb.ReportBucketsRequest, /) -> pb.ReportBucketsResponse:
        """Note the durable offsets of buckets."""
        self._durables.report(request, self.epoch)
        return pb.ReportBucketsResponse()

    def attach(self, request: pb.AttachRequest, closed: threading.Event, /) -> Iterator[pb.AttachResponse]:
        """Hold a session open."""
        return self._sessions.attach(request.client_name, closed)

    def describe_cluster(self, _request: pb.DescribeClusterRequest, /) -> pb.DescribeClusterResponse:
        """Return the state of the cluster and of its tables' tiering."""
        return pb.DescribeClusterResponse(
            coordinator_epoch=self.epoch,
            tablet_servers=self._tablets.nodes(),
            attached=len(self._sessions),
            ephemeral=self._ephemeral,
            started_time=self._started_ms,
            options=remote_access.described_options(self._options),
            tablet_server_status=(
                self.members.status() if self.members else registered_status(self.tablet_servers, self._tablets.nodes())
            ),
            tiering_states=[
                coordinator_messages.tiering_message(table, due_ms) for table, due_ms in self._tiering.schedule()
            ],
            kept_partitions=[coordinator_messages.kept_message(each) for each in self._auto.kept_partitions()],
            metrics_pages=coordinator_messages.metrics_pages(self.metrics_ports),
            folder_trouble=self.store.reserve.folder_trouble,
            write_trouble=self.store.reserve.write_trouble,
        )

    def metrics(self) -> Iterator[Family]:
        """Yield the metrics of the cluster and of tiering."""
        yield from coordinator_gauges.cluster_families(
            self._catalog, self._tablets.nodes(), attached=len(self._sessions)
        )
        now_ms = self._clock.now_ms()
        yield from coordinator_gauges.kept_families(self._auto.kept_partitions(), now_ms)
        yield from coordinator_gauges.tiering_families(self._tiering.states(), self._tiering.stats, now_ms)

    def stop_cluster(self, request: pb.StopClusterRequest, /) -> pb.StopClusterResponse:
        """Begin a graceful stop, unless sessions other than the given ones need the cluster."""
        if request.only_attached and not (self._ephemeral and self._sessions.end_if_only(request.only_attached)):
            return pb.StopClusterResponse(stopping=False)
        log.info("event=stop_requested")
        self._stop()
        return pb.StopClusterResponse(stopping=True)
