"""Telling tablet servers what they hold. What one could not be told stays noted, and is told again later."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from fluss_lab.errors import (
    ConflictError,
    FlussError,
    NotLeaderError,
    ServerUnavailableError,
    error_from_code,
)
from fluss_lab.model import TableInfo
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.channel import Channel
from fluss_lab.server.coordinator import messages
from fluss_lab.server.coordinator.assignment import leaders_for, load_of
from fluss_lab.server.coordinator.catalog import LEADER_EPOCH, NO_PARTITION, BucketGroup, Catalog
from fluss_lab.server.coordinator.durable_offsets import DurableOffsets, partition_key
from fluss_lab.server.coordinator.lab_identity import LabIdentity
from fluss_lab.server.coordinator.lakes import LakeLedger, TieredOffset, TieredSnapshot
from fluss_lab.server.coordinator.teller import Teller

log = logging.getLogger(__name__)

#: Whoever made a change waits so long until the servers have heard of it; a server that hangs hears later.
SETTLE_WAIT_S: Final = 10.0
#: How long `close` waits for a call to a server; the metadata is closed after that.
_CLOSE_WAIT_S: Final = 5.0
#: Each request to a tablet server stays well below its limit for requests (32 MB by default, 64 kB at least).
REQUEST_BYTES_MAX: Final = 48 * 1024

M = TypeVar(
    "M", pb.PbNotifyLeaderAndIsrReqForBucket, pb.PbNotifyLakeTableOffsetReqForBucket, pb.PbStopReplicaReqForBucket
)


class TabletServers:
    """The tablet servers that have registered, and what each has still to be told.

    Args:
        catalog: Which buckets there are.
        ledger: How far they are tiered.
        durables: How far their logs were on the device.
        count: How many servers belong to the cluster, with ids from 0.
        coordinator_epoch: Told with everything.
        connect: Opens a connection to a host and port.
    """

    def __init__(
        self,
        catalog: Catalog,
        ledger: LakeLedger,
        durables: DurableOffsets,
        *,
        identity: LabIdentity,
        count: int,
        coordinator_epoch: int,
        connect: Callable[[str, int], Channel],
    ) -> None:
        self._catalog = catalog
        self._ledger = ledger
        self._durables = durables
        self._identity = identity
        self._count = count
        self._coordinator_epoch = coordinator_epoch
        self._connect = connect
        self._lock = threading.Lock()
        self._nodes: dict[int, pb.PbServerNode] = {}
        self._channels: dict[int, Channel] = {}
        self._untold: dict[tuple[str, int], None] = {}
        self._stops = bool(catalog.pending_stops())
        self._opening: set[int] = set()
        self._teller = Teller(self._tell_all)

    # -- who is there ------------------------------------------------------------------------------------------------

    def register(self, request: pb.RegisterTabletServerRequest) -> pb.RegisterTabletServerResponse:
        """Note where a server listens, and return everything that it holds.

        One that has to open its buckets first says so, and registers again when it has: until then clients do not see it,
        and what changes meanwhile is told to it afterwards.

        Raises:
            ConflictError: It has opened what an earlier coordinator told it.
        """
        server_id = request.server_id
        if request.HasField("opened_epoch"):
            return self._listed(request)
        with self._lock:
            old = self._forget(server_id)
            if request.opening:
                self._opening.add(server_id)
            else:
                self._list(request)
        if old is not None:
            old.close()
        response = pb.RegisterTabletServerResponse(coordinator_epoch=self._coordinator_epoch)
        for info in self._catalog.all_tables():
            response.buckets.extend(self._buckets(info, server_id))
            response.lake_offsets.extend(self._lake_offsets(info.table_id, server_id))
        return response

    def _listed(self, request: pb.RegisterTabletServerRequest) -> pb.RegisterTabletServerResponse:
        with self._lock:
            if request.opened_epoch != self._coordinator_epoch or request.server_id not in self._opening:
                raise ConflictError(
                    f"tablet server {request.server_id} has opened what epoch {request.opened_epoch} told it; this is epoch "
                    f"{self._coordinator_epoch}: register anew"
                )
            self._opening.discard(request.server_id)
            self._list(request)
        self.settle(0)
        return pb.RegisterTabletServerResponse(coordinator_epoch=self._coordinator_epoch)

    def _list(self, request: pb.RegisterTabletServerRequest) -> None:
        self._nodes[request.server_id] = pb.PbServerNode(
            node_id=request.server_id, host=request.host, port=request.port
        )
        # What was dropped while it was away.
        self._stops = True
        log.info("event=registered server=%d address=%s:%d", request.server_id, request.host, request.port)

    def _forget(self, server_id: int) -> Channel | None:
        """Take a server off the list; return the connection to be closed."""
        self._opening.discard(server_id)
        if self._nodes.pop(server_id, None) is not None:
            log.info("event=unregistered server=%d", server_id)
        return self._channels.pop(server_id, None)

    def lost(self, server_id: int) -> None:
        """Note that a server has gone; its buckets have no leader until it registers again."""
        with self._lock:
            old = self._forget(server_id)
        if old is not None:
            old.close()

    def nodes(self) -> list[pb.PbServerNode]:
        """Return the servers that have registered, by id."""
        with self._lock:
            return [self._nodes[server_id] for server_id in sorted(self._nodes)]

    def ids(self) -> list[int]:
        """Return the ids of the servers that have registered."""
        with self._lock:
            return sorted(self._nodes)

    def assign(self, buckets: int) -> tuple[int, ...]:
        """Return a server for each bucket of a new table or partition, whether it is there at the moment or not.

        Raises:
            ServerUnavailableError: None has registered yet.
        """
        with self._lock:
            there = {*self._nodes, *self._opening}
        if not there:
            raise ServerUnavailableError("no tablet server has registered yet; try again in a moment")
        return leaders_for(sorted({*range(self._count), *there}), buckets, load_of(self._catalog.bucket_groups()))

    def close(self) -> None:
        """Tell no more, and close the connections."""
        self._teller.close()
        self._close_channels()
        self._teller.join(_CLOSE_WAIT_S)
        self._close_channels()

    def _close_channels(self) -> None:
        with self._lock:
            channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            channel.close()

    # -- what they must hear -----------------------------------------------------------------------------------------

    def note_table(self, table_id: int) -> None:
        """Note that the servers of a table's buckets must hear its present definition; `settle` tells them."""
        with self._lock:
            self._untold["buckets", table_id] = None

    def note_offsets(self, table_id: int) -> None:
        """Note that the servers of a table's buckets must hear how far they are tiered."""
        with self._lock:
            self._untold["lake", table_id] = None

    def note_drop(self) -> None:
        """Note that servers must let go of the buckets that the catalog has as dropped."""
        with self._lock:
            self._stops = True

    def settle(self, wait_s: float = SETTLE_WAIT_S) -> None:
        """Have what has not been told yet told; failures are logged and tried again by and by.

        Args:
            wait_s: Longest wait until every server that answers has heard.
        """
        if self._untold or self._stops:
            self._teller.ask(wait_s)

    def _tell_all(self) -> bool:
        with self._lock:
            untold, self._untold = list(self._untold), {}
            stops, self._stops = self._stops, False
        again = [item for item in untold if not self._told(*item)]
        unstopped = [group for group in self._catalog.pending_stops() if not self._stopped(group)] if stops else []
        with self._lock:
            self._untold = {**dict.fromkeys(again), **self._untold}
            self._stops = self._stops or bool(unstopped)
            return not self._untold and not self._stops

    def _told(self, what: str, table_id: int) -> bool:
        try:
            info = self._catalog.table_by_id(table_id)
        except FlussError:
            return True  # dropped meanwhile
        deaf = [server_id for server_id in self._servers_of(table_id) if not self._tell(server_id, what, info)]
        return not deaf

    def _tell(self, server_id: int, what: str, info: TableInfo) -> bool:
        """Return whether the server heard, and could do as told or never will."""
        with self._lock:
            if server_id not in self._nodes:
                # One that is away gets everything when it registers; one that is opening its buckets has to hear this.
                return server_id not in self._opening
        try:
            server = self._channel(server_id).tablet_server()
            if what == "lake":
                for offsets in _chunks(self._lake_offsets(info.table_id, server_id)):
                    server.notify_lake_table_offset(
                        pb.NotifyLakeTableOffsetRequest(
                            coordinator_epoch=self._coordinator_epoch, notify_buckets_req=offsets
                        )
                    )
                return True
            responses = [
                server.notify_leader_and_isr(
                    pb.NotifyLeaderAndIsrRequest(
                        coordinator_epoch=self._coordinator_epoch, notify_buckets_leader_req=buckets
                    )
                )
                for buckets in _chunks(self._buckets(info, server_id))
            ]
            answers = [each for response in responses for each in response.notify_buckets_leader_resp]
            opened = [each.table_bucket for each in answers if not each.HasField("error_code")]
            self._durables.note_opened(info.table_id, [(partition_key(each), each.bucket_id) for each in opened])
            return not [each for each in answers if not _is_done(each)]
        except FlussError as error:
            log.warning("event=not_told what=%s table=%s server=%d error=%s", what, info.path, server_id, error)
            return False

    def _stopped(self, group: BucketGroup) -> bool:
        """Return whether no server that is there has still to let go of dropped buckets."""
        with self._lock:
            there = sorted(set(group.leaders) & self._nodes.keys())
        try:
            for server_id in there:
                stops = [
                    pb.PbStopReplicaReqForBucket(
                        table_bucket=_bucket(group, bucket), leader_epoch=LEADER_EPOCH, delete=True
                    )
                    for bucket, leader in enumerate(group.leaders)
                    if leader == server_id
                ]
                server = self._channel(server_id).tablet_server()
                for chunk in _chunks(stops):
                    response = server.stop_replica(
                        pb.StopReplicaRequest(coordinator_epoch=self._coordinator_epoch, stop_replicas_req=chunk)
                    )
                    if [each for each in response.stop_replicas_resp if not _is_done(each)]:
                        return False
        except FlussError as error:
            log.warning("event=not_stopped table=%d partition=%d error=%s", group.table_id, group.partition_id, error)
            return False
        if len(there) == len(set(group.leaders)):
            self._catalog.forget_stop(group)
        return True  # those that are away hear when they have registered

    # -- inside ------------------------------------------------------------------------------------------------------

    def _channel(self, server_id: int) -> Channel:
        with self._lock:
            if (channel := self._channels.get(server_id)) is None:
                if (node := self._nodes.get(server_id)) is None:
                    raise NotLeaderError(f"tablet server {server_id} is away")
                self._channels[server_id] = channel = self._connect(node.host, node.port)
            return channel

    def _servers_of(self, table_id: int) -> list[int]:
        return sorted({leader for group in self._catalog.bucket_groups(table_id) for leader in group.leaders})

    def _buckets(self, info: TableInfo, server_id: int) -> list[pb.PbNotifyLeaderAndIsrReqForBucket]:
        """Return what a server must hold of a table; the first message of them brings its definition and schemas."""
        names = {p.info.partition_id: p.info.name for p in self._catalog.partitions(info.table_id)}
        durable_offsets = self._durables.of_table(info.table_id)
        times = self._catalog.partition_times(info.table_id)
        found = []
        for group in self._catalog.bucket_groups(info.table_id):
            path = pb.PbPhysicalTablePath(database_name=info.path.database, table_name=info.path.table)
            if group.partition_id != NO_PARTITION:
                if group.partition_id not in names:
                    continue  # dropped between the two queries
                path.partition_name = names[group.partition_id]
            found += [
                pb.PbNotifyLeaderAndIsrReqForBucket(
                    physical_table_path=path,
                    table_bucket=_bucket(group, bucket),
                    leader=leader,
                    leader_epoch=LEADER_EPOCH,
                    table_json=b"",
                    schema_id=info.schema_id,
                    durable_offset=durable_offsets.get((group.partition_id, bucket)),
                    identity=self._identity.of_bucket(
                        info.table_id, info.created_ms, group.partition_id, times.get(group.partition_id, 0), bucket
                    ),
                    adopt_unmarked=not self._identity.is_marked(info.table_id, group.partition_id),
                )
                for bucket, leader in enumerate(group.leaders)
                if leader == server_id
            ]
        if found:
            found[0].table_json = json.dumps(info.descriptor.to_json()).encode()
            schemas = self._catalog.schemas(info.table_id)
            found[0].schemas.extend(messages.schema_message(number, schema) for number, schema in schemas.items())
        return found

    def _lake_offsets(self, table_id: int, server_id: int) -> list[pb.PbNotifyLakeTableOffsetReqForBucket]:
        if (snapshot := self._ledger.snapshot(table_id)) is None:
            return []
        found = []
        for group in self._catalog.bucket_groups(table_id):
            for bucket, leader in enumerate(group.leaders):
                if leader == server_id:
                    # Without an offset too: after a repair the lake may hold nothing of a bucket any more.
                    offset = snapshot.offsets.get((group.partition_id, bucket))
                    found.append(_lake_offset(group, bucket, snapshot, offset))
        return found


def _bucket(group: BucketGroup, bucket: int) -> pb.PbTableBucket:
    found = pb.PbTableBucket(table_id=group.table_id, bucket_id=bucket)
    if group.partition_id != NO_PARTITION:
        found.partition_id = group.partition_id
    return found


def _lake_offset(
    group: BucketGroup, bucket: int, snapshot: TieredSnapshot, offset: TieredOffset | None
) -> pb.PbNotifyLakeTableOffsetReqForBucket:
    found = pb.PbNotifyLakeTableOffsetReqForBucket(
        table_id=group.table_id, bucket_id=bucket, snapshot_id=snapshot.snapshot_id, commit_sequence=snapshot.sequence
    )
    if group.partition_id != NO_PARTITION:
        found.partition_id = group.partition_id
    if offset is None:
        return found
    found.log_end_offset, found.log_max_timestamp = offset.end, offset.max_timestamp_ms
    if offset.start is not None:
        found.log_start_offset = offset.start
    return found


def _chunks(parts: Sequence[M]) -> Iterator[list[M]]:
    """Yield the messages in lists that fit a request; one that is larger stands alone."""
    chunk: list[M] = []
    size = 0
    for message in parts:
        length = message.ByteSize()
        if chunk and size + length > REQUEST_BYTES_MAX:
            yield chunk
            chunk, size = [], 0
        chunk.append(message)
        size += length
    if chunk:
        yield chunk


def _is_done(answer: pb.PbNotifyLeaderAndIsrRespForBucket | pb.PbStopReplicaRespForBucket) -> bool:
    """Tell whether a bucket need not be told again: it did as told, or its server goes on trying to open it by itself."""
    if not answer.HasField("error_code"):
        return True
    error = error_from_code(answer.error_code, answer.error_message)
    bucket = answer.table_bucket
    log.warning("event=bucket_refused table=%d bucket=%d error=%s", bucket.table_id, bucket.bucket_id, error)
    return isinstance(answer, pb.PbNotifyLeaderAndIsrRespForBucket)
